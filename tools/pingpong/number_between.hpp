// The range of an option that is a real number.
#pragma once

#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdlib>
#include <string>

namespace pingpong {

/// From `least` to `most`. CLI::Range alone takes "nan", which is neither below nor above any number.
[[nodiscard]] inline CLI::Validator number_between(double least, double most) {
    const CLI::Range range(least, most);
    const auto check = [range](std::string& text) {
        std::string wrong = range(text);
        if (wrong.empty() && std::isnan(std::strtod(text.c_str(), nullptr)))
            wrong = "Value " + text + " is not a number";
        return wrong;
    };
    return CLI::Validator(check, range.get_description());
}

}  // namespace pingpong

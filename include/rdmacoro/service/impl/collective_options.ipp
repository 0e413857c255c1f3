// Bodies of collective_options.hpp.
#pragma once

#include <rdmacoro/service/collective_options.hpp>

#include <string>

namespace rdmacoro::detail {

RDMACORO_COLD std::string unknown_algorithm_text(collective_kind kind, std::string_view name) {
    std::string text =
        std::string(name_of(kind)) + " has no algorithm \"" + std::string(name) + "\"; it has ";
    const char* between = "";
    for (const algorithm& one : algorithms_of(kind)) {
        text += between + std::string(one.name);
        between = ", ";
    }
    return text;
}

}  // namespace rdmacoro::detail

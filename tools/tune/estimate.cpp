#include "estimate.hpp"

#include <algorithm>
#include <utility>

namespace tune {

double quarter_of(std::vector<double> values) {
    const auto quarter = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
    std::nth_element(values.begin(), quarter, values.end());
    return *quarter;
}

double further_message(std::vector<double> several, std::vector<double> one, std::size_t messages) {
    return (quarter_of(std::move(several)) - quarter_of(std::move(one))) / static_cast<double>(messages - 1);
}

}  // namespace tune

// Bodies of collective_options.hpp.
#pragma once

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/service/collective_options.hpp>

#include <string>

namespace rdmacoro::detail {

RDMACORO_COLD std::span<const algorithm> algorithms_named(collective_kind kind, std::string_view name) {
    if (const algorithm* const found = find_algorithm(kind, name)) return {found, 1};
    std::string text =
        "group: " + std::string(name_of(kind)) + " has no algorithm \"" + std::string(name) + "\"; it has ";
    const char* between = "";
    for (const algorithm& one : algorithms_of(kind)) {
        text += between + std::string(one.name);
        between = ", ";
    }
    throw error(errc::invalid_argument, text);
}

}  // namespace rdmacoro::detail

// The common part of the tests of `describe`.
#pragma once

#include "conformance/conformance.hpp"

#include <rdmacoro/coro/describe.hpp>

#include <string>
#include <vector>

namespace rdmacoro::test {

constexpr std::size_t long_bytes = std::size_t{2} << 20;

/// The described operations of that kind and tag; the tag counts where there is one.
inline std::vector<pending_operation> found(const description& all, const std::string& what, tag_type tag) {
    std::vector<pending_operation> some;
    for (const pending_operation& one : all.operations()) {
        if (one.what == what && (!one.tagged || one.tag == tag)) some.push_back(one);
    }
    return some;
}
inline std::vector<pending_operation> found(two_domains& w, const std::string& what, tag_type tag = 0) {
    return found(w.on().describe(), what, tag);
}

/// Lets everything come that can come while nobody acts.
inline task<> settle() {
    using namespace std::chrono_literals;
    for (int n = 0; n < 300; ++n) co_await yield();
    co_await sleep_for(2ms);
    for (int n = 0; n < 300; ++n) co_await yield();
}

}  // namespace rdmacoro::test

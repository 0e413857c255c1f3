// The outcome of an answer that was received in place.
#pragma once

#include <rdmacoro/service/detail/answer_in_place.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>

#include <algorithm>
#include <cstring>

namespace rdmacoro::detail {

RDMACORO_DECL std::size_t answer_in_place::length(const method_facts& of, std::size_t bytes) const {
    if (bytes < first_.size()) throw_malformed_answer(of, "an answer without a head");
    answer_head head{};
    std::memcpy(&head, first_.data(), sizeof head);
    const std::size_t rest = bytes - first_.size();
    if (head.outcome != static_cast<std::uint32_t>(outcome_kind::value)) {
        std::array<std::byte, sizeof head + longest_error_text> text;
        const std::size_t said = std::min(rest, longest_error_text);
        const std::size_t here = std::min(said, place_.size());
        std::ranges::copy(first_, text.begin());
        std::ranges::copy(place_.first(here), text.begin() + sizeof head);
        std::ranges::copy(std::span(rest_).first(said - here),
                          text.begin() + static_cast<std::ptrdiff_t>(sizeof head + here));
        throw_answer(of, std::span(text).first(sizeof head + said));
    }
    if (rest > place_.size())
        throw_call_failure(of, make_error_code(errc::truncated), {.info = rest, .bytes = place_.size()});
    return rest;
}

}  // namespace rdmacoro::detail

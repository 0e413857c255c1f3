// run_collective: a collective from its call to its end.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/collective.hpp>
#include <rdmacoro/service/collectives.hpp>
#include <rdmacoro/service/detail/group_elements.hpp>

#include <cstdint>
#include <string_view>

namespace rdmacoro::detail {

template <class Element, class Op>
[[nodiscard]] consteval auto text_of_types() noexcept {
    const std::string_view all = __PRETTY_FUNCTION__;
    return all.substr(all.find("Element = "));
}
template <class Element, class Op>
[[nodiscard]] consteval element_types make_element_types() noexcept {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : text_of_types<Element, Op>()) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3u;
    }
    return {hash, text_of_types<Element, Op>()};
}
template <class Element, class Op>
inline constexpr element_types types_of = make_element_types<Element, Op>();

/// This rank's part of a collective of the group.
[[nodiscard]] task<> run_collective(const counted_ptr<group_state>& of, const collective_call& call);
/// The same where the caller's elements lie in blocks: the algorithm runs in memory of its own, from which and into which they are copied.
[[nodiscard]] task<> run_strided(const counted_ptr<group_state>& of, const collective_call& call,
                                 const call_strides& strides);

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/run_collective.ipp>
#endif

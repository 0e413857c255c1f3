#pragma once

// The lists of the suite over one transport.

#include "support/over/transport_of.hpp"

#include <stdexcept>

namespace rdmacoro::test::erased {

/// Over a link that matches by itself the suite runs with that, and its policies are not run.
template <class T>
list_face<T> list_of(list_name which) {
    switch (which) {
        case list_name::standard: return list_over<T, default_protocols<T>>();
        case list_name::eager_and_pieces: return list_over<T, lists::eager_and_pieces>();
        case list_name::shorter_eager:
            return {nullptr, connect_in_vain<T, lists::shorter_eager>, facts_of_list<lists::shorter_eager>};
        case list_name::pieces_only:
            return {nullptr, connect_in_vain<T, lists::pieces_only>, facts_of_list<lists::pieces_only>};
        default: break;
    }
    if constexpr (!default_protocols<T>::delegates) {
        switch (which) {
            case list_name::get: return list_over<T, lists::get>();
            case list_name::put: return list_over<T, lists::put>();
            case list_name::by_size: return list_over<T, lists::by_size>();
            case list_name::cooperative: return list_over<T, lists::cooperative>();
            case list_name::reuse_aware: return list_over<T, lists::reuse_aware>();
            case list_name::speculative_get: return list_over<T, lists::speculative_get>();
            case list_name::staged: return list_over<T, lists::staged>();
            case list_name::staged_short: return list_over<T, lists::staged_short>();
            case list_name::eager_and_put: return list_over<T, lists::eager_and_put>();
            case list_name::speculative_put: return list_over<T, lists::speculative_put>();
            case list_name::eager_and_cooperative: return list_over<T, lists::eager_and_cooperative>();
            default: break;
        }
    }
    throw std::logic_error("a list that is not compiled over this transport");
}

}  // namespace rdmacoro::test::erased

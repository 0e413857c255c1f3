#pragma once

// For tests of the engine of rendezvous policies: lists of one policy, and what their tests share.

#include <rdmacoro/protocol/get_rendezvous.hpp>
#include <rdmacoro/protocol/put_rendezvous.hpp>

#include "support/rendezvous.hpp"

namespace rdmacoro::test::rendezvous {

using get_list = protocols<get_rendezvous<>>;
using put_list = protocols<put_rendezvous<>>;
using get_peer = basic_scripted_peer<get_list>;
using put_peer = basic_scripted_peer<put_list>;
template <class List>
using send_of = started<send_operation<typename endpoint<loopback, List>::connection_type>>;
template <class List>
using receive_of = started<receive_operation<typename endpoint<loopback, List>::connection_type>>;

inline std::vector<std::byte> filled(std::size_t bytes, int value) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}

}  // namespace rdmacoro::test::rendezvous

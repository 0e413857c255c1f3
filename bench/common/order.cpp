#include "order.hpp"

namespace bench {

rc::task<> blocking_receive(peer& from, std::span<std::byte> into, arrival_order order) {
    if (order == arrival_order::sender_first) {
        co_await send_go(from);
        co_await from.probe(data_tag);
        pending receiving = pending::recv(from, into, data_tag);
        check_length(co_await receiving, into.size());
    } else {
        pending receiving = pending::recv(from, into, data_tag);
        co_await send_go(from);
        check_length(co_await receiving, into.size());
    }
}

rc::task<> blocking_send(peer& to, std::span<const std::byte> from, arrival_order order) {
    co_await receive_go(to);
    pending sending = pending::send(to, from, data_tag);
    if (order == arrival_order::sender_first) co_await send_go(to);
    co_await sending;
}

}  // namespace bench

// node_record_over: a connection to another node, with the type of its transport.
#pragma once

#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/service/detail/node_core.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace rdmacoro::detail {

/// The domain for that URL: the one that was given, or the scheduler's own, of several devices that which has the address.
template <transport T>
[[nodiscard, gnu::cold]] task<typename T::domain*> domain_at(scheduler& here, typename T::domain* given,
                                                             std::string_view url) {
    if (given != nullptr) co_return given;
    if constexpr (chooses_domain<T>) {
        co_return co_await T::domain_for(here, url);
    } else {
        co_return &here.template service<typename T::domain>();
    }
}

/// A connection over `T`.
template <class T>
class node_record_over final : public node_record {
public:
    /// `within`: the domain of `made`.
    node_record_over(node_peer& to, unsigned by, generation life, std::uint64_t attempts, endpoint<T>&& made,
                     typename T::domain& within)
        : node_record(to, by, life, attempts), in(&within), end(std::move(made)) {
        link = &end.connection();
        // Posted before every receive of the user's: none of those takes it.
        word.emplace(end.recv(std::span<std::byte>(&said, 1), last_word_tag));
    }
    region register_memory(std::span<std::byte> memory, access_rights rights) override {
        return in->register_memory(memory, rights);
    }

    typename T::domain* in;
    endpoint<T> end;
    std::byte said{};
    std::optional<started<receive_operation<typename endpoint<T>::connection_type>>>
        word;  // that it will close
};

}  // namespace rdmacoro::detail

// node_record_over: a connection to another node, with the type of its transport.
#pragma once

#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/service/detail/node_core.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace rdmacoro::detail {

/// A connection over `T`.
template <class T>
class node_record_over final : public node_record {
public:
    node_record_over(node_peer& to, unsigned by, generation life, std::uint64_t attempts, endpoint<T>&& made)
        : node_record(to, by, life, attempts), end(std::move(made)) {
        link = &end.connection();
        // Posted before every receive of the user's: none of those takes it.
        word.emplace(end.recv(std::span<std::byte>(&said, 1), last_word_tag));
    }
    void abort() noexcept override { end.abort(); }

    endpoint<T> end;
    std::byte said{};
    std::optional<started<receive_operation<typename endpoint<T>::connection_type>>>
        word;  // that it will close
};

/// Gives a place among the connections back, unless a connection has it.
class node_place {
public:
    explicit node_place(node_core& of) noexcept : of_(&of) {}
    node_place(node_place&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    node_place& operator=(node_place&&) = delete;
    ~node_place() {
        if (of_ != nullptr) of_->give_place();
    }
    /// A connection has it from now on.
    void taken() noexcept { of_ = nullptr; }

private:
    node_core* of_;
};

}  // namespace rdmacoro::detail

// One call to several nodes: the operation of `node_calls::call_all` and `cast_all`, and what it ends with.
#pragma once

#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/node_card.hpp>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace rdmacoro {

/// The end of a call to one of several nodes.
template <class R>
struct node_outcome {
    node_id id;       ///< of the node
    result<R> ended;  ///< with the method's result, or why not
    std::string why;  ///< of an error: its text, with the node, its generation and the method
};

namespace detail {
/// The encoding of arguments, which is written into many messages: what is long is borrowed from where the arguments have it.
struct encoded_arguments {
    std::span<const std::span<const std::byte>> pieces;

    // As `call_arguments`.
    using type = std::tuple<const encoded_arguments&>;
    static constexpr bool fixed = false;
};
}  // namespace detail

/// Internal: how these travel.
template <>
struct codec<detail::encoded_arguments> {
    static constexpr std::string_view name = "encoded arguments";  ///< never part of a signature
    /// Appends them.
    static void write(encoder& to, const detail::encoded_arguments& value) {
        for (const std::span<const std::byte> one : value.pieces) to.row(one);
    }
    /// The peer reads them as what they are.
    static bool read(decoder& from, detail::encoded_arguments&) {
        return from.refuse("arguments of no type");
    }
};

/// The operation of `node_calls::call_all` and `cast_all`. Described at `node_calls::call_all`.
template <class R, class Make>
class [[nodiscard]] several_nodes_operation {
public:
    using value_type = std::vector<node_outcome<R>>;

    explicit several_nodes_operation(Make&& make) : make_(std::move(make)) {}
    several_nodes_operation(several_nodes_operation&& other) noexcept(
        std::is_nothrow_move_constructible_v<Make>)
        : make_(std::move(other.make_)), limit_(other.limit_) {}  // only before it is awaited

    /// For `timeout`: each of the calls has so much time.
    void set_limit(duration limit) noexcept { limit_ = limit; }

    void bind(const environment& env) noexcept { env_ = env; }
    /// Makes the calls; only once.
    auto operator co_await() && {
        run_ = make_(limit_);
        run_.bind(env_);
        return std::move(run_).operator co_await();
    }

private:
    Make make_;
    std::optional<duration> limit_;
    environment env_{};
    task<value_type> run_;
};

/// Each of the calls has so much time, and is told so, as by `timeout` of one: those that take longer end with `errc::timed_out`, and the
/// others with their results.
///
/// Awaitable.
/// Completes: when all calls have ended, soon after `limit` at the latest.
/// Buffers: as for the calls.
/// Concurrency: as for the calls.
/// Errors: as for the calls; one that was late has `errc::timed_out`.
/// Cancellation: as for the calls.
/// Example:
///     auto all = co_await timeout(peers.call_all(ids, kv::get, "colour"), 20ms);
template <class R, class Make>
[[nodiscard]] auto timeout(several_nodes_operation<R, Make>&& op, duration limit) {
    op.set_limit(limit);
    return std::move(op);
}

}  // namespace rdmacoro

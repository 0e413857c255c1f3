// best_stream: a stream of bytes over the best transport that a peer can be reached by, chosen when it connects.
#pragma once

#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/service/byte_stream.hpp>
#include <rdmacoro/transport/plain_stream.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace rdmacoro {

/// How `connect_best` tries.
struct best_stream_options {
    /// How long each attempt may take. The addresses of a name are tried within it, each when the one before has
    /// failed or after 250 ms.
    duration each = std::chrono::seconds(10);
    /// Of the stream.
    byte_stream_options stream{};
    /// Of its endpoint.
    mailbox_options mailbox{};
};

/// A stream over one of `Ts`, or a `plain_stream`. An operation chooses by a number that says which it is, once, and then is that stream's
/// own: no function of it is virtual. Made by `connect_best`; movable. Each operation is described at `byte_stream`, and for a peer without the
/// toolkit at `plain_stream`.
///
/// Destroying it, or assigning another stream to it, ends the link at once, whichever stream it is: operations under way end with
/// `errc::closed`. `close` first to be sure that what was written arrives.
template <transport... Ts>
class best_stream {
public:
    /// Which streams it may be.
    using held_type = std::variant<byte_stream<Ts>..., plain_stream>;

    best_stream() = default;
    /// Of a stream that is open. `why` is the text of `explain`.
    explicit best_stream(held_type open, std::string why = {})
        : held_(std::move(open)), why_(std::move(why)) {}

    /// As `byte_stream::write`.
    template <class Range>
        requires(detail::plain_range<Range> && !detail::owning_temporary<Range>)
    [[nodiscard]] task<> write(Range&& elements) {
        const std::span<const std::byte> bytes = detail::range_bytes(elements);
        return std::visit([&](auto& s) { return s.write(bytes); }, held_);
    }
    /// As `byte_stream::read_some`.
    [[nodiscard]] task<std::size_t> read_some(std::span<std::byte> into) {
        return std::visit([&](auto& s) { return s.read_some(into); }, held_);
    }
    /// As `byte_stream::read_exactly`.
    template <class Range>
        requires detail::writable_range<Range>
    [[nodiscard]] task<std::size_t> read_exactly(Range&& elements) {
        const std::span<std::byte> bytes = detail::range_bytes(elements);
        return std::visit([&](auto& s) { return s.read_exactly(bytes); }, held_);
    }
    /// As `byte_stream::flush`.
    [[nodiscard]] task<> flush() {
        return std::visit([](auto& s) { return s.flush(); }, held_);
    }
    /// As `byte_stream::shutdown`.
    [[nodiscard]] task<> shutdown() {
        return std::visit([](auto& s) { return s.shutdown(); }, held_);
    }
    /// As `byte_stream::close`.
    [[nodiscard]] task<> close() {
        return std::visit([](auto& s) { return s.close(); }, held_);
    }

    [[nodiscard]] explicit operator bool() const noexcept {
        return std::visit([](const auto& s) { return static_cast<bool>(s); }, held_);
    }
    /// As `byte_stream::at_end`.
    [[nodiscard]] bool at_end() const noexcept {
        return std::visit([](const auto& s) { return s.at_end(); }, held_);
    }
    /// The chosen address, and a line for each that was tried before it, with its error, or is of another transport.
    [[nodiscard]] const std::string& explain() const noexcept { return why_; }
    /// The chosen stream itself, for code that is compiled for each: `std::visit`.
    [[nodiscard]] held_type& held() noexcept { return held_; }

private:
    held_type held_;
    std::string why_;
};

namespace detail {

/// The attempts of one `connect_best`.
struct best_attempts {
    std::vector<std::string> urls;
    best_stream_options options;
    std::string tried;        // a line each
    std::string before_last;  // the lines before that of the last attempt
    std::string last;         // that one without its reason, which is the code's text
    std::error_code why = make_error_code(errc::address_invalid);

    RDMACORO_DECL void failed(const std::string& url, const std::system_error& how);
    /// `schemes`: those of the transports. The addresses of none of them are lines of the text.
    RDMACORO_DECL void leave_out_others(std::span<const std::string_view> schemes);
    [[noreturn]] RDMACORO_DECL void throw_failure() const;
};

[[nodiscard]] inline bool has_scheme(std::string_view url, std::string_view scheme) noexcept {
    return url.starts_with(scheme) && url.substr(scheme.size()).starts_with("://");
}

/// Tries the addresses of transport `T`, in their order.
template <transport T, class Held>
task<> try_best(best_attempts* self, std::optional<Held>* into, std::string* chosen) {
    for (const std::string& url : self->urls) {
        if (*into || !has_scheme(url, T::name)) continue;
        try {
            auto made = co_await timeout(connect<T>(url, self->options.mailbox), self->options.each);
            into->emplace(std::in_place_type<byte_stream<T>>, std::move(made), self->options.stream);
            *chosen = url;
        } catch (const std::system_error& why) {
            if (why.code() == errc::canceled) throw;
            self->failed(url, why);
        }
    }
}
/// The same for peers without the toolkit.
template <class Held>
task<> try_plain(best_attempts* self, std::optional<Held>* into, std::string* chosen) {
    for (const std::string& url : self->urls) {
        if (*into || !has_scheme(url, "socket")) continue;
        try {
            into->emplace(co_await timeout(connect_plain(url), self->options.each));
            *chosen = url;
        } catch (const std::system_error& why) {
            if (why.code() == errc::canceled) throw;
            self->failed(url, why);
        }
    }
}

template <transport... Ts>
task<best_stream<Ts...>> connect_best_of(best_attempts attempts) {
    using held_type = typename best_stream<Ts...>::held_type;
    std::optional<held_type> made;
    std::string chosen;
    static constexpr std::string_view schemes[] = {std::string_view(Ts::name)..., "socket"};
    attempts.leave_out_others(schemes);
    (co_await try_best<Ts>(&attempts, &made, &chosen), ...);
    co_await try_plain(&attempts, &made, &chosen);
    if (!made) attempts.throw_failure();
    co_return best_stream<Ts...>(*std::move(made), attempts.tried + chosen);
}

}  // namespace detail

/// Awaitable.
/// Ends with an open `best_stream<Ts...>`. `Ts` are in order of performance, the best first: `shm`, `verbs_rc`, `ofi<...>`, `tcp`. The addresses of
/// the first are tried, then those of the next, each recognized by its scheme; last those with "socket://", where the peer is a
/// plain TCP socket without this toolkit.
/// Completes: when one of them has connected; the others are left in peace from then on.
/// Buffers: the addresses are copied.
/// Concurrency: any number at a time.
/// Errors: where none connects, the last attempt's, with all of them in the text; `errc::address_invalid` where no address is of
///     one of the transports.
/// Cancellation: at any time.
/// Example:
///     auto stream = co_await rdmacoro::connect_best<rdmacoro::shm, rdmacoro::tcp>("tcp://10.0.0.7:7471", "shm://table");
template <transport... Ts, std::convertible_to<std::string_view>... Urls>
    requires(sizeof...(Ts) > 0 && sizeof...(Urls) > 0)
[[nodiscard]] task<best_stream<Ts...>> connect_best(const Urls&... urls) {
    detail::best_attempts attempts;
    (attempts.urls.emplace_back(std::string_view(urls)), ...);
    return detail::connect_best_of<Ts...>(std::move(attempts));
}

/// The same with a list of addresses and options. Described above.
template <transport... Ts>
    requires(sizeof...(Ts) > 0)
[[nodiscard]] task<best_stream<Ts...>> connect_best(std::vector<std::string> urls,
                                                    const best_stream_options& options) {
    detail::best_attempts attempts;
    attempts.urls = std::move(urls);
    attempts.options = options;
    return detail::connect_best_of<Ts...>(std::move(attempts));
}

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/best_stream.ipp>
#endif

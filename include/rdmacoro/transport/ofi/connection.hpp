// ofi_connection: an open connection that no link has taken yet, and how one is made.
#pragma once

#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/transport/ofi/engine.hpp>

#include <string>
#include <utility>

namespace rdmacoro {

/// Two endpoints that know each other; becomes a link by `ofi<Profile>::link<Sink>(std::move(connection), sink)`. What the peer sends
/// meanwhile waits. Closes when destroyed. Must not outlive its domain.
class ofi_connection {
public:
    ofi_connection() noexcept = default;
    explicit ofi_connection(detail::fabric::core& core) noexcept : core_(&core) {}
    ofi_connection(ofi_connection&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
    ofi_connection& operator=(ofi_connection&& other) noexcept {
        if (this != &other) {
            reset();
            core_ = std::exchange(other.core_, nullptr);
        }
        return *this;
    }
    ~ofi_connection() { reset(); }

    [[nodiscard]] explicit operator bool() const noexcept { return core_ != nullptr; }

    /// Closes it now.
    void reset() noexcept {
        if (core_ != nullptr) std::exchange(core_, nullptr)->abandon();
    }

    /// For the link that takes it.
    [[nodiscard]] detail::fabric::core* release() noexcept { return std::exchange(core_, nullptr); }

private:
    detail::fabric::core* core_ = nullptr;
};

namespace detail::fabric {

/// How one attempt to connect ended.
struct attempt {
    opening_outcome how{};
    core* made = nullptr;
};

/// Connects to one address. Canceling it gives the connection up.
class connect_operation final : public basic_operation<connect_operation, attempt>, private opener {
public:
    connect_operation(engine& by, const inet_endpoint& to) noexcept
        : basic_operation(&by.owner()), engine_(by), to_(to) {}
    connect_operation(const connect_operation&) = delete;
    connect_operation& operator=(const connect_operation&) = delete;
    ~connect_operation() {
        if (attempt_.made != nullptr) attempt_.made->abandon();
    }

    void start() noexcept {
        core_ = engine_.make_core();
        if (core_ == nullptr) {
            attempt_.how = {errc::no_resources, ENOMEM, "make room"};
            return complete();
        }
        core_->connect(to_, *this);
    }
    void cancel() noexcept {
        std::exchange(core_, nullptr)->abandon();
        finish_canceled();
        complete();
    }
    void finish_canceled() noexcept { attempt_.how.code = errc::canceled; }

    [[nodiscard]] result<attempt> outcome() noexcept {
        if (attempt_.how.code == errc::canceled) return errc::canceled;
        return std::exchange(attempt_, {});
    }

private:
    void opened(core& which, const opening_outcome& how) noexcept override {
        core_ = nullptr;
        attempt_.how = how;
        if (how.code == errc::ok) attempt_.made = &which;
        complete();
    }

    engine& engine_;
    inet_endpoint to_;
    core* core_ = nullptr;
    attempt attempt_;
};

/// Why the two ends do not fit, for a person.
[[nodiscard]] inline std::string verdict_text(engine& by, verdict said) {
    const std::string own(by.device().profile().provider);
    switch (said) {
        case verdict::other_provider:
            return "the listener uses another of libfabric's providers, or another way of gets and puts; "
                   "this side uses " +
                   own;
        case verdict::other_host: return "the listener is on another host, which " + own + " does not reach";
        case verdict::bad_address: return "one side's address is none to the other's provider " + own;
        case verdict::welcome:
        case verdict::other_version:
        case verdict::no_room: break;
    }
    return "the listener says no";
}

/// What went wrong: which address, and what to do about it.
[[gnu::cold, noreturn]] inline void throw_no_connection(engine& by, const inet_address& address,
                                                        const opening_outcome& how) {
    const std::string where = by.device().name() + ": connect to " + address.whole + ": ";
    const std::string system = how.system > 0 ? std::string(" (") + std::strerror(how.system) + ")" : "";
    switch (how.code) {
        case errc::connection_refused:
            if (how.said != verdict::welcome) throw error(how.code, where + verdict_text(by, how.said));
            throw error(how.code, where + "start the listener first, or check host and port" + system);
        case errc::timed_out:
            throw error(how.code,
                        where + "no answer; check the address, and that a listener of this toolkit is there" +
                            system);
        case errc::version_mismatch:
            throw error(how.code, where + "the listener speaks another version; build both of one release");
        case errc::protocol_violation: throw error(how.code, where + "something else listens there");
        case errc::no_resources:
            throw error(how.code,
                        where +
                            "no room for one more link here or there; options with fewer credits or "
                            "smaller slots need less" +
                            system);
        default: throw error(how.code, where + "could not " + how.step + system);
    }
}

[[gnu::cold, noreturn]] inline void throw_unknown_host(engine& by, const inet_address& address, int failure) {
    throw error(errc::address_invalid, by.device().name() + ": " + address.whole + ": " +
                                           ::gai_strerror(failure != 0 ? failure : EAI_NONAME) +
                                           "; check the host's name, or give its IP address");
}

template <class = void>
task<ofi_connection> connect(engine& by, inet_address address) {
    if (address.host.empty())
        throw error(errc::address_invalid,
                    by.device().name() + ": connect to " + address.whole + ": no host");
    inet_resolve resolve(address, 0);
    const inet_resolved resolved = co_await resolve;
    if (resolved.failure != 0 || resolved.endpoints.empty())
        throw_unknown_host(by, address, resolved.failure);
    opening_outcome last;
    for (const inet_endpoint& to : resolved.endpoints) {
        connect_operation one(by, to);
        const attempt tried = co_await one;
        if (tried.made != nullptr) co_return ofi_connection(*tried.made);
        last = tried.how;
    }
    throw_no_connection(by, address, last);
}

}  // namespace detail::fabric
}  // namespace rdmacoro

// ofi_connection: an open connection that no link has taken yet, and how one is made.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/transport/detail/core_handle.hpp>
#include <rdmacoro/transport/detail/opening.hpp>
#include <rdmacoro/transport/ofi/engine.hpp>

#include <string>

namespace rdmacoro {

/// Two endpoints that know each other; becomes a link by `ofi<Profile>::link<Sink>(std::move(connection), sink)`. What the peer sends
/// meanwhile waits. Closes when destroyed. Must not outlive its domain.
class ofi_connection : public detail::core_handle<detail::fabric::core> {
public:
    using core_handle::core_handle;
};

namespace detail::fabric {

using connect_operation = connect_to<engine, core, opening_outcome>;

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
        const auto tried = co_await one;
        if (tried.made != nullptr) co_return ofi_connection(*tried.made);
        last = tried.how;
    }
    throw_no_connection(by, address, last);
}

}  // namespace detail::fabric
}  // namespace rdmacoro

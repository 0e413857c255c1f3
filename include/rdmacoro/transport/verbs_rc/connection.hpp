// verbs_connection: an open connection that no link has taken yet, and how one is made.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/transport/detail/core_handle.hpp>
#include <rdmacoro/transport/detail/opening.hpp>
#include <rdmacoro/transport/verbs_rc/engine.hpp>

#include <string>

namespace rdmacoro {

/// A connected queue pair; becomes a link by `verbs_rc::link<Sink>(std::move(connection), sink)`. What the peer sends
/// meanwhile waits. Closes when destroyed. Must not outlive its domain.
class verbs_connection : public detail::core_handle<detail::verbs::core> {
public:
    using core_handle::core_handle;
};

namespace detail::verbs {

using connect_operation = connect_to<engine, core, opening_outcome>;

/// What went wrong, for a person: which address, and what to do about it.
[[gnu::cold, noreturn]] inline void throw_no_connection(engine& by, const inet_address& address,
                                                        const opening_outcome& how) {
    const std::string where = "verbs: connect to " + address.whole + " by " + by.device().name() + ": ";
    const std::string system = how.system > 0 ? std::string(" (") + std::strerror(how.system) + ")" : "";
    switch (how.code) {
        case errc::connection_refused:
            throw error(how.code, where + "start the listener first, or check host and port" + system);
        case errc::timed_out:
            throw error(how.code,
                        where + "no answer; check the address, and that both devices are on one network" +
                            system);
        case errc::address_invalid:
            throw error(how.code, where + "could not " + how.step + system +
                                      "; give the address of an RDMA device on a network of this one");
        case errc::version_mismatch:
            throw error(how.code, where + "the listener speaks another version; build both of one release");
        case errc::protocol_violation: throw error(how.code, where + "something else listens there");
        case errc::no_resources:
            if (how.system == ENOSPC)
                throw error(how.code,
                            where +
                                "the domain's completion or receive queue has no room for one more link; "
                                "open another domain, or one with fewer credits and a smaller send_depth");
            if (how.system == ECONNREFUSED)
                throw error(how.code, where + "the peer has no room for one more link; close some there, or "
                                              "give its domain fewer credits and a smaller send_depth");
            if (how.system == ENOMEM)
                throw error(how.code, where + registration_failure(by.slots().slab_bytes(), how.system));
            throw error(how.code, where + "could not " + how.step + system);
        default: throw error(how.code, where + "could not " + how.step + system);
    }
}

[[gnu::cold, noreturn]] inline void throw_unknown_host(const inet_address& address, int failure) {
    throw error(errc::address_invalid, "verbs: " + address.whole + ": " +
                                           ::gai_strerror(failure != 0 ? failure : EAI_NONAME) +
                                           "; check the host's name, or give its IP address");
}

template <class = void>
task<verbs_connection> connect(engine& by, inet_address address) {
    if (address.host.empty())
        throw error(errc::address_invalid, "verbs: connect to " + address.whole + ": no host");
    inet_resolve resolve(address, 0);
    const inet_resolved resolved = co_await resolve;
    if (resolved.failure != 0 || resolved.endpoints.empty()) throw_unknown_host(address, resolved.failure);
    opening_outcome last;
    for (const inet_endpoint& to : resolved.endpoints) {
        connect_operation one(by, to);
        const auto tried = co_await one;
        if (tried.made != nullptr) co_return verbs_connection(*tried.made);
        last = tried.how;
    }
    throw_no_connection(by, address, last);
}

}  // namespace detail::verbs
}  // namespace rdmacoro

// How a verbs connection is opened, and the texts of the errors.
#pragma once

#include <rdmacoro/transport/detail/opening.hpp>
#include <rdmacoro/transport/verbs_rc/connection.hpp>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace rdmacoro::detail::verbs {

[[gnu::cold, noreturn]] RDMACORO_DECL void throw_device_gone(const engine& of, const std::string& action) {
    throw error(
        errc::unsupported,
        "verbs: " + action + " by " + of.device().name() +
            ": the device was taken away, its driver was reset, or a queue of it failed; open another "
            "domain when it is back");
}

/// The error's text names the address and the remedy.
[[gnu::cold, noreturn]] RDMACORO_DECL void throw_no_connection(engine& by, const inet_address& address,
                                                               const opening_outcome& how) {
    const std::string where = "verbs: connect to " + address.whole + " by " + by.device().name() + ": ";
    if (by.broken()) throw_device_gone(by, "connect to " + address.whole);
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
                throw error(
                    how.code,
                    where + "the domain has no room for one more link; close some, or open another domain, "
                            "or one with a larger verbs_options::most_links or completion_entries");
            if (how.system == ECONNREFUSED)
                throw error(how.code, where + "the peer has no room for one more link; close some there, or "
                                              "give its domain a larger verbs_options::most_links");
            if (how.system == ENOBUFS)
                throw error(how.code,
                            where + "the peer's process may not lock the memory for one more link; raise "
                                    "RLIMIT_MEMLOCK there (`ulimit -l unlimited`), or give its domain fewer "
                                    "credits or smaller slots");
            if (how.step == registering)
                throw error(how.code, where + registration_failure(by.slots().slab_bytes(), how.system));
            throw error(how.code, where + "could not " + how.step + system +
                                      (limited_by_memlock(how.system) ? memlock_advice() : std::string()));
        default: throw error(how.code, where + "could not " + how.step + system);
    }
}

RDMACORO_COLD task<verbs_connection> connect(engine& by, inet_address address) {
    if (by.broken()) throw_device_gone(by, "connect to " + address.whole);
    return connect_to_any<verbs_connection, opening_outcome, session>(by, std::move(address), "verbs");
}

}  // namespace rdmacoro::detail::verbs

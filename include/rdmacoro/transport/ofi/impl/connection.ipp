// How a libfabric connection is opened, and the texts of the errors.
#pragma once

#include <rdmacoro/transport/detail/opening.hpp>
#include <rdmacoro/transport/ofi/connection.hpp>

#include <cstring>
#include <string>
#include <utility>

namespace rdmacoro::detail::fabric {

/// Why the two ends do not fit each other.
[[nodiscard]] RDMACORO_DECL std::string verdict_text(engine& by, verdict answer) {
    const std::string own(by.device().profile().provider);
    switch (answer) {
        case verdict::other_provider:
            return "the listener uses another of libfabric's providers, or another way of gets and puts; "
                   "this side uses " +
                   own;
        case verdict::other_host: return "the listener is on another host, which " + own + " does not reach";
        case verdict::bad_address: return "one side's address is none to the other's provider " + own;
        case verdict::reused_address:
            if (by.device().profile().maps_peers)
                return "one side's address was a former process's, and the other side's links to that are "
                       "just ending: connect again";
            return "one side's address was a former endpoint's, which the other side's provider " + own +
                   " still remembers: open the domain of the side that was started later once more, which "
                   "gets it another address";
        case verdict::welcome:
        case verdict::other_version:
        case verdict::no_room:
        case verdict::no_receives: break;
    }
    return "the listener says no";
}

RDMACORO_COLD std::string broken_text(const engine& by) {
    return "the domain is broken (" + by.why_broken() + "); open another";
}

/// The error's text names the address and the remedy.
[[gnu::cold, noreturn]] RDMACORO_DECL void throw_no_connection(engine& by, const inet_address& address,
                                                               const opening_outcome& how) {
    const std::string where = by.device().name() + ": connect to " + address.whole + ": ";
    const std::string system = how.system > 0 ? std::string(" (") + std::strerror(how.system) + ")" : "";
    switch (how.code) {
        case errc::connection_refused:
            if (how.answer != verdict::welcome) throw error(how.code, where + verdict_text(by, how.answer));
            throw error(how.code, where + "start the listener first, or check host and port" + system);
        case errc::timed_out:
            throw error(how.code,
                        where + "no answer; check the address, and that a listener of this toolkit is there" +
                            system);
        case errc::version_mismatch:
            throw error(how.code, where + "the listener speaks another version; build both of one release");
        case errc::protocol_violation: throw error(how.code, where + "something else listens there");
        case errc::no_resources:
            if (!by.has_endpoint()) throw error(how.code, where + broken_text(by));
            if (how.answer == verdict::no_receives)
                throw error(
                    how.code,
                    where + "as many links as the provider takes receives for, there or here (this side: " +
                        std::to_string(by.device().most_receives()) +
                        "); options with fewer credits, or more receives, allow more; or open more domains");
            throw error(how.code,
                        where +
                            "no room for one more link here or there; options with fewer credits or "
                            "smaller slots need less" +
                            (by.device().profile().maps_peers
                                 ? ", and the provider takes 256 peers for a domain"
                                 : "") +
                            system);
        default: throw error(how.code, where + "could not " + how.step + system);
    }
}

RDMACORO_COLD task<ofi_connection> connect(engine& by, inet_address address) {
    return connect_to_any<ofi_connection, opening_outcome, session>(by, std::move(address),
                                                                    by.device().name());
}

}  // namespace rdmacoro::detail::fabric

// Options and counts of the libfabric transport.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/memory/registration_cache.hpp>
#include <rdmacoro/transport/ofi/profile.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace rdmacoro {

/// Options of a libfabric domain; the defaults suit most programs. Both ends need the same provider.
struct ofi_options {
    /// For `ofi<provider::any>`: which provider, by libfabric's name ("tcp;ofi_rxm") or a short one ("tcp"). Empty: the value of
    /// `RDMACORO_OFI_PROVIDER`, and without it "tcp".
    std::string provider;
    /// Which of the provider's fabrics, and which domain in it, by the names that `fi_info` prints. Empty: the first.
    std::string fabric;
    std::string domain;  ///< libfabric's name of the device; empty: the provider's first
    /// Address of this host that the endpoint has, for providers with IP addresses: a name or number. Empty: the
    /// value of `RDMACORO_OFI_NODE`, and without it that of the provider's first interface.
    std::string node;

    /// Messages that each peer may send before this side returns credits. From 8 to 1024. Where the provider does not keep
    /// messages that find no receive (gni, cxi, efa, udp), the first links of a domain get a sixteenth of the
    /// provider's receives at most, later ones less, down to 8; when fewer are left, connections are refused.
    unsigned credits = 64;
    /// Receives that the provider is asked to take at a time, for the credits of all links: 8 at least, or 0, its usual number, such as 512.
    std::size_t receives = 0;
    /// Of one slot, in bytes, header included: longest message that is received in one piece. 0: the profile's,
    /// which is also the least. Up to 1 MiB; over `tcp` of libfabric before 1.18 up to 16 KiB.
    std::size_t slot_bytes = 0;
    /// Messages up to this many bytes, header included, leave without a completion; less where the provider takes less.
    std::size_t inject_bytes = 4096;
    /// Payload up to which a get is better than a put. 0: the profile's.
    std::size_t get_bytes = 0;
    /// Slots of the domain that readers of lent messages may hold: `most_spare_slots` at most. All are memory of the domain from its opening on.
    unsigned spare_slots = 64;
    /// A domain with more does not open.
    static constexpr unsigned most_spare_slots = 65536;
    /// Which side moves the data of gets and puts, if it is to differ from the profile. Not `served` where the provider's gets need aligned addresses.
    std::optional<ofi_one_sided> one_sided;
    /// Whether a scheduler may sleep until the provider wakes it, where the provider can. Costs the provider a system
    /// call for some messages; not for a scheduler with an idle strategy that never parks.
    bool may_park = true;

    /// Whether the provider counts its endpoints' operations: see `ofi_domain_base::provider_counts`. Costs it a little
    /// for each message, get and put. `errc::unsupported` where it can't.
    bool counters = false;

    /// A connection, on either side, that is not open after this long, more than 0, is given up.
    duration handshake_timeout = std::chrono::seconds(10);
    /// A host that answers no probe of the connection that a link opened with for this long counts as dead: its links end with
    /// `errc::peer_lost`. `least_peer_timeout` at least. A peer that computes, or was stopped, is not silent: its kernel answers. A link
    /// over which this side sent nothing for between a half and the whole of this time sends a frame that returns credits, so that the
    /// provider, too, notices a peer that it does not reach.
    duration peer_timeout = std::chrono::seconds(60);
    /// A domain with a shorter `peer_timeout` does not open.
    static constexpr duration least_peer_timeout = std::chrono::seconds(2);
    /// Connections of one listener that are opening or not yet returned by `accept`. One more takes the place of the oldest that has not
    /// opened, of the host that holds the most of these: at once if that host holds more than the new one's, else if the old one has waited
    /// for a tenth of `handshake_timeout`. Else it is refused. At least one.
    unsigned most_waiting = 256;
    /// Of the cache that keeps users' memory registered.
    registration_cache_options cache{};
};

/// Counts of the provider itself for a domain: operations that ended, on the domain's endpoint and on tagged endpoints. They only
/// grow, also when an endpoint is replaced by another. `ofi_counts` has the operations that the toolkit has posted: once none is
/// under way, and if none failed, its `posts` are `sent`, `gets` and `puts` together.
struct ofi_provider_counts {
    std::uint64_t sent = 0;      ///< messages, injected or not
    std::uint64_t received = 0;  ///< messages that matched a receive
    std::uint64_t gets = 0;      ///< pieces that were read, and atomics that fetch
    std::uint64_t puts = 0;      ///< pieces that were written
    std::uint64_t errors =
        0;  ///< operations of all four kinds that failed or were canceled, not counted there
};

/// Counts of a link or a domain; they only grow.
struct ofi_counts {
    std::uint64_t messages = 0;        ///< sent for the layer above
    std::uint64_t control_frames = 0;  ///< sent for the link itself
    std::uint64_t posts = 0;     ///< calls that handed the provider a message, a get or a put, and were taken
    std::uint64_t retries = 0;   ///< calls that the provider had no room for
    std::uint64_t injected = 0;  ///< messages that left without a completion
    std::uint64_t staged = 0;    ///< messages that were copied into a registered slot first
    std::uint64_t received = 0;  ///< frames that arrived
    std::uint64_t gets = 0;      ///< gets handed to the provider
    std::uint64_t puts = 0;      ///< puts handed to the provider
    std::uint64_t atomics = 0;   ///< atomics handed to the provider
    std::uint64_t served = 0;    ///< gets and puts of the peer that this side moved
    std::uint64_t bounced = 0;   ///< gets that the provider's alignment made go by a buffer
    std::uint64_t receive_posts = 0;  ///< only a domain's count
    std::uint64_t polls = 0;      ///< looks for completions, of tagged endpoints, too; only a domain's count
    std::uint64_t strangers = 0;  ///< frames for no link; only a domain's count
    /// Messages that left without a completion, and then failed; only a domain's count. Their link ends.
    std::uint64_t failed_injects = 0;
    /// Clients of the domain's listeners that hold receives now and have not finished connecting: at most a quarter of
    /// `ofi_options::most_waiting`, and one. Only a domain's count.
    std::uint64_t unfinished = 0;
    std::uint64_t reopened = 0;  ///< endpoints closed to get memory back; only a domain's count
    /// Endpoints of these that were left open, and never polled again, because this libfabric would not survive closing them while a
    /// get is under way; only a domain's count, and at most `most_abandoned`.
    std::uint64_t abandoned = 0;
    /// From so many on the domain opens no more connections.
    static constexpr std::uint64_t most_abandoned = 8;

    ofi_counts& operator+=(const ofi_counts& other) noexcept {
        messages += other.messages;
        control_frames += other.control_frames;
        posts += other.posts;
        retries += other.retries;
        injected += other.injected;
        staged += other.staged;
        received += other.received;
        gets += other.gets;
        puts += other.puts;
        atomics += other.atomics;
        served += other.served;
        bounced += other.bounced;
        receive_posts += other.receive_posts;
        polls += other.polls;
        strangers += other.strangers;
        failed_injects += other.failed_injects;
        unfinished += other.unfinished;
        reopened += other.reopened;
        abandoned += other.abandoned;
        return *this;
    }
};

}  // namespace rdmacoro

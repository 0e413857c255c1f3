// Options and counts of the verbs transport.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/memory/registration_cache.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace rdmacoro {

/// How two queue pairs find each other.
enum class verbs_connect : std::uint8_t {
    automatic,  ///< by rdma_cm where the device has an IP address, else by TCP
    rdma_cm,    ///< by the connection manager, as iWARP needs it
    tcp,        ///< by an exchange of queue-pair data over a TCP connection, which then watches over the link
};

/// Options of a verbs domain; the defaults suit most programs. Both ends need the same `connect_by`.
struct verbs_options {
    /// Which device: its name, such as "mlx5_0"; or one of its IP addresses. Both empty: the first that has an active port and
    /// an IP address.
    std::string device;
    std::string address;  ///< one of the device's IP addresses: see `device`
    unsigned port = 0;    ///< of the device, from 1 on; 0: the first active one
    int gid_index =
        -1;  ///< of the port, for `connect_by` tcp; -1: the RoCE v2 entry of an IPv4 address, if there is one
    verbs_connect connect_by = verbs_connect::automatic;  ///< how queue pairs find each other

    /// Messages that each peer may send before this side returns credits: so many receive slots are
    /// reserved for each link. From 8 to 1024.
    unsigned credits = 64;
    /// Of one slot, in bytes, header included: longest message that is received in one piece. From 4096 to 1 MiB.
    std::size_t slot_bytes = 8192;
    /// Work requests of one link that may be under way. From 32 to 4096, a power of two.
    unsigned send_depth = 128;
    /// Of the domain's completion queue; fewer where the device has fewer. Limits how many links there can be.
    unsigned completion_entries = 32768;
    /// Messages up to this many bytes, header included, travel inside the work request; less where the device takes less.
    std::size_t inline_bytes = 256;
    /// Slots of the domain that readers of lent messages may hold.
    unsigned spare_slots = 64;

    /// A connection, on either side, that is not open after this long is given up.
    duration handshake_timeout = std::chrono::seconds(10);
    /// A link on which nothing has moved for so long asks whether the peer's device is still there, and ends when it is
    /// not: after the device's own retries, some seconds. 0: a dead peer host is noticed by sending only. iWARP leaves
    /// it to TCP.
    duration keepalive = std::chrono::seconds(2);

    /// Connections of one listener that are opening or not yet returned by `accept`; more are refused.
    unsigned most_waiting = 256;
    /// Of the cache that keeps users' memory registered.
    registration_cache_options cache{};

    /// Options from the environment, for domains that are opened without options: `RDMACORO_VERBS_DEVICE` (a name),
    /// `RDMACORO_VERBS_PORT`, `RDMACORO_VERBS_GID_INDEX`, `RDMACORO_VERBS_CONNECT_BY` (automatic, rdma_cm, tcp). Throws
    /// `errc::invalid_argument` with the variable's name when it makes no sense.
    [[nodiscard]] static verbs_options from_environment();
};

/// Counts of a link or a domain; they only grow.
struct verbs_counts {
    std::uint64_t messages = 0;        ///< sent for the layer above
    std::uint64_t control_frames = 0;  ///< sent for the link itself
    std::uint64_t work_requests = 0;   ///< of sending: messages, frames, gets, puts, atomics
    std::uint64_t posts = 0;           ///< calls that handed them to the device: doorbells
    std::uint64_t signalled = 0;       ///< work requests that ask for a completion
    std::uint64_t inlined = 0;         ///< messages that traveled inside their work request
    std::uint64_t staged = 0;          ///< messages that were copied into a registered slot first
    std::uint64_t received = 0;        ///< frames that arrived
    std::uint64_t gets = 0;            ///< gets posted
    std::uint64_t puts = 0;            ///< puts posted
    std::uint64_t atomics = 0;         ///< atomics posted
    std::uint64_t receive_posts = 0;   ///< calls that gave the device receive slots; only a domain's count
    std::uint64_t polls = 0;           ///< calls that asked the completion queue; only a domain's count

    verbs_counts& operator+=(const verbs_counts& other) noexcept {
        messages += other.messages;
        control_frames += other.control_frames;
        work_requests += other.work_requests;
        posts += other.posts;
        signalled += other.signalled;
        inlined += other.inlined;
        staged += other.staged;
        received += other.received;
        gets += other.gets;
        puts += other.puts;
        atomics += other.atomics;
        receive_posts += other.receive_posts;
        polls += other.polls;
        return *this;
    }
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/options.ipp>
#endif

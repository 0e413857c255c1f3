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
    /// Of the port, for `connect_by` tcp. -1: for each connection the entry of the address that it comes from, which is `address`,
    /// else the TCP connection's, else the device's first. 255 at most.
    int gid_index = -1;
    verbs_connect connect_by = verbs_connect::automatic;  ///< how queue pairs find each other

    /// Messages that each peer may send before this side returns credits: so many receive slots are
    /// reserved for each link. From 8 to 1024.
    unsigned credits = 64;
    /// Of one slot, in bytes, header included: longest message that is received in one piece. From 4096 to 1 MiB.
    std::size_t slot_bytes = 8192;
    /// Work requests of one link that may be under way. From 32 to 4096, a power of two.
    unsigned send_depth = 128;
    /// Of the domain's first completion queue; fewer where the device has fewer. Links that find no room get another, twice as
    /// long where the device has it. A link holds `send_depth` + `credits` of them: not less, and not less than twice `credits`.
    unsigned completion_entries = 32768;
    /// Links of the domain, opening and closing ones included; one more is refused. A quarter of them, at most, may be clients that
    /// have not finished connecting. For the memory that each one locks see `verbs_domain::describe`.
    unsigned most_links = 1024;
    /// Whether the links share a receive queue, which costs the least memory on the device. Where the device has no shared one, and
    /// over iWARP, each link gets its own: there a peer that floods a shared queue would end all links.
    bool share_receives = true;
    /// Messages up to this many bytes, header included, travel inside the work request; less where the device takes less, and
    /// `slot_bytes` at most.
    std::size_t inline_bytes = 256;
    /// Slots of the domain that readers of lent messages may hold: `most_spare_slots` at most. All are memory of the domain from its opening on.
    unsigned spare_slots = 64;
    /// A domain with more does not open.
    static constexpr unsigned most_spare_slots = 65536;

    /// The time, 4.096 us * 2^n, after which the device sends an unacknowledged packet again; it does so seven times before the link
    /// is lost. From 1 to 31, never less than the connection manager found for the path. 0: 18, so that a link outlives an outage of
    /// some seconds (a port that goes down and up, a sweep of the subnet manager), and ends 8.6 s after a host that vanished did not
    /// acknowledge a packet, or up to 34 s, as adapters wait up to four times the value; 14 on devices that
    /// send again for ever. No meaning over iWARP, where TCP sends again.
    unsigned acknowledge_timeout = 0;
    /// Of the packets' global header, the byte of DSCP and ECN over RoCE: 0 to 255. -1: as the system has it for rdma_cm
    /// (`default_roce_tos`), else 0. RoCE on a network with priority flow control needs the one that its switches expect.
    int traffic_class = -1;
    /// Service level, 0 to 15. -1: as the path's record says over rdma_cm, else 0.
    int service_level = -1;
    /// Of InfiniBand, for `connect_by` tcp; over rdma_cm the interface of the address has one. 0: the first of the port.
    unsigned partition_key = 0;

    /// A connection, on either side, that is not open after this long, more than 0, is given up. A listener by rdma_cm ends when its device has been
    /// without its address for so long.
    duration handshake_timeout = std::chrono::seconds(10);
    /// A link on which nothing has moved for so long asks whether the peer's device is still there, and ends when it is
    /// not: after the device's own retries, some seconds, or after four times this where they last for minutes or for ever (iWARP,
    /// rxe). 0: a dead peer host is noticed by sending only, over iWARP when TCP gives up.
    duration keepalive = std::chrono::seconds(2);

    /// Connections of one listener that are opening or not yet returned by `accept`. One more takes the place of the oldest that has not
    /// opened, of the host that holds the most of these: at once if that host holds more than the new one's, else if the old one has waited
    /// for a tenth of `handshake_timeout`. Else it is refused. At least one.
    unsigned most_waiting = 256;
    /// Of the cache that keeps users' memory registered.
    registration_cache_options cache{};

    /// Options from the environment, for domains that are opened without options: `RDMACORO_VERBS_DEVICE` (a name),
    /// `RDMACORO_VERBS_PORT`, `RDMACORO_VERBS_GID_INDEX`, `RDMACORO_VERBS_CONNECT_BY` (automatic, rdma_cm, tcp),
    /// `RDMACORO_VERBS_ACKNOWLEDGE_TIMEOUT`, `RDMACORO_VERBS_TRAFFIC_CLASS`, `RDMACORO_VERBS_SERVICE_LEVEL`,
    /// `RDMACORO_VERBS_PARTITION_KEY`, `RDMACORO_VERBS_SHARE_RECEIVES` (0 or 1). Throws `errc::invalid_argument` with the
    /// variable's name when it makes no sense.
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
    std::uint64_t late_closes =
        0;  ///< queue pairs that were destroyed before the device had finished with them, as it took too long
    std::uint64_t lost_receives =
        0;  ///< receive slots that such a device may have kept, and that others replace; only a domain's count
    /// Work requests that the peer's device has called invalid (`IBV_WC_REM_INV_REQ_ERR`), which ended their link with
    /// `errc::protocol_violation`. Where both ends keep to the rules, a fault of a device or of its driver.
    std::uint64_t called_invalid = 0;
    /// Clients of the domain's listeners that have a queue pair now and have not finished connecting: at most a quarter of
    /// `verbs_options::most_links`. Only a domain's count.
    std::uint64_t unfinished = 0;

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
        late_closes += other.late_closes;
        lost_receives += other.lost_receives;
        called_invalid += other.called_invalid;
        unfinished += other.unfinished;
        return *this;
    }
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/options.ipp>
#endif

#pragma once

// The transports that the conformance suite runs on: one list, each entry a way to open a domain. Adding a transport to
// the list runs the whole suite on it.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/transport/shm.hpp>
#include <rdmacoro/transport/sim.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif
#if RDMACORO_WITH_VERBS
#include <rdmacoro/transport/verbs_rc.hpp>

#include <cstdlib>
#endif

#if RDMACORO_WITH_OFI && RDMACORO_OFI_SUITE
#include "conformance/ofi_transports.hpp"
#endif
#include "support/loopback.hpp"
#include "support/matching_loopback.hpp"
#include "support/pattern.hpp"
#include "support/run.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <unistd.h>

namespace rdmacoro::detail {
/// So that the suite, which names no list, runs with the transport's own matching on it.
template <>
struct default_list<test::matching_loopback> {
    using type = protocols<provider_matched>;
};
}  // namespace rdmacoro::detail

namespace rdmacoro::test {

/// Whether the messages of the suite are matched by the transport: what is matched is received to its end, and nothing but
/// the transport knows of a message that nobody has asked for.
template <class T>
inline constexpr bool delegates_matching = default_protocols<T>::delegates;

/// Whether a network library moves what is got and put, and cannot be stopped in the middle.
#if RDMACORO_OFI_SUITE
inline constexpr bool moved_by_library = true;
#else
inline constexpr bool moved_by_library = false;
#endif

/// Whether what nobody has asked for lies in buffers that a network library sizes, however short it is.
#if RDMACORO_OFI_MATCHED_SUITE
inline constexpr bool kept_by_library = true;
#else
inline constexpr bool kept_by_library = false;
#endif

/// A name that no other listener on this machine has.
inline std::string fresh_name() {
    static int count = 0;
    return "conformance-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

struct shm_as_it_comes {
    using transport_type = shm;
    static shm_options options() { return {}; }
    static std::unique_ptr<shm::domain> open(scheduler& on) {
        return std::make_unique<shm::domain>(on, options());
    }
    static std::string address() { return fresh_name(); }
    /// Whether the two ends may be on two schedulers, each with its thread.
    static constexpr bool crosses_threads = true;
};

struct shm_without_process_vm : shm_as_it_comes {
    static std::unique_ptr<shm::domain> open(scheduler& on) {
        shm_options o;
        o.use_process_vm = false;
        return std::make_unique<shm::domain>(on, o);
    }
};

struct shm_without_membarrier : shm_as_it_comes {
    static std::unique_ptr<shm::domain> open(scheduler& on) {
        shm_options o;
        o.use_membarrier = false;
        return std::make_unique<shm::domain>(on, o);
    }
};

struct shm_tiny : shm_as_it_comes {
    static std::unique_ptr<shm::domain> open(scheduler& on) {
        shm_options o;
        o.shape = {.cells = 64, .blocks = 4, .block_bytes = 4096};
        o.use_process_vm = false;
        return std::make_unique<shm::domain>(on, o);
    }
};

#if RDMACORO_WITH_TCP
struct tcp_as_it_comes {
    using transport_type = tcp;
    static std::unique_ptr<tcp::domain> open(scheduler& on) { return std::make_unique<tcp::domain>(on); }
    static std::string address() { return "127.0.0.1:0"; }
    static constexpr bool crosses_threads = true;
};

struct tcp_of_an_old_kernel : tcp_as_it_comes {
    static std::unique_ptr<tcp::domain> open(scheduler& on) {
        tcp_options o;
        o.features = tcp_feature::none;
        return std::make_unique<tcp::domain>(on, o);
    }
};
#endif

#if RDMACORO_WITH_VERBS
/// A RoCE or InfiniBand device: that of the address in RXE_IP, or whichever there is.
struct verbs_as_it_comes {
    using transport_type = verbs_rc;
    static constexpr const char* variable = "RXE_IP";
    template <class Variant>
    static verbs_options options_of() {
        verbs_options o;
        if (const char* ip = std::getenv(Variant::variable)) o.address = ip;
        return o;
    }
    static std::unique_ptr<verbs_rc::domain> open(scheduler& on) {
        return std::make_unique<verbs_rc::domain>(on, options_of<verbs_as_it_comes>());
    }
    static std::string address() { return "*:0"; }
    static constexpr bool crosses_threads = true;
};

/// An iWARP device: that of the address in SIW_IP. Without one it fails, lest another device passes for it.
struct verbs_over_iwarp : verbs_as_it_comes {
    static constexpr const char* variable = "SIW_IP";
    static std::unique_ptr<verbs_rc::domain> open(scheduler& on) {
        if (std::getenv(variable) == nullptr)
            throw std::runtime_error("SIW_IP does not name an iWARP device");
        return std::make_unique<verbs_rc::domain>(on, options_of<verbs_over_iwarp>());
    }
};

/// A RoCE or InfiniBand device without the connection manager.
struct verbs_by_exchange : verbs_as_it_comes {
    static std::unique_ptr<verbs_rc::domain> open(scheduler& on) {
        verbs_options o = options_of<verbs_by_exchange>();
        o.connect_by = verbs_connect::tcp;
        return std::make_unique<verbs_rc::domain>(on, o);
    }
};

using every_verbs_transport = std::tuple<verbs_as_it_comes, verbs_over_iwarp, verbs_by_exchange>;
#endif

struct in_memory {
    using transport_type = loopback;
    static std::unique_ptr<loopback::domain> open(scheduler& on) {
        return std::make_unique<loopback::domain>(on);
    }
    static std::string address() { return fresh_name(); }
    static constexpr bool crosses_threads = false;
};

struct matched_in_memory : in_memory {
    using transport_type = matching_loopback;
    static std::unique_ptr<matching_loopback::domain> open(scheduler& on) {
        tagged_wire::of_new_ones() = nullptr;
        return in_memory::open(on);
    }
};

/// Matched by a link that has room for few, ends things late and takes one piece of memory.
struct matched_with_little_room : matched_in_memory {
    static std::unique_ptr<matching_loopback::domain> open(scheduler& on) {
        tagged_wire::of_new_ones() = [](tagged_wire& wire) {
            for (tagged_lane& lane : wire.lanes) {
                lane.room = 7;
                lane.posts = 2;
                lane.piece = 20'000;
                lane.defers = lane.answers_late = lane.withdraws_late = lane.refuses_claims = true;
            }
            wire.traits.buffered_bytes = 1500;
            wire.traits.pieces = 1;
        };
        return in_memory::open(on);
    }
};

/// A simulated network whose time passes while nothing else can run, whatever the scheduler's clock says.
struct sim_plain {
    using transport_type = sim;
    static std::unique_ptr<sim::domain> open(scheduler& on) { return std::make_unique<sim::domain>(on); }
    static std::string address() { return fresh_name(); }
    static constexpr bool crosses_threads = false;
};

struct sim_that_announces : sim_plain {
    static std::unique_ptr<sim::domain> open(scheduler& on) {
        sim_options o;
        o.announces_above = 700;
        o.piece_bytes = 301;
        o.room = 5;
        o.lends = false;
        o.offered.put_before_send = true;
        return std::make_unique<sim::domain>(on, o);
    }
};

struct sim_that_registers : sim_plain {
    static std::unique_ptr<sim::domain> open(scheduler& on) {
        sim_options o;
        o.staged_bytes = 0;
        o.offered.needs_registration = true;
        o.offered.one_sided_offloaded = false;
        return std::make_unique<sim::domain>(on, o);
    }
};

struct sim_of_aligned_gets : sim_plain {
    static std::unique_ptr<sim::domain> open(scheduler& on) {
        sim_options o;
        o.offered.get_alignment = 4;
        o.offered.max_message = o.offered.segment_bytes = 4000;
        o.offered.eager_bytes = 1000;
        return std::make_unique<sim::domain>(on, o);
    }
};

struct sim_that_revokes_late : sim_plain {
    static std::unique_ptr<sim::domain> open(scheduler& on) {
        sim_options o;
        o.offered.revokes_at_once = false;
        o.offered.needs_registration = true;
        return std::make_unique<sim::domain>(on, o);
    }
};

// A program of its own: all but what needs two schedulers, with `provider_matched`.
#if RDMACORO_MATCHED_SUITE
using every_transport = std::tuple<matched_in_memory, matched_with_little_room>;
using every_real_transport = every_transport;
// A program of its own runs where the devices are, perhaps in a virtual machine: nothing but verbs in it.
#elif RDMACORO_WITH_VERBS && RDMACORO_VERBS_SUITE
using every_transport = every_verbs_transport;
using every_real_transport = every_verbs_transport;
// Another one: libfabric on the providers that need no hardware, and on a stand-in for one that does.
#elif RDMACORO_WITH_OFI && RDMACORO_OFI_SUITE
using every_transport = every_ofi_transport;
using every_real_transport = every_real_ofi_transport;
#else
// clang-format off
using every_transport = std::tuple<
    shm_as_it_comes, shm_without_process_vm, shm_without_membarrier, shm_tiny,
#if RDMACORO_WITH_TCP
    tcp_as_it_comes, tcp_of_an_old_kernel,
#endif
    sim_plain, sim_that_announces, sim_that_registers, sim_of_aligned_gets, sim_that_revokes_late,
    in_memory>;

/// Those whose ends can be on two threads.
using every_real_transport = std::tuple<
    shm_as_it_comes, shm_without_membarrier, shm_tiny
#if RDMACORO_WITH_TCP
    , tcp_as_it_comes
#endif
    >;
// clang-format on
#endif

/// Whether a scheduler with that transport can sleep until something comes.
template <class Variant>
inline constexpr bool can_park = [] {
    if constexpr (requires { Variant::can_park; }) return Variant::can_park;
    return true;
}();

/// Two domains of one transport on one scheduler, as two processes would have one each. Does not depend on how they were
/// opened, so that a test is compiled once for each transport.
template <class T>
class world {
public:
    using transport_type = T;
    using endpoint_type = endpoint<T>;
    using opener = std::unique_ptr<typename T::domain> (*)(scheduler&);

    world(scheduler& on, opener open, std::string (*name)())
        : on_(on), address_(name), here_(open(on)), there_(open(on)) {}

    [[nodiscard]] scheduler& on() noexcept { return on_; }
    [[nodiscard]] typename T::domain& here() noexcept { return *here_; }
    [[nodiscard]] typename T::domain& there() noexcept { return *there_; }
    [[nodiscard]] std::string address() const { return address_(); }

    /// Two ends of one connection: `a` connected, in domain `here`; `b` accepted, in domain `there`.
    struct pair {
        endpoint_type a;
        endpoint_type b;
    };
    task<pair> connected(mailbox_options of_a = {}, mailbox_options of_b = {}) {
        auto listening = co_await listen<T>(*there_, address_(), of_b);
        auto accepting = start(listening.accept());
        endpoint_type a = co_await connect<T>(*here_, listening.address(), of_a);
        endpoint_type b = co_await accepting;
        co_return pair{std::move(a), std::move(b)};
    }

private:
    scheduler& on_;
    std::string (*address_)();
    std::unique_ptr<typename T::domain> here_;
    std::unique_ptr<typename T::domain> there_;
};

/// How long a whole test case may take, with a sanitizer and on a busy machine.
inline constexpr duration case_limit = std::chrono::seconds(100);

/// Runs a test's body on one scheduler, on the transport as `Variant` opens it.
template <class Variant>
void conform(task<> (*body)(world<typename Variant::transport_type>&)) {
    scheduler on{impatient{}};
    world<typename Variant::transport_type> both(on, Variant::open, Variant::address);
    on.run(
        [](auto* run_body, auto* w) -> task<> { co_await timeout(run_body(*w), case_limit); }(body, &both));
}

/// How much slower emulated devices are: tests that repeat something do a share of it there.
#if RDMACORO_VERBS_SUITE
inline constexpr int slowness = 10;
#else
inline constexpr int slowness = 1;
#endif

/// A number as a message, and back.
template <class Number>
std::span<const std::byte> bytes_of(const Number& number) noexcept {
    return std::as_bytes(std::span(&number, 1));
}
template <class Number>
std::span<std::byte> room_for(Number& number) noexcept {
    return std::as_writable_bytes(std::span(&number, 1));
}

}  // namespace rdmacoro::test

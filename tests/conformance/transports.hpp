#pragma once

// The transports by their types, for tests of the bare links and of killed peers. The conformance suite itself runs over
// support/over/.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/messaging.hpp>

#include "support/bytes.hpp"
#include "support/over/loopback_variants.hpp"
#include "support/over/matching_loopback_variants.hpp"
#include "support/over/shm_variants.hpp"
#include "support/over/sim_variants.hpp"
#if RDMACORO_WITH_TCP
#include "support/over/tcp_variants.hpp"
#endif
#if RDMACORO_WITH_VERBS
#include "support/over/verbs_variants.hpp"
#endif
#if RDMACORO_WITH_OFI && RDMACORO_OFI_SUITE
#include "conformance/ofi_transports.hpp"
#endif
#include "support/pattern.hpp"
#include "support/run.hpp"

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace rdmacoro::test {

#if RDMACORO_WITH_VERBS && RDMACORO_SERVICES_SUITE
using every_verbs_transport = std::tuple<verbs_as_it_comes>;
#elif RDMACORO_WITH_VERBS
using every_verbs_transport = std::tuple<verbs_as_it_comes, verbs_over_iwarp, verbs_by_exchange>;
#endif

// A program of its own runs where the devices are, perhaps in a virtual machine: nothing but verbs in it.
#if RDMACORO_WITH_VERBS && RDMACORO_VERBS_SUITE
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

/// Transports that can have their ends on two threads.
using every_real_transport = std::tuple<
    shm_as_it_comes, shm_without_membarrier, shm_tiny
#if RDMACORO_WITH_TCP
    , tcp_as_it_comes
#endif
    >;
// clang-format on
#endif

/// Whether the program runs on devices that are perhaps emulated.
#if RDMACORO_WITH_VERBS && RDMACORO_VERBS_SUITE
inline constexpr bool slow_devices = true;
#else
inline constexpr bool slow_devices = false;
#endif

// Under AddressSanitizer those whose operations end later than they begin, where an owner can be gone in between: compiling each case
// for one more takes half as long again.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) && RDMACORO_WITH_TCP
#define RDMACORO_TEST_TWO_KINDS 1
#endif
#endif

/// One of each that needs no device; in the programs of services over libfabric and over verbs, that transport.
// clang-format off
#if RDMACORO_WITH_VERBS && RDMACORO_VERBS_SUITE && RDMACORO_SERVICES_SUITE
using every_kind = std::tuple<verbs_as_it_comes>;
#elif RDMACORO_WITH_OFI && RDMACORO_OFI_SUITE && RDMACORO_SERVICES_SUITE
using every_kind = std::tuple<ofi_tcp>;
#else
using every_kind = std::tuple<
#if !RDMACORO_TEST_TWO_KINDS
    shm_as_it_comes,
#endif
#if RDMACORO_WITH_TCP
    tcp_as_it_comes,
#endif
    sim_plain>;
#endif
// clang-format on

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

/// Runs a test's body on one scheduler, on the transport as `Variant` opens it.
template <class Variant>
void conform(task<> (*body)(world<typename Variant::transport_type>&)) {
    scheduler on{impatient{}};
    world<typename Variant::transport_type> both(on, Variant::open, Variant::address);
    on.run(
        [](auto* run_body, auto* w) -> task<> { co_await timeout(run_body(*w), case_limit); }(body, &both));
}

}  // namespace rdmacoro::test

#pragma once

// The harness of the conformance suite: each case is compiled once and registered for every transport of the program
// (support/over/), under its own name and that of the transport.

#include <rdmacoro/coro/coro.hpp>

#include "support/any_transport.hpp"
#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/loop.hpp"
#include "support/pattern.hpp"
#include "support/run.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rdmacoro::test {

/// Two domains of one transport on one scheduler, as two processes would have one each.
class two_domains {
public:
    two_domains(scheduler& on, const variant& over)
        : on_(on), over_(over), here_(over.open(on)), there_(over.open(on)) {}

    [[nodiscard]] scheduler& on() noexcept { return on_; }
    [[nodiscard]] const traits& is() const noexcept { return over_.is(); }
    [[nodiscard]] any_domain& here() noexcept { return *here_; }
    [[nodiscard]] any_domain& there() noexcept { return *there_; }
    [[nodiscard]] std::string address() const { return over_.address(); }

    /// Two ends of one connection: `a` connected, in domain `here`; `b` accepted, in domain `there`.
    struct pair {
        peer a;
        peer b;
    };
    [[nodiscard]] task<pair> connected(mailbox_options of_a = {}, mailbox_options of_b = {}) {
        return connected_with(list_name::standard, of_a, of_b);
    }
    [[nodiscard]] task<pair> connected_with(list_name list, mailbox_options of_a = {},
                                            mailbox_options of_b = {}) {
        any_listener listening = co_await there_->listen(list, address(), of_b);
        auto accepting = start(listening.accept());
        peer a = co_await here_->connect(list, listening.address(), of_a);
        peer b = co_await accepting;
        co_return pair{std::move(a), std::move(b)};
    }

private:
    scheduler& on_;
    const variant& over_;
    std::unique_ptr<any_domain> here_;
    std::unique_ptr<any_domain> there_;
};

/// Runs a case on one scheduler.
inline void conform(const variant& over, task<> (*body)(two_domains&)) {
    const auto loop = make_loop();
    two_domains both(loop->on(), over);
    loop->run([](auto* run_body, two_domains* w) -> task<> {
        co_await timeout(run_body(*w), case_limit);
    }(body, &both));
}
/// The same with a list that the case connects with.
inline void conform(const variant& over, list_name list, task<> (*body)(two_domains&, list_name)) {
    const auto loop = make_loop();
    two_domains both(loop->on(), over);
    loop->run([](auto* run_body, two_domains* w, list_name with) -> task<> {
        co_await timeout(run_body(*w, with), case_limit);
    }(body, &both, list));
}

/// How often it has slept, or its loop has waited for it.
inline std::uint64_t sleeps(test_loop& of) { return of.waits() + of.on().parks(); }

/// One end of `across_threads`.
using far_end = task<> (*)(peer& end, any_domain& domain, const traits& is);

/// Two schedulers on two threads, one connection between them: like two processes, but in one address
/// space. `serve` gets the accepted end, `call` the connected one; both run to their ends. Answers how often the one that slept less did so.
inline std::uint64_t across_threads(const variant& over, list_name list, const any_idle& idle, far_end serve,
                                    far_end call) {
    using namespace std::chrono_literals;
    const auto here = make_loop(idle);
    const auto here_domain = over.open(here->on());
    std::exception_ptr failure;
    std::exception_ptr own;
    std::atomic<bool> listens{false};
    std::string address;
    std::uint64_t slept = 0;
    std::thread other([&] {
        try {
            const auto there = make_loop(idle);
            const auto domain = over.open(there->on());
            there->run([](const variant& in, any_domain& at, list_name with, far_end body, std::string& where,
                          std::atomic<bool>& ready) -> task<> {
                any_listener listening = co_await at.listen(with, in.address());
                where = listening.address();
                ready.store(true, std::memory_order_release);
                ready.notify_one();
                peer end = co_await timeout(listening.accept(), 60s);
                co_await timeout(body(end, at, in.is()), case_limit);
            }(over, *domain, list, serve, address, listens));
            slept = sleeps(*there);
        } catch (...) {
            failure = std::current_exception();
            listens.store(true, std::memory_order_release);
            listens.notify_one();
        }
    });
    listens.wait(false, std::memory_order_acquire);
    if (!address.empty()) {
        try {
            here->run([](const variant& in, any_domain& at, list_name with, far_end body,
                         std::string& where) -> task<> {
                peer end = co_await timeout(at.connect(with, where), 60s);
                co_await timeout(body(end, at, in.is()), case_limit);
            }(over, *here_domain, list, call, address));
        } catch (...) {
            own = std::current_exception();
        }
    }
    other.join();
    if (failure) std::rethrow_exception(failure);
    if (own) std::rethrow_exception(own);
    return std::min(slept, sleeps(*here));
}

/// For ends on threads of their own, because Catch2's assertions are for one thread: throws where `holds` is false.
inline void demand(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

/// The smallest budget there is for messages that come before their receive: 256 KiB.
inline mailbox_options least_memory() {
    mailbox_options o;
    o.unexpected_bytes = 1;
    return o;
}

/// Lets the scheduler turn.
inline task<> turns(int count) {
    for (int n = 0; n < count; ++n) co_await yield();
}

/// An operation that `stop` stops, begun; awaiting it gives a result.
template <class Operation>
auto stoppable(Operation op, local_stop_source& stop) {
    return start(as_result(with_stop(std::move(op), stop.get_token())));
}

// ---- registration

/// The transports a case is for.
enum class runs_over {
    every_transport,
    every_real_transport,     ///< those that have `traits::real`
    every_counted_transport,  ///< those that have `traits::counted`
    every_atomic_transport,   ///< those that have `traits::has_atomics`
    every_kind,               ///< those that have `traits::kind`
    every_real_kind,          ///< of these, those that have `traits::real`
};

/// A case of one transport, as Catch2 calls it.
class conformance_case final : public Catch::ITestInvoker {
public:
    using function = void (*)(const variant&);
    conformance_case(function body, const variant& over) noexcept : body_(body), over_(over) {}
    void invoke() const override { body_(over_); }

private:
    function body_;
    const variant& over_;
};

/// Registers a case for each of the program's transports.
class register_case {
public:
    register_case(const char* name, const char* tags, conformance_case::function body, runs_over which,
                  const Catch::SourceLineInfo& line) {
        for (const variants* part : program_variants) {
            for (const variant* over : *part) {
                if (which == runs_over::every_real_transport && !over->is().real) continue;
                if (which == runs_over::every_counted_transport && !over->is().counted) continue;
                if (which == runs_over::every_atomic_transport && !over->is().has_atomics) continue;
                if ((which == runs_over::every_kind || which == runs_over::every_real_kind ||
                     program_of_kinds) &&
                    !over->is().kind)
                    continue;
                if (which == runs_over::every_real_kind && !over->is().real) continue;
                const std::string full = std::string(name) + " - " + std::string(over->is().name);
#if __has_include(<catch2/catch_test_macros.hpp>)
                const Catch::AutoReg registered(Catch::Detail::make_unique<conformance_case>(body, *over),
                                                line, Catch::StringRef(), Catch::NameAndTags{full, tags});
#else
                const Catch::AutoReg registered(new conformance_case(body, *over), line, Catch::StringRef(),
                                                Catch::NameAndTags{full, tags});
#endif
            }
        }
    }
};

}  // namespace rdmacoro::test

#define RDMACORO_CASE_JOIN(a, b) a##b
#define RDMACORO_CASE_NAMED(a, b) RDMACORO_CASE_JOIN(a, b)
#define RDMACORO_CONFORMANCE_CASE(function, name, tags, which)                                               \
    static void function(const ::rdmacoro::test::variant& over);                                             \
    static const ::rdmacoro::test::register_case RDMACORO_CASE_NAMED(function, _registered)(                 \
        name, tags, function, ::rdmacoro::test::runs_over::which, CATCH_INTERNAL_LINEINFO);                  \
    static void function([[maybe_unused]] const ::rdmacoro::test::variant& over)

/// A test case for each transport of the program: `CONFORMANCE_CASE("name", every_transport) { ... over ... }`.
#define CONFORMANCE_CASE(name, which) TAGGED_CONFORMANCE_CASE(name, "", which)
/// The same with tags of Catch2.
#define TAGGED_CONFORMANCE_CASE(name, tags, which)                                                           \
    RDMACORO_CONFORMANCE_CASE(RDMACORO_CASE_NAMED(conformance_case_, __COUNTER__), name, tags, which)

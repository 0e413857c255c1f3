#include <rdmacoro/transport/ofi/domain.hpp>

#include <rdmacoro/transport/detail/poll_pace.hpp>

#include "ofi/pair.hpp"

#include <atomic>
#include <chrono>
#include <thread>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Parks as soon as nothing moves.
struct park_at_once {
    idle::action next(rdmacoro::clock&) noexcept { return idle::action::park; }
    void progress() noexcept {}
};

task<ofi_connection> accept_one(ofi_any_domain& domain, std::string& address, std::atomic<bool>& listens) {
    ofi_listener listening = co_await domain.listen("127.0.0.1:0");
    address = listening.address();
    listens.store(true);
    co_return co_await listening.accept();
}

/// Echoes what comes, in a thread with a scheduler of its own that parks whenever it can, until the peer is gone.
struct echo_thread {
    explicit echo_thread(const ofi_options& options)
        : thread([this, options] {
              scheduler on{park_at_once{}};
              ofi_any_domain domain(on, options);
              ofi_end end;
              end.link =
                  std::make_unique<ofi_recorded_link>(on.run(accept_one(domain, address, listens)), end.sink);
              end.sink.count_only = true;
              std::uint64_t owed = 0;
              end.sink.on_message = [&](const recorded_message&) { ++owed; };
              on.run_until([&] {
                  while (owed != 0 && end.link->post_copied(header_of(owed), {}) == post_result::done) --owed;
                  return end.sink.downs != 0;
              });
              parks = on.parks();
          }) {
        while (!listens.load()) std::this_thread::yield();
    }
    ~echo_thread() { join(); }
    void join() {
        if (thread.joinable()) thread.join();
    }

    std::string address;
    std::atomic<bool> listens{false};
    std::uint64_t parks = 0;
    std::thread thread;
};

/// Whether both schedulers slept meanwhile.
bool rounds_with_sleep(const ofi_options& options) {
    echo_thread other(options);
    scheduler on{park_at_once{}};
    ofi_any_domain domain(on, options);
    ofi_end end;
    end.link = std::make_unique<ofi_recorded_link>(on.run(domain.connect(other.address)), end.sink);
    constexpr std::uint64_t rounds = 300;
    for (std::uint64_t n = 0; n < rounds; ++n) {
        on.run_until([&] { return end.link->post_copied(header_of(n), {}) == post_result::done; });
        on.run_until([&] { return end.sink.count == n + 1; });
    }
    const bool slept = on.parks() > 0;
    end.link.reset();
    on.run_until([&] { return domain.connections() == 0; });
    other.join();
    return slept && other.parks > 0;
}

}  // namespace

TEST_CASE("two schedulers that park at every wait lose no wake-up, where the provider has a descriptor") {
    CHECK(rounds_with_sleep(ofi_here("tcp")));
}

TEST_CASE("where the provider has no descriptor a scheduler yields, and nothing is lost") {
    CHECK_FALSE(rounds_with_sleep(ofi_here("shm")));
}

TEST_CASE("a domain that may not park is polled") {
    ofi_options o = ofi_here("tcp");
    o.may_park = false;
    CHECK_FALSE(rounds_with_sleep(o));
}

TEST_CASE("a domain whose links are idle asks the provider for completions once in some microseconds, and "
          "not in each turn") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    const auto begin = std::chrono::steady_clock::now();
    const std::uint64_t before = w.server.counts().polls;
    // What was under way just now may be polled for, and the time last seen may be a little old.
    constexpr std::uint64_t first =
        2 * (detail::poll_pace::polls_when_hot + detail::poll_pace::polls_after_post);
    const auto most = [&] {
        const auto passed = std::chrono::steady_clock::now() - begin;
        return first + static_cast<std::uint64_t>(passed / detail::poll_pace::least_rest);
    };
    std::uint64_t turns = 0;
    const auto limit = begin + std::chrono::seconds(20);
    while ((turns < 4 * most() || turns < 100'000) && std::chrono::steady_clock::now() < limit) {
        w.turns(100);
        turns += 100;
    }
    const std::uint64_t polls = w.server.counts().polls - before;
    CAPTURE(turns);
    CHECK(turns >= 4 * most());  // else this shows nothing
    CHECK(polls > 0);
    CHECK(polls <= most());
    // A message is found all the same.
    REQUIRE(a.link->post_copied(header_of(7), {}) == post_result::done);
    w.until([&] { return b.sink.count == 1; });
}

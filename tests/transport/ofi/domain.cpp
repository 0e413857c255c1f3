#include <rdmacoro/transport/ofi/domain.hpp>

#include "ofi/pair.hpp"

#include <atomic>
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

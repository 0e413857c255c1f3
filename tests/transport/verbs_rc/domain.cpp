#include <rdmacoro/transport/verbs_rc/domain.hpp>

#include "verbs/pair.hpp"

#include "support/catch.hpp"

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

task<verbs_connection> accept_one(verbs_domain& domain, std::string& address, std::atomic<bool>& listens) {
    verbs_listener listening = co_await domain.listen("*:0");
    address = listening.address();
    listens.store(true);
    co_return co_await listening.accept();
}

/// Echoes what comes, in a thread with a scheduler of its own that parks whenever it can, until the peer is gone.
struct echo_thread {
    explicit echo_thread(const verbs_options& options)
        : thread([this, options] {
              scheduler on{park_at_once{}};
              verbs_domain domain(on, options);
              verbs_end end;
              end.link = std::make_unique<verbs_recorded_link>(on.run(accept_one(domain, address, listens)),
                                                               end.sink);
              end.sink.count_only = true;
              end.sink.on_message = [&](const recorded_message& m) {
                  static_cast<void>(end.link->post_copied(header_of(m.number), {}));
              };
              on.run_until([&] { return end.sink.downs != 0; });
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

}  // namespace

TEST_CASE("two schedulers that park at every wait lose no wake-up") {
    FOR_EACH_VERBS_DEVICE(way);
    echo_thread other(way.options);
    scheduler on{park_at_once{}};
    verbs_domain domain(on, way.options);
    verbs_end end;
    end.link = std::make_unique<verbs_recorded_link>(on.run(domain.connect(other.address)), end.sink);
    constexpr std::uint64_t rounds = 300;
    for (std::uint64_t n = 0; n < rounds; ++n) {
        REQUIRE(end.link->post_copied(header_of(n), {}) == post_result::done);
        on.run_until([&] { return end.sink.count == n + 1; });
    }
    CHECK(on.parks() > 0);
    end.link.reset();
    on.run_until([&] { return domain.connections() == 0; });
    other.join();
    CHECK(other.parks > 0);
}

#include <rdmacoro/transport/tcp/domain.hpp>
#include <rdmacoro/transport/tcp/listen_state.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/tcp_pair.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <deque>
#include <new>
#include <thread>

#include <sys/resource.h>
#include <sys/wait.h>

namespace test_transport_tcp_domain {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Parks as soon as nothing moves.
struct park_at_once {
    idle::action next(rdmacoro::clock&) noexcept { return idle::action::park; }
    void progress() noexcept {}
};

tcp_options with(tcp_feature features) {
    tcp_options options;
    options.features = features;
    return options;
}

/// The rungs from the newest kernels to the oldest that serves.
tcp_options any_rung() {
    return with(GENERATE(tcp_feature::all, tcp_feature::all - tcp_feature::multishot_receive,
                         tcp_feature::all - tcp_feature::deferred_task_work, tcp_feature::single_issuer,
                         tcp_feature::multishot_receive, tcp_feature::none));
}

/// Echoes what comes, `count` times, in a thread with a scheduler of its own that parks whenever it can.
class echo_thread {
public:
    explicit echo_thread(const tcp_options& options) {
        thread_ = std::thread([this, options] {
            scheduler on{park_at_once{}};
            tcp_domain domain(on, options);
            on.run(serve(domain));
            parks = on.parks();
        });
        while (!listening_.load()) std::this_thread::yield();
    }
    ~echo_thread() { join(); }
    void join() {
        if (thread_.joinable()) thread_.join();
    }

    std::string address;
    std::uint64_t parks = 0;

private:
    task<> serve(tcp_domain& domain) {
        tcp_listener listener = co_await domain.listen("127.0.0.1:0");
        address = listener.address();
        listening_.store(true);
        tcp_connection connection = co_await listener.accept();
        tcp_end end;
        end.link = std::make_unique<recorded_link>(std::move(connection), end.sink);
        end.sink.count_only = true;
        recorded_link* link = end.link.get();
        end.sink.on_message = [link](const recorded_message& m) {
            static_cast<void>(link->post_copied(header_of(m.number), {}));
        };
        domain.owner().run_until([&] { return end.sink.downs != 0; });
    }

    std::atomic<bool> listening_{false};
    std::thread thread_;
};

}  // namespace

TEST_CASE("a domain whose listeners may keep no client waiting is refused") {
    scheduler on{impatient{}};
    tcp_options none;
    none.most_waiting = 0;
    try {
        const tcp_domain made(on, none);
        FAIL("it was made");
    } catch (const error& why) {
        CHECK(why.code() == errc::invalid_argument);
        CHECK_THAT(why.what(), contains("most_waiting"));
    }
}

TEST_CASE("a domain whose connections have no time to greet is refused") {
    scheduler on{impatient{}};
    tcp_options none;
    none.handshake_timeout = GENERATE(duration::zero(), duration(-1));
    try {
        const tcp_domain made(on, none);
        FAIL("it was made");
    } catch (const error& why) {
        CHECK(why.code() == errc::invalid_argument);
        CHECK_THAT(why.what(), contains("handshake_timeout"));
    }
}

TEST_CASE("a listener for which there is no memory leaves no socket behind, and its port free") {
    if (!counts_allocations) SKIP_TEST("operator new belongs to AddressSanitizer");
    tcp_world world;
    const std::string address = world.listen().address();
    world.until([&] { return world.server.sockets() == 0; });
    const std::size_t open = open_descriptors();
    const std::size_t bytes = GENERATE(sizeof(detail::tcp_listen_state), sizeof(detail::tcp_session));
    {
        const failing_allocations none(bytes, bytes);
        try {
            const tcp_listener made = world.listen(address);
            FAIL_CHECK("it listens");
        } catch (const error& why) {
            CHECK(why.code() == errc::no_resources);
        } catch (const std::bad_alloc&) {
            FAIL_CHECK("another exception");
        }
    }
    CHECK(open_descriptors() == open);
    CHECK(world.listen(address).address() == address);
}

TEST_CASE("a domain of which a part finds no memory leaves nothing open") {
    if (!counts_allocations) SKIP_TEST("operator new belongs to AddressSanitizer");
    scheduler on;
    const std::size_t open = open_descriptors();
    bool failed = true;
    for (std::size_t n = 1; failed; ++n) {
        REQUIRE(n < 100);
        fail_allocation(n);
        try {
            const tcp_domain made(on);
            failed = !allocation_is_to_fail();
        } catch (const std::bad_alloc&) {}
        fail_allocation(0);
        CHECK(open_descriptors() == open);
    }
}

TEST_CASE("a domain says which features it uses") {
    scheduler on;
    CHECK_THAT(tcp_domain(on, with(tcp_feature::none)).describe(),
               contains("cooperative task work") && contains("poll before receive"));
    const std::string all = tcp_domain(on).describe();
    CHECK_THAT(all, contains("io_uring"));
}

TEST_CASE("each rung of features carries messages of all kinds, with links hot and cold") {
    tcp_options options = any_rung();
    options.most_polled = GENERATE(0u, 1u, 4u);
    tcp_world world(options);
    tcp_listener listener = world.listen();
    std::deque<tcp_end> ends;
    for (unsigned i = 0; i < 6; ++i) {
        auto made = world.connect(listener);
        tcp_end& a = ends.emplace_back();
        a.link = std::make_unique<recorded_link>(std::move(made.client), a.sink);
        tcp_end& b = ends.emplace_back();
        b.link = std::make_unique<recorded_link>(std::move(made.server), b.sink);
    }
    const std::size_t lengths[] = {8, 3000, 100'000, 0, 40'000, 1'000'000, 17};
    unsigned number = 0;
    for (unsigned round = 0; round < 4; ++round) {
        for (const std::size_t bytes : lengths) {
            const auto payload = pattern(bytes, number);
            std::deque<recording_completion> completions;
            for (tcp_end& end : ends) {
                const post_result answer =
                    end.link->post(header_of(number), payload, completions.emplace_back());
                REQUIRE((answer == post_result::done || answer == post_result::posted));
            }
            ++number;
            world.until([&] {
                for (const tcp_end& end : ends) {
                    if (end.sink.count != number) return false;
                }
                return true;
            });
            for (const tcp_end& end : ends) REQUIRE(end.sink.messages.back().payload == payload);
        }
    }
}

TEST_CASE("a parked scheduler wakes for messages, short and long, on every rung") {
    const tcp_options options = any_rung();
    echo_thread echo(options);
    scheduler on{park_at_once{}};
    {
        tcp_domain domain(on, options);
        tcp_end end;
        end.link = std::make_unique<recorded_link>(on.run(domain.connect(echo.address)), end.sink);
        const std::size_t lengths[] = {8, 100'000, 0, 1'000'000, 5000};
        for (unsigned i = 0; i < 200; ++i) {
            const auto payload = pattern(lengths[i % std::size(lengths)]);
            recording_completion c;
            const post_result answer = end.link->post(header_of(i), payload, c);
            REQUIRE((answer == post_result::done || answer == post_result::posted));
            on.run_until(
                [&] { return end.sink.count == i + 1 && (answer == post_result::done || c.calls == 1); });
            REQUIRE(end.sink.messages.back().number == i);
        }
        end.link.reset();
        echo.join();
    }
    CHECK(on.parks() > 0);
    CHECK(echo.parks > 0);
}

TEST_CASE("many links armed at a time wake their scheduler one after the other") {
    echo_thread echo({});
    // A second listener, on this thread's own domain, with clients that are plain sockets: nothing of theirs moves
    // until the test says so.
    scheduler on{park_at_once{}};
    tcp_domain domain(on);
    tcp_listener listener = on.run(domain.listen("127.0.0.1:0"));
    std::deque<tcp_end> ends;
    std::vector<raw_peer> peers;
    detail::tcp_greeting greeting;
    for (unsigned i = 0; i < 40; ++i) {
        peers.push_back(raw_peer::to(listener.address()));
        greeting.nonce = i + 1;
        std::size_t sent = 0;
        REQUIRE(peers.back().try_send(greeting.store(), sent));
        tcp_end& end = ends.emplace_back();
        end.link = std::make_unique<recorded_link>(on.run(listener.accept()), end.sink);
    }
    const auto one = message_frame(5, pattern(20));
    for (unsigned round = 0; round < 5; ++round) {
        for (unsigned i = 0; i < peers.size(); ++i) {
            std::thread sender([&] {
                std::size_t sent = 0;
                peers[i].try_send(one, sent);
            });
            on.run_until([&] { return ends[i].sink.count == round + 1; });
            sender.join();
        }
    }
    CHECK(on.parks() > 0);
    ends.clear();
    tcp_end last;  // so that the echo ends
    last.link = std::make_unique<recorded_link>(on.run(domain.connect(echo.address)), last.sink);
}

TEST_CASE("a parked scheduler learns that a peer was killed, and so does one that spins") {
    const bool parks = GENERATE(false, true);
    const bool in_mid_message = GENERATE(false, true);
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        scheduler on;
        tcp_domain domain(on);
        tcp_listener listener = on.run(domain.listen("127.0.0.1:0"));
        const std::string address = listener.address();
        [[maybe_unused]] const auto written = ::write(ready[1], address.c_str(), address.size() + 1);
        tcp_end end;
        end.link = std::make_unique<recorded_link>(on.run(listener.accept()), end.sink);
        const auto payload = pattern(detail::tcp_most_message);
        std::deque<recording_completion> completions(in_mid_message ? 64 : 0);
        for (auto& c : completions) static_cast<void>(end.link->post(header_of(1), payload, c));
        on.run_until([] { return false; });
        ::_exit(0);
    }
    char address[64] = {};
    REQUIRE(::read(ready[0], address, sizeof address) > 0);
    ::close(ready[0]);
    ::close(ready[1]);
    const auto expect_end = [&](scheduler& on) {
        tcp_domain domain(on);
        tcp_end end;
        end.link = std::make_unique<recorded_link>(on.run(domain.connect(address)), end.sink);
        if (in_mid_message) {
            end.sink.refuse_all = true;
            on.run_until([&] { return end.sink.offers > 0; });
        }
        std::vector<std::byte> into(100);
        recording_completion get;
        REQUIRE(end.link->get({0x1000, 100, 0x123456789, access_rights::all}, into, get) ==
                post_result::posted);
        const auto payload = pattern(detail::tcp_most_message);
        std::deque<recording_completion> posted;
        if (in_mid_message) {
            // The child reads: these go through until it is killed.
            for (unsigned i = 0; i < 4; ++i) {
                recording_completion& c = posted.emplace_back();
                if (end.link->post(header_of(i), payload, c) != post_result::posted) posted.pop_back();
            }
        }
        std::thread killer([&] {
            ::kill(child, SIGKILL);
            int status = 0;
            ::waitpid(child, &status, 0);
        });
        end.sink.refuse_all = false;
        on.run_until([&] { return end.sink.downs == 1; });
        killer.join();
        CHECK(end.sink.reason == errc::peer_lost);
        CHECK(get.calls == 1);
        for (const auto& c : posted) CHECK(c.calls == 1);
        recording_completion after;
        CHECK(end.link->post(header_of(1), payload, after) == post_result::failed);
    };
    if (parks) {
        scheduler on{park_at_once{}};
        expect_end(on);
    } else {
        scheduler on{idle::spin{}};
        expect_end(on);
    }
}

TEST_CASE("messages allocate nothing once a link is warm") {
    if (!counts_allocations) SKIP_TEST("operator new belongs to AddressSanitizer");
    tcp_pair p;
    const auto small = pattern(8);
    const auto large = pattern(300'000);
    std::vector<std::byte> memory(100'000);
    std::vector<std::byte> into(100'000);
    region open = p.server.register_memory(memory, access_rights::all);

    struct counting_sink {
        std::vector<std::byte> space = std::vector<std::byte>(1 << 20);
        std::uint64_t count = 0;
        std::size_t left = 0;
        delivery deliver(const message_header&, std::span<const std::byte>) noexcept {
            ++count;
            return delivery::taken;
        }
        delivery begin_payload(const message_header&, std::size_t bytes) noexcept {
            left = bytes;
            return delivery::taken;
        }
        std::span<std::byte> payload_space() noexcept { return std::span(space).first(left); }
        void payload_arrived(std::size_t bytes) noexcept {
            left -= bytes;
            if (left == 0) ++count;
        }
        void writable() noexcept {}
        void link_down(std::error_code) noexcept {}
    };
    auto made = p.connect(p.listener);
    counting_sink sinks[2];
    tcp::link<counting_sink> a(std::move(made.client), sinks[0]);
    tcp::link<counting_sink> b(std::move(made.server), sinks[1]);
    std::array<recording_completion, 40> completions;
    bool accepted = true;
    const auto work = [&] {
        const std::uint64_t before = sinks[1].count;
        const unsigned rounds = completions[39].calls + 1;
        for (unsigned i = 0; i < 32; ++i) {
            accepted &=
                a.post(header_of(i), i % 8 == 0 ? large : small, completions[i]) != post_result::failed;
        }
        for (unsigned i = 32; i < 36; ++i)
            accepted &= a.get(open.remote(), into, completions[i]) == post_result::posted;
        for (unsigned i = 36; i < 40; ++i)
            accepted &= a.put(into, open.remote(), completions[i]) == post_result::posted;
        p.until([&] {
            return sinks[1].count == before + 32 && completions[39].calls == rounds &&
                   completions[35].calls == rounds;
        });
    };
    for (unsigned i = 0; i < 10; ++i) work();
    const std::size_t before = allocations();
    for (unsigned i = 0; i < 20; ++i) work();
    const std::size_t taken = allocations() - before;
    CHECK(taken == 0);
    CHECK(accepted);
}

TEST_CASE("idle links hold none of the domain's memory") {
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const unsigned links = limit.rlim_cur > 4500 ? 1000 : 100;
    tcp_world world;
    tcp_listener listener = world.listen();
    std::deque<tcp_end> ends;
    for (unsigned i = 0; i < links; ++i) {
        auto made = world.connect(listener);
        tcp_end& a = ends.emplace_back();
        a.link = std::make_unique<recorded_link>(std::move(made.client), a.sink);
        tcp_end& b = ends.emplace_back();
        b.link = std::make_unique<recorded_link>(std::move(made.server), b.sink);
    }
    for (tcp_end& end : ends) REQUIRE(end.link->post_copied(header_of(1), pattern(10)) == post_result::done);
    world.until([&] {
        for (const tcp_end& end : ends) {
            if (end.sink.count != 1) return false;
        }
        return true;
    });
    world.turns(100);
    CHECK(world.client.chunks() <= 8);
    CHECK(world.server.chunks() <= 8);
    CHECK(sizeof(detail::tcp_session) <= 1536);
}

}  // namespace test_transport_tcp_domain

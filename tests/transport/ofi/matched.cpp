#include <rdmacoro/transport/ofi/matched.hpp>

#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/transport/detail/poll_pace.hpp>

#include "ofi/pair.hpp"
#include "support/counting_new.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace test_transport_ofi_matched {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::detail::fabric;

static_assert(matching_link<ofi_any::link<rdmacoro::detail::sink_archetype>>);

namespace {

/// A receive or claim, and how it completed.
struct recorded : tagged_completion {
    recorded() noexcept {
        done = [](completion& c, std::error_code with) noexcept {
            auto& self = static_cast<recorded&>(c);
            ++self.count;
            self.outcome = with;
        };
    }
    int count = 0;
    std::error_code outcome;
};

/// Posts until there is room. What it answered then.
template <class Post>
post_result until_taken(ofi_world& w, Post post) {
    post_result answer = post_result::retry;
    w.until([&] {
        if (answer == post_result::retry) answer = post();
        return answer != post_result::retry;
    });
    return answer;
}

post_result send_tagged(ofi_world& w, ofi_end& from, std::uint64_t tag, std::uint32_t note,
                        std::span<const std::byte> payload, completion& c) {
    // The other side's endpoint is opened by what it is asked for first.
    return until_taken(w, [&] { return from.link->post_tagged(tag, note, const_buffers(payload), c); });
}

post_result receive_tagged(ofi_world& w, ofi_end& at, std::uint64_t tag, std::uint64_t mask,
                           std::span<std::byte> into, recorded& c) {
    return until_taken(w, [&] { return at.link->post_receive(tag, mask, mutable_buffers(into), c); });
}

constexpr std::uint64_t exact = ~std::uint64_t{0};

struct matched_pair {
    explicit matched_pair(const std::string& provider) : world(ofi_here(provider)) {
        world.link(a, b);
        static_cast<void>(a.link->matching());
        static_cast<void>(b.link->matching());
    }
    ofi_world world;
    ofi_end a;
    ofi_end b;
};

}  // namespace

TEST_CASE("messages of all lengths match the receives of their tags, and carry their notes") {
    matched_pair p("tcp");
    CHECK(p.a.link->matching().tag_bits == 64);
    const std::size_t buffered = p.a.link->matching().buffered_bytes;
    CHECK(buffered > 1000);
    std::uint32_t note = 0;
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{8}, buffered, buffered + 1, std::size_t{3} << 20}) {
        CAPTURE(bytes);
        const std::uint64_t tag = (std::uint64_t{1} << 63) | bytes;
        const auto data = pattern(bytes, 5);
        std::vector<std::byte> into(bytes + 1);
        recorded got;
        recorded other;
        recording_completion sent;
        REQUIRE(receive_tagged(p.world, p.b, tag ^ 1, exact, {}, other) == post_result::posted);
        REQUIRE(receive_tagged(p.world, p.b, tag, exact, into, got) == post_result::posted);
        const post_result answer = send_tagged(p.world, p.a, tag, ++note, data, sent);
        CHECK(answer == (bytes <= buffered ? post_result::done : post_result::posted));
        p.world.until([&] { return got.count == 1; });
        CHECK_FALSE(got.outcome);
        CHECK(got.tag == tag);
        CHECK(got.note == note);
        CHECK(got.bytes == bytes);
        CHECK(std::equal(data.begin(), data.end(), into.begin()));
        if (answer == post_result::posted) {
            p.world.until([&] { return sent.calls == 1; });
            CHECK_FALSE(sent.outcome);
        }
        CHECK(other.count == 0);
        if (!p.b.link->withdraw(other)) p.world.until([&] { return other.count == 1; });
    }
}

TEST_CASE("a message longer than its receive fills it, and its true length is reported") {
    matched_pair p("tcp");
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{1} << 20}) {
        for (const std::size_t room : {std::size_t{0}, std::size_t{10}}) {
            const auto data = pattern(bytes, 6);
            std::vector<std::byte> into(64, std::byte{0xee});
            recorded got;
            recording_completion sent;
            REQUIRE(receive_tagged(p.world, p.b, 1, exact, std::span(into).first(room), got) ==
                    post_result::posted);
            const post_result answer = send_tagged(p.world, p.a, 1, 0, data, sent);
            p.world.until([&] { return got.count == 1 && (answer == post_result::done || sent.calls == 1); });
            CHECK_FALSE(got.outcome);
            CHECK(got.bytes == bytes);
            CHECK(std::equal(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(room), data.begin()));
            CHECK(into[room] == std::byte{0xee});
        }
    }
}

TEST_CASE("messages without a receive are claimed in the order sent, and received or discarded") {
    matched_pair p("tcp");
    const auto little = pattern(300, 1);
    const auto much = pattern(200'000, 2);
    recording_completion sent[4];
    REQUIRE(send_tagged(p.world, p.a, 1, 11, little, sent[0]) == post_result::done);
    REQUIRE(send_tagged(p.world, p.a, 2, 12, much, sent[1]) == post_result::posted);
    REQUIRE(send_tagged(p.world, p.a, 3, 13, little, sent[2]) == post_result::done);
    REQUIRE(send_tagged(p.world, p.a, 4, 14, much, sent[3]) == post_result::posted);
    std::vector<claimed_message> claims;
    for (std::uint64_t tag = 1; tag <= 4; ++tag) {
        recorded claim;
        REQUIRE(p.b.link->claim(claim) == post_result::posted);
        p.world.until([&] { return claim.count == 1; });
        CHECK(claim.tag == tag);
        CHECK(claim.note == 10 + tag);
        CHECK(claim.bytes == (tag % 2 == 1 ? little.size() : much.size()));
        claims.push_back(claim.claim);
    }
    CHECK(sent[1].calls + sent[3].calls == 0);  // they lie where they are
    std::vector<std::byte> into(much.size());
    recorded got;
    CHECK(p.b.link->receive_claimed(claims[0], mutable_buffers(std::span(into)), got) == post_result::done);
    CHECK(std::equal(little.begin(), little.end(), into.begin()));
    REQUIRE(p.b.link->receive_claimed(claims[1], mutable_buffers(std::span(into)), got) ==
            post_result::posted);
    p.world.until([&] { return got.count == 1 && sent[1].calls == 1; });
    CHECK(into == much);
    p.b.link->discard(claims[2]);
    p.b.link->discard(claims[3]);
    p.world.until([&] { return sent[3].calls == 1; });
    CHECK_FALSE(sent[3].outcome);
}

TEST_CASE("a receive and a claim are withdrawn, and the next message goes to the next receive") {
    matched_pair p("tcp");
    std::uint64_t number = 0;
    const auto room = std::as_writable_bytes(std::span(&number, 1));
    recorded given_up;
    REQUIRE(receive_tagged(p.world, p.b, 0, 0, room, given_up) == post_result::posted);
    CHECK(p.b.link->withdraw(given_up));
    recorded claim;
    REQUIRE(p.b.link->claim(claim) == post_result::posted);
    CHECK(p.b.link->withdraw(claim));
    recorded got;
    REQUIRE(receive_tagged(p.world, p.b, 9, exact, room, got) == post_result::posted);
    const std::uint64_t said = 77;
    recording_completion sent;
    REQUIRE(send_tagged(p.world, p.a, 9, 0, std::as_bytes(std::span(&said, 1)), sent) == post_result::done);
    p.world.until([&] { return got.count == 1; });
    CHECK(number == 77);
    CHECK(given_up.count + claim.count == 0);
}

TEST_CASE("more receives than the provider is given wait for room, a claim does not") {
    matched_pair p("tcp");
    std::vector<recorded> all(matched_side::most_receives);
    for (recorded& one : all) REQUIRE(receive_tagged(p.world, p.b, 5, exact, {}, one) == post_result::posted);
    recorded more;
    CHECK(p.b.link->post_receive(5, exact, {}, more) == post_result::retry);
    recorded claim;
    CHECK(p.b.link->claim(claim) == post_result::posted);
    recording_completion sent;
    REQUIRE(send_tagged(p.world, p.a, 5, 0, {}, sent) == post_result::done);
    p.world.until([&] { return all.front().count == 1; });
    p.world.until([&] { return p.b.sink.writables != 0; });
    CHECK(p.b.link->post_receive(5, exact, {}, more) == post_result::posted);
    CHECK(claim.count == 0);
    p.b.link->close(make_error_code(errc::closed));
    CHECK(all.back().outcome == errc::closed);
    CHECK(claim.outcome == errc::closed);
    CHECK(more.outcome == errc::closed);
}

TEST_CASE("a close ends the receives and claims at the provider, and memory is not touched after it") {
    matched_pair p("tcp");
    const auto much = pattern(500'000, 3);
    recording_completion sent;
    REQUIRE(send_tagged(p.world, p.a, 1, 0, much, sent) == post_result::posted);
    std::vector<std::byte> into(100, std::byte{0xee});
    recorded got;
    recorded claim;
    REQUIRE(receive_tagged(p.world, p.b, 2, exact, into, got) == post_result::posted);
    REQUIRE(p.b.link->claim(claim) == post_result::posted);
    p.world.until([&] { return claim.count == 1; });
    recorded next;
    REQUIRE(p.b.link->claim(next) == post_result::posted);
    p.b.link->close(make_error_code(errc::closed));
    CHECK(got.count == 1);
    CHECK(got.outcome == errc::closed);
    CHECK(next.count == 1);
    CHECK(next.outcome == errc::closed);
    p.world.until([&] { return p.a.sink.downs == 1; });
    CHECK(sent.calls == 1);
    CHECK(sent.outcome);
    CHECK(std::all_of(into.begin(), into.end(), [](std::byte b) { return b == std::byte{0xee}; }));
    CHECK(p.a.link->post_tagged(1, 0, const_buffers(much), sent) == post_result::failed);
    p.a.link.reset();
    p.b.link.reset();
    p.world.until_all_gone();
}

TEST_CASE("several links of two domains keep their messages apart") {
    ofi_world w(ofi_here("tcp"));
    ofi_end a[3];
    ofi_end b[3];
    for (int i = 0; i < 3; ++i) w.link(a[i], b[i]);
    std::uint64_t numbers[3] = {};
    recorded got[3];
    for (int i = 0; i < 3; ++i)
        REQUIRE(receive_tagged(w, b[i], 1, exact, std::as_writable_bytes(std::span(&numbers[i], 1)),
                               got[i]) == post_result::posted);
    recording_completion sent;
    for (const int i : {2, 0, 1}) {
        const auto number = static_cast<std::uint64_t>(i) + 40;
        REQUIRE(send_tagged(w, a[i], 1, 0, std::as_bytes(std::span(&number, 1)), sent) == post_result::done);
    }
    for (int i = 0; i < 3; ++i) {
        w.until([&] { return got[i].count == 1; });
        CHECK(numbers[i] == static_cast<std::uint64_t>(i) + 40);
    }
}

TEST_CASE("a turn looks at few of many tagged endpoints at rest, and at each in its time") {
    constexpr std::size_t count = 60;
    ofi_world w(ofi_here("tcp"));
    std::vector<recorded> got(count);
    std::vector<std::uint64_t> numbers(count);
    std::vector<ofi_end> a(count);
    std::vector<ofi_end> b(count);
    const auto receive = [&](std::size_t i) {
        REQUIRE(receive_tagged(w, b[i], 1, exact, std::as_writable_bytes(std::span(&numbers[i], 1)),
                               got[i]) == post_result::posted);
    };
    for (std::size_t i = 0; i < count; ++i) {
        w.link(a[i], b[i]);
        receive(i);
    }
    recording_completion sent;
    const auto send_to = [&](std::size_t i) {
        const std::uint64_t number = i + 40;
        REQUIRE(send_tagged(w, a[i], 1, 0, std::as_bytes(std::span(&number, 1)), sent) == post_result::done);
    };
    for (std::size_t i = 0; i < count; ++i) send_to(i);
    for (std::size_t i = 0; i < count; ++i) w.until([&] { return got[i].count == 1; });
    for (std::size_t i = 0; i < count; ++i) receive(i);
    w.turns(2000);  // until they rest
    constexpr unsigned turns = 1000;
    const std::uint64_t before = w.server.counts().polls;
    w.turns(turns);
    CHECK(w.server.counts().polls - before <= 20 * turns);
    for (std::size_t i = count; i-- > 0;) {
        numbers[i] = 0;
        send_to(i);
        w.until([&] { return got[i].count == 2; });
        CHECK(numbers[i] == i + 40);
    }
}

TEST_CASE(
    "a domain whose matched links are idle asks the provider for completions once in some microseconds, "
    "and not in each turn") {
    matched_pair p("tcp");
    recorded got;
    std::uint64_t number = 0;
    const auto into = std::as_writable_bytes(std::span(&number, 1));
    REQUIRE(receive_tagged(p.world, p.b, 1, exact, into, got) == post_result::posted);
    const auto begin = std::chrono::steady_clock::now();
    const std::uint64_t before = p.world.server.counts().polls;
    // Each poll looks at the domain's queue, and at the link's. What was under way just now may be polled for.
    constexpr std::uint64_t first =
        4 * (rdmacoro::detail::poll_pace::polls_when_hot + rdmacoro::detail::poll_pace::polls_after_post);
    const auto most = [&] {
        const auto passed = std::chrono::steady_clock::now() - begin;
        return 2 * (first + static_cast<std::uint64_t>(passed / rdmacoro::detail::poll_pace::least_rest));
    };
    std::uint64_t turns = 0;
    const auto limit = begin + std::chrono::seconds(20);
    while ((turns < 2 * most() || turns < 100'000) && std::chrono::steady_clock::now() < limit) {
        p.world.turns(100);
        turns += 100;
    }
    const std::uint64_t polls = p.world.server.counts().polls - before;
    CAPTURE(turns);
    if (counts_allocations)
        CHECK(turns >= 2 * most());  // else this shows nothing: under a sanitizer turns take too long
    CHECK(polls > 0);
    CHECK(polls <= most());
    // A message is found all the same.
    const std::uint64_t said = 7;
    recording_completion sent;
    REQUIRE(send_tagged(p.world, p.a, 1, 0, std::as_bytes(std::span(&said, 1)), sent) == post_result::done);
    p.world.until([&] { return got.count == 1; });
    CHECK(number == 7);
}

namespace {

/// shm, which matches what finds its receive posted in every version.
constexpr ofi_profile always_matching_shm = [] {
    ofi_profile p = provider::shm;
    p.matches_from = 0;
    return p;
}();

}  // namespace

TEST_CASE("where what is not injected may wait for its receive, messages are long beyond what is injected, "
          "and their heads are "
          "injected, however little options inject") {
    using transport = ofi<always_matching_shm>;
    const std::size_t inject = GENERATE(0u, 8u, 16u, 39u, 100u);
    CAPTURE(inject);
    ofi_options options;
    options.inject_bytes = inject;
    scheduler on{impatient{}};
    transport::domain here(on, options);
    transport::domain there(on, options);
    on.run([](transport::domain& from, transport::domain& to, std::size_t bytes) -> task<> {
        auto listening = co_await to.listen("127.0.0.1:0");
        auto accepting = start(listening.accept());
        ofi_connection made = co_await from.connect(listening.address());
        ofi_connection taken = co_await accepting;
        recording_sink sink_of_a;
        recording_sink sink_of_b;
        transport::link<recording_sink> a(std::move(made), sink_of_a);
        transport::link<recording_sink> b(std::move(taken), sink_of_b);
        CHECK(a.matching().buffered_bytes == std::max<std::size_t>(bytes, 40) - 16);
        CHECK(b.matching().tag_bits == 64);
        const auto data = pattern(200'000, 1);
        std::vector<std::byte> into(data.size());
        recorded got;
        recording_completion sent;
        REQUIRE(b.post_receive(1, exact, mutable_buffers(std::span(into)), got) == post_result::posted);
        std::uint64_t injected = 0;
        for (;;) {
            const std::uint64_t before = a.counts().injected;
            const post_result answer = a.post_tagged(1, 0, const_buffers(data), sent);
            injected = a.counts().injected - before;
            if (answer == post_result::posted) break;
            REQUIRE(answer == post_result::retry);
            co_await yield();
        }
        CHECK(injected == 1);
        while (got.count == 0 || sent.calls == 0) co_await yield();
        CHECK_FALSE(got.outcome);
        CHECK(into == data);
    }(here, there, inject));
}

TEST_CASE("a provider without reliable matching ends the link with errc::unsupported") {
    ofi_world w(ofi_here("sockets"));
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    recorded got;
    CHECK(a.link->post_receive(1, exact, {}, got) == post_result::failed);
    w.until([&] { return a.sink.downs == 1; });
    CHECK(a.sink.reason == errc::unsupported);
    CHECK(got.count == 0);
}

TEST_CASE("connect and listen with provider_matched are refused where the provider does not match reliably, "
          "and the "
          "text says why") {
    using matched = protocols<provider_matched>;
    const std::string provider = GENERATE(as<std::string>{}, "sockets", "shm");
    CAPTURE(provider);
    if (provider == "shm" && ::fi_version() >= provider::shm.matches_from)
        SKIP_TEST("this libfabric's shm does");
    scheduler on{impatient{}};
    ofi_any_domain domain(on, ofi_here(provider));
    on.run([](ofi_any_domain& at, std::string over) -> task<> {
        const auto refused = [&](const std::system_error& how) {
            const std::string text = how.what();
            CAPTURE(text);
            CHECK(how.code() == errc::unsupported);
            CHECK(text.find("provider_matched over " + over + ": its matching is ") == 0);
            if (over == "shm") CHECK(text.find("from libfabric 1.19 on, and this is 1.") != text.npos);
        };
        try {
            auto none = co_await listen<ofi_any, matched>(at, "127.0.0.1:0");
            FAIL("it listens");
        } catch (const std::system_error& how) {
            refused(how);
        }
        try {
            auto none = co_await connect<ofi_any, matched>(at, "127.0.0.1:1");
            FAIL("it connects");
        } catch (const std::system_error& how) {
            refused(how);
        }
        auto other = co_await listen<ofi_any>(at, "127.0.0.1:0");
    }(domain, provider));
}

TEST_CASE("endpoints over ofi leave matching to the provider") {
    using matched = protocols<provider_matched>;
    scheduler on{impatient{}};
    ofi_any_domain here(on, ofi_here("tcp"));
    ofi_any_domain there(on, ofi_here("tcp"));
    on.run([](ofi_any_domain& from, ofi_any_domain& to) -> task<> {
        auto listening = co_await listen<ofi_any, matched>(to, "127.0.0.1:0");
        auto accepting = start(listening.accept());
        auto a = co_await connect<ofi_any, matched>(from, listening.address());
        auto b = co_await accepting;
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
            const auto data = pattern(bytes, 4);
            std::vector<std::byte> into(bytes);
            auto receiving = start(b.recv(into, 3));
            co_await a.ssend(data, 3);
            co_await receiving;
            CHECK(into == data);
            auto back = start(a.recv(into, 4));
            co_await b.send(data, 4);
            co_await back;
            CHECK(into == data);
        }
        CHECK(a.counts().provider_matched_sent == 2);
        CHECK(a.counts().eager_sent == 0);
        auto closing = start(b.close());
        co_await a.close();
        co_await closing;
    }(here, there));
}

namespace {

constexpr int rounds_asleep = 200;

task<> echo_asleep(ofi_any_domain& domain, std::string& address, std::atomic<bool>& listens) {
    auto listening = co_await listen<ofi_any, protocols<provider_matched>>(domain, "127.0.0.1:0");
    address = listening.address();
    listens.store(true);
    auto end = co_await listening.accept();
    for (int i = 0; i < rounds_asleep; ++i) {
        std::uint64_t number = 0;
        co_await end.probe(1);  // the message is claimed
        co_await end.recv(std::as_writable_bytes(std::span(&number, 1)), 1);
        co_await end.send(std::as_bytes(std::span(&number, 1)), 2);
    }
    co_await end.close();
}

task<> ask_asleep(ofi_any_domain& domain, const std::string& address, int& wrong) {
    auto end = co_await connect<ofi_any, protocols<provider_matched>>(domain, address);
    for (std::uint64_t i = 0; i < rounds_asleep; ++i) {
        std::uint64_t back = 0;
        co_await end.send(std::as_bytes(std::span(&i, 1)), 1);
        co_await end.recv(std::as_writable_bytes(std::span(&back, 1)), 2);
        if (back != i) ++wrong;
    }
    co_await end.close();
}

}  // namespace

TEST_CASE("schedulers sleep until a message comes that the provider matches") {
    std::string address;
    std::atomic<bool> listens{false};
    std::uint64_t other_parks = 0;
    std::thread other([&] {
        scheduler on{park_at_once{}};
        ofi_any_domain domain(on, ofi_here("tcp"));
        on.run(echo_asleep(domain, address, listens));
        other_parks = on.parks();
    });
    while (!listens.load()) std::this_thread::yield();
    int wrong = 0;
    std::uint64_t parks = 0;
    {
        scheduler on{park_at_once{}};
        ofi_any_domain domain(on, ofi_here("tcp"));
        on.run(ask_asleep(domain, address, wrong));
        parks = on.parks();
    }
    other.join();
    CHECK(wrong == 0);
    CHECK(parks > 0);
    CHECK(other_parks > 0);
}

}  // namespace test_transport_ofi_matched

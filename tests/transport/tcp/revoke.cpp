// Taking memory back from a tcp link, in each state that something posted can be in.
#include <rdmacoro/transport/tcp.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/tcp_pair.hpp"

#include <deque>

namespace test_transport_tcp_revoke {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Fills the way to the peer, which reads nothing, until messages stay behind.
void fill(tcp_pair& p, std::deque<recording_completion>& completions, const std::vector<std::byte>& payload) {
    p.b.sink.refuse_all = true;
    for (;;) {
        recording_completion& c = completions.emplace_back();
        const post_result answer = p.a.link->post(header_of(completions.size() - 1), payload, c);
        REQUIRE(answer != post_result::failed);
        REQUIRE(answer != post_result::retry);
        p.turns(20);
        if (answer == post_result::posted && c.calls == 0) return;
    }
}

}  // namespace

TEST_CASE("a revoked message that was copied arrives whole, and its completion is not called") {
    tcp_pair p;
    auto payload = pattern(1000);
    recording_completion first;
    recording_completion second;
    static_cast<void>(p.a.link->post(header_of(0), payload, first));
    REQUIRE(p.a.link->post(header_of(1), payload, second) == post_result::posted);
    CHECK(p.a.link->revoke(second));
    std::fill(payload.begin(), payload.end(), std::byte{0});
    p.until([&] { return p.b.sink.count == 2; });
    CHECK(p.b.sink.messages[1].payload == pattern(1000));
    CHECK(second.calls == 0);
}

TEST_CASE("a message that was sent but whose completion was not called yet can be revoked") {
    tcp_pair p;
    const auto payload = pattern(1500);
    std::deque<recording_completion> completions;
    // The chunk runs full in mid-turn, which sends what it holds; completions wait for the next poll.
    for (unsigned i = 0; i < 60; ++i) {
        REQUIRE(p.a.link->post(header_of(i), payload, completions.emplace_back()) != post_result::retry);
    }
    for (unsigned i = 1; i < 60; ++i) CHECK(p.a.link->revoke(completions[i]));
    p.until([&] { return p.b.sink.count == 60; });
    for (const auto& c : completions) CHECK(c.calls == 0);
}

TEST_CASE("a revoked long message arrives whole though its memory is gone, whatever part was sent") {
    tcp_pair p;
    const auto original = pattern(1'000'000, 9);
    std::deque<std::vector<std::byte>> memory;
    std::deque<recording_completion> completions;
    fill(p, completions, original);
    // The one that is under way, and two behind it that have not begun.
    for (unsigned i = 0; i < 2; ++i) {
        memory.push_back(original);
        recording_completion& c = completions.emplace_back();
        REQUIRE(p.a.link->post(header_of(completions.size() - 1), memory.back(), c) == post_result::posted);
    }
    p.turns(20);
    const std::size_t total = completions.size();
    for (std::size_t i = total - 3; i < total; ++i) {
        REQUIRE(completions[i].calls == 0);
        CHECK(p.a.link->revoke(completions[i]));
    }
    for (auto& m : memory) std::fill(m.begin(), m.end(), std::byte{0xee});
    memory.clear();
    p.b.sink.refuse_all = false;
    p.until([&] { return p.b.sink.count == total; });
    for (std::size_t i = 0; i < total; ++i) {
        CHECK(p.b.sink.messages[i].number == i);
        CHECK(p.b.sink.messages[i].payload == original);
    }
    for (std::size_t i = total - 3; i < total; ++i) CHECK(completions[i].calls == 0);
    REQUIRE(p.send(p.a, 77, pattern(3)));
    p.until([&] { return p.b.sink.count == total + 1; });
}

TEST_CASE("what canceled messages leave to a peer that reads nothing is bounded") {
    tcp_pair p;
    const auto payload = pattern(1'000'000);
    std::deque<recording_completion> completions;
    fill(p, completions, payload);
    unsigned taken = 0;
    bool refused = false;
    for (int n = 0; n < 100; ++n) {
        recording_completion& c = completions.emplace_back();
        const post_result answer = p.a.link->post(header_of(completions.size() - 1), payload, c);
        REQUIRE(answer != post_result::failed);
        if (answer == post_result::retry) {
            completions.pop_back();
            refused = true;
            break;
        }
        ++taken;
        CHECK(p.a.link->revoke(c));
        p.turns(5);
    }
    CHECK(refused);
    CHECK(taken <= 3);
    const unsigned writables = p.a.sink.writables;
    p.turns(100);
    CHECK(p.a.sink.writables == writables);  // nothing has changed
    p.b.sink.refuse_all = false;
    p.until([&] { return p.a.sink.writables != writables; });
    p.until([&] { return p.b.sink.count == completions.size(); });
    REQUIRE(p.send(p.a, 77, payload));
}

TEST_CASE("gets and puts that are revoked before the peer hears of them leave nothing behind") {
    tcp_pair p;
    std::vector<std::byte> memory(64);
    const region open = p.server.register_memory(memory, access_rights::all);
    std::vector<std::byte> into(8);
    constexpr std::size_t unanswered = 1024;
    std::deque<recording_completion> first;
    for (std::size_t n = 0; n < unanswered; ++n)
        REQUIRE(p.a.link->get(open.remote().part(0, 8), into, first.emplace_back()) == post_result::posted);
    // The peer has had no turn: further ones wait here, and are canceled in any order.
    std::size_t taken = 0;
    for (int round = 0; round < 60; ++round) {
        std::deque<recording_completion> more;
        for (int n = 0; n < 50; ++n) {
            recording_completion& c = more.emplace_back();
            const std::size_t before = allocations();
            const post_result answer = n % 2 == 0 ? p.a.link->get(open.remote().part(0, 8), into, c)
                                                  : p.a.link->put(into, open.remote().part(0, 8), c);
            if (round != 0) taken += allocations() - before;
            REQUIRE(answer == post_result::posted);
        }
        for (std::size_t n = 0; n < more.size(); ++n) {
            const std::size_t which = round % 3 == 0 ? n : round % 3 == 1 ? more.size() - 1 - n : n * 7 % 50;
            CHECK_FALSE(p.a.link->revoke(more[which]));
        }
    }
    CHECK(taken == 0);
    recording_completion last;
    REQUIRE(p.a.link->put(into, open.remote().part(0, 8), last) == post_result::posted);
    p.until([&] { return last.calls == 1; });
    CHECK_FALSE(last.outcome);
    for (const recording_completion& c : first) CHECK(c.calls == 1);
}

TEST_CASE("a get that is revoked, before or while its data comes, writes nothing more") {
    tcp_pair p;
    auto source = pattern(8'000'000, 3);
    region open = p.server.register_memory(source, access_rights::all);
    std::vector<std::byte> into(source.size());
    const auto polls = GENERATE(0u, 1u, 2u, 3u, 5u);
    recording_completion c;
    REQUIRE(p.a.link->get(open.remote(), into, c) == post_result::posted);
    p.turns(polls);
    if (c.calls == 0) {
        p.a.link->revoke(c);
        const auto snapshot = into;
        // The link lives on, and so does the next operation.
        std::vector<std::byte> more(1000);
        recording_completion next;
        REQUIRE(p.a.link->get(open.remote().part(5, 1000), more, next) == post_result::posted);
        p.until([&] { return next.calls == 1; });
        CHECK_FALSE(next.outcome);
        CHECK(std::equal(more.begin(), more.end(), source.begin() + 5));
        CHECK(into == snapshot);
        CHECK(c.calls == 0);
    }
}

TEST_CASE("a put that is revoked, before or while its data goes, reads nothing more") {
    tcp_pair p;
    std::vector<std::byte> target(8'000'000);
    region open = p.server.register_memory(target, access_rights::all);
    const auto polls = GENERATE(0u, 1u, 2u, 3u, 5u);
    recording_completion c;
    {
        const auto source = std::make_unique<std::vector<std::byte>>(pattern(target.size(), 3));
        REQUIRE(p.a.link->put(*source, open.remote(), c) == post_result::posted);
        p.turns(polls);
        if (c.calls == 0) p.a.link->revoke(c);
    }
    recording_completion next;
    const auto small = pattern(1000, 8);
    REQUIRE(p.a.link->put(small, open.remote().part(5, 1000), next) == post_result::posted);
    p.until([&] { return next.calls == 1; });
    CHECK_FALSE(next.outcome);
    CHECK(std::equal(small.begin(), small.end(), target.begin() + 5));
}

TEST_CASE("operations that wait for earlier ones to be answered can be revoked") {
    tcp_pair p;
    auto memory = pattern(64);
    region open = p.server.register_memory(memory, access_rights::all);
    const std::size_t many = detail::most_outstanding + 100;
    std::deque<recording_completion> gets(many);
    std::vector<std::vector<std::byte>> into(many, std::vector<std::byte>(64));
    for (std::size_t i = 0; i < many; ++i)
        REQUIRE(p.a.link->get(open.remote(), into[i], gets[i]) == post_result::posted);
    for (std::size_t i = many - 50; i < many; ++i) CHECK_FALSE(p.a.link->revoke(gets[i]));
    p.until([&] { return gets[many - 51].calls == 1; });
    for (std::size_t i = 0; i < many - 50; ++i) CHECK(into[i] == memory);
    REQUIRE(p.send(p.a, 1, memory));
    p.until([&] { return p.b.sink.count == 1; });
    for (std::size_t i = many - 50; i < many; ++i) {
        CHECK(gets[i].calls == 0);
        CHECK(into[i] == std::vector<std::byte>(64));
    }
}

}  // namespace test_transport_tcp_revoke

#include <rdmacoro/transport/tcp.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

#include <algorithm>
#include <deque>

namespace test_transport_tcp {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("a message of any length arrives whole") {
    tcp_pair p;
    const auto bytes = GENERATE(0u, 1u, 8u, 47u, 48u, 2048u, 2049u, 4096u, 4097u, 8192u, 65'535u, 65'536u,
                                300'000u, unsigned{detail::tcp_most_message});
    const auto payload = pattern(bytes);
    REQUIRE(p.send(p.a, 7, payload));
    p.until([&] { return p.b.sink.count == 1; });
    CHECK(p.b.sink.messages[0].number == 7);
    CHECK(p.b.sink.messages[0].payload == payload);
}

TEST_CASE("messages of mixed lengths keep their order in both directions at a time") {
    tcp_pair p;
    const std::size_t lengths[] = {8, 100'000, 0, 3000, 5000, 64, 1 << 20, 1, 20'000, 700};
    std::vector<std::vector<std::byte>> payloads;
    for (unsigned i = 0; i < 200; ++i) payloads.push_back(pattern(lengths[i % std::size(lengths)], i));

    unsigned next[2] = {0, 0};
    std::deque<recording_completion> completions;
    tcp_end* ends[2] = {&p.a, &p.b};
    p.until([&] {
        for (unsigned side = 0; side < 2; ++side) {
            while (next[side] < payloads.size()) {
                const post_result answer = ends[side]->link->post(header_of(next[side]), payloads[next[side]],
                                                                  completions.emplace_back());
                if (answer == post_result::retry) break;
                REQUIRE(answer != post_result::failed);
                ++next[side];
            }
        }
        return p.a.sink.count == payloads.size() && p.b.sink.count == payloads.size();
    });
    for (unsigned i = 0; i < payloads.size(); ++i) {
        CHECK(p.a.sink.messages[i].number == i);
        CHECK(p.b.sink.messages[i].number == i);
        CHECK(p.a.sink.messages[i].payload == payloads[i]);
        CHECK(p.b.sink.messages[i].payload == payloads[i]);
    }
}

TEST_CASE("a message gathered from many pieces arrives as one") {
    tcp_pair p;
    const auto pieces = GENERATE(2u, 3u, 4u, 100u);
    const auto piece_bytes = GENERATE(3u, 1000u, 5000u);
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::span<const std::byte>> list;
    std::vector<std::byte> together;
    for (unsigned i = 0; i < pieces; ++i) {
        memory.push_back(pattern(piece_bytes + i, i));
        together.insert(together.end(), memory.back().begin(), memory.back().end());
    }
    for (const auto& one : memory) list.emplace_back(one);
    REQUIRE(p.send(p.a, 1, const_buffers(std::span<const std::span<const std::byte>>(list))));
    REQUIRE(p.send(p.a, 2, pattern(5)));
    p.until([&] { return p.b.sink.count == 2; });
    CHECK(p.b.sink.messages[0].payload == together);
    CHECK(p.b.sink.messages[1].payload == pattern(5));
}

TEST_CASE("what is posted in one turn goes out together, and the first of it at once") {
    tcp_pair p;
    p.turns(50);
    std::deque<recording_completion> completions(100);
    CHECK(p.a.link->post(header_of(0), {}, completions[0]) == post_result::done);
    for (unsigned i = 1; i < completions.size(); ++i) {
        CHECK(p.a.link->post(header_of(i), {}, completions[i]) == post_result::posted);
    }
    p.until([&] { return p.b.sink.count == completions.size(); });
    for (unsigned i = 0; i < completions.size(); ++i) CHECK(completions[i].calls == (i == 0 ? 0 : 1));
}

TEST_CASE("a control message is copied, so that its sender need not wait") {
    tcp_pair p;
    for (unsigned i = 0; i < 100; ++i) {
        std::vector<std::byte> bytes = pattern(most_copied, i);
        CHECK(p.a.link->post_copied(header_of(i), bytes) == post_result::done);
        std::fill(bytes.begin(), bytes.end(), std::byte{0});
    }
    p.until([&] { return p.b.sink.count == 100; });
    for (unsigned i = 0; i < 100; ++i) CHECK(p.b.sink.messages[i].payload == pattern(most_copied, i));
}

TEST_CASE("a link that is not read takes only so much and says when there is room") {
    tcp_pair p;
    p.b.sink.refuse_all = true;
    const auto payload = pattern(1000);
    std::uint64_t posted = 0;
    std::deque<recording_completion> completions;
    p.until([&] {
        const post_result answer = p.a.link->post(header_of(posted), payload, completions.emplace_back());
        REQUIRE(answer != post_result::failed);
        if (answer == post_result::retry) completions.pop_back();
        if (answer != post_result::retry) ++posted;
        return answer == post_result::retry;
    });
    CHECK(p.a.sink.writables == 0);
    CHECK(p.server.chunks() <= 4);
    CHECK(p.client.chunks() <= 4);
    p.b.sink.refuse_all = false;
    p.until([&] { return p.a.sink.writables == 1 && p.b.sink.count == posted; });
    CHECK(p.send(p.a, posted, payload));
    p.until([&] { return p.b.sink.count == posted + 1; });
    for (std::uint64_t i = 0; i <= posted; ++i) CHECK(p.b.sink.messages[i].number == i);
    for (const auto& c : completions) CHECK(c.calls <= 1);
}

TEST_CASE("a message sent in place borrows its memory until the kernel has it, a short one only as long as a "
          "copy takes") {
    tcp_pair p;
    p.b.sink.refuse_all = true;
    const auto filler = pattern(1'000'000);
    std::deque<recording_completion> completions;
    // Until the socket is full, and what is posted stays behind.
    for (bool stays = false; !stays;) {
        recording_completion& c = completions.emplace_back();
        const post_result answer = p.a.link->post(header_of(completions.size() - 1), filler, c);
        REQUIRE((answer == post_result::done || answer == post_result::posted));
        p.turns(20);
        stays = answer == post_result::posted && c.calls == 0;
    }
    const auto bytes = GENERATE(128u, 1000u, 2048u);
    auto memory = pattern(bytes, 3);
    CHECK(p.a.link->prepare_in_place(memory));
    CHECK(p.a.link->in_place(memory));
    const std::uint64_t before = completions.size();
    recording_completion in_place;
    CHECK(p.a.link->post_in_place(header_of(before), memory, in_place) == post_result::posted);
    p.turns(20);
    CHECK(in_place.calls == 0);
    const auto changed = pattern(bytes, 4);
    std::copy(changed.begin(), changed.end(), memory.begin());  // not read yet
    recording_completion revoked;
    auto other = pattern(bytes, 5);
    CHECK(p.a.link->post_in_place(header_of(before + 1), other, revoked) == post_result::posted);
    CHECK(p.a.link->revoke(revoked));
    std::fill(other.begin(), other.end(), std::byte{0});
    p.b.sink.refuse_all = false;
    p.until([&] { return p.b.sink.count == before + 2 && in_place.calls == 1; });
    CHECK(p.b.sink.messages[before].payload == pattern(bytes, 4));
    CHECK(p.b.sink.messages[before + 1].payload == pattern(bytes, 5));
    CHECK_FALSE(in_place.outcome);
    CHECK(revoked.calls == 0);
    const auto tiny = pattern(127, 6);
    recording_completion copied;
    p.turns(50);
    CHECK(p.a.link->post_in_place(header_of(before + 2), tiny, copied) == post_result::done);
    p.until([&] { return p.b.sink.count == before + 3; });
    CHECK(p.b.sink.messages[before + 2].payload == tiny);
}

TEST_CASE("messages in place and copied ones arrive in the order posted, many at every poll, too") {
    tcp_pair p;
    constexpr unsigned rounds = 100;
    constexpr unsigned burst = 20;
    std::vector<std::vector<std::byte>> memory;
    for (unsigned i = 0; i < burst; ++i) memory.push_back(pattern(i * 60, i));
    unsigned posted = 0;
    for (unsigned round = 0; round < rounds; ++round) {
        std::deque<recording_completion> completions;
        unsigned over = 0;
        for (unsigned i = 0; i < burst; ++i, ++posted) {
            recording_completion& c = completions.emplace_back();
            const post_result answer = i % 3 == 0 ? p.a.link->post(header_of(posted), memory[i], c)
                                                  : p.a.link->post_in_place(header_of(posted), memory[i], c);
            REQUIRE((answer == post_result::done || answer == post_result::posted));
            if (answer == post_result::done) ++over;
        }
        p.until([&] {
            unsigned called = 0;
            for (const auto& c : completions) called += c.calls;
            return over + called == burst;
        });
    }
    p.until([&] { return p.b.sink.count == posted; });
    for (unsigned n = 0; n < posted; ++n) {
        CHECK(p.b.sink.messages[n].number == n);
        CHECK(p.b.sink.messages[n].payload == memory[n % burst]);
    }
}

TEST_CASE("what the sink does not take now is offered again before anything behind it") {
    tcp_pair p;
    const auto first_bytes = GENERATE(8u, 5000u, 200'000u);
    p.b.sink.refuse = 10;
    const auto payload = pattern(first_bytes);
    recording_completion c;
    REQUIRE(p.a.link->post(header_of(1), payload, c) != post_result::failed);
    REQUIRE(p.send(p.a, 2, pattern(8)));
    p.until([&] { return p.b.sink.count == 2; });
    CHECK(p.b.sink.offers == 12);
    CHECK(p.b.sink.messages[0].payload == payload);
    CHECK(p.b.sink.messages[1].number == 2);
}

TEST_CASE("an announced payload goes to whatever memory the sink has at a time") {
    tcp_pair p;
    const auto limit = GENERATE(1000u, 4096u, 100'000u);
    p.b.sink.space_limit = limit;
    const auto payload = pattern(500'000);
    REQUIRE(p.send(p.a, 1, payload));
    REQUIRE(p.send(p.a, 2, pattern(3)));
    p.until([&] { return p.b.sink.count == 2; });
    CHECK(p.b.sink.messages[0].payload == payload);
    CHECK(p.b.sink.messages[0].announced);
    CHECK(p.b.sink.messages[1].payload == pattern(3));
}

TEST_CASE("an announced payload for which there is no memory is thrown away and counted") {
    tcp_pair p;
    p.b.sink.discard = true;
    REQUIRE(p.send(p.a, 1, pattern(500'000)));
    REQUIRE(p.send(p.a, 2, pattern(3)));
    p.until([&] { return p.b.sink.count == 2; });
    CHECK(p.b.sink.arrived() == 500'000);
    CHECK(p.b.sink.messages[1].payload == pattern(3));
}

TEST_CASE("kept payloads stay readable when the link and the domain are gone") {
    std::vector<lent_buffer> kept;
    {
        tcp_pair p;
        p.b.sink.keep_with = [&] { return p.b.link->keep(); };
        for (unsigned i = 0; i < 500; ++i) REQUIRE(p.send(p.a, i, pattern(100 + i, i)));
        p.until([&] { return p.b.sink.count == 500; });
        REQUIRE(p.b.sink.kept.size() == 500);
        kept = std::move(p.b.sink.kept);
    }
    for (unsigned i = 0; i < 500; ++i) {
        const auto expected = pattern(100 + i, i);
        CHECK(std::equal(expected.begin(), expected.end(), kept[i].bytes().begin(), kept[i].bytes().end()));
    }
}

TEST_CASE("keeping has a limit, and goes on when something was given back") {
    tcp_pair p;
    std::size_t refused = 0;
    p.b.sink.keep_with = [&] {
        lent_buffer lent = p.b.link->keep();
        refused += lent ? 0 : 1;
        return lent;
    };
    // Each fills most of a chunk, so that each pins one.
    const auto payload = pattern(2000);
    std::uint64_t number = 0;
    while (refused == 0) {
        REQUIRE(number < 20'000);
        REQUIRE(p.send(p.a, number++, payload));
        p.turns(2);
    }
    p.until([&] { return p.b.sink.count == number; });
    CHECK(p.server.chunks() <= detail::tcp_chunk_pool::most_lent + 4);
    p.b.sink.kept.clear();
    refused = 0;
    REQUIRE(p.send(p.a, number++, payload));
    p.until([&] { return p.b.sink.count == number; });
    CHECK(refused == 0);
    p.b.sink.kept.clear();
    CHECK(p.server.chunks() <= 4);
}

TEST_CASE("a sink may post from inside any of its functions") {
    tcp_pair p;
    p.b.sink.on_message = [&](const recorded_message& m) {
        CHECK(p.b.link->post_copied(header_of(m.number + 100),
                                    std::span(m.payload).first(std::min<std::size_t>(m.payload.size(), 8))) ==
              post_result::done);
    };
    REQUIRE(p.send(p.a, 1, pattern(8)));
    REQUIRE(p.send(p.a, 2, pattern(200'000)));
    p.until([&] { return p.a.sink.count == 2; });
    CHECK(p.a.sink.messages[0].number == 101);
    CHECK(p.a.sink.messages[1].number == 102);
}

TEST_CASE("a sink may close its link from inside a call, at any point of a message") {
    tcp_pair p;
    const auto calls = GENERATE(1u, 2u, 3u, 4u, 5u);
    unsigned called = 0;
    const auto close_at = [&] {
        if (++called == calls) p.b.link->close(make_error_code(errc::canceled));
    };
    p.b.sink.on_long = close_at;
    p.b.sink.space_limit = 50'000;
    const auto payload = pattern(1'000'000);
    recording_completion c;
    REQUIRE(p.a.link->post(header_of(1), payload, c) != post_result::failed);
    p.until([&] { return p.a.sink.downs == 1; });
    CHECK(p.b.sink.downs == 1);
    CHECK(p.b.sink.reason == errc::canceled);
    CHECK_FALSE(p.b.sink.after_down);
    CHECK(p.a.sink.reason == errc::peer_lost);
}

TEST_CASE("a sink may close its link from inside deliver") {
    tcp_pair p;
    p.b.sink.on_message = [&](const recorded_message& m) {
        if (m.number == 3) p.b.link->close(make_error_code(errc::canceled));
    };
    for (unsigned i = 0; i < 10; ++i) REQUIRE(p.a.link->post_copied(header_of(i), {}) == post_result::done);
    p.until([&] { return p.a.sink.downs == 1; });
    CHECK(p.b.sink.count == 4);
    CHECK(p.b.sink.downs == 1);
}

TEST_CASE("closing completes everything posted, tells the sink once, and then every post fails") {
    tcp_pair p;
    p.b.sink.refuse_all = true;
    const auto payload = pattern(detail::tcp_most_message);
    std::vector<std::byte> into(100);
    const remote_region nowhere{0x1000, 100, 0x1234567, access_rights::all};
    std::deque<recording_completion> posted;
    while (posted.size() < 20) {
        recording_completion& c = posted.emplace_back();
        const post_result answer = p.a.link->post(header_of(1), payload, c);
        if (answer == post_result::done) posted.pop_back();
        REQUIRE(answer != post_result::failed);
    }
    recording_completion got;
    recording_completion put;
    REQUIRE(p.a.link->get(nowhere, into, got) == post_result::posted);
    REQUIRE(p.a.link->put(into, nowhere, put) == post_result::posted);
    p.a.link->close(make_error_code(errc::timed_out));
    unsigned ended = 0;
    for (const auto& c : posted) {
        CHECK(c.calls == 1);
        ended += c.outcome == errc::timed_out ? 1 : 0;  // the first few had been sent
    }
    CHECK(ended >= 10);
    CHECK(posted.back().outcome == errc::timed_out);
    CHECK(got.outcome == errc::timed_out);
    CHECK(put.outcome == errc::timed_out);
    CHECK(p.a.sink.downs == 1);
    CHECK(p.a.sink.reason == errc::timed_out);
    CHECK(p.a.link->post(header_of(1), payload, got) == post_result::failed);
    CHECK(p.a.link->post_copied(header_of(1), {}) == post_result::failed);
    CHECK(p.a.link->get(nowhere, into, got) == post_result::failed);
    CHECK(p.a.link->put(into, nowhere, got) == post_result::failed);
    CHECK(p.a.link->poll(10) == 0);
    p.a.link->close(make_error_code(errc::canceled));
    CHECK(p.a.sink.downs == 1);
    CHECK(p.a.link->peer_name() != "");
}

TEST_CASE("destroying a link completes what it had posted and tells no sink") {
    tcp_pair p;
    p.b.sink.refuse_all = true;
    const auto payload = pattern(detail::tcp_most_message);
    std::deque<recording_completion> posted(10);
    for (auto& c : posted) REQUIRE(p.a.link->post(header_of(1), payload, c) != post_result::failed);
    p.a.link.reset();
    unsigned closed = 0;
    for (auto& c : posted) closed += c.outcome == errc::closed ? 1 : 0;
    CHECK(closed >= 5);
    CHECK(p.a.sink.downs == 0);
    p.b.sink.refuse_all = false;
    p.until([&] { return p.b.sink.downs == 1; });
    CHECK(p.b.sink.reason == errc::peer_lost);
}

TEST_CASE("what a peer said before it closed is handed up before the end") {
    tcp_pair p;
    p.b.sink.refuse = 100;
    for (unsigned i = 0; i < 1000; ++i) REQUIRE(p.send(p.a, i, pattern(50)));
    p.turns(5);
    p.a.link.reset();
    p.until([&] { return p.b.sink.downs == 1; });
    CHECK(p.b.sink.count == 1000);
    CHECK_FALSE(p.b.sink.after_down);
}

TEST_CASE("what a peer said before it closed comes, though sending to it fails already") {
    raw_pair p;
    std::vector<std::byte> all;
    for (unsigned i = 0; i < 10; ++i) {
        const auto one = message_frame(i, pattern(20));
        all.insert(all.end(), one.begin(), one.end());
    }
    p.b.sink.refuse_all = true;
    p.peer.send(p, all);
    p.until([&] { return p.b.sink.offers > 0; });
    // Unread data makes the system answer with a reset when the socket is closed.
    REQUIRE(p.b.link->post_copied(header_of(0), pattern(100)) == post_result::done);
    p.turns(3);
    p.peer.hang_up();
    p.until([&] { return p.b.link->post_copied(header_of(0), {}) == post_result::failed; });
    CHECK(p.b.sink.downs == 0);
    p.b.sink.refuse_all = false;
    p.until([&] { return p.b.sink.downs == 1; });
    CHECK(p.b.sink.count == 10);
    CHECK(p.b.sink.reason == errc::peer_lost);
}

TEST_CASE("the peer's name is its address") {
    tcp_pair p;
    CHECK(p.a.link->peer_name() == p.listener.address());
    CHECK_THAT(p.b.link->peer_name(), contains("127.0.0.1:"));
    CHECK(&p.a.link->owner() == &p.on);
    CHECK(p.a.link->capabilities().one_sided);
    CHECK(p.a.link->capabilities().max_message == tcp::static_capabilities.max_message);
}

TEST_CASE("polling one link hands up what has come to it and no more than was asked for") {
    tcp_pair p;
    for (unsigned i = 0; i < 10; ++i) REQUIRE(p.a.link->post_copied(header_of(i), {}) == post_result::done);
    while (p.b.sink.count == 0) static_cast<void>(p.b.link->poll(1));
    CHECK(p.b.sink.count == 1);
    p.until([&] { return p.b.sink.count == 10; });
    CHECK(p.b.link->poll(5) == 0);
}

}  // namespace test_transport_tcp

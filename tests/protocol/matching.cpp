#include <rdmacoro/protocol/matching.hpp>

#include "support/catch.hpp"

#include <deque>

using namespace rdmacoro;
using detail::matcher;
using detail::unexpected_message;

namespace {

struct receive final : detail::receive_request {
    receive(tag_match wanted, peer_id source) noexcept
        : receive_request(nullptr, wanted, source, mutable_buffers(), nullptr) {}
};
struct probe final : detail::probe_request {
    probe(tag_match wanted, peer_id source) noexcept : probe_request(nullptr, wanted, source) {}
    [[nodiscard]] bool told() const noexcept { return done(); }
};
struct kept final : unexpected_message {
    kept(tag_type its_tag, peer_id its_source, std::size_t its_bytes = 0) noexcept {
        tag = its_tag;
        source = its_source;
        bytes = its_bytes;
    }
};

/// A matcher that has been told of its sources.
struct many_sourced : matcher {
    explicit many_sourced(peer_id sources = 8) : matcher(true) {
        for (peer_id source = 0; source < sources; ++source) REQUIRE(add_source(source));
    }
};

}  // namespace

TEST_CASE("an exact receive is found by source and tag") {
    many_sourced m;
    receive one(7, 1);
    receive two(7, 2);
    m.post(one);
    m.post(two);
    CHECK(m.posted() == 2);
    CHECK(m.arrived(3, 7) == nullptr);
    CHECK(m.arrived(1, 8) == nullptr);
    CHECK(m.arrived(2, 7) == &two);
    CHECK(m.arrived(2, 7) == nullptr);
    CHECK(m.arrived(1, 7) == &one);
    CHECK(m.posted() == 0);
}

TEST_CASE("receives that overlap are met in the order they were posted, whatever kind they are") {
    many_sourced m;
    receive any(any_tag, any_source);
    receive exact(7, 1);
    receive masked(tag_match(1, 1), 1);
    receive exact_from_any(7, any_source);
    receive last(7, 1);
    for (receive* r : {&masked, &exact_from_any, &exact, &any, &last}) m.post(*r);
    CHECK(m.arrived(1, 7) == &masked);
    CHECK(m.arrived(1, 7) == &exact_from_any);
    CHECK(m.arrived(2, 7) == &any);
    CHECK(m.arrived(1, 7) == &exact);
    CHECK(m.arrived(1, 7) == &last);
    CHECK(m.arrived(1, 7) == nullptr);
}

TEST_CASE("a withdrawn receive is not met") {
    many_sourced m;
    receive a(7, 1);
    receive b(any_tag, any_source);
    receive c(7, any_source);
    for (receive* r : {&a, &b, &c}) m.post(*r);
    m.withdraw(a);
    m.withdraw(b);
    CHECK(m.posted() == 1);
    CHECK(m.arrived(1, 7) == &c);
    CHECK(m.arrived(1, 7) == nullptr);
}

TEST_CASE("messages are found in the order they came, by tag, mask and source") {
    for (const bool many : {false, true}) {
        matcher m(many);
        for (peer_id source = 0; source < 6; ++source) REQUIRE(m.add_source(source));
        kept a(1, 0);
        kept b(2, many ? 1 : 0);
        kept c(1, many ? 1 : 0);
        for (kept* k : {&a, &b, &c}) m.add(*k);
        CHECK(m.unexpected() == 3);
        CHECK(m.oldest() == &a);
        CHECK(m.after(a) == &b);
        CHECK(m.after(c) == nullptr);
        CHECK(m.find(any_source, 1) == &a);
        CHECK(m.find(any_source, any_tag) == &a);
        CHECK(m.find(any_source, tag_match(2, 2)) == &b);
        CHECK(m.find(many ? 1 : 0, 1) == (many ? &c : &a));
        if (many) CHECK(m.find(5, any_tag) == nullptr);
        CHECK(m.find(0, 9) == nullptr);
        m.remove(a);
        CHECK(m.find(any_source, 1) == &c);
        m.remove(c);
        CHECK(m.find(any_source, 1) == nullptr);
        m.remove(b);
        CHECK(m.unexpected() == 0);
        CHECK(m.oldest() == nullptr);
    }
}

TEST_CASE("an added message ends the probes that want it, all of them, and no others") {
    many_sourced m;
    probe exact(7, 1);
    probe any(any_tag, any_source);
    probe other_source(7, 2);
    probe other_tag(8, 1);
    for (probe* p : {&exact, &any, &other_source, &other_tag}) m.add_probe(*p);
    kept message(7, 1, 55);
    m.add(message);
    CHECK(exact.told());
    CHECK(any.told());
    CHECK(any.got_.bytes == 55);
    CHECK(any.got_.source == 1);
    CHECK_FALSE(other_source.told());
    CHECK_FALSE(other_tag.told());
    m.remove(message);
}

TEST_CASE("all that waits for one source can be taken out, and what waits for any stays") {
    many_sourced m;
    receive a(7, 1);
    receive b(any_tag, 1);
    receive c(7, 2);
    receive d(any_tag, any_source);
    probe p(7, 1);
    probe q(7, any_source);
    for (receive* r : {&a, &b, &c, &d}) m.post(*r);
    m.add_probe(p);
    m.add_probe(q);
    m.end_all_of(1, make_error_code(errc::peer_lost));
    for (receive* r : {&a, &b}) CHECK(std::error_code(r->code_) == errc::peer_lost);
    for (receive* r : {&c, &d}) CHECK_FALSE(r->done());
    CHECK(std::error_code(p.code_) == errc::peer_lost);
    CHECK_FALSE(q.told());
    CHECK(m.posted() == 2);
    CHECK(m.arrived(2, 7) == &c);
    CHECK(m.arrived(1, 9) == &d);
    CHECK(m.has_probes());
    m.end_all_of(any_source, make_error_code(errc::closed));
    CHECK(std::error_code(q.code_) == errc::closed);
    CHECK_FALSE(m.has_probes());
}

TEST_CASE("a hundred thousand receives and messages with tags of their own are each found at once") {
    // With lists that are searched this takes minutes.
    constexpr std::size_t count = 100000;
    for (const bool many : {false, true}) {
        matcher m(many);
        REQUIRE(m.add_source(0));
        std::deque<receive> receives;
        std::deque<kept> messages;
        for (std::size_t n = 0; n < count; ++n)
            m.post(receives.emplace_back(tag_match(n * 3), many ? any_source : 0));
        for (std::size_t n = count; n-- > 0;) REQUIRE(m.arrived(0, n * 3) == &receives[n]);
        for (std::size_t n = 0; n < count; ++n) m.add(messages.emplace_back(n * 3, 0));
        for (std::size_t n = count; n-- > 0;) {
            unexpected_message* found = m.find(many ? any_source : 0, n * 3);
            REQUIRE(found == &messages[n]);
            m.remove(*found);
        }
    }
}

TEST_CASE("receives and messages with one tag keep their order while the tables grow") {
    many_sourced m;
    std::deque<receive> receives;
    for (unsigned n = 0; n < 5000; ++n) m.post(receives.emplace_back(tag_match(n % 2), 0));
    for (unsigned n = 0; n < 5000; ++n) REQUIRE(m.arrived(0, n % 2) == &receives[n]);
    std::deque<kept> messages;
    for (tag_type n = 0; n < 5000; ++n) m.add(messages.emplace_back(n % 2, 0));
    for (std::size_t n = 0; n < 5000; ++n) {
        unexpected_message* found = m.find(0, n % 2);
        REQUIRE(found == &messages[n]);
        m.remove(*found);
    }
}

TEST_CASE("a message that replaces another is found where that was") {
    for (const bool many : {false, true}) {
        matcher m(many);
        REQUIRE(m.add_source(0));
        kept first(1, 0), second(1, 0), third(2, 0), whole(1, 0);
        for (kept* one : {&first, &second, &third}) m.add(*one);
        m.replace(first, whole);
        CHECK(m.unexpected() == 3);
        CHECK(m.oldest() == &whole);
        CHECK(m.find(0, 1) == &whole);
        CHECK(m.find(any_source, 1) == &whole);
        CHECK(m.find(0, any_tag) == &whole);
        CHECK(m.after(whole) == &second);
        m.remove(whole);
        CHECK(m.find(0, 1) == &second);
        CHECK(m.find(any_source, 1) == &second);
        m.remove(second);
        m.remove(third);
        CHECK(m.unexpected() == 0);
    }
}

TEST_CASE("a source's receives and messages are found past those of any number of other sources") {
    // With lists that sources share, this takes minutes.
    constexpr peer_id sources = 100000;
    many_sourced m(sources);
    std::deque<receive> receives;
    std::deque<probe> probes;
    for (peer_id source = 0; source < sources; ++source) {
        m.post(receives.emplace_back(any_tag, source));
        m.add_probe(probes.emplace_back(any_tag, source));
    }
    for (peer_id source = sources; source-- > 0;) REQUIRE(m.arrived(source, source) == &receives[source]);
    std::deque<kept> messages;
    for (peer_id source = 0; source < sources; ++source) m.add(messages.emplace_back(7, source));
    for (probe& waiting : probes) REQUIRE(waiting.told());
    CHECK_FALSE(m.has_probes());
    for (peer_id source = sources; source-- > 0;) {
        unexpected_message* found = m.find(source, any_tag);
        REQUIRE(found == &messages[source]);
        std::size_t visited = 0;
        m.each_stored(source, [&](unexpected_message&) { ++visited; });
        REQUIRE(visited == 1);
        if (source % 2 == 0) m.remove(*found);
    }
    for (peer_id source = 1; source < sources; source += 2) m.remove(messages[source]);
    for (peer_id source = 0; source < sources; ++source) m.end_all_of(source, make_error_code(errc::closed));
}

TEST_CASE(
    "tables of stored messages take 32 bytes a message at most, and little once the messages are gone") {
    // That much of what each message is charged is left for them.
    matcher m(true);
    for (peer_id source = 0; source < 3; ++source) REQUIRE(m.add_source(source));
    std::deque<kept> messages;
    for (tag_type n = 0; n < 50000; ++n) {
        m.add(messages.emplace_back(n * 0x10001, n % 3));
        REQUIRE(m.footprint() <= messages.size() * 32);
    }
    CHECK(m.footprint() > 0);
    for (kept& one : messages) m.remove(one);
    CHECK(m.footprint() <= 16384);
}

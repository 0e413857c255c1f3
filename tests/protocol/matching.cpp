#include <rdmacoro/protocol/matching.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

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

}  // namespace

TEST_CASE("an exact receive is found by source and tag") {
    matcher m(true);
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
    matcher m(true);
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
    matcher m(true);
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
        CHECK(m.find(5, any_tag) == nullptr);
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
    matcher m(true);
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
    matcher m(true);
    receive a(7, 1);
    receive b(any_tag, 1);
    receive c(7, 2);
    receive d(any_tag, any_source);
    probe p(7, 1);
    probe q(7, any_source);
    for (receive* r : {&a, &b, &c, &d}) m.post(*r);
    m.add_probe(p);
    m.add_probe(q);
    std::vector<detail::receive_request*> receives;
    std::vector<detail::probe_request*> probes;
    m.take_all_of(
        1, [&](detail::receive_request& r) noexcept { receives.push_back(&r); },
        [&](detail::probe_request& r) noexcept { probes.push_back(&r); });
    CHECK(receives.size() == 2);
    CHECK(std::count(receives.begin(), receives.end(), &a) == 1);
    CHECK(std::count(receives.begin(), receives.end(), &b) == 1);
    CHECK(probes == std::vector<detail::probe_request*>{&p});
    CHECK(m.posted() == 2);
    CHECK(m.arrived(2, 7) == &c);
    CHECK(m.arrived(1, 9) == &d);
    CHECK(m.has_probes());
    m.take_all_of(
        any_source, [](detail::receive_request&) noexcept {}, [](detail::probe_request&) noexcept {});
    CHECK_FALSE(m.has_probes());
}

namespace {

/// Everything in two lists, searched from the front.
struct naive {
    std::deque<receive*> posted;
    std::deque<kept*> waiting;

    receive* arrived(peer_id source, tag_type tag) {
        const auto found =
            std::find_if(posted.begin(), posted.end(), [&](receive* r) { return r->wants(source, tag); });
        if (found == posted.end()) return nullptr;
        receive* taken = *found;
        posted.erase(found);
        return taken;
    }
    kept* find(peer_id source, tag_match wanted) {
        const auto found = std::find_if(waiting.begin(), waiting.end(), [&](kept* k) {
            return wanted.accepts(k->tag) && (source == any_source || source == k->source);
        });
        return found == waiting.end() ? nullptr : *found;
    }
};

void agrees_with_naive(bool many_sources, std::uint32_t seed, unsigned tags, unsigned sources, int steps) {
    CAPTURE(seed, tags, sources);
    std::mt19937 random(seed);
    matcher m(many_sources);
    naive model;
    std::vector<std::unique_ptr<receive>> receives;
    std::vector<std::unique_ptr<kept>> messages;
    // Tags spread over the whole width, so that hashes are put to use.
    const auto random_tag = [&] { return (random() % tags) * 0x9e3779b97f4a7c15u; };
    for (int step = 0; step < steps; ++step) {
        const auto what = static_cast<unsigned>(random() % 10);
        if (what < 5) {
            const auto source = static_cast<peer_id>(random() % sources);
            const tag_type tag = random_tag();
            receive* expected = model.arrived(source, tag);
            REQUIRE(m.arrived(source, tag) == expected);
            if (expected == nullptr) {
                messages.push_back(std::make_unique<kept>(tag, source));
                m.add(*messages.back());
                model.waiting.push_back(messages.back().get());
            }
        } else if (what < 9) {
            const peer_id source =
                many_sources && random() % 3 == 0 ? any_source : static_cast<peer_id>(random() % sources);
            tag_match wanted = random_tag();
            if (random() % 4 == 0) wanted = tag_match(random_tag(), std::uint64_t{0xff} << (random() % 56));
            if (random() % 8 == 0) wanted = any_tag;
            kept* expected = model.find(source, wanted);
            REQUIRE(m.find(source, wanted) == expected);
            if (expected != nullptr) {
                m.remove(*expected);
                model.waiting.erase(std::find(model.waiting.begin(), model.waiting.end(), expected));
            } else {
                receives.push_back(std::make_unique<receive>(wanted, source));
                m.post(*receives.back());
                model.posted.push_back(receives.back().get());
            }
        } else if (!model.posted.empty()) {
            const auto victim =
                model.posted.begin() + static_cast<std::ptrdiff_t>(random() % model.posted.size());
            m.withdraw(**victim);
            model.posted.erase(victim);
        }
        REQUIRE(m.posted() == model.posted.size());
        REQUIRE(m.unexpected() == model.waiting.size());
    }
    for (receive* r : model.posted) m.withdraw(*r);
    for (kept* k : model.waiting) m.remove(*k);
}

}  // namespace

TEST_CASE("random posts, arrivals, withdrawals and searches agree with a naive model") {
    const std::uint32_t seed = rdmacoro::test::seed() + 1;
    agrees_with_naive(false, seed, 4, 1, 4000);
    agrees_with_naive(false, seed + 1, 1000, 1, 4000);
    agrees_with_naive(true, seed + 2, 4, 3, 4000);
    agrees_with_naive(true, seed + 3, 40, 7, 4000);
    agrees_with_naive(true, seed + 4, 5000, 50, 8000);
}

TEST_CASE("a hundred thousand receives and messages with tags of their own are each found at once") {
    // With lists that are searched this takes minutes.
    constexpr std::size_t count = 100000;
    for (const bool many : {false, true}) {
        matcher m(many);
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
    matcher m(true);
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

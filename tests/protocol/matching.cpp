#include <rdmacoro/protocol/matching.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <vector>

#include <sys/mman.h>

namespace test_protocol_matching {

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

/// All stored messages, in order.
std::vector<unexpected_message*> stored_in(matcher& m) {
    std::vector<unexpected_message*> seen;
    m.each_stored(any_source, [&](unexpected_message& one) { seen.push_back(&one); });
    return seen;
}

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
        CHECK(stored_in(m) == std::vector<unexpected_message*>{&a, &b, &c});
        CHECK(m.find(any_source, 1) == &a);
        CHECK(m.find(any_source, any_tag) == &a);
        CHECK(m.find(any_source, tag_match(2, 2)) == &b);
        CHECK(m.find(many ? 1 : 0, 1) == (many ? &c : &a));
        if (many) {
            CHECK(m.find(5, any_tag) == nullptr);
            // Nor does a source that there never was have any.
            CHECK(m.find(6, any_tag) == nullptr);
            CHECK(m.find(77, 1) == nullptr);
            std::size_t visited = 0;
            m.each_stored(77, [&](unexpected_message&) { ++visited; });
            CHECK(visited == 0);
        }
        CHECK(m.find(0, 9) == nullptr);
        m.remove(a);
        CHECK(m.find(any_source, 1) == &c);
        m.remove(c);
        CHECK(m.find(any_source, 1) == nullptr);
        m.remove(b);
        CHECK(m.unexpected() == 0);
        CHECK(stored_in(m).empty());
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

namespace {

/// The least of three times to post `count` receives and to find each, and then to store as many messages and to take each, all with tags of
/// their own.
std::chrono::duration<double> time_to_find(bool many_sources, std::size_t count) {
    using clock = std::chrono::steady_clock;
    auto least = clock::duration::max();
    for (int time = 0; time < 3; ++time) {
        matcher m(many_sources);
        REQUIRE(m.add_source(0));
        std::deque<receive> receives;
        std::deque<kept> messages;
        const auto began = clock::now();
        for (std::size_t n = 0; n < count; ++n)
            m.post(receives.emplace_back(tag_match(n * 3), many_sources ? any_source : 0));
        for (std::size_t n = count; n-- > 0;) REQUIRE(m.arrived(0, n * 3) == &receives[n]);
        for (std::size_t n = 0; n < count; ++n) m.add(messages.emplace_back(n * 3, 0));
        for (std::size_t n = count; n-- > 0;) {
            unexpected_message* found = m.find(many_sources ? any_source : 0, n * 3);
            REQUIRE(found == &messages[n]);
            m.remove(*found);
        }
        least = std::min(least, clock::now() - began);
    }
    return least;
}

}  // namespace

TEST_CASE("a hundred thousand receives and messages with tags of their own are each found at once") {
    for (const bool many : {false, true}) {
        const auto of_few = time_to_find(many, 10'000);
        const auto of_many = time_to_find(many, 100'000);
        CAPTURE(many, of_few.count(), of_many.count());
        CHECK(of_many < 40 * of_few);  // 100 times and more where lists are searched
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
        CHECK(stored_in(m) == std::vector<unexpected_message*>{&whole, &second, &third});
        CHECK(m.find(0, 1) == &whole);
        CHECK(m.find(any_source, 1) == &whole);
        CHECK(m.find(0, any_tag) == &whole);
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

namespace {

/// Of dropping `count` stored messages that came from so many sources in turn, the least of a few times.
std::chrono::duration<double> time_to_drop(peer_id sources, std::size_t count) {
    using clock = std::chrono::steady_clock;
    many_sourced m(sources);
    std::deque<kept> messages;
    while (messages.size() < count) messages.emplace_back(tag_type{0}, peer_id{0});
    auto least = clock::duration::max();
    for (int time = 0; time < 3; ++time) {
        for (std::size_t n = 0; n < count; ++n) {
            messages[n].source = static_cast<peer_id>(n % sources);
            messages[n].tag = n / sources;
            m.add(messages[n]);
        }
        std::size_t dropped = 0;
        const auto began = clock::now();
        m.drop_stored(false, [&](unexpected_message&) noexcept { ++dropped; });
        least = std::min(least, clock::now() - began);
        REQUIRE(dropped == count);
        REQUIRE(m.unexpected() == 0);
    }
    return least;
}

}  // namespace

TEST_CASE(
    "to drop the stored messages of a hundred thousand sources costs each about what it costs with ten") {
    // Where each source's are looked for among those of all, this takes minutes.
    constexpr std::size_t count = 400000;
    const auto of_few = time_to_drop(10, count);
    const auto of_many = time_to_drop(100000, count);
    CAPTURE(of_few.count(), of_many.count());
    CHECK(of_many < 20 * of_few);
}

namespace {

/// Of `count` messages to so many receives with one mask, in no order: in the order in which they were posted, each would be the first. Each
/// receive is posted again.
std::chrono::duration<double> time_to_match(std::size_t receives, std::size_t count) {
    using clock = std::chrono::steady_clock;
    constexpr tag_match wanted(tag_type{1} << 63, (tag_type{0xffff} << 40) | (tag_type{1} << 63));
    matcher m(false);
    std::deque<receive> posted;
    for (std::size_t n = 0; n < receives; ++n)
        m.post(posted.emplace_back(tag_match(wanted.tag | (tag_type{n} << 40), wanted.mask), peer_id{0}));
    std::mt19937 random(1);
    auto least = clock::duration::max();
    for (int time = 0; time < 3; ++time) {
        const auto began = clock::now();
        for (std::size_t n = 0; n < count; ++n) {
            const std::size_t at = random() % receives;
            receive* const found =
                static_cast<receive*>(m.arrived(0, posted[at].wanted_.tag | (n & 0xffffffff)));
            if (found != &posted[at]) FAIL("a message to " << at << " matches another receive");
            m.post(*found);
        }
        least = std::min(least, clock::now() - began);
    }
    for (receive& r : posted) m.withdraw(r);
    return least;
}

}  // namespace

TEST_CASE("tables of receives are small again once the receives are gone") {
    constexpr std::size_t count = 100000;
    for (const bool met : {false, true}) {
        for (const bool named : {false, true}) {
            CAPTURE(met, named);
            many_sourced m;
            std::deque<receive> receives;
            for (std::size_t n = 0; n < count; ++n)
                m.post(receives.emplace_back(tag_match(n * 3), named ? 0 : any_source));
            CHECK(m.footprint() > count);
            for (std::size_t n = 0; n < count; ++n) {
                if (met) {
                    REQUIRE(m.arrived(0, n * 3) == &receives[n]);
                } else {
                    m.withdraw(receives[n]);
                }
            }
            CHECK(m.posted() == 0);
            CHECK(m.footprint() <= 16384);
            receive one(7, 0), other(8, 0);
            m.post(one);
            m.post(other);
            CHECK(m.arrived(0, 8) == &other);
            CHECK(m.arrived(0, 7) == &one);
        }
    }
}

TEST_CASE("a message to one of ten thousand receives with one mask costs about what it costs with ten") {
    // Where masks are tried one after the other, this is hundreds of times as long.
    constexpr std::size_t count = 20000;
    const auto of_few = time_to_match(10, count);
    const auto of_many = time_to_match(10000, count);
    CAPTURE(of_few.count(), of_many.count());
    CHECK(of_many < 20 * of_few);
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

namespace {

/// Objects that can be hidden: touching one then ends the process.
template <class T>
class hidden_row {
public:
    explicit hidden_row(std::size_t room) : bytes_((room * sizeof(T) + 4095) / 4096 * 4096) {
        void* const made =
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(made != MAP_FAILED);
        memory_ = static_cast<std::byte*>(made);
    }
    hidden_row(const hidden_row&) = delete;
    hidden_row& operator=(const hidden_row&) = delete;
    ~hidden_row() {
        show();
        for (std::size_t n = 0; n < size_; ++n) std::destroy_at(&(*this)[n]);
        ::munmap(memory_, bytes_);
    }
    template <class... Args>
    T& emplace_back(Args&&... args) {
        return *::new (static_cast<void*>(memory_ + size_++ * sizeof(T))) T(args...);
    }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] T& operator[](std::size_t n) {
        return *std::launder(reinterpret_cast<T*>(memory_ + n * sizeof(T)));
    }
    void hide() { REQUIRE(::mprotect(memory_, bytes_, PROT_NONE) == 0); }
    void show() { ::mprotect(memory_, bytes_, PROT_READ | PROT_WRITE); }

private:
    std::size_t bytes_;
    std::byte* memory_ = nullptr;
    std::size_t size_ = 0;
};

// As calls have them: requests to services, and what comes for a call.
constexpr tag_type high_bit = tag_type{1} << 63;
constexpr tag_type request_to(tag_type service, tag_type number) { return high_bit | service << 44 | number; }
constexpr tag_match requests_of(tag_type service) {
    return {request_to(service, 0), high_bit | tag_type{1} << 62 | tag_type{0xffff} << 44};
}
constexpr tag_match note_tags{high_bit | tag_type{4} << 60, tag_type{15} << 60};

}  // namespace

TEST_CASE("a receive with a mask looks at no stored messages of a class that its mask excludes") {
    constexpr std::size_t first = 200;  // of these some come before there are classes
    for (const bool many : {false, true}) {
        CAPTURE(many);
        matcher m(many);
        REQUIRE(m.add_source(0));
        std::deque<kept> visible;
        hidden_row<kept> hidden(16384);
        for (tag_type n = 0; n < first; ++n) m.add(visible.emplace_back(request_to(1, n), 0));
        for (tag_type n = 0; n < 16384; ++n) m.add(hidden.emplace_back(request_to(1, first + n), peer_id{0}));
        kept note(note_tags.tag | 5, 0);
        kept other(request_to(2, 9), 0);
        m.add(note);
        m.add(other);
        receive again(requests_of(2), 0);
        receive for_notes(note_tags, 0);
        hidden.hide();
        for (int n = 0; n < 3; ++n) {
            CHECK(m.find(0, requests_of(3)) == nullptr);
            CHECK(m.find(0, requests_of(2)) == &other);
            CHECK(m.find(0, note_tags) == &note);
            CHECK(m.find(0, tag_match(0, high_bit)) == nullptr);
            // As a service does, which posts its receives again and again.
            m.post(again);
            m.post(for_notes);
            CHECK(m.arrived(0, request_to(2, 77)) == &again);
            CHECK(m.arrived(0, note_tags.tag | 6) == &for_notes);
            CHECK(m.arrived(0, 7) == nullptr);
        }
        hidden.show();
        CHECK(m.find(0, requests_of(1)) == &visible[0]);
        CHECK(m.find(0, any_tag) == &visible[0]);
        for (kept& one : visible) m.remove(one);
        CHECK(m.find(0, requests_of(1)) == &hidden[0]);
        CHECK(m.find(0, any_tag) == &hidden[0]);
        m.remove(note);
        m.remove(other);
        for (std::size_t n = 0; n < hidden.size(); ++n) m.remove(hidden[n]);
        CHECK(m.unexpected() == 0);
        CHECK(m.footprint() <= 16384);
    }
}

TEST_CASE("a message of the program's tags does not look at receives of the toolkit's tags that stand") {
    for (const bool many : {false, true}) {
        CAPTURE(many);
        matcher m(many);
        REQUIRE(m.add_source(0));
        hidden_row<receive> standing(100);
        for (tag_type n = 0; n < 40; ++n) m.post(standing.emplace_back(requests_of(n), peer_id{0}));
        m.post(standing.emplace_back(note_tags, peer_id{0}));
        m.post(standing.emplace_back(high_bit | 7, peer_id{0}));
        m.post(standing.emplace_back(note_tags, peer_id{0}));
        CHECK(m.posted() == 43);
        receive exact(7, 0);
        receive any_of_program(tag_match(0, high_bit), 0);
        standing.hide();
        for (int n = 0; n < 3; ++n) {
            for (receive* r : {&exact, &any_of_program}) {
                m.post(*r);
                CHECK(m.posted() == 44);
                CHECK(m.arrived(0, 7) == r);
                CHECK(m.arrived(0, 7) == nullptr);
                m.post(*r);
                m.withdraw(*r);
            }
        }
        standing.show();
        m.post(any_of_program);
        CHECK(m.arrived(0, request_to(39, 1)) == &standing[39]);
        CHECK(m.arrived(0, note_tags.tag | 1) == &standing[40]);
        CHECK(m.arrived(0, note_tags.tag | 1) == &standing[42]);
        CHECK(m.arrived(0, note_tags.tag | 1) == nullptr);
        CHECK(m.arrived(0, high_bit | 7) == &standing[0]);  // posted before the exact one
        CHECK(m.arrived(0, high_bit | 7) == &standing[41]);
        CHECK(m.arrived(0, 1) == &any_of_program);
        CHECK(m.posted() == 38);
        std::size_t seen = 0;
        m.each_waiting(0, [&](detail::receive_request&) { ++seen; });
        CHECK(seen == 38);
        m.end_all_of(0, make_error_code(errc::closed));
        CHECK(m.posted() == 0);
    }
}

TEST_CASE("a visit to the receives from one source looks at none of those from any") {
    many_sourced m(3);
    hidden_row<receive> from_any(41);
    const auto posted_from = [&](peer_id source) {
        std::vector<detail::receive_request*> seen;
        m.each_posted(source, [&](detail::receive_request& r) { seen.push_back(&r); });
        std::sort(seen.begin(), seen.end());
        return seen;
    };
    using expected = std::vector<detail::receive_request*>;
    receive exact(7, 1);
    receive masked(tag_match(1, 1), 1);
    m.post(masked);  // alone, and in no list
    CHECK(posted_from(1) == expected{&masked});
    CHECK(posted_from(2).empty());
    CHECK(posted_from(any_source).empty());
    for (tag_type n = 0; n < 40; ++n) m.post(from_any.emplace_back(n, any_source));
    m.post(from_any.emplace_back(any_tag, any_source));
    m.post(exact);
    expected of_one{&exact, &masked};
    std::sort(of_one.begin(), of_one.end());
    from_any.hide();
    CHECK(posted_from(1) == of_one);
    CHECK(posted_from(2).empty());
    CHECK(posted_from(17).empty());  // not known
    from_any.show();
    CHECK(posted_from(any_source).size() == 41);
    std::size_t seen = 0;
    m.each_waiting(1, [&](detail::receive_request&) { ++seen; });
    CHECK(seen == 43);
    m.end_all_of(1, make_error_code(errc::closed));
    m.end_all_of(any_source, make_error_code(errc::closed));
    CHECK(m.posted() == 0);
}

TEST_CASE("receives of the program's tags, of the toolkit's and of both meet messages in the order posted") {
    // Each order of posting, with each message.
    const tag_match kinds[] = {tag_match(7), tag_match(0, high_bit), note_tags, tag_match(note_tags.tag | 7),
                               any_tag};
    const tag_type tags[] = {7, 8, note_tags.tag | 7, note_tags.tag | 8, request_to(1, 1)};
    int met = 0;
    for (int order = 0; order < 5 * 5 * 5; ++order) {
        for (int taken = 0; taken < 4; ++taken) {  // that one is withdrawn first; 3: none
            matcher m(false);
            receive first(kinds[order % 5], 0);
            receive second(kinds[order / 5 % 5], 0);
            receive third(kinds[order / 25], 0);
            std::vector<receive*> posted{&first, &second, &third};
            for (receive* r : posted) m.post(*r);
            if (taken < 3) {
                m.withdraw(*posted[static_cast<std::size_t>(taken)]);
                posted.erase(posted.begin() + taken);
            }
            for (const tag_type tag : tags) {
                receive* expected = nullptr;
                for (receive* r : posted) {
                    if (expected == nullptr && r->wants(0, tag)) expected = r;
                }
                CAPTURE(order, taken, tag);
                REQUIRE(m.arrived(0, tag) == expected);
                std::erase(posted, expected);
                if (expected != nullptr) ++met;
                REQUIRE(m.posted() == posted.size());
            }
            for (receive* r : posted) m.withdraw(*r);
            REQUIRE(m.posted() == 0);
        }
    }
    CHECK(met > 500);
}

TEST_CASE("all stored messages are dropped at once, or those that are complete") {
    for (const bool many : {false, true}) {
        matcher m(many);
        for (peer_id source = 0; source < 3; ++source) REQUIRE(m.add_source(source));
        std::deque<kept> messages;
        for (tag_type n = 0; n < 1000; ++n) {
            messages.emplace_back(request_to(n % 20, n), static_cast<peer_id>(n % 3)).complete = n % 10 != 0;
            m.add(messages.back());
        }
        std::size_t dropped = 0;
        m.drop_stored(true, [&](unexpected_message& one) {
            CHECK(one.complete);
            ++dropped;
            one.tag = 0;
            for (auto& byte : std::as_writable_bytes(std::span(&one.bytes, 1))) byte = std::byte{0xff};
        });
        CHECK(dropped == 900);
        CHECK(m.unexpected() == 100);
        for (tag_type n = 0; n < 1000; n += 10) {
            CHECK(m.find(static_cast<peer_id>(n % 3), request_to(n % 20, n)) == &messages[n]);
        }
        m.remove(messages[10]);
        m.drop_stored(false, [&](unexpected_message& one) {
            CHECK_FALSE(one.complete);
            ++dropped;
        });
        CHECK(dropped == 999);
        CHECK(m.unexpected() == 0);
        CHECK(m.find(0, any_tag) == nullptr);
        CHECK(stored_in(m).empty());
        kept last(3, 1);
        m.add(last);
        CHECK(m.find(1, any_tag) == &last);
        m.remove(last);
    }
}

TEST_CASE("a full row of classes keeps the order of messages that have none of their own") {
    matcher m(false);
    std::deque<kept> messages;
    for (tag_type n = 0; n < 3000; ++n) m.add(messages.emplace_back(request_to(n % 150, n), 0));
    CHECK(m.footprint() <= messages.size() * 16);
    CHECK(stored_in(m).size() == messages.size());
    for (tag_type n = 0; n < 3000; ++n) {
        REQUIRE(m.find(0, requests_of(n % 150)) == &messages[n]);
        REQUIRE(m.find(0, any_tag) == &messages[n]);
        m.remove(messages[n]);
    }
}

}  // namespace test_protocol_matching

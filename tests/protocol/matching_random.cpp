// The matcher against a model of the rules: everything in three lists, in order, searched from the front.
#include <rdmacoro/protocol/matching.hpp>

#include <rdmacoro/service/detail/call_wire.hpp>

#include "support/catch.hpp"
#include "support/sanitizer.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <list>
#include <random>
#include <vector>

namespace test_protocol_matching_random {

using namespace rdmacoro;
using detail::matcher;

namespace {

struct receive final : detail::receive_request {
    receive(tag_match wanted, peer_id source) noexcept
        : receive_request(nullptr, wanted, source, mutable_buffers(), nullptr) {}
};
struct probe final : detail::probe_request {
    probe(tag_match wanted, peer_id source) noexcept : probe_request(nullptr, wanted, source) {}
};
struct kept final : detail::unexpected_message {
    kept(tag_type its_tag, peer_id its_source, std::size_t its_number) noexcept {
        tag = its_tag;
        source = its_source;
        bytes = its_number;
    }
};

template <class Request>
bool fits(const Request& r, peer_id source, tag_type tag) {
    return (tag & r.wanted_.mask) == r.wanted_.tag && (r.source_ == any_source || r.source_ == source);
}

struct reference_model {
    std::vector<receive*> receives;  // in the order posted
    std::vector<kept*> messages;     // in the order of arrival
    std::vector<probe*> probes;

    /// The oldest receive that takes such a message, taken out.
    receive* arrived(peer_id source, tag_type tag) {
        const auto found =
            std::find_if(receives.begin(), receives.end(), [&](receive* r) { return fits(*r, source, tag); });
        if (found == receives.end()) return nullptr;
        receive* taken = *found;
        receives.erase(found);
        return taken;
    }
    /// The oldest message that such a receive takes.
    kept* find(peer_id source, tag_match wanted) {
        const receive as_if(wanted, source);
        const auto found = std::find_if(messages.begin(), messages.end(),
                                        [&](kept* m) { return fits(as_if, m->source, m->tag); });
        return found == messages.end() ? nullptr : *found;
    }
};

enum class action : std::uint8_t {
    message,
    receive,
    cancel,
    probe,
    cancel_probe,
    complete,
    end_source,
    count
};

/// One random program of receives, messages, probes and cancellations; how often each kind of action took effect.
class random_program {
public:
    using counts = std::array<std::size_t, static_cast<std::size_t>(action::count)>;

    random_program(std::uint32_t seed, unsigned tags, unsigned sources, bool many, bool services)
        : random_(seed),
          tags_(tags),
          sources_(many ? sources : 1),
          many_(many),
          services_(services),
          tested_(many) {
        for (peer_id source = 0; source < sources_; ++source) REQUIRE(tested_.add_source(source));
    }
    ~random_program() {
        for (receive* r : model_.receives) tested_.withdraw(*r);
        for (probe* p : model_.probes) tested_.withdraw(*p);
        for (kept* m : model_.messages) tested_.remove(*m);
    }
    random_program(const random_program&) = delete;
    random_program& operator=(const random_program&) = delete;

    counts run(int steps) {
        for (int n = 0; n < steps; ++n) {
            step();
            REQUIRE(tested_.posted() == model_.receives.size());
            REQUIRE(tested_.unexpected() == model_.messages.size());
            REQUIRE(tested_.has_probes() == !model_.probes.empty());
        }
        agree_on_order();
        return done_;
    }

    /// Messages that were stored at a time.
    [[nodiscard]] std::size_t most_stored() const { return most_stored_; }

private:
    void step() {
        switch (random_() % 32) {
            case 0: return cancel_probe();
            case 1: return complete();
            case 2: return random_() % 8 == 0 ? end_source() : wait_for_message();
            case 3:
            case 4: return wait_for_message();
            case 5:
            case 6: return cancel();
            default: return random_() % 2 == 0 ? message() : receive_one();
        }
    }

    void message() {
        const peer_id source = some_source();
        const tag_type tag = some_tag();
        receive* expected = model_.arrived(source, tag);
        REQUIRE(tested_.arrived(source, tag) == expected);
        ++done(action::message);
        if (expected != nullptr) return;
        kept& m = messages_.emplace_back(tag, source, messages_.size());
        tested_.add(m);
        model_.messages.push_back(&m);
        most_stored_ = std::max(most_stored_, model_.messages.size());
        std::erase_if(model_.probes, [&](probe* p) {
            REQUIRE(p->done() == fits(*p, source, tag));
            if (p->done()) REQUIRE(p->got_.bytes == m.bytes);
            return p->done();
        });
    }
    void receive_one() {
        const tag_match wanted = some_match();
        const peer_id source = some_source_or_any();
        kept* expected = model_.find(source, wanted);
        REQUIRE(tested_.find(source, wanted) == expected);
        ++done(action::receive);
        if (expected != nullptr) {
            tested_.remove(*expected);
            std::erase(model_.messages, expected);
            return;
        }
        receive& r = receives_.emplace_back(wanted, source);
        tested_.post(r);
        model_.receives.push_back(&r);
    }
    void cancel() {
        if (model_.receives.empty()) return;
        const auto victim = model_.receives.begin() + some_place(model_.receives.size());
        tested_.withdraw(**victim);
        model_.receives.erase(victim);
        ++done(action::cancel);
    }
    void wait_for_message() {
        probe& p = probes_.emplace_back(some_match(), some_source_or_any());
        if (model_.find(p.source_, p.wanted_) != nullptr) return;  // it would end at once
        tested_.add_probe(p);
        model_.probes.push_back(&p);
        ++done(action::probe);
    }
    void cancel_probe() {
        if (model_.probes.empty()) return;
        const auto victim = model_.probes.begin() + some_place(model_.probes.size());
        tested_.withdraw(**victim);
        model_.probes.erase(victim);
        ++done(action::cancel_probe);
    }
    void complete() {
        if (model_.messages.empty()) return;
        kept*& was = model_.messages[static_cast<std::size_t>(some_place(model_.messages.size()))];
        kept& whole = messages_.emplace_back(was->tag, was->source, messages_.size());
        tested_.replace(*was, whole);
        was = &whole;
        ++done(action::complete);
    }
    void end_source() {
        const peer_id source = some_source_or_any();
        tested_.end_all_of(source, make_error_code(errc::closed));
        std::erase_if(model_.receives, [&](receive* r) {
            REQUIRE(r->done() == (r->source_ == source));
            return r->done();
        });
        std::erase_if(model_.probes, [&](probe* p) {
            REQUIRE(p->done() == (p->source_ == source));
            return p->done();
        });
        ++done(action::end_source);
    }

    /// All messages, and those of each source, come in the model's order.
    void agree_on_order() {
        std::vector<kept*> seen;
        tested_.each_stored(any_source,
                            [&](detail::unexpected_message& m) { seen.push_back(static_cast<kept*>(&m)); });
        REQUIRE(seen == model_.messages);
        for (peer_id source = 0; source < sources_; ++source) {
            seen.clear();
            tested_.each_stored(
                source, [&](detail::unexpected_message& m) { seen.push_back(static_cast<kept*>(&m)); });
            std::vector<kept*> expected = model_.messages;
            std::erase_if(expected, [&](kept* m) { return m->source != source; });
            REQUIRE(seen == expected);
        }
    }

    std::size_t& done(action what) { return done_[static_cast<std::size_t>(what)]; }
    std::ptrdiff_t some_place(std::size_t size) { return static_cast<std::ptrdiff_t>(random_() % size); }
    peer_id some_source() { return static_cast<peer_id>(random_() % sources_); }
    peer_id some_source_or_any() { return many_ && random_() % 3 == 0 ? any_source : some_source(); }
    // Tags over the whole width, so that hashes are put to use; or those of calls, and of a program beside them.
    tag_type some_tag() {
        if (!services_) return (random_() % tags_) * 0x9e3779b97f4a7c15u;
        const tag_type number = random_() % tags_;
        switch (random_() % 4) {
            case 0: return number;
            case 1: return detail::call_tag(detail::call_kind::note, number);
            case 2: return detail::call_tag(detail::call_kind::answer, number);
            default: break;
        }
        // A saturated service among idle ones.
        const auto to = static_cast<std::uint16_t>(random_() % 4 != 0 ? 1 : random_() % 100);
        const auto kind = static_cast<detail::call_kind>(random_() % 3);
        return detail::call_tag(kind, number, to) | (random_() % 4 == 0 ? detail::first_call_bit : 0);
    }
    tag_match some_match_of_service() {
        switch (random_() % 8) {
            case 0: return detail::first_requests;
            case 1: return detail::later_requests;
            case 2: return detail::notes;
            case 3: return detail::request_of(random_() % tags_);
            case 4: return {0, detail::calls_bit};
            case 5: return detail::requests_to(1);
            default: return detail::requests_to(static_cast<std::uint16_t>(random_() % 100));
        }
    }
    tag_match some_match() {
        if (services_ && random_() % 2 == 0) return some_match_of_service();
        switch (random_() % 8) {
            case 0: return any_tag;
            case 1:
            case 2: return {some_tag(), std::uint64_t{0xff} << (random_() % 56)};
            default: return some_tag();
        }
    }

    std::mt19937 random_;
    unsigned tags_;
    unsigned sources_;
    bool many_;
    bool services_;
    std::size_t most_stored_ = 0;
    matcher tested_;
    reference_model model_;
    // They do not move, and stay until all is over.
    std::list<receive> receives_;
    std::list<probe> probes_;
    std::list<kept> messages_;
    counts done_{};
};

/// Returns the most messages that were stored at a time.
std::size_t agrees(unsigned tags, unsigned sources, bool many, int steps, bool services = false) {
    std::size_t stored = 0;
    for (std::uint32_t n = 0; n < (rdmacoro::test::under_sanitizer ? 2 : 5); ++n) {
        const std::uint32_t seed = rdmacoro::test::seed() + n;
        CAPTURE(seed, tags, sources, many, services);
        random_program program(seed, tags, sources, many, services);
        for (const std::size_t times : program.run(steps)) CHECK(times > 5);
        stored = std::max(stored, program.most_stored());
    }
    return stored;
}

}  // namespace

TEST_CASE("random programs of receives, messages, probes and cancellations match as the rules say") {
    agrees(4, 1, false, 4000);
    agrees(1000, 1, false, 4000);
    agrees(4, 3, true, 4000);
    agrees(40, 7, true, 4000);
    // So many at a time that classes of tags have lists of their own.
    CHECK(agrees(5000, 50, true, 8000) > 200);
}

TEST_CASE("random programs with the tags of calls and a program's own match as the rules say") {
    agrees(4, 1, false, 4000, true);
    agrees(4, 3, true, 4000, true);
    CHECK(agrees(5000, 1, false, 8000, true) > 200);
    CHECK(agrees(1000, 10, true, 8000, true) > 200);
}

}  // namespace test_protocol_matching_random

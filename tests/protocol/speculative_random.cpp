// Random programs of speculative messages of every kind, with cancellations.

#include <rdmacoro/protocol/speculative.hpp>

#include "support/catch.hpp"
#include "support/speculation.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <random>

namespace test_protocol_speculative_random {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::speculation;

namespace {

/// Random programs: sends and receives of a few tags and all lengths, canceled here and there, in random order with the
/// steps of the network. Held against what any order has to keep.
class random_program {
public:
    random_program(scheduler& on, unsigned seed) : random_(seed), pair_(on) {}

    task<> run() {
        pair_.wire->offered.revokes_at_once = chance(2);
        pair_.from_a().defers_one_sided = chance(2);
        pair_.from_b().defers_one_sided = chance(2);
        co_await pair_.open();
        if (chance(2)) {
            pair_.from_a().announces_above = 64;  // no control message is as long
            pair_.from_a().piece = 25;
        }
        pair_.hold(true);
        if (chance(3)) pair_.from_a().room = pair_.from_b().room = 3;
        {
            task_group group;
            for (int n = 0; n < 60; ++n) {
                switch (random_() % 8) {
                    case 0:
                    case 1: group.spawn(send_one, this, &sends_.emplace_back()); break;
                    case 2:
                    case 3: group.spawn(receive_one, this, &receives_.emplace_back()); break;
                    case 4:
                        if (!receives_.empty()) receives_[random_() % receives_.size()].stop.request_stop();
                        break;
                    case 5:
                        if (chance(4) && !sends_.empty())
                            sends_[random_() % sends_.size()].stop.request_stop();
                        break;
                    case 6: step_to_a(pair_); break;
                    default: step_to_b(pair_); break;
                }
                if (chance(2)) co_await yield();
            }
            pair_.hold(false);
            co_await turns(200);
            for (receive_state& r : receives_) r.stop.request_stop();
            co_await turns(50);
            for (send_state& s : sends_) s.stop.request_stop();
            co_await group.join();
        }
        co_await turns(20);
        check();
    }

    /// The events of the programs so far.
    struct totals {
        std::size_t received, sends_canceled, receives_canceled, truncated, announced, used, crossed,
            withdrawn, mispredicted;
    };
    void add_to(totals& sum) {
        for (const send_state& s : sends_) sum.sends_canceled += s.canceled ? 1 : 0;
        for (const receive_state& r : receives_) {
            sum.received += r.message != none ? 1 : 0;
            sum.receives_canceled += r.outcome == errc::canceled ? 1 : 0;
            sum.truncated += r.outcome == errc::truncated ? 1 : 0;
        }
        const metrics& b = pair_.b.counts();
        sum.announced += b.announced;
        sum.used += b.announcements_met;
        sum.crossed += b.announcements_crossed;
        sum.withdrawn += b.announcements_withdrawn;
        sum.mispredicted += b.announcements_mispredicted;
    }

private:
    struct send_state {
        std::vector<std::byte> data;
        tag_type tag = 0;
        std::size_t place = 0;
        local_stop_source stop;
        bool canceled = false;
    };
    struct receive_state {
        std::vector<std::byte> memory;
        std::optional<tag_type> tag;
        std::size_t place = 0;
        local_stop_source stop;
        std::error_code outcome;
        std::size_t message = none;  // the send's place
    };
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    bool chance(unsigned in) { return random_() % in == 0; }

    static task<> send_one(random_program* self, send_state* s) {
        s->place = self->begun_sends_++;
        s->tag = self->random_() % 2;
        const std::size_t sizes[] = {16, 60, 100, 101, 400, 1500};
        s->data = pattern(sizes[self->random_() % 6], static_cast<unsigned>(s->place));
        detail::store_number(s->data.data(), std::uint64_t{s->place});
        auto sending =
            self->chance(5) ? self->pair_.a.ssend(s->data, s->tag) : self->pair_.a.send(s->data, s->tag);
        const auto ended = co_await as_result(with_stop(std::move(sending), s->stop.get_token()));
        s->canceled = !ended;
        if (!ended) CHECK(ended.error() == errc::canceled);
    }
    static task<> receive_one(random_program* self, receive_state* r) {
        r->place = self->begun_receives_++;
        r->memory.resize(self->chance(5) ? 60 : 1500);
        if (!self->chance(10)) r->tag = self->random_() % 2;
        auto receiving = self->pair_.b.recv(r->memory, r->tag ? tag_match(*r->tag) : any_tag);
        const auto ended = co_await as_result(with_stop(std::move(receiving), r->stop.get_token()));
        if (ended) {
            r->message = static_cast<std::size_t>(detail::load_number<std::uint64_t>(r->memory.data()));
            auto expected = pattern(ended->bytes, static_cast<unsigned>(r->message));
            detail::store_number(expected.data(), std::uint64_t{r->message});
            CHECK(std::equal(expected.begin(), expected.end(), r->memory.begin()));
        }
        r->outcome = ended ? std::error_code{} : ended.error();
        std::fill(r->memory.begin(), r->memory.end(), std::byte{0xaa});
    }

    void check() {
        CHECK(pair_.a.is_open());
        CHECK(pair_.b.is_open());
        std::vector<bool> got(sends_.size());
        for (const receive_state& r : receives_) {
            CHECK(all_are(r.memory, 0xaa));
            if (r.message == none) continue;
            REQUIRE(r.message < sends_.size());
            CHECK_FALSE(got[r.message]);  // once
            got[r.message] = true;
        }
        // A receive posted before another that takes the other's message, too, had it first.
        for (const receive_state& first : receives_) {
            for (const receive_state& second : receives_) {
                if (first.place >= second.place || first.message == none || second.message == none) continue;
                const send_state& m = *find(second.message);
                if (!first.tag || *first.tag == m.tag) CHECK(first.message < second.message);
            }
        }
        CHECK(pair_.domain.regions().registered() == 0);
        CHECK(pair_.b.connection().mailbox().matching().posted() == 0);
        CHECK(ended_of(pair_) == pair_.b.counts().announced);
        CHECK(pair_.a.counts().announcements_used == pair_.b.counts().announcements_met);
    }
    const send_state* find(std::size_t place) {
        for (const send_state& s : sends_) {
            if (s.place == place) return &s;
        }
        return nullptr;
    }

    std::mt19937 random_;
    mixed_pair pair_;
    std::deque<send_state> sends_;
    std::deque<receive_state> receives_;
    std::size_t begun_sends_ = 0;
    std::size_t begun_receives_ = 0;
};

}  // namespace

TEST_CASE("random programs with cancellations keep order, bytes and buffers") {
    random_program::totals sum{};
    for (unsigned seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        virtual_time world;
        random_program program(world.on, seed);
        world.run(program.run());
        program.add_to(sum);
    }
    // Each of these in many of the programs.
    CHECK(sum.received > 1000);
    CHECK(sum.sends_canceled > 100);
    CHECK(sum.receives_canceled > 100);
    CHECK(sum.truncated > 100);
    CHECK(sum.announced > 1000);
    CHECK(sum.used > 100);
    CHECK(sum.crossed > 30);
    CHECK(sum.withdrawn > 30);
    CHECK(sum.mispredicted > 30);
}

}  // namespace test_protocol_speculative_random

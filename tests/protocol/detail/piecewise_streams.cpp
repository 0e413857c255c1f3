#include <rdmacoro/protocol/detail/piecewise_streams.hpp>

#include <rdmacoro/coro/sleep_for.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/engine_context.hpp"

#include <array>
#include <vector>

namespace test_protocol_detail_piecewise_streams {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Streams whose transfers go to nothing; what the base reports is noted.
class side final : public detail::piecewise_streams {
public:
    explicit side(engine_context& context)
        : piecewise_streams(context, detail::slot_type_of<detail::piecewise_slot, detail::owing_slot>) {
        REQUIRE(slots_.reach(1));
        for (std::uint32_t id : {0u, 1u}) moving(id).transfer.there.add({0x1000, 64, id});
    }
    void begin(std::uint32_t id) { get(id, std::span<std::byte>(memory), 64); }
    void refuse(std::uint32_t id) {
        waiting[id] = true;
        await_reason(id);
    }
    using piecewise_streams::end_link;
    using piecewise_streams::forget_transfers;
    using piecewise_streams::stop;

    std::array<std::byte, 64> memory{};
    std::array<bool, 2> waiting{};
    std::vector<std::pair<std::uint32_t, std::error_code>> ended;

private:
    void transferred(std::uint32_t id, std::error_code outcome) noexcept override {
        ended.emplace_back(id, outcome);
    }
    bool refused(std::uint32_t id) noexcept override { return waiting[id]; }
    post_result send_owed(std::uint32_t, std::uint8_t) noexcept override { return post_result::done; }
    void owed_sent(std::uint32_t, std::uint8_t) noexcept override {}
};

}  // namespace

TEST_CASE("the end of a stream's transfer is reported once, with its outcome") {
    engine_context context;
    side self(context);
    self.begin(0);
    self.begin(1);
    REQUIRE(context.posts.size() == 2);
    CHECK(self.ended.empty());
    context.finish(make_error_code(errc::bad_key));
    context.finish();
    REQUIRE(self.ended.size() == 2);
    CHECK(self.ended[0] == std::pair{0u, make_error_code(errc::bad_key)});
    CHECK(self.ended[1] == std::pair{1u, std::error_code{}});
    context.answer = post_result::done;
    self.begin(0);
    CHECK(self.ended.size() == 3);
}

TEST_CASE("a transfer without room goes on when the link is writable") {
    engine_context context;
    side self(context);
    context.answer = post_result::retry;
    self.begin(1);
    self.writable();
    CHECK(self.ended.empty());
    context.answer = post_result::done;
    self.writable();
    REQUIRE(self.ended.size() == 1);
    self.writable();
    CHECK(self.ended.size() == 1);
}

TEST_CASE("a transfer that is stopped is over at once where the link revokes, else when it ends") {
    engine_context context;
    context.link.revokes_at_once = true;
    side self(context);
    self.begin(0);
    CHECK(self.stop(0));
    CHECK(context.posts.empty());
    self.writable();
    CHECK(self.ended.empty());

    context.link.revokes_at_once = false;
    self.begin(0);
    CHECK_FALSE(self.stop(0));
    context.finish();
    CHECK(self.ended.size() == 1);

    context.answer = post_result::retry;  // nothing is under way
    self.begin(0);
    CHECK(self.stop(0));
    context.answer = post_result::done;
    self.writable();
    CHECK(self.ended.size() == 1);
}

TEST_CASE("a refusal ends the link when its reason has not come within the time, each with its own") {
    engine_context context;
    side self(context);
    context.world.run([](engine_context& c, side& s) -> task<> {
        const duration grace = detail::refusal_timer::grace;
        s.refuse(0);
        co_await sleep_for(grace / 2);
        s.refuse(1);
        s.waiting[0] = false;  // its reason came
        co_await sleep_for(grace * 3 / 4);
        CHECK_FALSE(c.closed_with);
        co_await sleep_for(grace / 2);
        CHECK(c.closed_with == errc::protocol_violation);
    }(context, self));
}

TEST_CASE("a link that had failed before a get or put says why") {
    engine_context context;
    side self(context);
    context.answer = post_result::failed;
    self.begin(0);
    REQUIRE(self.ended.size() == 1);
    CHECK(self.ended[0].second == errc::closed);
    self.end_link(self.ended[0].second);
    CHECK(context.closed_with == context.why_failed());
    CHECK(context.closed_with == errc::peer_lost);
    self.end_link(make_error_code(errc::no_resources));
    CHECK(context.closed_with == errc::no_resources);
}

TEST_CASE("transfers of a link that is down are forgotten") {
    engine_context context;
    side self(context);
    self.begin(0);
    self.refuse(1);
    self.forget_transfers();
    context.posts.clear();
    self.writable();
    context.world.run([]() -> task<> { co_await sleep_for(2 * detail::refusal_timer::grace); }());
    CHECK(self.ended.empty());
    CHECK_FALSE(context.closed_with);
}

}  // namespace test_protocol_detail_piecewise_streams

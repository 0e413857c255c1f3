#include <rdmacoro/protocol/detail/piecewise_transfer.hpp>

#include "support/catch.hpp"
#include "support/recording_sink.hpp"

#include <cstring>
#include <deque>
#include <vector>

namespace test_protocol_detail_piecewise_transfer {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Gets and puts within the process, done when the test says so.
struct slow_link final : detail::one_sided_access {
    struct posted {
        remote_region there;
        std::byte* here;
        bool read;
        completion* c;
    };
    std::deque<posted> under_way;
    post_result answer = post_result::posted;
    std::uint64_t posts = 0;

    post_result get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept override {
        return begin({there, into.data(), true, &c});
    }
    post_result put(std::span<const std::byte> from, const remote_region& there,
                    completion& c) noexcept override {
        return begin({there, const_cast<std::byte*>(from.data()), false, &c});
    }
    void revoke(completion& c) noexcept override {
        std::erase_if(under_way, [&](const posted& p) { return p.c == &c; });
    }
    post_result begin(const posted& p) noexcept {
        if (answer == post_result::retry || answer == post_result::failed) return answer;
        ++posts;
        if (answer == post_result::done) {
            move(p);
        } else {
            under_way.push_back(p);
        }
        return answer;
    }
    static void move(const posted& p) noexcept {
        auto* there = reinterpret_cast<std::byte*>(p.there.address);
        std::memcpy(p.read ? p.here : there, p.read ? there : p.here, p.there.length);
    }
    void finish(std::size_t index = 0, std::error_code outcome = {}) {
        const posted p = under_way[index];
        under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(index));
        if (!outcome) move(p);
        p.c->done(*p.c, outcome);
    }
};

remote_region at(const std::byte* memory, std::size_t bytes) {
    return {reinterpret_cast<std::uint64_t>(memory), bytes, 1};
}

using detail::piecewise_transfer;
using progress = piecewise_transfer::state;

struct transfer {
    slow_link link;
    piecewise_transfer self;
    progress last = progress::over;
    unsigned steps = 0;

    void begin(const mutable_buffers& into, std::size_t offset, std::size_t bytes) {
        self.owner = this;
        self.begin_get(into, offset, bytes, stepped);
        last = self.pump(link);
    }
    void begin(const const_buffers& from, std::size_t offset, std::size_t bytes) {
        self.owner = this;
        self.begin_put(from, offset, bytes, stepped);
        last = self.pump(link);
    }

private:
    static void stepped(piecewise_transfer& which) noexcept {
        auto& mine = *static_cast<transfer*>(which.owner);
        ++mine.steps;
        mine.last = which.pump(mine.link);
    }
};

}  // namespace

TEST_CASE("a transfer is cut where either side's pieces end, and skips those without bytes") {
    for (const post_result how : {post_result::done, post_result::posted}) {
        const auto data = pattern(100);
        std::vector<std::byte> memory = data;
        std::vector<std::byte> into(100);
        transfer t;
        t.link.answer = how;
        for (const auto& [from, bytes] :
             {std::pair<std::size_t, std::size_t>{0, 33}, {33, 0}, {33, 1}, {34, 66}})
            t.self.there.add(at(memory.data() + from, bytes));
        const std::span<std::byte> pieces[] = {std::span(into).first(10), std::span(into).subspan(10, 0),
                                               std::span(into).subspan(10, 50), std::span(into).subspan(60)};
        t.begin(mutable_buffers(std::span<const std::span<std::byte>>(pieces)), 0, 100);
        while (t.last == progress::moving) t.link.finish();
        CHECK(t.last == progress::over);
        CHECK_FALSE(t.self.outcome());
        CHECK(into == data);
        CHECK(t.link.posts == 5);
    }
}

TEST_CASE("a part of the local memory goes to the beginning of what is there") {
    const auto data = pattern(100);
    std::vector<std::byte> there(50, std::byte{0xee});
    transfer t;
    t.self.there.add(at(there.data(), 30));
    t.begin(const_buffers(data), 60, 25);
    while (t.last == progress::moving) t.link.finish();
    CHECK(std::equal(there.begin(), there.begin() + 25, data.begin() + 60));
    CHECK(there[25] == std::byte{0xee});
}

TEST_CASE("several are under way at a time, and may end in any order") {
    const auto data = pattern(160);
    std::vector<std::byte> there(160);
    transfer t;
    for (std::size_t n = 0; n < 16; ++n) t.self.there.add(at(there.data() + n * 10, 10));
    t.begin(const_buffers(data), 0, 160);
    const std::size_t most = t.link.under_way.size();
    CHECK(most > 1);
    CHECK(most < 16);
    while (!t.link.under_way.empty()) {
        CHECK(t.last == progress::moving);
        CHECK(t.link.under_way.size() <= most);
        t.link.finish(t.link.under_way.size() - 1);
    }
    CHECK(t.last == progress::over);
    CHECK(t.steps == 16);
    CHECK(there == data);
}

TEST_CASE("without room a transfer waits for what is under way, or for the link") {
    const auto data = pattern(30);
    std::vector<std::byte> there(30);
    transfer t;
    for (std::size_t n = 0; n < 3; ++n) t.self.there.add(at(there.data() + n * 10, 10));
    t.link.answer = post_result::retry;
    t.begin(const_buffers(data), 0, 30);
    CHECK(t.last == progress::stalled);
    t.link.answer = post_result::done;
    CHECK(t.self.pump(t.link) == progress::over);
    CHECK(there == data);
    CHECK(t.link.posts == 3);
}

TEST_CASE("an error stops what is not posted yet, and is the outcome once the rest is over") {
    const auto data = pattern(160);
    std::vector<std::byte> there(160);
    transfer t;
    for (std::size_t n = 0; n < 16; ++n) t.self.there.add(at(there.data() + n * 10, 10));
    t.begin(const_buffers(data), 0, 160);
    const std::uint64_t posted = t.link.posts;
    t.link.finish(1, make_error_code(errc::bad_key));
    CHECK(t.last == progress::moving);
    t.link.finish(0, make_error_code(errc::out_of_bounds));
    while (t.last == progress::moving) t.link.finish();
    CHECK(t.link.posts == posted);
    CHECK(t.self.outcome() == errc::bad_key);
    // The next transfer knows nothing of it.
    t.begin(const_buffers(data), 0, 160);
    CHECK_FALSE(t.self.outcome());
    while (t.last == progress::moving) t.link.finish();
    CHECK_FALSE(t.self.outcome());
    CHECK(there == data);
}

TEST_CASE("a link that fails ends the transfer once nothing is under way") {
    const auto data = pattern(100);
    std::vector<std::byte> there(100);
    transfer t;
    t.self.there.add(at(there.data(), 100));
    t.link.answer = post_result::failed;
    t.begin(const_buffers(data), 0, 100);
    CHECK(t.last == progress::over);
    CHECK(t.self.outcome() == errc::closed);
}

TEST_CASE(
    "revoked, a transfer touches nothing more and is not reported; stopped, it ends with what is under way") {
    const auto data = pattern(160);
    std::vector<std::byte> there(160);
    transfer t;
    for (std::size_t n = 0; n < 16; ++n) t.self.there.add(at(there.data() + n * 10, 10));
    t.begin(const_buffers(data), 0, 160);
    t.self.revoke(t.link);
    CHECK(t.link.under_way.empty());
    CHECK_FALSE(t.self.busy());
    CHECK(t.steps == 0);
    t.begin(const_buffers(data), 0, 160);
    const std::uint64_t posted = t.link.posts;
    t.self.stop();
    CHECK(t.self.busy());
    while (t.last == progress::moving) t.link.finish();
    CHECK(t.link.posts == posted);
    CHECK_FALSE(t.self.outcome());
    CHECK_FALSE(t.self.busy());
}

TEST_CASE(
    "alignment is asked of every piece's address and length, at both ends, as far as the message goes") {
    alignas(8) std::byte memory[64]{};
    CHECK(detail::meets_alignment(mutable_buffers(std::span(memory)), 64, 8));
    CHECK(detail::meets_alignment(mutable_buffers(std::span(memory).subspan(1)), 63, 1));
    CHECK_FALSE(detail::meets_alignment(mutable_buffers(std::span(memory).subspan(4)), 8, 8));
    CHECK_FALSE(detail::meets_alignment(mutable_buffers(std::span(memory)), 7, 8));
    CHECK(detail::meets_alignment(mutable_buffers(std::span(memory).subspan(3)), 0, 8));
    const auto two = scatter(std::span(memory).first(8), std::span(memory).subspan(9, 8));
    CHECK(detail::meets_alignment(two, 8, 8));
    CHECK_FALSE(detail::meets_alignment(two, 16, 8));
    detail::remote_pieces there;
    there.add({16, 8, 1});
    CHECK(detail::meets_alignment(there, 8));
    there.add({32, 4, 1});
    CHECK_FALSE(detail::meets_alignment(there, 8));
    CHECK(detail::meets_alignment(there, 4));
}

}  // namespace test_protocol_detail_piecewise_transfer

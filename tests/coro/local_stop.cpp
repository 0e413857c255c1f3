#include <rdmacoro/coro/local_stop.hpp>

#include "support/catch.hpp"

#include <vector>

namespace test_coro_local_stop {

using namespace rdmacoro;

namespace {

struct recorder : local_stop_callback {
    std::vector<int>* calls = nullptr;
    int number = 0;
    recorder* detaches = nullptr;

    recorder(local_stop_source& source, std::vector<int>& list, int n) : calls(&list), number(n) {
        attach(source.get_token(), [](local_stop_callback& self) noexcept {
            auto& me = static_cast<recorder&>(self);
            me.calls->push_back(me.number);
            if (me.detaches != nullptr) me.detaches->detach();
        });
    }
};

}  // namespace

TEST_CASE("a token of nothing never stops") {
    local_stop_token token;
    CHECK_FALSE(token.stop_possible());
    CHECK_FALSE(token.stop_requested());
    local_stop_callback callback;
    callback.attach(token, [](local_stop_callback&) noexcept {});
    CHECK_FALSE(callback.attached());
}

TEST_CASE("a stop request calls everything attached once, in order") {
    local_stop_source source;
    std::vector<int> calls;
    recorder a(source, calls, 1), b(source, calls, 2);
    { recorder gone(source, calls, 3); }
    source.request_stop();
    source.request_stop();
    CHECK(calls == std::vector<int>{1, 2});
    CHECK(source.get_token().stop_requested());
    CHECK_FALSE(a.attached());
}

TEST_CASE("a function called by a stop request may detach another") {
    local_stop_source source;
    std::vector<int> calls;
    recorder a(source, calls, 1), b(source, calls, 2);
    a.detaches = &b;
    source.request_stop();
    CHECK(calls == std::vector<int>{1});
}

TEST_CASE("a source that follows another stops with it") {
    local_stop_source upper;
    local_stop_source lower(upper.get_token());
    local_stop_source lowest(lower.get_token());
    upper.request_stop();
    CHECK(lowest.stop_requested());
}

TEST_CASE("a source that follows a stopped one is stopped at once") {
    local_stop_source upper;
    upper.request_stop();
    local_stop_source lower(upper.get_token());
    CHECK(lower.stop_requested());
}

TEST_CASE("stopping the lower source leaves the upper one alone") {
    local_stop_source upper;
    {
        local_stop_source lower(upper.get_token());
        lower.request_stop();
        CHECK(lower.stop_requested());
    }
    CHECK_FALSE(upper.stop_requested());
    upper.request_stop();  // the lower one is gone and must not be called
    CHECK(upper.stop_requested());
}

TEST_CASE("a token is part of its source, of what that follows, and of what that belongs to") {
    local_stop_source whole, other;
    local_stop_source part(whole.get_token());
    local_stop_source piece;
    CHECK(part.get_token().is_part_of(part));
    CHECK(part.get_token().is_part_of(whole));
    CHECK_FALSE(whole.get_token().is_part_of(part));
    CHECK_FALSE(piece.get_token().is_part_of(whole));
    CHECK_FALSE(local_stop_token().is_part_of(whole));
    const local_stop_token none = piece.belong_to(part.get_token());
    CHECK_FALSE(none.stop_possible());
    CHECK(piece.get_token().is_part_of(whole));
    CHECK_FALSE(piece.get_token().is_part_of(other));
    whole.request_stop();
    CHECK_FALSE(piece.stop_requested());  // belonging is not following
    CHECK(part.get_token().is_part_of(whole));
}

TEST_CASE("a source that unfollows outlives what it followed") {
    local_stop_source lower;
    {
        local_stop_source upper;
        lower.follow(upper.get_token());
        lower.unfollow();
        upper.request_stop();
    }
    CHECK_FALSE(lower.stop_requested());
    local_stop_source next;
    lower.follow(next.get_token());
    next.request_stop();
    CHECK(lower.stop_requested());
}

}  // namespace test_coro_local_stop

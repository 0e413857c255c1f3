#include <rdmacoro/service/detail/own_token.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/ranks.hpp"

#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/when_all.hpp>
#include <rdmacoro/coro/with_stop.hpp>
#include <rdmacoro/service/group.hpp>

#include <optional>
#include <system_error>
#include <utility>

namespace test_service_detail_own_token {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

task<bool> is_stopped(const scheduler& of_group) {
    detail::own_token own{of_group};
    const local_stop_token token = co_await own;
    co_return token.stop_requested();
}

/// How it ends where it is awaited on another scheduler than the group's.
template <class Ask>
failure ends_elsewhere(bool own_lives, Ask ask) {
    std::optional<scheduler> own(std::in_place);
    group kept;
    own->run([](group& keeps) -> task<> {
        ranks<shm> all(2);
        co_await all.open();
        keeps = all.at(0);
        co_await when_all(all.at(0).barrier(), all.at(1).barrier());
        co_await when_all(all.links(0).close(), all.links(1).close());
    }(kept));
    if (!own_lives) own.reset();
    scheduler other;
    failure how;
    other.run([](const group& of, Ask asks, failure& ended) -> task<> {
        ended = co_await failing(asks(of));
    }(kept, ask, how));
    return how;
}

task<> splits(const group& of) { static_cast<void>(co_await of.split(0)); }
task<> shrinks(const group& of) { static_cast<void>(co_await of.shrink()); }

}  // namespace

TEST_CASE("the token of the awaiting coroutine is that of a collective on the scheduler of its group") {
    scheduler on;
    on.run([](scheduler& here) -> task<> {
        const bool before = co_await is_stopped(here);
        CHECK(!before);
        local_stop_source stop;
        stop.request_stop();
        const bool stopped = co_await with_stop(is_stopped(here), stop.get_token());
        CHECK(stopped);
    }(on));
}

TEST_CASE("a split and a shrink that are awaited on another scheduler end the process with a message") {
    for (const auto ask : {&splits, &shrinks}) {
        const death seen = dies([ask] { static_cast<void>(ends_elsewhere(true, ask)); });
        CHECK(seen.aborted);
        CHECK_THAT(seen.said, Catch::Contains("was awaited by a coroutine of another"));
    }
}

TEST_CASE("a split and a shrink of a group that has lost its scheduler end as closed") {
    for (const auto ask : {&splits, &shrinks}) {
        const failure how = ends_elsewhere(false, ask);
        CHECK(how.code == errc::closed);
        CHECK_THAT(how.text, Catch::Contains("its scheduler is gone"));
    }
}

}  // namespace test_service_detail_own_token

#include <rdmacoro/service/detail/node_operation.hpp>

#include "support/catch.hpp"
#include "support/nodes.hpp"
#include "support/run.hpp"

#include <string>
#include <utility>
#include <vector>

namespace test_service_detail_node_operation {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEST_CASE("an operation outlives the handle that it was made from, and may be moved before it begins") {
    scheduler on{impatient{}};
    on.run([]() -> task<> {
        node<shm> one(1), two(2);
        co_await one.listen(fresh_url<shm>());
        two.add(one.card());
        std::string got(5, ' ');
        auto made = one.peer(2).recv(got, 3);
        auto moved = std::move(made);
        auto begun = start(std::move(moved));  // there is no connection yet
        CHECK(!begun.done());
        const std::string text = "hello";
        auto kept = two.peer(1).send(text, 3);
        co_await kept;
        const received facts = co_await begun;
        CHECK(facts.tag == 3);
        CHECK(got == text);
        auto unused = one.peer(2).recv(got, 4);  // never awaited
    }());
}

TEST_CASE("operations of nodes work with timeout, as_result and with_stop, and keep their numbers") {
    scheduler on{impatient{}};
    on.run([]() -> task<> {
        node<shm> one(1), two(2);
        co_await one.listen(fresh_url<shm>());
        two.add(one.card());
        auto there = two.peer(1);
        co_await there.send(std::string_view("more than there is room for"), 3);
        std::string small(4, ' ');
        const auto cut = co_await as_result(one.peer(2).recv(small, 3));
        CHECK(cut.error() == errc::truncated);
        CHECK(cut.info() == 27);
        std::string text;
        try {
            co_await there.send(std::string_view("more than there is room for"), 3);
            co_await timeout(one.peer(2).recv(small, 3), 5s);
        } catch (const error& why) {
            text = why.what();
        }
        CHECK_THAT(text, contains("node 2 (generation") && contains("tag 3"));
        local_stop_source stop;
        auto waiting = start(with_stop(there.recv(small, 9), stop.get_token()));
        co_await yield();
        stop.request_stop();
        const auto ended = co_await as_result(waiting);
        CHECK(ended.error() == errc::canceled);
    }());
}

TEST_CASE("a node that only sends lets other coroutines run") {
    scheduler on{impatient{}};
    on.run([]() -> task<> {
        node<shm> one(1), two(2);
        co_await one.listen(fresh_url<shm>());
        two.add(one.card());
        auto there = two.peer(1);
        auto back = one.peer(2);
        bool over = false;
        auto timer = start([](bool& set) -> task<> {
            co_await sleep_for(2ms);
            set = true;
        }(over));
        std::uint64_t number = 0;
        while (!over) {
            co_await there.send(bytes_of(number));
            co_await back.recv(bytes_of(number));
        }
        co_await timer;
    }());
}

}  // namespace test_service_detail_node_operation

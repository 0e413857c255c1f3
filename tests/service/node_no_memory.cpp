// Each allocation of what nodes do fails in its turn, one in each run: it ends with an error or goes on, and the nodes can be used afterwards.
#include <rdmacoro/service/node.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/no_spare_frames.hpp"
#include "support/nodes.hpp"

#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace test_service_node_no_memory {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

node_options hasty() {
    node_options o;
    o.hello_limit = 100ms;
    o.close_limit = 100ms;
    o.connect_limit = 500ms;
    return o;
}
/// Of node 1, one of each at a time: what is not given back is missed at once.
node_options narrow() {
    node_options o = hasty();
    o.connections = 1;
    o.unnamed_connections = 1;
    return o;
}

/// Node 1 has room for one connection and talks to the others in turn. Each part can be done again after it has failed.
class three_nodes {
public:
    task<> meet() {
        co_await listen(one_);
        co_await listen(two_);
        co_await listen(three_);
        one_.add(two_.card());
        one_.add(three_.card());
        two_.add(one_.card());
        three_.add(one_.card());
    }
    /// Each of these connections costs node 1 the former one.
    task<> talk(tag_type tag) {
        co_await exchange(one_, two_, tag);
        co_await exchange(one_, three_, tag);
        co_await exchange(two_, one_, tag);
    }
    /// Drops messages of former tags, for which connections would be kept, until it is canceled.
    task<> drop_below(const tag_type& present) {
        for (;;) {
            for (node<shm>* at : {&one_, &two_, &three_}) {
                for (node_id id = 1; id <= 3; ++id) {
                    if (id == at->card().id) continue;
                    auto from = at->peer(id);
                    for (tag_type tag = 1; tag < present && from.is_open(); ++tag)
                        from.visit([tag](auto& over) { over.discard(tag); });
                }
            }
            co_await yield();
        }
    }
    task<> leave() {
        co_await three_.close();
        co_await two_.close();
        co_await one_.close();
    }

private:
    static task<> listen(node<shm>& at) {
        if (at.card().urls.empty()) co_await at.listen(fresh_url<shm>());
    }
    /// Short messages, and long ones that wait for the receiver.
    static task<> exchange(node<shm>& from, node<shm>& to, tag_type tag) {
        auto there = from.peer(to.card().id);
        auto here = to.peer(from.card().id);
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 20}) {
            const std::vector<std::byte> sent(bytes);
            std::vector<std::byte> room(bytes);
            auto receiving = start(here.recv(room, tag));
            co_await there.send(sent, tag);
            co_await receiving;
            auto sending = start(there.ssend(sent, tag));
            const message lent = co_await here.recv_lent(tag);
            co_await sending;
        }
    }

    node<shm> one_{1, narrow()};
    node<shm> two_{2, hasty()};
    node<shm> three_{3, hasty()};
};

struct ending {
    bool failed_one = false;  // an allocation
    bool whole = false;
    std::string text;
    std::string afterwards = "it did not come to that";
};

/// All of it once; `failing` is the number of the allocation that fails. A message that is lost with it may be waited for: not for long.
task<> fail_once(three_nodes& all, std::size_t failing, ending& how) {
    fail_allocation(failing);
    try {
        local_stop_source enough;
        auto once = start(with_stop(
            [](three_nodes& of) -> task<> {
                co_await of.meet();
                co_await of.talk(1);
            }(all),
            enough.get_token()));
        while (!once.done() && allocation_is_to_fail()) co_await yield();
        const time_point then = scheduler::current()->now() + 500ms;
        while (!once.done()) {
            if (scheduler::current()->now() >= then) enough.request_stop();
            co_await yield();
        }
        co_await once;
        how.whole = true;
    } catch (const std::exception& why) {
        how.text = why.what();
    }
    how.failed_one = !allocation_is_to_fail();
    fail_allocation(0);
}
/// All of it again, with memory, until it goes well: what was lost before is told once, by a receive, or waited for in vain.
task<> use_again(three_nodes& all, ending& how) {
    tag_type tag = 2;
    task_group drops;
    drops.spawn([&] { return all.drop_below(tag); });
    for (;; ++tag) {
        try {
            co_await timeout(
                [](three_nodes& of, tag_type with) -> task<> {
                    co_await of.meet();
                    co_await of.talk(with);
                }(all, tag),
                2s);
            break;
        } catch (const std::system_error& why) {
            how.afterwards = why.what();
        }
        co_await yield();  // which ends canceled when the limit of all is over
    }
    how.afterwards.clear();
    drops.request_stop();
    co_await drops.join();
    co_await all.leave();
}

/// In a thread of its own, which has no frames from a former one.
ending run_with(std::size_t failing) {
    ending how;
    std::thread([&] {
        try {
            run_nodes([&]() -> task<> {
                static_cast<void>(scheduler::current()->service<shm::domain>());
                three_nodes all;
                co_await fail_once(all, failing, how);
                co_await use_again(all, how);
            });
        } catch (const std::exception& why) {
            how.afterwards += std::string(": ") + why.what();
        }
    }).join();
    return how;
}

/// Whether it ends for lack of memory where its first coroutine finds none.
template <class Operation>
task<bool> fails_without_memory(Operation what) {
    const no_spare_frames each_takes_memory;
    fail_next_allocations(1);
    bool failed = false;
    try {
        static_cast<void>(co_await as_result(std::move(what)));
    } catch (const std::bad_alloc&) {
        failed = true;
    }
    fail_next_allocations(0);
    co_return failed;
}

}  // namespace

TEST_CASE("whichever allocation of nodes fails they can be used afterwards") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    std::size_t whole = 0;
    std::size_t failed = 0;
    for (std::size_t n = 1;; ++n) {
        const ending how = run_with(n);
        INFO("allocation " << n << ": " << how.text);
        REQUIRE(how.afterwards == "");
        if (!how.failed_one) {  // there are no more
            REQUIRE(how.whole);
            break;
        }
        ++(how.whole ? whole : failed);
    }
    INFO(whole << " runs were whole, " << failed << " ended with an error");
    CHECK(whole > 0);
    CHECK(failed > 50);
}

TEMPLATE_LIST_TEST_CASE("an operation of a node that finds no memory to wait is canceled", "",
                        node_transports) {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    run_nodes([]() -> task<> {
        node<TestType> one(1), two(2);
        co_await two.listen(fresh_url<TestType>());
        one.add(two.card());
        auto there = one.peer(2);
        auto here = two.peer(1);
        co_await say(there, "hello");
        const std::string first = co_await hear(here, 1);
        CHECK(first == "hello");
        const std::vector<std::byte> much(std::size_t{8} << 20);
        std::vector<std::byte> room(8);
        const bool sending = co_await fails_without_memory(there.ssend(much, 2));
        CHECK(sending);
        const bool receiving = co_await fails_without_memory(here.recv(room, 3));
        CHECK(receiving);
        const bool lent = co_await fails_without_memory(here.recv_lent(3));
        CHECK(lent);
        co_await say(there, "again", 3);
        const std::string next = co_await hear(here, 3);
        CHECK(next == "again");
    });
}

}  // namespace test_service_node_no_memory

#include <rdmacoro/service/node_discovery.hpp>

#include <rdmacoro/service/detail/udp_socket.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/no_spare_frames.hpp"
#include "support/nodes.hpp"
#include "support/run.hpp"
#include "support/scripted_names.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace test_service_node_discovery {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

constexpr const char* anywhere = "127.0.0.1:0";

discovery_options often() {
    discovery_options o;
    o.interval = 3ms;
    return o;
}
node_options quick() {
    node_options o;
    o.first_pause = 1ms;
    o.longest_pause = 5ms;
    return o;
}
/// ":7470", of "127.0.0.1:7470".
std::string port_of(const std::string& address) { return address.substr(address.rfind(':')); }

/// What arrives at an address.
struct datagrams {
    std::vector<std::vector<std::byte>> came;
    static void arrived(void* self, std::span<const std::byte> bytes, const detail::inet_endpoint&) noexcept {
        static_cast<datagrams*>(self)->came.emplace_back(bytes.begin(), bytes.end());
    }
};

}  // namespace

TEMPLATE_LIST_TEST_CASE("nodes that know a host find the card of the node there, and the other way round", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1), two(2);
        co_await one.listen(fresh_url<TestType>());
        co_await two.listen(fresh_url<TestType>());
        node_discovery at_one(one, anywhere, often());
        node_discovery at_two(two, anywhere, often());
        at_one.add_host(at_two.address());
        at_one.add_host(at_one.address());  // the same list for all
        CHECK(at_one.missing() == 2);
        co_await until([&] { return at_one.missing() == 0; });
        co_await say(one.peer(2), "found");
        const std::string got = co_await hear(two.peer(1));
        CHECK(got == "found");
        co_await say(two.peer(1), "learned from the question");
        const std::string answer = co_await hear(one.peer(2));
        CHECK(answer == "learned from the question");
    });
}

TEMPLATE_LIST_TEST_CASE("the list of hosts changes at run time, and names may be wrong", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1), two(2), three(3);
        co_await two.listen(fresh_url<TestType>());
        co_await three.listen(fresh_url<TestType>());
        node_discovery at_one(one, anywhere, often());
        node_discovery at_two(two, anywhere, often());
        node_discovery at_three(three, anywhere, often());
        at_one.add_host(at_two.address());
        co_await until([&] { return at_one.missing() == 0; });
        CHECK_THROWS_AS(at_one.add_host("no port"), error);
        at_one.add_host("127.0.0.1:1");  // nothing answers there
        scripted_names names;
        names.set("wrong", {});
        names.set("later", {});
        const std::string wrong = "wrong:7470", later = "later" + port_of(at_three.address());
        at_one.add_host(wrong);
        at_one.add_host(later);
        co_await until([&] { return names.looked_up("wrong") > 2 && names.looked_up("later") > 2; });
        CHECK(at_one.missing() == 3);
        names.set("later", {"127.0.0.1"});
        co_await until([&] { return at_one.missing() == 2; });
        co_await say(one.peer(3), "hello");
        for (const std::string& where : {std::string("127.0.0.1:1"), wrong}) {
            CHECK(at_one.remove_host(where));
            CHECK(!at_one.remove_host(where));
        }
        CHECK(at_one.missing() == 0);
    });
}

TEST_CASE("a name is looked up again while none of its addresses answers") {
    run_nodes([]() -> task<> {
        node<shm> one(1), two(2);
        co_await two.listen(fresh_url<shm>());
        node_discovery at_one(one, anywhere, often());
        node_discovery at_two(two, "127.0.0.3:0", often());
        const std::string port = port_of(at_two.address());
        datagrams questions;
        const detail::udp_socket silent(one.owner(), "127.0.0.2" + port, &datagrams::arrived, &questions);
        scripted_names names;
        names.set("alpha", {"127.0.0.2"});
        at_one.add_host("alpha" + port);
        co_await until([&] { return !questions.came.empty(); });
        names.set("alpha", {"127.0.0.3"});
        co_await until([&] { return at_one.missing() == 0; });
        co_await say(one.peer(2), "found");
        // What has answered is not looked up any more.
        const std::size_t looked_up = names.looked_up("alpha");
        co_await sleep_for(50ms);
        CHECK(names.looked_up("alpha") <= looked_up);
    });
}

TEST_CASE("a name of several addresses is asked at each of them") {
    run_nodes([]() -> task<> {
        node<shm> one(1), two(2);
        co_await two.listen(fresh_url<shm>());
        node_discovery at_one(one, anywhere, often());
        node_discovery at_two(two, "127.0.0.3:0", often());
        const std::string port = port_of(at_two.address());
        scripted_names names;
        names.set("both-families", {"::1", "127.0.0.3"});
        names.set("one-family", {"127.0.0.2", "127.0.0.4", "127.0.0.3"});
        names.set("many", {"127.0.1.1", "127.0.1.2", "127.0.1.3", "127.0.1.4", "127.0.1.5", "127.0.1.6",
                           "127.0.1.7", "127.0.1.8", "127.0.1.9", "127.0.0.3"});
        for (const std::string name : {"both-families", "one-family", "many"}) {
            INFO(name);
            at_one.add_host(name + port);
            co_await until([&] { return at_one.missing() == 0; });
            CHECK(at_one.remove_host(name + port));
        }
    });
}

TEST_CASE("a node that is lost is found where its name leads to then") {
    run_nodes([]() -> task<> {
        node<shm> one(1, quick());
        node_discovery at_one(one, anywhere, often());
        std::optional<node<shm>> two;
        std::optional<node_discovery> at_two;
        std::string port = ":0";
        scripted_names names;
        for (const char* const address : {"127.0.0.2", "127.0.0.3", "127.0.0.2"}) {
            two.emplace(2);
            co_await two->listen(fresh_url<shm>());
            at_two.emplace(*two, address + port, often());
            port = port_of(at_two->address());
            names.set("wanders", {address});
            if (at_one.missing() == 0) at_one.add_host("wanders" + port);
            co_await until([&] { return at_one.missing() == 0; });
            co_await say(one.peer(2), "hello");
            at_two.reset();
            two.reset();
            co_await until([&] { return at_one.missing() == 1; });
        }
    });
}

TEMPLATE_LIST_TEST_CASE("a node that is lost goes back to the list, and its next life is found", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1, quick());
        std::optional<node<TestType>> two(std::in_place, 2);
        co_await two->listen(fresh_url<TestType>());
        node_discovery at_one(one, anywhere, often());
        std::optional<node_discovery> at_two(std::in_place, *two, anywhere, often());
        const std::string where = at_two->address();
        at_one.add_host(where);
        co_await until([&] { return at_one.missing() == 0; });
        co_await say(one.peer(2), "first life");
        const generation first = two->card().born;
        at_two.reset();
        two.reset();
        co_await until([&] { return at_one.missing() == 1; });
        two.emplace(2);
        co_await two->listen(fresh_url<TestType>());  // elsewhere
        at_two.emplace(*two, where, often());
        co_await until([&] { return at_one.missing() == 0; });
        co_await say(one.peer(2), "second life");
        const std::string got = co_await hear(two->peer(1));
        CHECK(got == "second life");
        CHECK(one.peer(2).born() != first);
    });
}

TEST_CASE("groups do not find each other, the user's cards are not changed, and nonsense is refused") {
    run_nodes([]() -> task<> {
        node<shm> one(1), two(2), other(2);
        co_await two.listen(fresh_url<shm>());
        co_await other.listen(fresh_url<shm>());
        one.add(two.card());
        discovery_options elsewhere = often();
        elsewhere.group = 7;
        node_discovery at_one(one, anywhere, often());
        node_discovery at_two(two, anywhere, elsewhere);
        node_discovery at_other(other, anywhere, often());
        at_one.add_host(at_two.address());
        at_one.add_host(at_other.address());
        co_await until([&] { return at_one.missing() == 1 && at_two.refused() > 3; });
        CHECK(at_two.refused() > 3);
        co_await say(one.peer(2), "by the card that was given");
        const std::string got = co_await hear(two.peer(1));
        CHECK(got == "by the card that was given");
        // Any bytes.
        const auto nothing = [](void*, std::span<const std::byte>, const detail::inet_endpoint&) noexcept {};
        detail::udp_socket stranger(one.owner(), anywhere, nothing, nullptr);
        const auto target =
            detail::inet_resolved::ask(detail::inet_address::parse("udp", at_one.address(), ""), 0)
                .endpoints.at(0);
        std::mt19937 random(seed());
        const std::uint64_t before = at_one.refused();
        std::vector<std::byte> bytes(random() % 2048);
        for (int n = 0; n < 500; ++n) {
            bytes.resize(random() % 2048);
            for (std::byte& b : bytes) b = static_cast<std::byte>(random());
            stranger.send(bytes, target);
            if (n % 20 == 0) co_await sleep_for(1ms);
        }
        co_await until([&] { return at_one.refused() > before; });
        CHECK(at_one.missing() == 1);
    });
}

TEST_CASE("an answer is at most twice as long as its question and neither is cut in pieces on its way") {
    run_nodes([]() -> task<> {
        const auto endpoint_of = [](std::string_view address) {
            return detail::inet_resolved::ask(detail::inet_address::parse("udp", address, ""), 0)
                .endpoints.at(0);
        };
        constexpr std::size_t longest = 1200;
        node<shm> asks(1), answers(2);
        co_await answers.listen(fresh_url<shm>());
        datagrams questions, said;
        detail::udp_socket asked(asks.owner(), anywhere, &datagrams::arrived, &questions);
        detail::udp_socket stranger(asks.owner(), anywhere, &datagrams::arrived, &said);
        node_discovery at_asks(asks, anywhere, often());
        node_discovery at_answers(answers, anywhere, often());
        at_asks.add_host(asked.address());
        co_await until([&] { return questions.came.size() >= 3; });
        const auto asked_for = questions.came;  // others come meanwhile
        for (const auto& question : asked_for) {
            CHECK(question.size() <= longest);
            const std::size_t before = said.came.size();
            stranger.send(question, endpoint_of(at_answers.address()));
            co_await until([&] { return said.came.size() == before + 1; });
            CHECK(said.came.back().size() <= 2 * question.size());
        }
        // A node with the longest card, and one without URLs that asks it.
        for (std::size_t bytes = node_card::most_bytes; bytes > 0; --bytes) {
            const std::string told = "shm://" + std::string(bytes, 'x');
            if (co_await as_result(answers.listen(fresh_url<shm>(), told))) break;
        }
        CHECK(encode_card(answers.card()).size() == node_card::most_bytes);
        stranger.send(asked_for[0], endpoint_of(at_answers.address()));
        const std::size_t before = said.came.size();
        co_await until([&] { return said.came.size() == before + 1; });
        CHECK(said.came.back().size() == 1042);
        at_asks.add_host(at_answers.address());
        co_await until([&] { return asks.explain(2).find("not in the address book") == std::string::npos; });
        // It asks, too.
        questions.came.clear();
        at_asks.remove_host(asked.address());
        at_answers.add_host(asked.address());
        co_await until([&] { return questions.came.size() >= 2; });
        for (const auto& question : questions.came) CHECK(question.size() <= longest);
    });
}

TEST_CASE("no more cards are learned than the options say") {
    run_nodes([]() -> task<> {
        node<shm> one(1), two(2), three(3);
        co_await two.listen(fresh_url<shm>());
        co_await three.listen(fresh_url<shm>());
        discovery_options few = often();
        few.most_nodes = 1;
        node_discovery at_one(one, anywhere, few);
        node_discovery at_two(two, anywhere, often());
        node_discovery at_three(three, anywhere, often());
        at_one.add_host(at_two.address());
        co_await until([&] { return at_one.missing() == 0; });
        at_one.add_host(at_three.address());
        co_await until([&] { return at_one.refused() > 2; });
        CHECK(at_one.missing() == 1);
    });
}

TEST_CASE("an interval of nothing, or less, lets others have their turn") {
    run_nodes([]() -> task<> {
        node<shm> one(1), two(2);
        co_await two.listen(fresh_url<shm>());
        discovery_options odd = often();
        odd.interval = duration::min();
        node_discovery at_one(one, anywhere, odd);
        node_discovery at_two(two, anywhere, odd);
        at_one.add_host("127.0.0.1:1");
        at_one.add_host(at_two.address());
        co_await until([&] { return at_one.missing() == 1; });
        co_await sleep_for(5ms);
        CHECK(at_one.missing() == 1);
    });
}

TEST_CASE("the user's card stays as it is after a discovery has found another") {
    run_nodes([]() -> task<> {
        node_options hasty = quick();
        hasty.connect_limit = 100ms;
        node<shm> one(1, hasty), two(2);
        co_await one.listen(fresh_url<shm>());
        co_await two.listen(fresh_url<shm>());
        node_discovery at_one(one, anywhere, often());
        node_discovery at_two(two, anywhere, often());
        at_two.add_host(at_one.address());
        co_await until([&] { return at_two.missing() == 0; });  // and has told its card by its question
        one.add({.id = 2, .urls = {fresh_url<shm>()}});         // where nobody listens
        at_two.add_host(at_one.address());
        CHECK(at_two.missing() == 1);
        co_await until([&] { return at_two.missing() == 0; });
        const auto sent = co_await as_result(say(one.peer(2), "by the user's card"));
        CHECK_FALSE(sent);
    });
}

TEST_CASE("cards that were taken out of the book make room for others") {
    run_nodes([]() -> task<> {
        node<shm> one(1, quick());
        co_await one.listen(fresh_url<shm>());
        discovery_options few = often();
        few.most_nodes = 2;
        node_discovery at_one(one, anywhere, few);
        for (node_id id = 10; id < 16; ++id) {
            node<shm> guest(id);
            co_await guest.listen(fresh_url<shm>());
            node_discovery at_guest(guest, anywhere, often());
            at_guest.add_host(at_one.address());
            co_await until([&] { return at_guest.missing() == 0; });
            co_await say(one.peer(id), "by the card of the question");
            const std::string got = co_await hear(guest.peer(1));
            CHECK(got == "by the card of the question");
            co_await guest.close();
            CHECK(one.remove(id));
        }
    });
}

TEST_CASE("nodes that are lost together are looked for again, however many they are") {
    if (!counts_allocations) SKIP_TEST("so many nodes take too long under a sanitizer");
    static constexpr std::size_t wanted = 1100;
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
    // Each listens, with a socket beside, and has a connection.
    if (limit.rlim_max < wanted * 8) SKIP_TEST("needs 8,800 descriptors");
    scheduler on{idle::yield{}};
    // A turn asks 1,100 sockets, and a connection takes several: the case takes 21 s of a slow machine that does nothing else.
    on.run([](auto run) -> task<> { co_await timeout(run(), 300s); }([]() -> task<> {
               node_options many = quick();
               many.connections = 2 * wanted;
               many.hello_limit = many.attempt_limit = many.connect_limit =
                   250s;  // all at once, on whatever machine
               node<shm> one(1, many);
               discovery_options seldom = often();
               seldom.interval = 50ms;
               node_discovery at_one(one, anywhere, seldom);
               struct found_node {
                   found_node(node_id id, const node_options& options) : is(id, options) {}
                   node<shm> is;
                   std::optional<node_discovery> at;
               };
               std::vector<std::unique_ptr<found_node>> all;
               for (node_id id = 2; id < 2 + wanted; ++id) {
                   all.push_back(std::make_unique<found_node>(id, many));
                   co_await all.back()->is.listen(fresh_url<shm>());
                   all.back()->at.emplace(all.back()->is, anywhere, often());
                   at_one.add_host(all.back()->at->address());
               }
               co_await until([&] { return at_one.missing() == 0; });
               task_group saying;
               for (node_id id = 2; id < 2 + wanted; ++id)
                   saying.spawn(
                       [](node<shm>& from, node_id to) -> task<> { co_await say(from.peer(to), "hello"); },
                       std::ref(one), id);
               co_await saying.join();
               all.clear();  // more events than a watch holds
               co_await until([&] { return at_one.missing() == wanted; });
               CHECK(at_one.missing() == wanted);
           }));
}

TEST_CASE("a long list of hosts that do not answer leaves others their turn") {
    run_nodes([]() -> task<> {
        const int silent = ::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        REQUIRE(silent >= 0);
        sockaddr_in at{};
        at.sin_family = AF_INET;
        socklen_t bytes = sizeof at;
        REQUIRE(::bind(silent, reinterpret_cast<sockaddr*>(&at), bytes) == 0);
        REQUIRE(::getsockname(silent, reinterpret_cast<sockaddr*>(&at), &bytes) == 0);
        const auto drained = [silent] {
            std::size_t count = 0;
            std::byte into[2048];
            while (::recv(silent, into, sizeof into, 0) > 0) ++count;
            return count;
        };
        node<shm> one(1);
        node_discovery at_one(one, anywhere, often());
        static constexpr unsigned hosts = 2000;
        for (unsigned n = 0; n < hosts; ++n) {
            at_one.add_host("127.1." + std::to_string(n / 200) + '.' + std::to_string(n % 200 + 1) + ':' +
                            std::to_string(ntohs(at.sin_port)));
        }
        CHECK(at_one.missing() == hosts);
        static_cast<void>(drained());  // each was asked when it came
        std::size_t asked = 0;
        std::size_t most = 0;
        while (asked < 2 * hosts) {
            co_await yield();
            const std::size_t now = drained();
            asked += now;
            most = std::max(most, now);
        }
        CHECK(most <= 32);
        ::close(silent);
    });
}

TEST_CASE("a name that was not looked up for lack of memory is looked up in a later round") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    std::size_t behind_add_host = 0;  // allocations that failed when the host was in the list already
    for (std::size_t failing = 1;; ++failing) {
        bool failed = false;
        run_nodes([&]() -> task<> {
            node<shm> one(1), two(2);
            co_await two.listen(fresh_url<shm>());
            node_discovery at_one(one, anywhere, often());
            node_discovery at_two(two, anywhere, often());
            const std::string where = at_two.address();
            const std::string named = "localhost" + where.substr(where.rfind(':'));
            for (int turn = 0; turn < 20; ++turn) co_await yield();  // the listener waits
            const no_spare_frames each_takes_memory;
            fail_allocation(failing);
            bool added = false;
            try {
                at_one.add_host(named);
                added = true;
                for (int turn = 0; turn < 3; ++turn) co_await yield();
            } catch (const std::bad_alloc&) {}
            failed = !allocation_is_to_fail();
            fail_allocation(0);
            if (failed && added) ++behind_add_host;
            if (!added) at_one.add_host(named);
            co_await until([&] { return at_one.missing() == 0; });
            CHECK(one.explain(2).find("not in the address book") == std::string::npos);
        });
        if (!failed || failing == 50) break;
    }
    CHECK(behind_add_host > 0);
}

}  // namespace test_service_node_discovery

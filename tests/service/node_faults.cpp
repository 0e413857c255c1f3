#include <rdmacoro/service/node.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/nodes.hpp"
#include "support/virtual_nodes.hpp"

#include <atomic>
#include <csignal>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace test_service_node_faults {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

/// Shared memory with listeners that can fail for good, as those of devices do that are taken away.
struct brittle : shm {
    /// As of shared memory, until all are broken.
    class listener {
    public:
        explicit listener(shm::listener of) : of_(std::make_unique<shm::listener>(std::move(of))) {}
        [[nodiscard]] task<connection> accept() { return accept_from(*of_); }
        [[nodiscard]] std::string address() const { return of_->address(); }
        static inline local_stop_source* breaks = nullptr;

    private:
        static task<connection> accept_from(shm::listener& from) {
            try {
                co_return co_await with_stop(from.accept(), breaks->get_token());
            } catch (const error&) {
                if (!breaks->stop_requested()) throw;
            }
            throw error(errc::no_resources, "its device was taken away");
        }
        std::unique_ptr<shm::listener> of_;
    };
    class domain : public shm::domain {
    public:
        using shm::domain::domain;
        [[nodiscard]] task<listener> listen(std::string_view address) {
            return listening(shm::domain::listen(address));
        }

    private:
        static task<listener> listening(task<shm::listener> made) {
            co_return listener(co_await std::move(made));
        }
    };
};

namespace {

node_options hasty() {
    node_options o;
    o.hello_limit = 50ms;
    o.close_limit = 50ms;
    o.connect_limit = 2s;
    o.first_pause = 1ms;
    o.longest_pause = 10ms;
    return o;
}

/// A hello as a node would say it, for tests to spoil.
detail::node_hello honest_hello(node_id to) {
    return {.to = to,
            .to_born = {},
            .attempt = 1,
            .from = {.id = 7, .born = new_generation(), .host = host_identity::own(), .urls = {}}};
}

/// A node that says its number to node 1 at `address`, and then waits to be killed.
template <class T>
void be_killed(const std::string& address) {
    scheduler on{idle::yield{}};
    on.run([](std::string where) -> task<> {
        node<T> here(2);
        here.add({.id = 1, .urls = {std::move(where)}});
        auto there = here.peer(1);
        co_await say(there, "ready");
        static_cast<void>(co_await hear(there, 4));  // never sent
        co_await sleep_for(60s);
    }(address));
}

constexpr std::size_t announced = 3;
constexpr std::size_t long_one =
    std::size_t{8} << 20;  // announced over every transport; three have credit, so that a probe sees them

/// A node that announces long messages to node 1 at `address`, says so, and does no more.
template <class T>
void announce_and_wait(const std::string& address) {
    scheduler on{idle::yield{}};
    on.run([](std::string where) -> task<> {
        node<T> here(2);
        here.add({.id = 1, .urls = {std::move(where)}});
        auto there = here.peer(1);
        const std::vector<std::byte> much(long_one);
        task_group sends;
        for (std::size_t n = 0; n < announced; ++n)
            sends.spawn([&, n]() -> task<> { co_await there.ssend(much, 10 + n); });
        co_await say(there, "announced");
        co_await sleep_for(60s);
    }(address));
}
template <class T>
task<received> look(endpoint<T>& at, tag_type tag) {
    co_return co_await at.probe(tag);
}
/// Ends when all of them are announced here.
template <class Peer>
task<> hear_of_all(Peer from) {
    const std::string said = co_await hear(from, 1);
    CHECK(said == "announced");
    for (std::size_t n = 0; n < announced; ++n) {
        const received found = co_await from.visit([&](auto& over) { return start(look(over, 10 + n)); });
        CHECK(found.bytes == long_one);
    }
}
template <class Peer>
task<> receive_one(Peer from, tag_type tag) {
    static_cast<void>(co_await from.recv_lent(tag));
}
/// A node that sends node 1 at `address` one message.
template <class T>
void say_once(const std::string& address) {
    scheduler on{idle::yield{}};
    on.run([](std::string where) -> task<> {
        node<T> here(2);
        here.add({.id = 1, .urls = {std::move(where)}});
        co_await say(here.peer(1), "of the next life", 2);
        co_await here.close();
    }(address));
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a node that is killed in each of its lives, with messages announced, is lost once "
                        "for each, and let in again",
                        "", node_transports) {
    constexpr std::size_t lives = detail::node_peer::most_leftovers + 2;
    std::vector<std::unique_ptr<child_process>> killed;
    for (std::size_t n = 0; n < lives; ++n)
        killed.push_back(std::make_unique<child_process>(announce_and_wait<TestType>));
    child_process last(say_once<TestType>);
    run_nodes([&]() -> task<> {
        node<TestType> one(1);
        const std::string where = co_await one.listen(fresh_url<TestType>());
        auto there = one.peer(2);
        for (const auto& life : killed) {
            life->tell(where);
            co_await hear_of_all(there);
            life->kill();
            const failure lost = co_await failing(receive_one(there, 1));
            CHECK(lost.code == errc::peer_lost);
            CHECK_THAT(lost.text, contains(to_string(there.born())));
            co_await until([&] { return one.connections() == 0; });
        }
        auto receiving = start(hear(there));
        last.tell(where);
        const std::string got = co_await receiving;
        CHECK(got == "of the next life");
    });
    CHECK(last.wait() == 0);
}

TEMPLATE_LIST_TEST_CASE("what waits for a node that stands still is lost when its next life connects", "",
                        node_transports) {
    child_process stopped(announce_and_wait<TestType>);
    child_process next(say_once<TestType>);
    run_nodes([&]() -> task<> {
        node<TestType> one(1);
        const std::string where = co_await one.listen(fresh_url<TestType>());
        auto there = one.peer(2);
        stopped.tell(where);
        co_await hear_of_all(there);
        const generation born = there.born();
        ::kill(stopped.pid(), SIGSTOP);
        auto receiving = start(failing(receive_one(there, 1)));
        auto sending =
            start(failing([](auto p) -> task<> { co_await p.ssend(std::string_view("in vain"), 3); }(there)));
        co_await yield();
        next.tell(where);
        const failure lost = co_await receiving;
        CHECK(lost.code == errc::peer_lost);
        CHECK_THAT(lost.text, contains(to_string(born)));
        const failure unsent = co_await sending;
        CHECK(unsent.code == errc::peer_lost);
        CHECK_THAT(unsent.text, contains(to_string(born)));
        const std::string got = co_await hear(there);
        CHECK(got == "of the next life");
    });
    CHECK(next.wait() == 0);
}

TEMPLATE_LIST_TEST_CASE("what waits for a node that is killed ends with an error that names it", "",
                        node_transports) {
    child_process child(be_killed<TestType>);
    run_nodes([&child]() -> task<> {
        node<TestType> one(1);
        auto changes = one.watch();
        child.tell(co_await one.listen(fresh_url<TestType>()));
        auto there = one.peer(2);
        const std::string ready = co_await hear(there);
        CHECK(ready == "ready");
        const generation life = there.born();
        const std::string name = "node 2 (generation " + to_string(life) + ")";
        auto receiving = start(failing(receive_any(there)));
        const std::vector<std::byte> much(8 << 20);
        auto sending = start(
            failing([](auto p, const auto* bytes) -> task<> { co_await p.ssend(*bytes, 5); }(there, &much)));
        co_await sleep_for(2ms);
        child.kill();
        const failure received_none = co_await receiving;
        CHECK(received_none.code == errc::peer_lost);
        CHECK_THAT(received_none.text, contains(name));
        const failure unsent = co_await sending;
        CHECK(unsent.code == errc::peer_lost);
        CHECK_THAT(unsent.text, contains(name));
        const node_event came = co_await changes.next();
        CHECK(came.what == node_change::came);
        const node_event gone = co_await changes.next();
        CHECK(gone.what == node_change::failed);
        CHECK(gone.id == 2);
        CHECK(gone.born == life);
        CHECK(gone.why == errc::peer_lost);
        CHECK(one.connections() == 0);
    });
}

TEMPLATE_LIST_TEST_CASE("connections that say nothing are few, and give way to nodes", "", node_transports) {
    run_nodes([]() -> task<> {
        node_options few;
        few.unnamed_connections = 2;
        few.hello_limit = 4s;
        node_options limited;
        limited.attempt_limit = 10s;
        limited.connect_limit = 10s;  // less than three times the limit of a hello
        node<TestType> one(1, few), two(2, limited);
        const std::string where = co_await one.listen(fresh_url<TestType>());
        std::vector<endpoint<TestType>> silent;
        const auto began = std::chrono::steady_clock::now();
        for (int n = 0; n < 6; ++n) silent.push_back(co_await connect<TestType>(where));
        two.add(one.card());
        co_await say(two.peer(1), "hello");
        const std::string got = co_await hear(one.peer(2));
        CHECK(got == "hello");
        // Two at a time: it came in when those before it had had their time.
        CHECK(std::chrono::steady_clock::now() - began >= 3 * few.hello_limit / 10);
        CHECK(one.connections() == 1);
        std::size_t dropped = 0;
        for (auto& each : silent) {
            const auto end = co_await as_result(timeout(each.recv_lent(), 20s));
            REQUIRE(!end);
            if (end.error() != errc::timed_out) ++dropped;
        }
        CHECK(dropped == silent.size());
    });
}

TEMPLATE_LIST_TEST_CASE("any bytes as a hello end that connection, and nothing else", "", node_transports) {
    run_nodes([]() -> task<> {
        node_options patient = hasty();
        patient.hello_limit = 1h;  // what ends a connection here is what it said
        node<TestType> one(1, patient), two(2);
        const std::string where = co_await one.listen(fresh_url<TestType>());
        two.add(one.card());
        co_await say(two.peer(1), "before");
        std::mt19937 random(seed());
        const std::vector<std::byte> good = detail::encode_hello(honest_hello(1));
        for (int n = 0; n < 120; ++n) {
            std::vector<std::byte> bytes = good;
            if (n % 3 == 0) {
                bytes.resize(random() % good.size());
            } else if (n % 3 == 1) {
                for (unsigned wrong = 0; wrong < 1 + random() % 4; ++wrong)
                    bytes[random() % bytes.size()] = static_cast<std::byte>(random());
            } else {
                bytes.resize(random() % 4096);
                for (std::byte& b : bytes) b = static_cast<std::byte>(random());
            }
            auto stranger = co_await connect<TestType>(where);
            co_await stranger.send(bytes, detail::hello_tag);
            const auto seen = co_await as_result(timeout(stranger.recv_lent(), 30s));
            if (n % 3 == 1) {  // it may still be a hello, which is answered
                CHECK((seen || seen.error() != errc::timed_out));
            } else {
                CHECK_FALSE(seen);
                CHECK(seen.error() != errc::timed_out);
            }
        }
        co_await say(two.peer(1), "after");
        const std::string first = co_await hear(one.peer(2));
        const std::string second = co_await hear(one.peer(2));
        CHECK(first == "before");
        CHECK(second == "after");
    });
}

TEST_CASE("a node is told which version the other one speaks") {
    run_nodes([]() -> task<> {
        node<shm> one(1, hasty());
        const std::string where = fresh_url<shm>();
        auto listening = co_await listen<shm>(where);
        one.add({.id = 2, .urls = {where}});
        auto sending = start(failing(say(one.peer(2), "hello")));
        auto made = co_await listening.accept();
        static_cast<void>(co_await made.recv_lent(detail::hello_tag));
        detail::node_answer answer;
        answer.from = {.id = 2, .born = new_generation(), .host = {}, .urls = {}};
        std::vector<std::byte> bytes = detail::encode_answer(answer);
        bytes[4] = std::byte{99};
        co_await made.send(bytes, detail::answer_tag);
        const failure refused = co_await sending;
        CHECK(refused.code == errc::version_mismatch);
        CHECK_THAT(refused.text, contains("99") && contains("node 2"));
    });
}

TEST_CASE("hellos for another node, of a known id or with another host are refused with the reason") {
    run_nodes([]() -> task<> {
        node<shm> one(1, hasty());
        const std::string where = co_await one.listen(fresh_url<shm>());
        node_card known{.id = 7, .host = host_identity::own(), .urls = {}};
        one.add(known);
        const auto verdict_on = [](std::string at, detail::node_hello said) -> task<detail::welcome> {
            auto stranger = co_await connect<shm>(at);
            const std::vector<std::byte> bytes = detail::encode_hello(said);
            co_await stranger.send(bytes, detail::hello_tag);
            const message got = co_await stranger.recv_lent(detail::answer_tag);
            std::uint32_t version = 0;
            co_return detail::decode_answer(got.bytes(), version).value().verdict;
        };
        detail::node_hello hello = honest_hello(1);
        const auto accepted = co_await verdict_on(where, hello);
        CHECK(accepted == detail::welcome::accepted);
        hello.to = 3;
        const auto other = co_await verdict_on(where, hello);
        CHECK(other == detail::welcome::other_node);
        hello = honest_hello(1);
        hello.from.id = 1;
        const auto same_id = co_await verdict_on(where, hello);
        CHECK(same_id == detail::welcome::other_node);
        hello = honest_hello(1);
        hello.to_born = generation{5};
        const auto life = co_await verdict_on(where, hello);
        CHECK(life == detail::welcome::other_generation);
        hello = honest_hello(1);
        hello.from.host.boot[3] ^= 1;
        const auto host = co_await verdict_on(where, hello);
        CHECK(host == detail::welcome::other_host);
    });
}

TEST_CASE("a node that says it leaves and stays is cut off after a time") {
    run_nodes([]() -> task<> {
        node<shm> one(1, hasty());
        auto changes = one.watch();
        const std::string where = co_await one.listen(fresh_url<shm>());
        auto stranger = co_await connect<shm>(where);
        const std::vector<std::byte> bytes = detail::encode_hello(honest_hello(1));
        co_await stranger.send(bytes, detail::hello_tag);
        static_cast<void>(co_await stranger.recv_lent(detail::answer_tag));
        co_await stranger.send({}, detail::taken_tag);
        const std::byte word{99};
        co_await stranger.send(std::span<const std::byte>(&word, 1), detail::last_word_tag);
        const node_event came = co_await changes.next();
        CHECK(came.what == node_change::came);
        const node_event left = co_await changes.next();
        CHECK(left.what == node_change::left);
        CHECK(one.connections() == 0);
    });
}

/// Connects to the node 1 there as node 7, and is accepted.
template <class T>
task<endpoint<T>> accepted_by(std::string where) {
    auto made = co_await connect<T>(where);
    const std::vector<std::byte> bytes = detail::encode_hello(honest_hello(1));
    co_await made.send(bytes, detail::hello_tag);
    const message got = co_await made.recv_lent(detail::answer_tag);
    std::uint32_t version = 0;
    const auto answer = detail::decode_answer(got.bytes(), version);
    CHECK((answer && answer->verdict == detail::welcome::accepted));
    co_return made;
}

TEMPLATE_LIST_TEST_CASE("a connection that the other node gives up before it takes it loses nothing", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1, hasty());
        auto changes = one.watch();
        const std::string where = co_await one.listen(fresh_url<TestType>());
        for (int n = 0; n < 3; ++n) {
            auto given_up = co_await accepted_by<TestType>(where);
            given_up.abort();
        }
        auto kept = co_await accepted_by<TestType>(where);
        co_await kept.send({}, detail::taken_tag);
        const node_event came = co_await changes.next();
        CHECK(came.what == node_change::came);
        co_await kept.send(std::string_view("taken"), 1);
        const std::string got = co_await hear(one.peer(7));
        CHECK(got == "taken");
        const std::byte leaves{static_cast<std::uint8_t>(detail::leave_reason::stopping)};
        co_await kept.send(std::span<const std::byte>(&leaves, 1), detail::last_word_tag);
        co_await kept.close();
        const node_event left = co_await changes.next();
        CHECK(left.what == node_change::left);
        CHECK(left.born == came.born);
    });
}

/// Connects to the node 1 there, and takes the connection. Once that one has seen this, and looks at nothing, it says a word and goodbye.
template <class T>
task<> say_and_leave(std::string where, std::atomic<bool>& taken, std::atomic<bool>& seen,
                     std::atomic<bool>& left) {
    auto brief = co_await accepted_by<T>(where);
    co_await brief.send({}, detail::taken_tag);
    taken = true;
    while (!seen) co_await yield();
    const std::byte leaves{static_cast<std::uint8_t>(detail::leave_reason::stopping)};
    co_await brief.send(std::string_view("my word"), 1);
    co_await brief.send(std::span<const std::byte>(&leaves, 1), detail::last_word_tag);
    auto closed = start(brief.close());
    co_await sleep_for(1ms);  // the goodbye is on its way, and this thread has nothing to send any more
    left = true;
    co_await closed;
}

TEMPLATE_LIST_TEST_CASE("a node that leaves before the one that accepts it has had its turn is heard", "",
                        node_transports) {
    std::atomic<bool> taken = false, seen = false, left = false;
    std::optional<std::jthread> other;
    run_nodes([&]() -> task<> {
        node<TestType> one(1);
        auto changes = one.watch();
        const std::string where = co_await one.listen(fresh_url<TestType>());
        auto hearing = start(hear(one.peer(7)));
        other.emplace([&, where] {
            scheduler there{idle::yield{}};
            there.run(say_and_leave<TestType>(where, taken, seen, left));
        });
        // What follows this one in its turn is the coroutine that accepts. It comes after the next poll, as this one takes so long.
        while (!taken || !scheduler::current()->others_follow()) co_await yield();
        seen = true;
        while (!left) std::this_thread::yield();
        const std::string got = co_await hearing;
        CHECK(got == "my word");
        const node_event came = co_await changes.next();
        CHECK(came.what == node_change::came);
        const node_event gone = co_await changes.next();
        CHECK(gone.what == node_change::left);
    });
}

TEMPLATE_LIST_TEST_CASE("words that nothing hears of a node outside the book do not keep it out, nor does "
                        "one connection the other's",
                        "", node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1, hasty());
        const std::string where = co_await one.listen(fresh_url<TestType>());
        const std::byte leaves{static_cast<std::uint8_t>(detail::leave_reason::stopping)};
        for (std::size_t life = 0; life < 2 * detail::node_peer::most_leftovers; ++life) {
            auto former = co_await accepted_by<TestType>(where);
            co_await former.send({}, detail::taken_tag);
            co_await former.send(std::string_view("unheard"), 1);
            // The next one comes before this one has ended.
            auto next = co_await accepted_by<TestType>(where);
            co_await former.send(std::span<const std::byte>(&leaves, 1), detail::last_word_tag);
            co_await former.close();
            co_await until([&] { return one.connections() == 0; });
            next.abort();
        }
        co_await until([&] { return one.explain(7).find("never met") != std::string::npos; });
    });
}

TEMPLATE_LIST_TEST_CASE("a connection that is never taken ends, and its place is another one's", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        node_options narrow = hasty();
        narrow.connections = 1;
        narrow.attempt_limit = 50ms;
        node<TestType> one(1, narrow), two(2);
        const std::string where = co_await one.listen(fresh_url<TestType>());
        auto silent = co_await accepted_by<TestType>(where);
        auto ends = start(as_result(silent.recv_lent()));
        two.add(one.card());
        co_await say(two.peer(1), "hello");
        const std::string got = co_await hear(one.peer(2));
        CHECK(got == "hello");
        const auto ended = co_await ends;
        CHECK(ended.error() == errc::peer_lost);
    });
}

TEMPLATE_LIST_TEST_CASE("a node that closes tells one that has not taken its connection yet, too", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1);
        const std::string where = co_await one.listen(fresh_url<TestType>());
        auto slow = co_await accepted_by<TestType>(where);
        auto closing = start(one.close());
        const message word = co_await slow.recv_lent(detail::last_word_tag);
        const auto stopping = static_cast<std::byte>(detail::leave_reason::stopping);
        CHECK((word.size() == 1 && word.bytes()[0] == stopping));
        co_await slow.close();
        co_await closing;
    });
}

TEMPLATE_LIST_TEST_CASE("a node that closes takes no connection any more", "", node_transports) {
    run_nodes([]() -> task<> {
        const std::string where = fresh_url<TestType>();
        auto listening = co_await listen<TestType>(where);
        node<TestType> one(1);
        one.add({.id = 7, .urls = {listening.address()}});
        auto sending = start(failing(say(one.peer(7), "hello")));
        auto made = co_await listening.accept();
        static_cast<void>(co_await made.recv_lent(detail::hello_tag));
        // Another connection keeps it from having closed before the answer is there.
        auto other = co_await connect<TestType>(co_await one.listen(fresh_url<TestType>()));
        auto hello = honest_hello(1);
        hello.from.id = 8;
        const std::vector<std::byte> said = detail::encode_hello(hello);
        co_await other.send(said, detail::hello_tag);
        static_cast<void>(co_await other.recv_lent(detail::answer_tag));
        co_await other.send({}, detail::taken_tag);
        auto closing = start(one.close());
        static_cast<void>(co_await other.recv_lent(detail::last_word_tag));
        detail::node_answer answer;
        answer.from = {.id = 7, .born = new_generation(), .host = {}, .urls = {}};
        const std::vector<std::byte> bytes = detail::encode_answer(answer);
        auto answering = start(as_result(made.send(bytes, detail::answer_tag)));
        const auto ended = co_await as_result(made.recv_lent());
        CHECK(ended.error() == errc::peer_lost);
        static_cast<void>(co_await answering);
        co_await other.close();
        co_await closing;
        const failure refused = co_await sending;
        CHECK(refused.code == errc::closed);
    });
}

TEST_CASE("an exception of a connection's function ends that connection, and others go on") {
    run_nodes([]() -> task<> {
        node<shm> one(1), two(2), three(3);
        co_await one.listen(fresh_url<shm>());
        one.on_connection([](auto& peer, node_id id, generation) -> task<> {
            const message got = co_await peer.recv_lent();
            if (id == 2) throw std::runtime_error("not that");
            co_await peer.send(got.bytes(), 2);
            static_cast<void>(co_await peer.recv_lent());
        });
        two.add(one.card());
        three.add(one.card());
        auto bad = two.peer(1);
        co_await say(bad, "hello");
        const failure ended = co_await failing(receive_any(bad));
        CHECK(ended.code);
        co_await say(three.peer(1), "hello");
        const std::string got = co_await hear(three.peer(1), 2);
        CHECK(got == "hello");
    });
}

TEST_CASE("a node whose closing is cut short ends like any other") {
    run_nodes([]() -> task<> {
        std::optional<node<shm>> one(std::in_place, 1);
        node<shm> two(2);
        co_await two.listen(fresh_url<shm>());
        one->add(two.card());
        two.add({.id = 1, .urls = {fresh_url<shm>()}});
        event goes_on;
        bool asked = false;
        one->on_connection([&](auto&, node_id, generation) -> task<> {
            static_cast<void>(co_await as_result(sleep_for(1h)));  // until it is asked to stop
            asked = true;
            co_await without_stop(goes_on.wait());
        });
        co_await say(one->peer(2), "never received");
        local_stop_source cut;
        auto closing = start(with_stop(one->close(), cut.get_token()));
        co_await until([&] { return asked; });
        CHECK_FALSE(closing.done());
        cut.request_stop();
        const auto ended = co_await as_result(closing);
        CHECK(ended.error() == errc::canceled);
        const failure after = co_await failing(say(one->peer(2), "after it"));
        CHECK(after.code == errc::closed);
        goes_on.set();
        one.reset();
    });
}

TEST_CASE(
    "messages of connections that have ended are received in order, and while they are not, no more come") {
    run_nodes([]() -> task<> {
        node_options brief = hasty();
        brief.connect_limit = 300ms;
        std::optional<node<shm>> one(std::in_place, 1);
        const std::string where = co_await one->listen(fresh_url<shm>());
        one->add({.id = 2, .urls = {fresh_url<shm>()}});
        auto back = one->peer(2);
        failure refused;
        int lives = 0;
        for (; !refused.code && lives < 20; ++lives) {
            node<shm> two(2, brief);
            two.add({.id = 1, .urls = {where}});
            refused = co_await failing(say(two.peer(1), "first of " + std::to_string(lives), 1));
            if (!refused.code) co_await say(two.peer(1), "second of " + std::to_string(lives), 2);
            co_await two.close();
            co_await until([&] { return one->connections() == 0; });
        }
        CHECK(refused.code == errc::connection_refused);
        CHECK_THAT(refused.text, contains("does not receive"));
        CHECK(lives == 1 + static_cast<int>(detail::node_peer::most_leftovers));
        for (int n = 0; n + 1 < lives; ++n) {
            const std::string second = co_await hear(back, 2);
            CHECK(second == "second of " + std::to_string(n));
        }
        const std::string first = co_await hear(back, 1);
        CHECK(first == "first of 0");
        one.reset();  // with the rest
        const failure over = co_await failing(receive_any(back));
        CHECK(over.code == errc::closed);
    });
}

TEST_CASE("messages over connections that are closed as idle are all received, in order") {
    run_nodes([]() -> task<> {
        node_options narrow;
        narrow.connections = 1;
        node<shm> hub(1, narrow), a(2), b(3);
        for (node<shm>* leaf : {&a, &b}) {
            co_await leaf->listen(fresh_url<shm>());
            hub.add(leaf->card());
        }
        auto hub_at_a = a.peer(1);  // not in the book: kept as long as there is a handle
        auto hub_at_b = b.peer(1);
        for (int n = 0; n < 4; ++n) {
            co_await say(hub.peer(2), std::to_string(n));
            co_await say(hub.peer(3), std::to_string(n));
        }
        for (int n = 0; n < 4; ++n) {
            const std::string at_a = co_await hear(hub_at_a);
            const std::string at_b = co_await hear(hub_at_b);
            CHECK(at_a == std::to_string(n));
            CHECK(at_b == std::to_string(n));
        }
    });
}

TEST_CASE("strangers that come and go leave no memory of themselves") {
    run_nodes([]() -> task<> {
        node<shm> one(1, hasty());
        const std::string where = co_await one.listen(fresh_url<shm>());
        auto changes = one.watch();
        for (node_id id = 100; id < 160; ++id) {
            node<shm> stranger(id);
            stranger.add(one.card());
            co_await say(stranger.peer(1), "a message that is never received");
            co_await stranger.close();
        }
        int left = 0;
        while (left < 60) {
            const node_event change = co_await changes.next();
            if (change.what == node_change::left) ++left;
        }
        for (node_id id = 100; id < 160; ++id) {
            while (one.explain(id).find("never met") == std::string::npos) co_await yield();
        }
        CHECK(one.connections() == 0);
    });
}

TEST_CASE("unread messages of a node outside the book that has left end with the last handle of it") {
    run_nodes([]() -> task<> {
        node<shm> one(1, hasty());
        const std::string where = co_await one.listen(fresh_url<shm>());
        auto changes = one.watch();
        for (const bool by_book : {false, true}) {
            for (node_id id = 100; id < 110; ++id) {
                std::optional<node_peer<shm>> handle;
                if (by_book) {
                    one.add({.id = id, .urls = {fresh_url<shm>()}});
                } else {
                    handle.emplace(one.peer(id));
                }
                node<shm> stranger(id);
                stranger.add(one.card());
                co_await say(stranger.peer(1), "the first", 1);
                co_await say(stranger.peer(1), "the second", 2);
                co_await stranger.close();
                for (bool left = false; !left;) {
                    const node_event change = co_await changes.next();
                    left = change.what == node_change::left && change.id == id;
                }
                for (int turn = 0; turn < 20; ++turn) co_await yield();
                const std::string got = co_await hear(one.peer(id), 2);
                CHECK(got == "the second");
                CHECK(one.explain(id).find("never met") == std::string::npos);
                if (by_book) CHECK(one.remove(id));
                handle.reset();
                CHECK_THAT(one.explain(id), contains("never met"));
            }
        }
        CHECK(one.connections() == 0);
    });
}

TEMPLATE_LIST_TEST_CASE("strangers that go before they are answered leave no memory of themselves", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> one(1, hasty());
        const std::string where = co_await one.listen(fresh_url<TestType>());
        for (node_id id = 100; id < 150; ++id) {
            auto stranger = co_await connect<TestType>(where);
            detail::node_hello hello = honest_hello(1);
            hello.from.id = id;
            const std::vector<std::byte> bytes = detail::encode_hello(hello);
            co_await stranger.send(bytes, detail::hello_tag);
            if (id % 2 == 0) co_await yield();
            stranger.abort();
        }
        for (node_id id = 100; id < 150; ++id) {
            while (one.explain(id).find("never met") == std::string::npos) co_await yield();
        }
        CHECK(one.connections() == 0);
    });
}

TEST_CASE("ids that no book has leave no memory of themselves, however they were named") {
    run_nodes([]() -> task<> {
        node<shm> one(1, hasty());
        for (node_id id = 100; id < 1100; ++id) {
            const auto sent = co_await as_result(one.peer(id).send({}, 1));
            CHECK(sent.error() == errc::address_invalid);
        }
        const auto kept = one.peer(2000);  // a handle keeps its own
        std::size_t known = 0;
        for (node_id id = 100; id < 1100; ++id)
            known += one.explain(id).find("never met") == std::string::npos;
        CHECK(known <= 64);
        CHECK(kept.id() == 2000);
        CHECK(one.explain(2000).find("never met") == std::string::npos);
    });
}

TEST_CASE("a message that joins attempts to connect waits for its own limit") {
    in_virtual_time([](sim::domain& left, sim::domain& right) -> task<> {
        node_options o;
        o.connect_limit = 4s;
        node<sim> one(1, o, left);
        node<sim> two(2, {}, right);
        one.add({.id = 2, .urls = {"sim://two"}});
        const time_point begin = scheduler::current()->now();
        auto first = start(as_result(one.peer(2).send({}, 1)));
        co_await sleep_for(3s);
        auto second = start(as_result(one.peer(2).send({}, 1)));
        const auto early = co_await first;
        CHECK_FALSE(early);
        CHECK(time_since(begin) <= 4s);
        co_await sleep_for(1s);
        CHECK_FALSE(second.done());
        co_await two.listen("sim://two");
        const auto late = co_await second;
        CHECK(late);
        CHECK(time_since(begin) <= 7s);
        // Where nobody listens to the end, it has all of its limit, and no more.
        one.add({.id = 3, .urls = {"sim://three"}});
        auto third = start(as_result(one.peer(3).send({}, 1)));
        co_await sleep_for(3s);
        const time_point joined = scheduler::current()->now();
        const auto never = co_await as_result(one.peer(3).send({}, 1));
        CHECK_FALSE(never);
        CHECK(time_since(joined) > 3s);
        CHECK(time_since(joined) <= 4s);
        static_cast<void>(co_await third);
        co_await one.close();
        co_await two.close();
    });
}

TEST_CASE("strangers that are refused and do not close give way to others as silent ones do") {
    sim_world world;
    scheduler on{idle::spin{}, world.time()};
    sim::domain here(on, {.world = &world});
    sim::domain crowd(on, {.world = &world});
    sim::domain honest(on, {.world = &world});
    on.run([](sim::domain& left, sim::domain& many, sim::domain& right) -> task<> {
        node_options narrow;
        narrow.unnamed_connections = 4;
        narrow.hello_limit = 10s;
        node<sim> one(1, narrow, left);
        co_await one.listen("sim://one");
        std::vector<endpoint<sim>> strangers;
        for (int n = 0; n < 4; ++n) strangers.push_back(co_await connect<sim>(many, "sim://one"));
        left.hold_messages_to(many, true);  // they answer neither to the refusal nor to its end
        const std::vector<std::byte> bytes = detail::encode_hello(honest_hello(3));
        for (auto& stranger : strangers) co_await stranger.send(bytes, detail::hello_tag);
        co_await sleep_for(100ms);
        node_options patient;
        patient.attempt_limit = 60s;
        patient.connect_limit = 60s;
        node<sim> two(2, patient, right);
        two.add(one.card());
        const time_point begin = scheduler::current()->now();
        co_await say(two.peer(1), "hello");
        CHECK(time_since(begin) <= 1s);
        const std::string got = co_await hear(one.peer(2));
        CHECK(got == "hello");
        left.hold_messages_to(many, false);
    }(here, crowd, honest));
}

TEST_CASE("a node that accepts no more connections tells its watchers, and says why") {
    run_nodes([]() -> task<> {
        local_stop_source breaks;
        brittle::listener::breaks = &breaks;
        node<brittle> one(1), two(2), three(3);
        auto changes = one.watch();
        const std::string url = co_await one.listen(fresh_url<shm>());
        CHECK(one.card().urls == std::vector<std::string>{url});
        CHECK_THAT(one.explain(1), contains(url));
        two.add(one.card());
        three.add(one.card());
        co_await say(two.peer(1), "hello");
        const node_event came = co_await changes.next();
        CHECK(came.what == node_change::came);
        breaks.request_stop();
        const node_event change = co_await changes.next();
        CHECK(change.what == node_change::deaf);
        CHECK(change.id == 1);
        CHECK(change.born == one.card().born);
        CHECK(change.why == errc::no_resources);
        CHECK(one.card().urls.empty());
        CHECK_THAT(one.explain(1), contains(url + ": accepts no more connections"));
        // It goes on otherwise.
        const std::string got = co_await hear(one.peer(2));
        CHECK(got == "hello");
        brittle::listener::breaks = nullptr;
    });
}

}  // namespace test_service_node_faults

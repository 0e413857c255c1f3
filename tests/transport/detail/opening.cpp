#include <rdmacoro/transport/detail/opening.hpp>

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/task.hpp>

#include "support/catch.hpp"
#include "support/scripted_names.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace test_transport_detail_opening {

using namespace rdmacoro;

namespace {

struct outcome {
    errc code = errc::ok;
    int system = 0;
    const char* step = "";
};

/// A session that a test opens.
struct fake_session {
    using opener = detail::connection_opener<fake_session, outcome>;
    opener* waiter = nullptr;
    bool abandoned = false;
    std::optional<outcome> at_once;
    std::string to;

    void connect(const detail::inet_endpoint& address, opener& by) noexcept {
        waiter = &by;
        to = address.text();
        if (at_once) open(*at_once);
    }
    void accept(opener& by) noexcept { waiter = &by; }
    void open(const outcome& how) noexcept { std::exchange(waiter, nullptr)->opened(*this, how); }
    void abandon() noexcept { abandoned = true; }
};

struct fake_engine {
    struct limits {
        unsigned most_waiting = 3;
        duration handshake_timeout = std::chrono::seconds(10);
    };
    manual_clock time;
    scheduler on{idle::yield{}, time};
    limits limit;
    std::vector<std::unique_ptr<fake_session>> sessions;
    std::optional<outcome> at_once;
    bool full = false;

    [[nodiscard]] scheduler& owner() noexcept { return on; }
    [[nodiscard]] const limits& options() const noexcept { return limit; }
    [[nodiscard]] fake_session* make_session() noexcept {
        if (full) return nullptr;
        sessions.push_back(std::make_unique<fake_session>());
        sessions.back()->at_once = at_once;
        return sessions.back().get();
    }
};

using connect_to = detail::connect_to<fake_engine, fake_session, outcome>;
using attempt = detail::connect_attempt<fake_session, outcome>;
using accepted_queue = detail::accept_queue<fake_engine, fake_session, outcome>;

task<attempt> connect(fake_engine& by) {
    connect_to one(by, {});
    co_return co_await one;
}

struct fake_connection {
    explicit fake_connection(fake_session& open) noexcept : of(&open) {}
    fake_session* of;
};
[[noreturn]] void throw_no_connection(fake_engine&, const detail::inet_address&, const outcome& how) {
    throw error(how.code);
}
task<> connect_by_name(fake_engine& by, std::optional<fake_connection>& made) {
    made = co_await detail::connect_to_any<fake_connection, outcome, fake_session>(
        by, detail::inet_address::parse("fake", "fake://two.test:7", ""), "fake");
}

task<> try_to_connect(fake_engine& by, std::error_code& ended) {
    try {
        static_cast<void>(co_await connect(by));
    } catch (const error& why) {
        ended = why.code();
    }
}

task<> accept(accepted_queue& from, fake_session*& into, std::error_code& ended) {
    try {
        detail::accept_operation<accepted_queue, fake_session> one(from);
        into = co_await one;
    } catch (const error& why) {
        ended = why.code();
    }
}

/// Begins a task.
struct begun {
    task<> of;
    detail::ready_node root;
    begun(scheduler& on, task<> what, local_stop_source* stop = nullptr) : of(std::move(what)) {
        of.bind({&on, stop != nullptr ? stop->get_token() : stop_token_type{}});
        root.waiter = of.handle();
        on.make_ready(root);
    }
    using stop_token_type = decltype(std::declval<local_stop_source>().get_token());
};

[[nodiscard]] bool try_admit(accepted_queue& by, std::uint8_t from = 0) {
    return by.admit([](fake_session& which, fake_session::opener& waiter) noexcept { which.accept(waiter); },
                    from);
}
void admit(accepted_queue& by) { REQUIRE(try_admit(by)); }

}  // namespace

TEST_CASE("an attempt to connect returns the session that opened, or the reason of the failure") {
    fake_engine by;
    by.at_once = outcome{};
    const attempt good = by.on.run(connect(by));
    CHECK(good.made.get() == by.sessions.at(0).get());
    CHECK_FALSE(good.made->abandoned);
    by.at_once = outcome{errc::timed_out, 5, "look"};
    const attempt late = by.on.run(connect(by));
    CHECK(late.made == nullptr);
    CHECK(late.how.code == errc::timed_out);
    CHECK(late.how.system == 5);
    by.full = true;
    CHECK(by.on.run(connect(by)).how.code == errc::no_resources);
}

TEST_CASE("an attempt that is canceled abandons its connection") {
    fake_engine by;
    local_stop_source stop;
    std::error_code ended;
    begun trying(by.on, try_to_connect(by, ended), &stop);
    by.on.run_until([&] { return !by.sessions.empty(); });
    stop.request_stop();
    by.on.run_until([&] { return trying.of.handle().done(); });
    CHECK(ended == errc::canceled);
    CHECK(by.sessions[0]->abandoned);
}

TEST_CASE("an open connection that nobody takes is abandoned") {
    fake_engine by;
    by.at_once = outcome{};
    { const attempt dropped = by.on.run(connect(by)); }
    CHECK(by.sessions.at(0)->abandoned);
}

TEST_CASE("an address that does not answer holds up no other and its attempt is abandoned") {
    fake_engine by;
    test::scripted_names names;
    names.set("two.test", {"127.0.0.2", "127.0.0.1"});
    std::optional<fake_connection> made;
    begun trying(by.on, connect_by_name(by, made));
    by.on.run_until([&] { return by.sessions.size() == 1; });
    CHECK(by.sessions[0]->to == "127.0.0.2:7");
    const time_point first = by.time.now();
    by.on.run_until([&] { return by.sessions.size() == 2; });  // the clock goes to the next timer by itself
    CHECK(by.sessions[1]->to == "127.0.0.1:7");
    CHECK(by.time.now() - first == detail::address_head_start);
    by.sessions[1]->open({});
    by.on.run_until([&] { return trying.of.handle().done(); });
    REQUIRE(made);
    CHECK(made->of == by.sessions[1].get());
    CHECK(by.sessions[0]->abandoned);
    CHECK_FALSE(by.sessions[1]->abandoned);
}

TEST_CASE("where no address answers the reason is that of the last") {
    fake_engine by;
    test::scripted_names names;
    names.set("two.test", {"127.0.0.2", "127.0.0.1"});
    std::optional<fake_connection> made;
    std::error_code ended;
    begun trying(by.on,
                 [](fake_engine& in, std::optional<fake_connection>& into, std::error_code& why) -> task<> {
                     const auto outcome = co_await as_result(connect_by_name(in, into));
                     why = outcome.error();
                 }(by, made, ended));
    by.on.run_until([&] { return by.sessions.size() == 1; });
    const time_point first = by.time.now();
    by.sessions[0]->open({errc::connection_refused, 1, "first"});
    by.on.run_until([&] { return by.sessions.size() == 2; });
    CHECK(by.time.now() == first);
    by.sessions[1]->open({errc::timed_out, 2, "second"});
    by.on.run_until([&] { return trying.of.handle().done(); });
    CHECK(ended == errc::timed_out);
    CHECK_FALSE(made);
}

TEST_CASE("accepted connections are taken in the order in which they opened; failed ones are forgotten") {
    fake_engine by;
    accepted_queue came(by);
    CHECK(came.take() == nullptr);
    for (int i = 0; i < 3; ++i) admit(came);
    CHECK_FALSE(came.admit([](fake_session&, fake_session::opener&) noexcept {}));  // as many as may wait
    by.sessions[2]->open({});
    by.sessions[0]->open({errc::peer_lost, 0, "greet"});
    by.sessions[1]->open({});
    admit(came);  // there is room again
    CHECK(came.take() == by.sessions[2].get());
    CHECK(came.take() == by.sessions[1].get());
    CHECK(came.take() == nullptr);
    CHECK_FALSE(by.sessions[1]->abandoned);
    by.full = true;
    CHECK_FALSE(came.admit([](fake_session&, fake_session::opener&) noexcept {}));
}

TEST_CASE("strangers that are silent give their places to new ones, the oldest first, after a tenth of their "
          "time") {
    fake_engine by;
    accepted_queue came(by);
    for (int i = 0; i < 3; ++i) admit(came);
    by.time.advance(std::chrono::milliseconds(999));
    CHECK_FALSE(try_admit(came));
    by.time.advance(std::chrono::milliseconds(1));
    CHECK(try_admit(came));
    CHECK(by.sessions[0]->abandoned);
    CHECK_FALSE(by.sessions[1]->abandoned);
    // Open ones keep their places.
    by.sessions[1]->open({});
    by.sessions[2]->open({});
    by.sessions[3]->open({});
    by.time.advance(std::chrono::hours(1));
    CHECK_FALSE(try_admit(came));
    CHECK(came.take() == by.sessions[1].get());
}

TEST_CASE("a host that holds more places than others gives one to them at once, and to itself none") {
    fake_engine by;
    accepted_queue came(by);
    CHECK(try_admit(came, 1));
    CHECK(try_admit(came, 7));
    CHECK(try_admit(came, 7));
    CHECK_FALSE(try_admit(came, 7));
    CHECK(try_admit(came, 2));
    CHECK_FALSE(by.sessions[0]->abandoned);
    CHECK(by.sessions[1]->abandoned);
    CHECK_FALSE(by.sessions[2]->abandoned);
    CHECK_FALSE(try_admit(came, 3));  // each holds one now
}

TEST_CASE("a queue that ends for a reason gives it to those that wait and to those that come later") {
    fake_engine by;
    accepted_queue came(by);
    fake_session* none = nullptr;
    std::error_code before;
    std::error_code later;
    begun waits(by.on, accept(came, none, before));
    by.on.run_until([&, turns = 0]() mutable { return ++turns > 3; });
    CHECK_FALSE(waits.of.handle().done());
    came.end(errc::address_invalid);
    by.on.run_until([&] { return waits.of.handle().done(); });
    CHECK(before == errc::address_invalid);
    begun comes(by.on, accept(came, none, later));
    by.on.run_until([&] { return comes.of.handle().done(); });
    CHECK(later == errc::address_invalid);
    CHECK(none == nullptr);
}

TEST_CASE("a waiter gets the next connection that opens, and errc::closed when the listener ends") {
    fake_engine by;
    fake_session* first = nullptr;
    fake_session* second = nullptr;
    std::error_code ended;
    auto came = std::make_unique<accepted_queue>(by);
    begun one(by.on, accept(*came, first, ended));
    begun two(by.on, accept(*came, second, ended));
    for (int i = 0; i < 2; ++i) admit(*came);
    by.on.run_until([&, turns = 0]() mutable { return ++turns > 3; });
    by.sessions[1]->open({});
    by.on.run_until([&] { return one.of.handle().done(); });
    CHECK(first == by.sessions[1].get());
    came.reset();
    by.on.run_until([&] { return two.of.handle().done(); });
    CHECK(second == nullptr);
    CHECK(ended == errc::closed);
    CHECK(by.sessions[0]->abandoned);  // it was still opening
    CHECK_FALSE(by.sessions[1]->abandoned);
}

}  // namespace test_transport_detail_opening

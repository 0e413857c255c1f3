#include <rdmacoro/transport/detail/opening.hpp>

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/task.hpp>

#include "support/catch.hpp"

#include <memory>
#include <vector>

using namespace rdmacoro;

namespace {

struct outcome {
    errc code = errc::ok;
    int system = 0;
    const char* step = "";
};

/// A core that opens when it is told to.
struct fake_core {
    using opener = detail::connection_opener<fake_core, outcome>;
    opener* who = nullptr;
    bool abandoned = false;
    std::optional<outcome> at_once;

    void connect(const detail::inet_endpoint&, opener& waits) noexcept {
        who = &waits;
        if (at_once) open(*at_once);
    }
    void accept(opener& waits) noexcept { who = &waits; }
    void open(const outcome& how) noexcept { std::exchange(who, nullptr)->opened(*this, how); }
    void abandon() noexcept { abandoned = true; }
};

struct fake_engine {
    struct limits {
        unsigned most_waiting = 3;
    };
    scheduler on;
    limits limit;
    std::vector<std::unique_ptr<fake_core>> cores;
    std::optional<outcome> at_once;
    bool full = false;

    [[nodiscard]] scheduler& owner() noexcept { return on; }
    [[nodiscard]] const limits& options() const noexcept { return limit; }
    [[nodiscard]] fake_core* make_core() noexcept {
        if (full) return nullptr;
        cores.push_back(std::make_unique<fake_core>());
        cores.back()->at_once = at_once;
        return cores.back().get();
    }
};

using connect_to = detail::connect_to<fake_engine, fake_core, outcome>;
using attempt = detail::connect_attempt<fake_core, outcome>;
using guests = detail::guest_list<fake_engine, fake_core, outcome>;

task<attempt> connect(fake_engine& by) {
    connect_to one(by, {});
    co_return co_await one;
}

task<> try_to_connect(fake_engine& by, std::error_code& ended) {
    try {
        static_cast<void>(co_await connect(by));
    } catch (const error& why) {
        ended = why.code();
    }
}

task<> accept(guests& from, fake_core*& into, std::error_code& ended) {
    try {
        detail::accept_operation<guests, fake_core> one(from);
        into = co_await one;
    } catch (const error& why) {
        ended = why.code();
    }
}

/// Begins a task that waits.
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

void invite(guests& by) {
    REQUIRE(by.invite([](fake_core& which, fake_core::opener& who) noexcept { which.accept(who); }));
}

}  // namespace

TEST_CASE("an attempt to connect gives out the core that opened, or says why none did") {
    fake_engine by;
    by.at_once = outcome{};
    const attempt good = by.on.run(connect(by));
    CHECK(good.made == by.cores.at(0).get());
    CHECK_FALSE(good.made->abandoned);
    by.at_once = outcome{errc::timed_out, 5, "look"};
    const attempt late = by.on.run(connect(by));
    CHECK(late.made == nullptr);
    CHECK(late.how.code == errc::timed_out);
    CHECK(late.how.system == 5);
    by.full = true;
    CHECK(by.on.run(connect(by)).how.code == errc::no_resources);
}

TEST_CASE("an attempt that is canceled gives its connection up") {
    fake_engine by;
    local_stop_source stop;
    std::error_code ended;
    begun trying(by.on, try_to_connect(by, ended), &stop);
    by.on.run_until([&] { return !by.cores.empty(); });
    stop.request_stop();
    by.on.run_until([&] { return trying.of.handle().done(); });
    CHECK(ended == errc::canceled);
    CHECK(by.cores[0]->abandoned);
}

TEST_CASE("guests that have opened are taken in order; those that failed are forgotten") {
    fake_engine by;
    guests came(by);
    CHECK(came.take() == nullptr);
    for (int i = 0; i < 3; ++i) invite(came);
    CHECK_FALSE(came.invite([](fake_core&, fake_core::opener&) noexcept {}));  // as many as may wait
    by.cores[2]->open({});
    by.cores[0]->open({errc::peer_lost, 0, "greet"});
    by.cores[1]->open({});
    invite(came);  // there is room again
    CHECK(came.take() == by.cores[2].get());
    CHECK(came.take() == by.cores[1].get());
    CHECK(came.take() == nullptr);
    CHECK_FALSE(by.cores[1]->abandoned);
    by.full = true;
    CHECK_FALSE(came.invite([](fake_core&, fake_core::opener&) noexcept {}));
}

TEST_CASE("who waits gets the next guest, and at the end hears of it") {
    fake_engine by;
    fake_core* first = nullptr;
    fake_core* second = nullptr;
    std::error_code ended;
    auto came = std::make_unique<guests>(by);
    begun one(by.on, accept(*came, first, ended));
    begun two(by.on, accept(*came, second, ended));
    for (int i = 0; i < 2; ++i) invite(*came);
    by.on.run_until([&, turns = 0]() mutable { return ++turns > 3; });
    by.cores[1]->open({});
    by.on.run_until([&] { return one.of.handle().done(); });
    CHECK(first == by.cores[1].get());
    came.reset();
    by.on.run_until([&] { return two.of.handle().done(); });
    CHECK(second == nullptr);
    CHECK(ended == errc::closed);
    CHECK(by.cores[0]->abandoned);  // it was still opening
    CHECK_FALSE(by.cores[1]->abandoned);
}

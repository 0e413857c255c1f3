// Two nodes that call each other at once, and a node that is killed and restarted while it is called, over the simulated network, in every order
// of events.
#include <rdmacoro/service/node_calls.hpp>

#include <rdmacoro/service/detail/node_wire.hpp>
#include <rdmacoro/transport/sim.hpp>
#include <rdmacoro/transport/sim/explore.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace test_service_node_calls_explored {

using namespace rdmacoro;

namespace {

struct explored_kv {
    static constexpr method<"kv.twice", std::uint64_t(std::uint64_t)> twice{};
};

node_options of_life(std::uint64_t number) {
    node_options o;
    o.born = generation{number};
    return o;
}

task<> calls_other(node_calls<sim>& peers, sim::domain& at, node_id other, exploration& x) {
    sim_actor actor(at);
    co_await actor.step();
    const std::uint64_t got = co_await peers.call(other, explored_kv::twice, std::uint64_t{other});
    x.check(got == 2 * std::uint64_t{other}, "another answer");
}

task<> both_call(exploration& x) {
    sim_options of_node;
    of_node.world = &x.world();
    scheduler& on = *scheduler::current();
    sim::domain left(on, of_node), right(on, of_node);
    service doubles;
    doubles.on(explored_kv::twice,
               [](call_context&, std::uint64_t n) -> task<std::uint64_t> { co_return 2 * n; });
    std::optional<node_calls<sim>> from_one, from_two;
    node<sim> one(1, of_life(11), left);
    node<sim> two(2, of_life(22), right);
    from_one.emplace(one);
    from_two.emplace(two);
    from_one->serve(doubles);
    from_two->serve(doubles);
    co_await one.listen("sim://one");
    co_await two.listen("sim://two");
    one.add(two.card());
    two.add(one.card());
    x.begin();
    task_group users;
    users.spawn(calls_other, std::ref(*from_one), std::ref(left), node_id{2}, std::ref(x));
    users.spawn(calls_other, std::ref(*from_two), std::ref(right), node_id{1}, std::ref(x));
    co_await users.join();
    x.end();
    x.check(one.connections() == 1 && two.connections() == 1, "not one connection");
    x.check(doubles.running() == 0, "a handler runs on");
}

/// Each answers with the number of the life that served it; the first argument is the number of the call.
struct lives {
    static constexpr method<"lives.which", std::uint64_t(std::uint64_t)> which{};
    static constexpr method<"lives.row", std::vector<std::uint64_t>(std::uint64_t)> row{};
    static constexpr method<"lives.load", std::uint64_t(std::uint64_t, remote_region)> load{};
};
constexpr std::size_t row_length = 3000;

/// How far a node has come with what it is asked.
enum class phase : std::uint8_t { no_request, in_handler, getting, answering };
constexpr std::size_t phases = 4;

/// Node 2 from its start to its end. Both lives are at one address, on one host.
class life {
public:
    life(std::uint64_t number, sim::domain& at) : number_(number), at_(at) {
        offered_.on(lives::which, [this](call_context&, std::uint64_t call) -> task<std::uint64_t> {
            const handling here(*this, phase::in_handler, call);
            sim_actor actor(at_);
            co_await actor.step();
            co_return number_;
        });
        offered_.on(lives::row,
                    [this](call_context&, std::uint64_t call) -> task<std::vector<std::uint64_t>> {
                        const handling here(*this, phase::in_handler, call);
                        co_return std::vector<std::uint64_t>(row_length, number_);
                    });
        offered_.on(lives::load,
                    [this](call_context& c, std::uint64_t call, remote_region from) -> task<std::uint64_t> {
                        const handling here(*this, phase::getting, call);
                        std::vector<std::byte> room(from.length);
                        co_await c.get(from, room);
                        co_return number_;
                    });
    }
    task<> begin() {
        self_.emplace(2, of_life(number_), at_);
        calls_.emplace(*self_);
        calls_->serve(offered_);
        co_await self_->listen("sim://two");
    }
    /// Nothing that the process does from now on reaches another one.
    void kill(const sim::domain& other) {
        at_.drop_links_to(other);
        self_.reset();
        calls_.reset();
    }
    [[nodiscard]] const node_card& card() const { return self_->card(); }
    [[nodiscard]] phase now() const noexcept { return now_; }
    /// Its calls so far do not count.
    void rest() noexcept { now_ = phase::no_request; }
    [[nodiscard]] bool saw(std::uint64_t call) const { return std::ranges::count(seen_, call) > 0; }
    [[nodiscard]] std::string name() const { return detail::node_text(2, generation{number_}); }

private:
    struct handling {
        handling(life& of, phase during, std::uint64_t call) : in(of) {
            in.now_ = during;
            in.seen_.push_back(call);
        }
        handling(const handling&) = delete;
        handling& operator=(const handling&) = delete;
        ~handling() { in.now_ = phase::answering; }
        life& in;
    };

    std::uint64_t number_;
    sim::domain& at_;
    service offered_{{.running = 1}};
    std::vector<std::uint64_t> seen_;
    phase now_ = phase::no_request;
    std::optional<node_calls<sim>> calls_;
    std::optional<node<sim>> self_;
};

/// The life that served a call.
using asks = task<std::uint64_t> (*)(node_calls<sim>&, sim::domain&, std::uint64_t call);
task<std::uint64_t> asks_which(node_calls<sim>& peers, sim::domain&, std::uint64_t call) {
    co_return co_await peers.call(2, lives::which, call);
}
task<std::uint64_t> asks_for_a_row(node_calls<sim>& peers, sim::domain&, std::uint64_t call) {
    const std::vector<std::uint64_t> row = co_await peers.call(2, lives::row, call);
    co_return row == std::vector<std::uint64_t>(row_length, row.at(0)) ? row[0] : 0;
}
task<std::uint64_t> has_it_load(node_calls<sim>& peers, sim::domain& at, std::uint64_t call) {
    std::vector<std::byte> bulk(2000, std::byte{1});
    const region open = at.register_memory(bulk, access_rights::remote_read);
    co_return co_await peers.call(2, lives::load, call, open.remote());
}

/// In how many executions the calls were answered by which life, and in how many the first one was killed in which phase and they were lost.
struct lives_seen {
    std::array<std::uint64_t, 3> answered{};
    std::array<std::uint64_t, phases> lost_in{};
    [[nodiscard]] std::uint64_t lost() const {
        return std::accumulate(lost_in.begin(), lost_in.end(), std::uint64_t{0});
    }
};
struct asked {
    std::uint64_t by = 0;  // 0: it ended with an error, or not yet
    bool failed = false;
};

task<> asks_one(node_calls<sim>& peers, sim::domain& at, asks what, std::uint64_t call, const life& first,
                const life& second, exploration& x, asked& outcome) {
    sim_actor actor(at);
    co_await actor.step();
    try {
        outcome.by = co_await what(peers, at, call);
        x.check(outcome.by == 1 || outcome.by == 2, "another answer");
    } catch (const error& failed) {
        const std::error_code why = failed.code();
        if (why == errc::canceled) throw;
        const std::string text = failed.what();
        outcome.failed = true;
        x.check(why == errc::peer_lost || why == errc::closed, "ended with " + text);
        x.check(text.find(first.name()) != std::string::npos, "does not name its node: " + text);
        x.check(!second.saw(call), "a call of the first life is in the second");
    }
}
task<> killed_and_restarted(life& first, life& second, sim::domain& at, const sim::domain& other,
                            std::optional<phase>& when) {
    sim_actor actor(at);
    actor.touches(other);
    co_await actor.step();
    when = first.now();
    first.kill(other);
    co_await actor.step();
    co_await second.begin();
}

task<> restarted_at_some_moment(exploration& x, asks what, std::size_t calls_at_once, lives_seen& seen) {
    sim_options of_node;
    of_node.world = &x.world();
    scheduler& on = *scheduler::current();
    sim::domain left(on, of_node), right(on, of_node);
    life first(1, right), second(2, right);
    std::optional<node_calls<sim>> peers;
    node<sim> here(1, of_life(11), left);
    peers.emplace(here);
    co_await first.begin();
    here.add({.id = 2, .urls = first.card().urls});
    const std::uint64_t before = co_await peers->call(2, lives::which, std::uint64_t{1000});
    x.check(before == 1, "not the first life");
    first.rest();
    std::vector<asked> outcomes(calls_at_once);
    std::optional<phase> when;
    x.begin();
    task_group parts;
    for (std::uint64_t n = 0; n < calls_at_once; ++n)
        parts.spawn(asks_one, std::ref(*peers), std::ref(left), what, n, std::cref(first), std::cref(second),
                    std::ref(x), std::ref(outcomes[n]));
    parts.spawn(killed_and_restarted, std::ref(first), std::ref(second), std::ref(right), std::cref(left),
                std::ref(when));
    co_await parts.join();
    x.end();
    const std::uint64_t after = co_await peers->call(2, lives::which, std::uint64_t{1001});
    x.check(after == 2, "not the second life");
    for (std::uint64_t n = 0; n < calls_at_once; ++n) {
        x.check(!(first.saw(n) && second.saw(n)), "one call in both lives");
        if (outcomes[n].by != 0) {
            x.check(outcomes[n].by == 1 ? first.saw(n) : second.saw(n), "an answer of another life");
            ++seen.answered[outcomes[n].by];
        } else {
            x.check(outcomes[n].failed, "no end");
            ++seen.lost_in[static_cast<std::size_t>(when.value())];
        }
    }
}

struct explored_lives {
    explore_report report;
    lives_seen seen;
};
explored_lives explore_lives(asks what, std::size_t calls_at_once, const explore_options& how) {
    explored_lives found;
    found.report = explore(
        [&](exploration& x) -> task<> {
            co_await restarted_at_some_moment(x, what, calls_at_once, found.seen);
        },
        how);
    return found;
}

}  // namespace

TEST_CASE("a node that is killed at any moment of a call, and restarted, gets no call of its former life, in "
          "every order") {
    struct {
        const char* name;
        asks what;
        std::vector<phase> felt_in;
    } const all[] = {
        {"which", asks_which, {phase::no_request, phase::in_handler, phase::answering}},
        {"row", asks_for_a_row, {phase::no_request, phase::answering}},
        {"load", has_it_load, {phase::no_request, phase::getting, phase::answering}},
    };
    explore_options how;
    how.most_executions = 20'000;
    for (const auto& one : all) {
        const explored_lives found = explore_lives(one.what, 1, how);
        INFO(one.name << ": " << found.report.text() << found.seen.answered[1] << " answered by the first, "
                      << found.seen.answered[2] << " by the second, " << found.seen.lost() << " lost");
        CHECK(!found.report.failed);
        CHECK(found.report.complete);
        CHECK(found.seen.answered[1] > 0);
        CHECK(found.seen.answered[2] > 0);
        for (const phase when : one.felt_in) {
            INFO("in phase " << static_cast<int>(when));
            CHECK(found.seen.lost_in[static_cast<std::size_t>(when)] > 0);
        }
    }
}

TEST_CASE("of two calls to a node that is killed and restarted each ends by its own life, in every order") {
    explore_options how;
    how.most_executions = 200'000;
    const explored_lives found = explore_lives(asks_which, 2, how);
    INFO(found.report.text() << found.seen.answered[1] << " answered by the first, " << found.seen.answered[2]
                             << " by the second, " << found.seen.lost() << " lost");
    CHECK(!found.report.failed);
    CHECK(found.report.complete);
    CHECK(found.seen.answered[1] > 0);
    CHECK(found.seen.answered[2] > 0);
    for (const phase when : {phase::no_request, phase::in_handler, phase::answering})
        CHECK(found.seen.lost_in[static_cast<std::size_t>(when)] > 0);
}

TEST_CASE("two nodes that call each other at once are both answered, over one connection, in random orders") {
    explore_options how;
    how.random_executions = 2000;
    const explore_report report = explore([](exploration& x) -> task<> { co_await both_call(x); }, how);
    INFO(report.text());
    CHECK(!report.failed);
    CHECK(report.executions == 2000);
}

TEST_CASE("two nodes that call each other at once are both answered, over one connection, in every order") {
    explore_options how;
    how.most_executions = 20000;
    const explore_report report = explore([](exploration& x) -> task<> { co_await both_call(x); }, how);
    INFO(report.text());
    CHECK(!report.failed);
    CHECK(report.executions > 100);
    CHECK(report.complete);
}

}  // namespace test_service_node_calls_explored

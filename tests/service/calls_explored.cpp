// Calls of which one process is killed at some moment, over the simulated network, in every order of events: before the request is there, in the
// handler, in the middle of an answer or of a get, between two items of a stream.
#include <rdmacoro/service/calls.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/transport/sim.hpp>
#include <rdmacoro/transport/sim/explore.hpp>

#include "support/catch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace test_service_calls_explored {

using namespace rdmacoro;

namespace {

struct deed {
    static constexpr method<"deed.twice", std::uint64_t(std::uint64_t)> twice{};
    static constexpr method<"deed.slow", std::uint64_t(std::uint64_t)> slow{};
    static constexpr method<"deed.row", std::vector<float>(std::uint32_t)> row{};
    static constexpr method<"deed.sum", double(std::vector<float>)> sum{};
    static constexpr method<"deed.load", std::uint64_t(remote_region)> load{};
    static constexpr method<"deed.items", stream<std::uint32_t>(std::uint32_t)> items{};
    static constexpr method<"deed.count", std::uint32_t(stream<std::uint32_t>)> count{};
    static constexpr method<"deed.wait", void()> wait{};
};

/// How far the server has come with a call.
enum class phase : std::uint8_t {
    no_request,  ///< its handler has not begun
    in_handler,
    getting,     ///< the handler gets from the caller's memory
    writing,     ///< the handler writes a stream, or reads one
    answering,   ///< the handler has ended
    mid_answer,  ///< likewise, and the caller gets its answer from the server's memory
};
constexpr std::size_t phases = 6;

struct world_of_two {
    /// The handler of this coroutine has begun, and is in `during` until it ends.
    struct handling {
        handling(world_of_two& of, phase during) : w(of) { w.now = during; }
        handling(const handling&) = delete;
        handling& operator=(const handling&) = delete;
        ~handling() { w.now = phase::answering; }
        world_of_two& w;
    };

    explicit world_of_two(exploration& x) : network{.world = &x.world()} {
        offered.on(deed::twice, [this](call_context&, std::uint64_t n) -> task<std::uint64_t> {
            const handling here(*this, phase::in_handler);
            co_return 2 * n;
        });
        offered.on(deed::slow, [this](call_context&, std::uint64_t n) -> task<std::uint64_t> {
            const handling here(*this, phase::in_handler);
            sim_actor actor(right);
            co_await actor.step();
            co_return 2 * n;
        });
        offered.on(deed::row, [this](call_context&, std::uint32_t n) -> task<std::vector<float>> {
            const handling here(*this, phase::in_handler);
            co_return std::vector<float>(n, 1.0F);
        });
        offered.on(deed::sum, [this](call_context&, std::vector<float> all) -> task<double> {
            const handling here(*this, phase::in_handler);
            double sum = 0;
            for (const float one : all) sum += static_cast<double>(one);
            co_return sum;
        });
        offered.on(deed::load, [this](call_context& c, remote_region from) -> task<std::uint64_t> {
            const handling here(*this, phase::getting);
            std::vector<std::byte> room(from.length);
            co_await c.get(from, room);
            std::uint64_t sum = 0;
            for (const std::byte one : room) sum += static_cast<std::uint64_t>(one);
            co_return sum;
        });
        offered.on(deed::items,
                   [this](call_context&, std::uint32_t n, stream_writer<std::uint32_t>& out) -> task<> {
                       const handling here(*this, phase::writing);
                       sim_actor actor(right);
                       for (std::uint32_t i = 0; i < n; ++i) {
                           co_await out.write(i);
                           co_await actor.step();
                       }
                   });
        offered.on(deed::count,
                   [this](call_context&, stream_reader<std::uint32_t>& in) -> task<std::uint32_t> {
                       const handling here(*this, phase::writing);
                       std::uint32_t n = 0;
                       while (co_await in.next()) ++n;
                       co_return n;
                   });
        offered.on(deed::wait, [this](call_context&) -> task<> {
            const handling here(*this, phase::in_handler);
            co_await sleep_for(std::chrono::hours(1));
        });
    }
    scheduler& on = *scheduler::current();
    sim_options network;
    sim::domain left{on, network};
    sim::domain right{on, network};
    service offered;
    phase now = phase::no_request;
};

/// The caller's program: true where all of it ended well, with the right values.
using caller = task<bool> (*)(calls<sim>&, sim::domain&);

task<bool> short_call(calls<sim>& peer, sim::domain&) {
    co_return co_await peer.call(deed::twice, std::uint64_t{21}) == 42;
}
task<bool> slow_call(calls<sim>& peer, sim::domain&) {
    co_return co_await peer.call(deed::slow, std::uint64_t{21}) == 42;
}
task<bool> long_answer(calls<sim>& peer, sim::domain&) {
    const std::vector<float> row = co_await peer.call(deed::row, 6000U);
    co_return row == std::vector<float>(6000, 1.0F);
}
task<bool> answer_in_place(calls<sim>& peer, sim::domain&) {
    std::vector<float> row(6000);
    const std::size_t length = co_await peer.call_into(std::span(row), deed::row, 6000U);
    co_return length == 6000 && row == std::vector<float>(6000, 1.0F);
}
task<bool> long_request(calls<sim>& peer, sim::domain&) {
    const std::vector<float> row(6000, 1.0F);
    co_return co_await peer.call(deed::sum, row) == 6000.0;
}
task<bool> one_sided(calls<sim>& peer, sim::domain& here) {
    std::vector<std::byte> bulk(3000, std::byte{1});
    const region open = here.register_memory(bulk, access_rights::remote_read);
    co_return co_await peer.call(deed::load, open.remote()) == 3000;
}
task<bool> items_of_stream(calls<sim>& peer, sim::domain&) {
    auto rows = co_await peer.open(deed::items, 3U);
    std::uint32_t next = 0;
    while (const auto one = co_await rows.next()) {
        if (*one != next++) co_return false;
    }
    co_return next == 3;
}
task<bool> written_stream(calls<sim>& peer, sim::domain&) {
    auto out = co_await peer.open(deed::count);
    for (std::uint32_t n = 0; n < 3; ++n) co_await out.write(n);
    co_return co_await out.finish() == 3;
}
task<bool> canceled_call(calls<sim>& peer, sim::domain& here) {
    sim_actor actor(here);
    local_stop_source stop;
    auto waiting = start(with_stop(peer.call(deed::wait), stop.get_token()));
    co_await actor.step();
    stop.request_stop();
    const auto ended = co_await as_result(waiting);
    if (ended.error() != errc::canceled) throw error(ended.error(), "canceled");
    co_return true;
}

/// In how many executions the call ended well, and in how many with an error, by the phase in which the process was killed.
struct calls_lost {
    std::uint64_t ended = 0;
    std::uint64_t lost = 0;
    std::array<std::uint64_t, phases> lost_in{};

    [[nodiscard]] std::uint64_t in(phase when) const { return lost_in[static_cast<std::size_t>(when)]; }
};
/// What became of the call; nothing where the explorer has given this order up.
enum class fate : std::uint8_t { none, ended, lost };

task<> does_call(caller what, calls<sim>& peer, sim::domain& here, exploration& x, fate& of) {
    sim_actor actor(here);
    co_await actor.step();
    try {
        const bool right = co_await what(peer, here);
        x.check(right, "another value");
        of = fate::ended;
    } catch (const std::system_error& failed) {
        const std::error_code why = failed.code();
        if (why == errc::canceled) throw;
        x.check(why == errc::peer_lost || why == errc::closed || why == call_errc::stopped,
                "ended with " + std::string(failed.what()));
        of = fate::lost;
    }
}
bool answer_is_being_got() {
    for (const pending_operation& one : scheduler::current()->describe().operations())
        if (one.what.find("recv") != std::string::npos && one.stage == "is being got") return true;
    return false;
}
/// The process at `at` is killed: nothing that it does from now on reaches the other one.
task<> killed(sim::domain& at, const sim::domain& other, const world_of_two& w, std::optional<phase>& when) {
    sim_actor actor(at);
    actor.touches(other);
    co_await actor.step();
    at.drop_links_to(other);
    when = w.now == phase::answering && answer_is_being_got() ? phase::mid_answer : w.now;
}

task<> killed_at_some_moment(exploration& x, caller what, bool is_caller, calls_lost& seen) {
    world_of_two w(x);
    auto listening = co_await listen<sim>(w.right, "sim://explored");
    auto accepting = rdmacoro::start(listening.accept());
    auto a = co_await connect<sim>(w.left, listening.address());
    auto b = co_await accepting;
    {
        calls<sim> server(b, w.offered);
        calls<sim> client(a);
        fate of_call = fate::none;
        std::optional<phase> when;
        x.begin();
        task_group parts;
        parts.spawn(does_call, what, std::ref(client), std::ref(w.left), std::ref(x), std::ref(of_call));
        parts.spawn(killed, std::ref(is_caller ? w.left : w.right), std::cref(is_caller ? w.right : w.left),
                    std::cref(w), std::ref(when));
        co_await parts.join();
        x.end();
        co_await sleep_for(
            std::chrono::milliseconds(1));  // of the network's time: all that is under way comes
        x.check(w.offered.running() == 0, "a handler runs on");
        x.check(w.offered.bytes() == 0, "its bytes are counted");
        x.check(!client.over().is_open() && !server.over().is_open(), "a link is open");
        if (of_call == fate::ended) ++seen.ended;
        if (of_call == fate::lost) {
            ++seen.lost;
            ++seen.lost_in[static_cast<std::size_t>(when.value())];
        }
    }
}

struct explored_outcome {
    std::string wrong{};
    std::uint64_t executions = 0;
    bool complete = false;
    calls_lost seen{};
};
explored_outcome explore_call(caller what, bool is_caller) {
    explored_outcome found;
    explore_options how;
    how.most_executions = 20'000;
    const explore_report report = explore(
        [&](exploration& x) -> task<> { co_await killed_at_some_moment(x, what, is_caller, found.seen); },
        how);
    if (report.failed) found.wrong = report.text();
    found.executions = report.executions;
    found.complete = report.complete;
    return found;
}

struct explored_call {
    const char* name;
    caller what;
    std::vector<phase> felt_in;  ///< the phases in which the server can be killed, and the call be lost
};
const std::vector<explored_call>& explored_calls() {
    using enum phase;
    static const std::vector<explored_call> all = {
        {"short", short_call, {no_request, answering}},
        {"slow", slow_call, {no_request, in_handler, answering}},
        {"long answer", long_answer, {no_request, answering, mid_answer}},
        {"in place", answer_in_place, {no_request, answering, mid_answer}},
        {"long request", long_request, {no_request, answering}},
        {"one-sided", one_sided, {no_request, getting, answering}},
        {"items", items_of_stream, {no_request, writing, answering}},
        {"written", written_stream, {no_request, writing, answering}},
        {"canceled", canceled_call, {no_request, in_handler}},
    };
    return all;
}

}  // namespace

TEST_CASE("a call of which a process is killed ends with its value or an error, in every order, and leaves "
          "nothing") {
    for (const explored_call& one : explored_calls()) {
        for (const bool is_caller : {false, true}) {
            const explored_outcome found = explore_call(one.what, is_caller);
            INFO(one.name << (is_caller ? ", the caller is killed: " : ": ") << found.executions
                          << " executions, ended " << found.seen.ended << ", lost " << found.seen.lost);
            CHECK(found.wrong == "");
            CHECK(found.complete);
            CHECK(found.seen.ended > 0);
            CHECK(found.seen.ended + found.seen.lost >= found.executions);  // and those that it gave up late
            for (const phase when : one.felt_in) {
                INFO("in phase " << static_cast<int>(when));
                CHECK(found.seen.in(when) > 0);
            }
        }
    }
}

}  // namespace test_service_calls_explored

#include <rdmacoro/service/best_stream.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/coro/describe.hpp>

#include "support/catch.hpp"
#include "support/over/shm_variants.hpp"
#include "support/over/sim_variants.hpp"
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif
#include "support/pattern.hpp"
#include "support/run.hpp"

#include <algorithm>

namespace test_service_best_stream {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// Echoes one stream to its end, and ends its own direction.
template <class Stream>
task<> echo(Stream from) {
    std::vector<std::byte> memory(10'000);
    while (const std::size_t some = co_await from.read_some(memory))
        co_await from.write(std::span<const std::byte>(memory).first(some));
    co_await from.shutdown();
    co_await from.close();
}
template <class T>
task<> serve_one(listener<T>* at) {
    co_await echo(byte_stream<T>(co_await at->accept()));
}
task<> serve_plain(plain_listener* at) { co_await echo(co_await at->accept()); }

/// Writes and reads back.
template <class Stream>
task<> converse(Stream& with) {
    const auto data = pattern(300'000, 1);
    auto writing = start([](Stream& to, std::span<const std::byte> what) -> task<> {
        co_await to.write(what.first(10));
        co_await to.write(what.subspan(10));
        co_await to.flush();
        co_await to.shutdown();
    }(with, data));
    std::vector<std::byte> back(data.size());
    const auto all = co_await with.read_exactly(back);
    CHECK(all == data.size());
    CHECK(same_bytes(back, data));
    const auto end = co_await with.read_some(back);
    CHECK(end == 0);
    CHECK(with.at_end());
    co_await writing;
    co_await with.close();
}

using best = best_stream<shm, sim>;

}  // namespace

TEST_CASE("the best transport that answers carries the stream, whatever the addresses' order") {
    scheduler on{impatient{}};
    on.run([]() -> task<> {
        const std::string name = fresh_name();
        auto by_shm = co_await listen<shm>("shm://" + name);
        auto by_sim = co_await listen<sim>("sim://" + name);
        auto by_socket = co_await listen_plain("127.0.0.1:0");
        const std::string missing = "shm://" + fresh_name();
        {
            task_group serving;
            serving.spawn(serve_one<shm>, &by_shm);
            auto stream =
                co_await connect_best<shm, sim>(by_socket.address(), by_sim.address(), "shm://" + name);
            CHECK(stream.held().index() == 0);
            CHECK(stream.explain() == "shm://" + name);
            co_await converse(stream);
            co_await serving.join();
        }
        {
            task_group serving;
            serving.spawn(serve_one<sim>, &by_sim);
            auto stream = co_await connect_best<shm, sim>(by_sim.address(), missing);
            CHECK(stream.held().index() == 1);
            CHECK(stream.explain().find(missing + ": ") == 0);
            co_await converse(stream);
            co_await serving.join();
        }
        {
            task_group serving;
            serving.spawn(serve_plain, &by_socket);
            auto stream = co_await connect_best<shm, sim>(by_socket.address(), missing);
            CHECK(stream.held().index() == 2);
            co_await converse(stream);
            co_await serving.join();
        }
    }());
}

#if RDMACORO_WITH_TCP
TEST_CASE("a peer that can be reached in no other way is talked with over tcp") {
    scheduler on{impatient{}};
    on.run([]() -> task<> {
        auto by_tcp = co_await listen<tcp>("127.0.0.1:0");
        task_group serving;
        serving.spawn(serve_one<tcp>, &by_tcp);
        const std::string url = "tcp://" + by_tcp.address().substr(by_tcp.address().find("//") + 2);
        auto stream = co_await connect_best<shm, tcp>(url, "shm://" + fresh_name());
        CHECK(stream.held().index() == 1);
        co_await converse(stream);
        co_await serving.join();
    }());
}
#endif

TEST_CASE("where none connects, the error tells of each") {
    scheduler on{impatient{}};
    on.run([]() -> task<> {
        const std::string missing = "shm://" + fresh_name();
        std::string text;
        try {
            co_await connect_best<shm, sim>(missing, "verbs://[::1]:7", "socket://127.0.0.1:1");
        } catch (const error& why) {
            text = why.what();
            CHECK(why.code() == errc::connection_refused);
        }
        CHECK(text.find(missing) != std::string::npos);
        const std::size_t last = text.find("socket://127.0.0.1:1");
        REQUIRE(last != std::string::npos);
        const std::string reason = make_error_code(errc::connection_refused).message();
        CHECK(text.find(reason, last) == text.size() - reason.size());
        CHECK(text.find("verbs://[::1]:7: not tried, its scheme is not one of shm, sim, socket\n") < last);
        std::string text_of_none;
        try {
            co_await connect_best<shm>("nonsense");
        } catch (const error& why) {
            text_of_none = why.what();
        }
        CHECK_THAT(text_of_none, Catch::StartsWith("connect_best: nonsense: not tried"));
        const auto none = co_await as_result(connect_best<shm>("nonsense"));
        CHECK(none.error() == errc::address_invalid);
        const auto canceled = co_await as_result(timeout(connect_best<shm>(missing), 0ms));
        CHECK_FALSE(canceled);
        std::vector<std::string> urls;
        urls.push_back(missing);
        best_stream_options options;
        options.each = 1s;
        const auto listed = co_await as_result(connect_best<shm>(std::move(urls), options));
        CHECK(listed.error() == errc::connection_refused);
        best nothing;
        CHECK_FALSE(nothing);
        std::array<std::byte, 1> one{};
        const auto read = co_await as_result(nothing.read_some(one));
        CHECK(read.error() == errc::invalid_argument);
    }());
}

TEST_CASE("what waits for a stream to a plain socket that is destroyed or assigned over ends with closed") {
    scheduler on{impatient{}};
    on.run([]() -> task<> {
        constexpr auto soon = 5s;
        auto by_socket = co_await listen_plain("127.0.0.1:0");
        enum class leaving : int { destroyed, assigned_another_kind, assigned_its_kind, aborted };
        for (const leaving how : {leaving::destroyed, leaving::assigned_another_kind,
                                  leaving::assigned_its_kind, leaving::aborted}) {
            CAPTURE(static_cast<int>(how));
            std::optional<best> stream(co_await connect_best<shm, sim>(by_socket.address()));
            auto peer = co_await timeout(by_socket.accept(), soon);
            std::optional<best> another(co_await connect_best<shm, sim>(by_socket.address()));
            auto its_peer = co_await timeout(by_socket.accept(), soon);
            const auto data = pattern(30'000'000, 1);  // more than the system takes
            std::array<std::byte, 10> into{};
            local_stop_source stop;
            auto reading = start(as_result(with_stop(stream->read_exactly(into), stop.get_token())));
            auto writing = start(as_result(with_stop(stream->write(data), stop.get_token())));
            const auto waiting = [] {
                const auto all = scheduler::current()->describe().operations();
                return std::ranges::count(all, std::string_view("waits for its socket"),
                                          &pending_operation::stage);
            };
            co_await timeout(
                [](auto count) -> task<> {
                    while (count() != 2) co_await yield();
                }(waiting),
                soon);
            CHECK_FALSE(reading.done());
            CHECK_FALSE(writing.done());
            switch (how) {
                case leaving::destroyed: stream.reset(); break;
                case leaving::assigned_another_kind: *stream = best(); break;
                case leaving::assigned_its_kind: *stream = *std::move(another); break;
                case leaving::aborted: std::get<plain_stream>(stream->held()).abort(); break;
            }
            static_cast<void>(co_await as_result(timeout(
                [](auto count) -> task<> {
                    while (count() != 0) co_await yield();
                }(waiting),
                soon)));
            stop.request_stop();  // what has not ended is canceled
            const auto read = co_await timeout(reading, soon);
            CHECK(read.error() == errc::closed);
            const auto written = co_await timeout(writing, soon);
            CHECK(written.error() == errc::closed);
            // Its peer reads what was written, and the end.
            std::vector<std::byte> got(data.size());
            const auto end = co_await as_result(timeout(peer.read_exactly(got), soon));
            CHECK(end.error() == errc::closed);
            CHECK(end.info() == written.info());
            CHECK(is_pattern(std::span(got).first(static_cast<std::size_t>(written.info())), 1));
            // The other stream is in the place of the first, or itself.
            if (how == leaving::assigned_its_kind) {
                co_await stream->write(std::string_view("whole"));
            } else {
                co_await another->write(std::string_view("whole"));
            }
            std::string text(5, ' ');
            co_await timeout(its_peer.read_exactly(text), soon);
            CHECK(text == "whole");
        }
    }());
}

}  // namespace test_service_best_stream

#include <rdmacoro/service/best_stream.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/over/shm_variants.hpp"
#include "support/over/sim_variants.hpp"
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif
#include "support/pattern.hpp"
#include "support/run.hpp"

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

}  // namespace test_service_best_stream

#include <rdmacoro/service/several_nodes.hpp>

#include "support/catch.hpp"
#include "support/nodes.hpp"
#include "support/shop.hpp"

#include <rdmacoro/service/node_calls.hpp>

#include <memory>
#include <optional>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
/// A value that counts how often it is encoded.
struct counted_value {
    int number = 0;
    static inline int encoded = 0;
};
}  // namespace

template <>
struct rdmacoro::codec<counted_value> {
    static constexpr std::string_view name = "counted value";
    static void write(encoder& to, const counted_value& value) {
        ++counted_value::encoded;
        to.write(value.number);
    }
    static bool read(decoder& from, counted_value& into) { return from.read(into.number); }
};

namespace {

struct all {
    static constexpr method<"all.sum", double(counted_value, std::vector<double>)> sum{};
    static constexpr method<"all.note", one_way(counted_value, std::string)> note{};
    static constexpr method<"all.wait", void()> wait{};
};

template <class T>
struct member {
    explicit member(node_id id) {
        offered.on(all::sum, [](call_context&, counted_value with, std::vector<double> row) -> task<double> {
            if (with.number == 0) throw std::runtime_error("a sum with 0");
            if (with.number < 0) throw error(errc::canceled, "what the sum needs");
            co_return std::accumulate(row.begin(), row.end(), double(with.number));
        });
        offered.on(all::note, [this](call_context&, counted_value with, std::string text) -> task<> {
            notes.push_back(text + std::to_string(with.number));
            co_return;
        });
        offered.on(all::wait, [this, id](call_context&) -> task<> {
            if (id == 8) co_await sleep_for(1h);
            ++answered;
        });
        here.emplace(id, node_options{.connect_limit = 300ms});
        peers.emplace(*here);
        peers->serve(offered);
    }
    ~member() { here.reset(); }
    service offered;
    std::vector<std::string> notes;
    int answered = 0;
    std::optional<node_calls<T>> peers;
    std::optional<node<T>> here;
};

template <class T, class Body>
void run_group(Body body) {
    scheduler on;
    on.run([](Body run) -> task<> {
        member<T> one(1);
        std::vector<std::unique_ptr<member<T>>> others;
        for (node_id id = 7; id <= 9; ++id) {
            others.push_back(std::make_unique<member<T>>(id));
            const std::string url = co_await others.back()->here->listen(fresh_url<T>());
            one.here->add({.id = id, .urls = {url}});
        }
        co_await timeout(run(*one.peers, others), nodes_limit);
        co_await one.here->close();
    }(std::move(body)));
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a call to several nodes is encoded once, and each answers", "", node_transports) {
    run_group<TestType>([](auto& peers, auto& others) -> task<> {
        const std::vector<node_id> ids{7, 8, 9};
        const std::vector<double> row(100000, 1.0);
        counted_value::encoded = 0;
        const auto sums = co_await peers.call_all(ids, all::sum, counted_value{5}, row);
        CHECK(counted_value::encoded == 1);
        REQUIRE(sums.size() == 3);
        for (std::size_t n = 0; n < 3; ++n) {
            CHECK(sums[n].id == ids[n]);
            CHECK(sums[n].ended.value() == 100005.0);
            CHECK(sums[n].why.empty());
        }
        const auto noted = co_await peers.cast_all(ids, all::note, counted_value{6}, "note ");
        CHECK(counted_value::encoded == 2);
        for (const auto& one : noted) CHECK(one.ended);
        for (const auto& one : others) {
            while (one->notes.empty()) co_await yield();
            CHECK(one->notes.front() == "note 6");
        }
        const auto none = co_await peers.call_all({}, all::wait);
        CHECK(none.empty());
    });
}

TEMPLATE_LIST_TEST_CASE("of several nodes those that fail say why, and the others answer", "",
                        node_transports) {
    run_group<TestType>([](auto& peers, auto& others) -> task<> {
        const std::vector<node_id> ids{7, 5, 9};  // there is no node 5
        const std::vector<double> row(10, 1.0);
        const auto sums = co_await peers.call_all(ids, all::sum, counted_value{5}, row);
        REQUIRE(sums.size() == 3);
        CHECK(sums[0].ended.value() == 15.0);
        CHECK_FALSE(sums[1].ended);
        CHECK_THAT(sums[1].why, Catch::Contains("node 5"));
        CHECK(sums[2].ended.value() == 15.0);
        const auto zero = co_await peers.call_all(ids, all::sum, counted_value{0}, row);
        CHECK(zero[0].ended.error() == call_errc::handler_failed);
        CHECK_THAT(zero[0].why, Catch::Contains("node 7") && Catch::Contains("a sum with 0"));

        // A handler may have met a cancellation of its own: it is none of this call.
        const auto met = co_await peers.call_all(ids, all::sum, counted_value{-1}, row);
        CHECK(met[0].ended.error() == errc::canceled);
        CHECK_THAT(met[0].why, Catch::Contains("node 7") && Catch::Contains("what the sum needs"));
        CHECK_FALSE(met[1].ended);

        // One that is late is late alone.
        const std::vector<node_id> there{7, 8, 9};
        const auto waited = co_await timeout(peers.call_all(there, all::wait), 2s);
        CHECK(waited[0].ended);
        CHECK(waited[1].ended.error() == errc::timed_out);
        CHECK(waited[2].ended);
        CHECK(others[0]->answered == 1);
        CHECK(others[2]->answered == 1);
        while (others[1]->offered.running() != 0) co_await yield();

        // All of it is canceled together.
        local_stop_source leaving;
        auto calling = start(as_result(with_stop(peers.call_all(there, all::wait), leaving.get_token())));
        while (others[1]->offered.running() == 0) co_await yield();
        leaving.request_stop();
        const auto late = co_await calling;
        CHECK(late.error() == errc::canceled);
    });
}

TEST_CASE("what is encoded once is borrowed from where the arguments have it") {
    const std::vector<double> row(100000, 1.0);
    encoder once;
    once.write(7);
    once.write(row);
    const detail::encoded_arguments encoded{once.pieces()};
    encoder message;
    message.write(encoded);
    CHECK(message.size() == once.size());
    CHECK(message.copied() == once.copied());
    CHECK(message.pieces().back().data() == std::as_bytes(std::span(row)).data());
    CHECK(message.bytes() == once.bytes());
    decoder from(std::span<const std::byte>{});
    detail::encoded_arguments none;
    CHECK_FALSE(from.read(none));
}

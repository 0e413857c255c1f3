#include <rdmacoro/service/stream.hpp>

#include "support/calls_pair.hpp"
#include "support/described_stages.hpp"

#include <cstring>
#include <random>

using namespace rdmacoro;
using namespace rdmacoro::test;

CALLS_CASE("a stream is read to its end, and its writer ends when its reader leaves") {
    run_pair(over, [](any_calls& client, any_calls&, shop& there, calls_link link) -> task<> {
        {
            auto rows = co_await client.open(kv::scan, 1000U);
            std::uint32_t read = 0;
            while (auto one = co_await rows.next()) CHECK(one->key == read++);
            CHECK(read == 1000);
            {
                const auto got = co_await rows.next();
                CHECK_FALSE(got);
            }
        }
        {
            auto rows = co_await client.open(kv::scan, 7U);
            std::uint32_t read = 0;
            std::error_code code;
            try {
                while (co_await rows.next()) ++read;
            } catch (const error& failed) {
                code = failed.code();
                CHECK_THAT(failed.what(), Catch::Contains("seven"));
            }
            CHECK(read == 7);
            CHECK(code == call_errc::handler_failed);
        }
        {
            auto rows = co_await client.open(kv::scan, 1000000U);
            for (int i = 0; i < 100; ++i) {
                const auto got = co_await rows.next();
                CHECK(got);
            }
        }
        while (there.stopped == 0) co_await yield();
        {
            const auto got = co_await client.call(kv::add, 1U, 2U);
            CHECK(got == 3);
        }
        while (there.store.running() != 0) co_await yield();
        const std::size_t at_server = co_await left_over(link.b);
        CHECK(at_server == 0);
    });
}

namespace {
struct lengths {
    static constexpr method<"lengths.of", stream<std::string>(std::uint32_t, std::uint32_t)> of{};
    static constexpr method<"lengths.sum", std::uint64_t(stream<std::string>)> sum{};
};
void offer_lengths(service& texts) {
    texts.on(
        lengths::of,
        [](call_context&, std::uint32_t length, std::uint32_t n, stream_writer<std::string>& out) -> task<> {
            const std::string text(length, 'x');
            for (std::uint32_t i = 0; i < n; ++i) co_await out.write(text);
        });
}
}  // namespace

CALLS_CASE("a stream of items of any one length goes to its end, whichever side writes it") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
        service texts;
        offer_lengths(texts);
        texts.on(lengths::sum, [](call_context&, stream_reader<std::string>& in) -> task<std::uint64_t> {
            std::uint64_t bytes = 0;
            while (const auto one = co_await in.next()) bytes += one->size();
            co_return bytes;
        });
        server.serve(texts);
        // As many as the window has go into a message of at most 16 KiB, or do not; shorter than what is borrowed, or as long.
        for (const std::uint32_t length : {0U, 100U, 127U, 128U, 200U, 432U, 600U, 1000U, 1015U, 1016U, 1020U,
                                           1023U, 1024U, 2000U, 16000U, 16384U, 20000U}) {
            CAPTURE(length);
            constexpr std::uint32_t n = 400;
            std::uint32_t read = 0;
            auto items = co_await client.open(lengths::of, length, n);
            const auto from_handler = co_await as_result(timeout(
                [](auto& all, std::uint32_t each, std::uint32_t& count) -> task<> {
                    while (const auto one = co_await all.next()) {
                        if (one->size() == each) ++count;
                    }
                }(items, length, read),
                20s));
            REQUIRE(from_handler);
            CHECK(read == n);
            auto written = co_await client.open(lengths::sum);
            const auto from_caller = co_await as_result(timeout(
                [](auto& all, std::uint32_t each) -> task<std::uint64_t> {
                    const std::string text(each, 'x');
                    for (std::uint32_t i = 0; i < n; ++i) co_await all.write(text);
                    co_return co_await all.finish();
                }(written, length),
                20s));
            REQUIRE(from_caller);
            CHECK(*from_caller == std::uint64_t{n} * length);
        }
    });
}

CALLS_CASE("streams of any items that are left at any moment leave nothing behind") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        service texts;
        offer_lengths(texts);
        server.serve(texts);
        for (const std::uint32_t length : {10U, 20000U, 300000U}) {
            for (std::uint32_t taken = 0; taken < 12; ++taken) {
                auto items = co_await client.open(lengths::of, length, 100U);
                for (std::uint32_t i = 0; i < taken; ++i) {
                    const auto one = co_await items.next();
                    REQUIRE(one);
                    CHECK(one->size() == length);
                }
                if (taken % 3 == 2) {
                    // A read that is canceled ends the stream.
                    const auto late = co_await as_result(timeout(items.next(), duration::zero()));
                    if (!late) {
                        CHECK(late.error() == errc::timed_out);
                        const auto after = co_await items.next();
                        CHECK_FALSE(after);
                    }
                }
            }
        }
        while (texts.running() != 0) co_await yield();
        // The last words about the last stream.
        const std::uint64_t sum = co_await client.call(kv::add, 1U, 2U);
        CHECK(sum == 3);
        const std::size_t at_client = co_await left_over(link.a);
        CHECK(at_client == 0);
        const std::size_t at_server = co_await left_over(link.b);
        CHECK(at_server == 0);
    });
}

namespace {
/// Its encoding begins, and then throws, if it is negative.
struct fussy {
    int number = 0;
};
}  // namespace
template <>
struct rdmacoro::codec<fussy> {
    static constexpr std::string_view name = "fussy";
    static void write(encoder& to, const fussy& value) {
        to.write(std::string(2000, 'x'));
        to.write(value.number);
        if (value.number < 0) throw std::domain_error("a negative one");
    }
    static bool read(decoder& from, fussy& into) {
        std::string text;
        return from.read(text) && from.read(into.number);
    }
};

namespace {
struct many_items {
    static constexpr method<"many.numbers", stream<std::uint64_t>(std::uint64_t)> numbers{};
    static constexpr method<"many.texts", stream<std::string>(std::uint32_t)> texts{};
    static constexpr method<"many.rows", stream<std::vector<double>>(std::uint32_t, std::uint32_t)> rows{};
    static constexpr method<"many.pairs", stream<row>()> pairs{};
    static constexpr method<"many.nothing", stream<std::tuple<>>(std::uint32_t)> nothing{};
    static constexpr method<"many.count", std::uint64_t(stream<std::uint64_t>)> count{};
    static constexpr method<"many.length", std::uint64_t(stream<std::string>)> length{};
    static constexpr method<"many.faulty", stream<fussy>()> faulty{};
};

/// The text that comes as number `n`: of any length, most short, some so long that they are borrowed.
std::string text_number(std::uint32_t n) {
    std::mt19937 random(n);
    const std::size_t length = n % 17 == 0 ? 1000 + random() % 9000 : random() % 40;
    std::string text(length, static_cast<char>('a' + n % 26));
    if (!text.empty()) text.back() = 'Z';
    return text;
}

struct warehouse {
    service store;
    std::uint64_t written = 0;
    event open;  // readers of what callers write go on when it is set
    std::size_t reading = 0;

    warehouse() {
        store.on(many_items::numbers,
                 [this](call_context&, std::uint64_t n, stream_writer<std::uint64_t>& out) -> task<> {
                     for (written = 0; written < n; ++written) co_await out.write(written);
                 });
        store.on(many_items::texts,
                 [](call_context&, std::uint32_t n, stream_writer<std::string>& out) -> task<> {
                     std::string text;
                     for (std::uint32_t i = 0; i < n; ++i) {
                         text = text_number(i);
                         co_await out.write(text);
                         text.assign(text.size(), '#');  // it is ours again
                     }
                 });
        store.on(many_items::rows,
                 [this](call_context&, std::uint32_t length, std::uint32_t n,
                        stream_writer<std::vector<double>>& out) -> task<> {
                     std::vector<double> row(length);
                     for (std::uint32_t i = 0; i < n; ++i) {
                         row.assign(length, i);
                         co_await out.write(row);
                         ++written;
                     }
                 });
        store.on(many_items::nothing,
                 [](call_context&, std::uint32_t n, stream_writer<std::tuple<>>& out) -> task<> {
                     for (std::uint32_t i = 0; i < n; ++i) co_await out.write(std::tuple<>());
                 });
        store.on(many_items::count,
                 [this](call_context&, stream_reader<std::uint64_t>& in) -> task<std::uint64_t> {
                     std::uint64_t sum = 0;
                     while (const auto one = co_await in.next()) {
                         if (*one != sum) throw std::logic_error("another item than the next");
                         ++sum;
                         ++reading;
                     }
                     co_return sum;
                 });
        store.on(many_items::length,
                 [this](call_context&, stream_reader<std::string>& in) -> task<std::uint64_t> {
                     ++reading;
                     co_await open.wait();
                     std::uint64_t sum = 0;
                     while (const auto one = co_await in.next()) sum += one->size();
                     co_return sum;
                 });
        store.on(many_items::faulty, [](call_context&, stream_writer<fussy>& out) -> task<> {
            co_await out.write(fussy{1});
            const fussy bad{-1};
            const auto refused = co_await as_result(out.write(bad));
            CHECK(refused.error() == errc::invalid_argument);
            std::string said;
            try {
                co_await out.write(bad);
            } catch (const std::domain_error& failed) {
                said = failed.what();
            }
            CHECK(said == "a negative one");
            co_await out.write(fussy{2});
        });
    }
};
}  // namespace

CALLS_CASE("items that come faster than the network takes them go together, in order, and none is missing") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        warehouse there;
        server.serve(there.store);
        constexpr std::uint64_t count = 5000;
        const auto before = link.b.counts().messages_sent;
        auto numbers = co_await client.open(many_items::numbers, count);
        std::uint64_t read = 0;
        while (const auto one = co_await numbers.next()) {
            CHECK(*one == read);
            ++read;
        }
        CHECK(read == count);
        const auto messages = link.b.counts().messages_sent - before;
        const auto up_before = link.a.counts().messages_sent;
        auto up = co_await client.open(many_items::count);
        for (std::uint64_t n = 0; n < count; ++n) co_await up.write(n);
        const std::uint64_t counted = co_await up.finish();
        CHECK(counted == count);
        const auto up_messages = link.a.counts().messages_sent - up_before;
        if (link.is.name == "tcp_as_it_comes") {  // where a message waits for the turn's end
            CHECK(messages < count / 8);
            CHECK(up_messages < count / 8);
        }
        CHECK(messages <= count + 10);
        auto nothing = co_await client.open(many_items::nothing, 1000U);
        std::size_t nothings = 0;
        while (co_await nothing.next()) ++nothings;
        CHECK(nothings == 1000);
        while (there.store.running() != 0) co_await yield();
    });
}

CALLS_CASE("items of any length keep their order and their contents, and long ones are not copied") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
        warehouse there;
        there.open.set();
        server.serve(there.store);
        auto texts = co_await client.open(many_items::texts, 2000U);
        std::uint32_t read = 0;
        while (const auto one = co_await texts.next()) {
            const bool right = *one == text_number(read);
            CHECK(right);
            ++read;
        }
        CHECK(read == 2000);
        std::uint64_t all = 0;
        auto up = co_await client.open(many_items::length);
        for (std::uint32_t n = 0; n < 2000; ++n) {
            const std::string text = text_number(n);
            all += text.size();
            co_await up.write(text);
        }
        {
            const std::string longest(3'000'000, 'x');
            all += longest.size();
            auto writing = start(up.write(longest));
            check_stage("stream write", "its item is not sent", next_actor::peer_poll);
            co_await writing;
        }
        const std::uint64_t length = co_await up.finish();
        CHECK(length == all);
        const auto copied = server.bytes_copied();
        auto rows = co_await client.open(many_items::rows, 5000U, 20U);
        std::uint32_t rows_read = 0;
        while (const auto one = co_await rows.next()) {
            CHECK(one->size() == 5000);
            CHECK(one->front() == rows_read);
            CHECK(one->back() == rows_read);
            ++rows_read;
        }
        CHECK(rows_read == 20);
        CHECK(server.bytes_copied() - copied < 2000);
        while (there.store.running() != 0) co_await yield();
    });
}

CALLS_CASE("a writer is so many bytes ahead of its reader at most") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        warehouse there;
        server.serve(there.store);
        // Of 10 KB each: fewer than the window's items.
        constexpr std::uint32_t length = 1280;
        auto rows = co_await client.open(many_items::rows, length, 300U);
        {
            const auto first = co_await rows.next();
            CHECK(first);
        }
        std::uint64_t before = 0;
        for (int still = 0; still < 50; still = before == there.written ? still + 1 : 0) {
            before = there.written;
            co_await sleep_for(1ms);
        }
        constexpr std::uint64_t most = detail::stream_window_bytes / (length * sizeof(double)) + 1;
        static_assert(most < detail::stream_window);
        CHECK(there.written <= most);
        // Over verbs so long an item is announced, and waits for its reader: one at a time.
        if (link.is.name != "verbs_as_it_comes") {
            CHECK(there.written > 4);
            check_stage("stream write", "the reader has not taken enough items", next_actor::peer_receive);
        }
        std::uint32_t read = 1;
        while (co_await rows.next()) ++read;
        CHECK(read == 300);
        CHECK(there.written == 300);
        while (there.store.running() != 0) co_await yield();
    });
}

CALLS_CASE("an item that cannot be encoded is an error of its write, and the others go on") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
        warehouse there;
        server.serve(there.store);
        auto items = co_await client.open(many_items::faulty);
        const auto first = co_await items.next();
        REQUIRE(first);
        CHECK(first->number == 1);
        const auto second = co_await items.next();
        REQUIRE(second);
        CHECK(second->number == 2);
        const auto end = co_await items.next();
        CHECK_FALSE(end);
        while (there.store.running() != 0) co_await yield();
    });
}

CALLS_CASE("a writer that ends, or leaves, while its items are under way ends its stream once") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        warehouse there;
        server.serve(there.store);
        for (int round = 0; round < 40; ++round) {
            const std::size_t before = there.reading;
            {
                auto up = co_await client.open(many_items::length);
                const std::string text(static_cast<std::size_t>(round % 4 == 3 ? 300000 : 100), 'x');
                while (there.reading == before) co_await yield();
                auto writing = start([](auto& to, const std::string& what) -> task<> {
                    static_cast<void>(co_await as_result(to.write(what)));
                }(up, text));
                for (int n = 0; n < round % 5; ++n) co_await yield();
                if (round % 2 == 0) {
                    there.open.set();
                    co_await writing;
                    const std::uint64_t length = co_await up.finish();
                    CHECK(length == text.size());
                } else {
                    local_stop_source stop;
                    stop.request_stop();
                    static_cast<void>(co_await as_result(with_stop(writing, stop.get_token())));
                }
            }
            there.open.set();
            while (there.store.running() != 0) co_await yield();
            there.open.reset();
        }
        const std::uint64_t sum = co_await client.call(kv::add, 1U, 2U);
        CHECK(sum == 3);
        const std::size_t at_client = co_await left_over(link.a);
        CHECK(at_client == 0);
        const std::size_t at_server = co_await left_over(link.b);
        CHECK(at_server == 0);
    });
}

namespace {
/// An item message with such a head.
template <class Raw>
task<> send_items(Raw& raw, std::uint64_t number, std::uint32_t outcome, std::int32_t count,
                  std::span<const std::byte> items) {
    const detail::answer_head head{outcome, count};
    std::vector<std::byte> all(sizeof head);
    std::memcpy(all.data(), &head, sizeof head);
    all.insert(all.end(), items.begin(), items.end());
    co_await raw.send(all, detail::call_tag(detail::call_kind::item, number));
}
}  // namespace

CALLS_CASE(
    "a message with another number of items than it says, or than there is room for, ends the stream") {
    run_ends(over, [](calls_link link) -> task<> {
        const auto client = link.a.make_calls();
        auto& raw = link.b;
        struct sent {
            std::int32_t count;
            std::size_t bytes;
            int read;  // before the error
        };
        // Of rows of 8 bytes.
        const sent all[] = {{0, 0, 0}, {0, 8, 0},   {-1, 8, 0}, {2, 8, 1},        {1, 16, 0},
                            {1, 7, 0}, {129, 8, 0}, {3, 20, 2}, {128, 1024, 128}, {1 << 30, 0, 0}};
        for (const sent& one : all) {
            auto rows = co_await client->open(kv::scan, 1U);
            const message request =
                co_await raw.recv_lent(tag_match(std::uint64_t{1} << 63, std::uint64_t{3} << 62));
            const std::uint64_t number = detail::call_number(request.tag());
            const std::vector<std::byte> items(one.bytes);
            co_await send_items(raw, number, 0, one.count, items);
            int read = 0;
            std::error_code code;
            try {
                for (; read < 1000; ++read) {
                    const auto got = co_await timeout(rows.next(), 1s);
                    if (!got) break;
                    if (one.count == 128 && read == 127) {
                        // There is room for one item less when all of these are read.
                        co_await send_items(raw, number, 0, 129, std::vector<std::byte>(129 * 8));
                    }
                }
            } catch (const error& failed) {
                code = failed.code();
            }
            INFO("items " << one.count << ", bytes " << one.bytes);
            CHECK(code == call_errc::malformed_answer);
            CHECK(read == one.read);
            const auto after = co_await rows.next();
            CHECK_FALSE(after);
            co_await send_items(raw, number, 1, 0, {});  // what the writer does when it hears of it
        }
    });
}

CALLS_CASE("a slow reader of a stream stops its writer, and nothing else of the connection") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
        service methods;
        std::uint32_t written = 0;
        methods.on(many_items::pairs, [&](call_context&, stream_writer<row>& out) -> task<> {
            for (; written < 1000; ++written) co_await out.write(written, 0.5F);
        });
        server.serve(methods);
        auto rows = co_await client.open(many_items::pairs);
        for (std::uint32_t n = 0; n < 1000; ++n) {
            if (n % 100 == 0) {
                // So many calls come by while nothing is read.
                for (int other = 0; other < 50; ++other) {
                    const std::uint64_t sum = co_await client.call(kv::add, 1U, 2U);
                    CHECK(sum == 3);
                }
                CHECK(written <= n + detail::stream_window);
                if (n == 0) CHECK(written == detail::stream_window);
            }
            const auto one = co_await rows.next();
            REQUIRE(one);
            CHECK(one->key == n);
        }
        const auto end = co_await rows.next();
        CHECK_FALSE(end);
        while (methods.running() != 0) co_await yield();
    });
}

namespace {
struct upward {
    static constexpr method<"upward.sum", std::uint64_t(fussy, stream<std::uint64_t>)> sum{};
};
}  // namespace

CALLS_CASE("a stream whose call cannot be encoded is opened at neither side") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        service sums;
        sums.on(upward::sum,
                [](call_context&, fussy first, stream_reader<std::uint64_t>& in) -> task<std::uint64_t> {
                    auto sum = static_cast<std::uint64_t>(first.number);
                    for (auto one = co_await in.next(); one; one = co_await in.next()) sum += *one;
                    co_return sum;
                });
        server.serve(sums);
        for (int n = 0; n < 5; ++n) {
            bool thrown = false;
            try {
                auto items = co_await client.open(upward::sum, fussy{-1});
            } catch (const std::domain_error&) {
                thrown = true;
            }
            CHECK(thrown);
        }
        auto items = co_await client.open(upward::sum, fussy{5});
        co_await items.write(7U);
        const std::uint64_t sum = co_await items.finish();
        CHECK(sum == 12);
        const std::size_t at_client = co_await left_over(link.a);
        CHECK(at_client == 0);
        const std::size_t at_server = co_await left_over(link.b);
        CHECK(at_server == 0);
    });
}

CALLS_CASE("a reader that was moved from refuses to read") {
    run_pair(over, [](any_calls& client, any_calls&, shop&, calls_link) -> task<> {
        auto former = co_await client.open(kv::scan, 2U);
        static_cast<void>(co_await former.next());
        auto rows = std::move(former);
        const auto refused = co_await as_result(former.next());
        CHECK(refused.error() == errc::invalid_argument);
        const auto second = co_await rows.next();
        CHECK(second->key == 1);
        const auto over_now = co_await rows.next();
        CHECK_FALSE(over_now);
    });
}

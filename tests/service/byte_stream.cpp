#include <rdmacoro/service/byte_stream.hpp>

#include "conformance/transports.hpp"

#include "support/catch.hpp"
#include "support/child_process.hpp"

#include <csignal>
#include <random>

namespace test_service_byte_stream {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// Two streams of one connection.
template <class T>
struct two_ends {
    byte_stream<T> a;
    byte_stream<T> b;
};
template <class T>
task<two_ends<T>> connected(world<T>& w, byte_stream_options options = {}) {
    mailbox_options least;
    least.unexpected_bytes = 1;  // 256 KiB
    auto ends = co_await w.connected(least, least);
    co_return two_ends<T>{byte_stream<T>(std::move(ends.a), options),
                          byte_stream<T>(std::move(ends.b), options)};
}

constexpr byte_stream_options small_ones{
    .copy_limit = 100, .gather_bytes = 300, .piece_bytes = 5000, .grace = 20s};

/// Sizes of which many are short, some long, and some at the limits.
std::size_t any_size(std::mt19937_64& random, const byte_stream_options& of) {
    switch (random() % 6) {
        case 0: return random() % (3 * of.piece_bytes) + 1;
        case 1: return of.piece_bytes + random() % 3 - 1;
        case 2: return of.copy_limit + random() % 3 - 1;
        default: return random() % of.copy_limit + 1;
    }
}

/// Writes `total` bytes of a pattern in pieces of random sizes, and then the end.
template <class T>
task<> write_randomly(byte_stream<T>& to, std::size_t total, std::uint64_t seed, byte_stream_options sizes) {
    std::mt19937_64 random(seed);
    const auto all = pattern(total, seed);
    for (std::size_t at = 0; at < total;) {
        const std::size_t some = std::min(any_size(random, sizes), total - at);
        std::vector<std::byte> piece(all.begin() + static_cast<std::ptrdiff_t>(at),
                                     all.begin() + static_cast<std::ptrdiff_t>(at + some));
        co_await to.write(piece);
        std::fill(piece.begin(), piece.end(), std::byte{0xee});  // the memory is ours again
        at += some;
    }
    co_await to.shutdown();
}
/// Reads until the end, in pieces of other random sizes. Answers how many bytes came, all as expected.
template <class T>
task<std::size_t> read_randomly(byte_stream<T>& from, std::uint64_t seed, byte_stream_options sizes) {
    std::mt19937_64 random(seed + 1000);
    std::size_t at = 0;
    for (;;) {
        std::vector<std::byte> into(any_size(random, sizes));
        std::size_t got = 0;
        if (random() % 2 == 0) {
            got = co_await from.read_some(into);
        } else {
            try {
                got = co_await from.read_exactly(into);
            } catch (const error& why) {
                if (why.code() != errc::closed || !from.at_end()) throw;
                got = why.info();
            }
        }
        if (!is_pattern(std::span(into).first(got), seed, at))
            throw std::runtime_error("other bytes were read");
        at += got;
        if (got == 0) co_return at;
    }
}

template <class Variant>
void streams(task<> (*body)(world<typename Variant::transport_type>&)) {
    conform<Variant>(body);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE(
    "what is written in pieces of any size is read in pieces of any other, both ways at once", "",
    every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        for (const auto& sizes : {small_ones, byte_stream_options{}}) {
            for (std::uint64_t seed = 1; seed <= 4; ++seed) {
                auto ends = co_await connected(w, sizes);
                const std::size_t total = 100 * sizes.piece_bytes / (sizes.piece_bytes > 5000 ? 10 : 1);
                auto there = start(write_randomly(ends.a, total, seed, sizes));
                auto back = start(write_randomly(ends.b, total / 2, seed + 50, sizes));
                auto of_a = start(read_randomly(ends.a, seed + 50, sizes));
                const auto at_b = co_await read_randomly(ends.b, seed, sizes);
                CHECK(at_b == total);
                const auto at_a = co_await of_a;
                CHECK(at_a == total / 2);
                co_await there;
                co_await back;
                CHECK(ends.a.counts().bytes_written == total);
                CHECK(ends.b.counts().bytes_read == total);
                CHECK(ends.a.at_end());
                co_await ends.a.close();
                co_await ends.b.close();
            }
        }
    });
}

TEMPLATE_LIST_TEST_CASE("a short write is copied once by the stream at each end, and a long one by neither",
                        "", every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        auto ends = co_await connected(w);
        for (const std::size_t bytes : {std::size_t{1}, std::size_t{8}, std::size_t{4096}, std::size_t{4097},
                                        std::size_t{100'000}, std::size_t{1} << 20, std::size_t{3} << 20}) {
            CAPTURE(bytes);
            const auto data = pattern(bytes, bytes);
            std::vector<std::byte> into(bytes);
            const auto sent = ends.a.counts();
            const auto got = ends.b.counts();
            const auto received = ends.b.peer().counts();
            auto reading = start(ends.b.read_exactly(into));
            co_await ends.a.write(data);
            const auto whole = co_await reading;
            CHECK(whole == bytes);
            CHECK(same_bytes(into, data));
            const bool is_short = bytes <= byte_stream_options{}.copy_limit;
            CHECK(ends.a.counts().bytes_gathered - sent.bytes_gathered == (is_short ? bytes : 0));
            CHECK(ends.b.counts().bytes_copied - got.bytes_copied == (is_short ? bytes : 0));
            CHECK(ends.a.counts().messages - sent.messages == (bytes + (1 << 20) - 1) >> 20);
            // Below the stream, too, but over shared memory, where one of the ends copies by itself.
            const std::uint64_t copied = ends.b.peer().counts().bytes_copied - received.bytes_copied;
            if (bytes >= 100'000) CHECK((T::name == shm::name ? copied <= bytes : copied == 0));
        }
        co_await ends.a.close();
    });
}

TEMPLATE_LIST_TEST_CASE("elements of any trivially copyable type, and parts of arrays, go as their bytes", "",
                        every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        auto ends = co_await connected(w);
        std::vector<double> numbers(3000);
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i) / 3;
        const std::uint32_t words[] = {1, 2, 3, 4};
        // Beside the reads: a write of 12,000 bytes may wait for its reader.
        auto writing =
            start([](auto& to, std::span<const double> many, std::span<const std::uint32_t> few) -> task<> {
                co_await to.write(many.subspan(1000, 1500));
                co_await to.write(few.first(3));
                co_await to.write(std::string_view("the end"));
                co_await to.shutdown();
            }(ends.a, numbers, words));
        std::vector<double> got(1500);
        const auto of_numbers = co_await ends.b.read_exactly(got);
        CHECK(of_numbers == 1500 * sizeof(double));
        CHECK(std::equal(got.begin(), got.end(), numbers.begin() + 1000));
        std::array<std::uint32_t, 3> three{};
        const auto of_words = co_await ends.b.read_exactly(three);
        CHECK(of_words == sizeof three);
        CHECK(three == std::array<std::uint32_t, 3>{1, 2, 3});
        // The stream ends in the middle of what is asked for.
        std::array<char, 10> text{};
        const auto cut = co_await as_result(ends.b.read_exactly(text));
        CHECK(cut.error() == errc::closed);
        CHECK(cut.info() == 7);
        CHECK(std::string_view(text.data(), 7) == "the end");
        const auto at_end = co_await ends.b.read_exactly(text);
        CHECK(at_end == 0);
        const auto of_nothing = co_await ends.b.read_some(std::span<std::byte>());
        CHECK(of_nothing == 0);
        co_await writing;
    });
}

TEMPLATE_LIST_TEST_CASE("each direction ends on its own, after all of its bytes", "", every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        auto ends = co_await connected(w, small_ones);
        const auto question = pattern(20'000, 1);
        auto asking = start([](byte_stream<T>& to, std::span<const std::byte> what) -> task<> {
            co_await to.write(what.first(50));
            co_await to.write(what.subspan(50));
            co_await to.shutdown();
            co_await to.shutdown();  // again is nothing
        }(ends.a, question));
        const auto asked = co_await read_randomly(ends.b, 1, small_ones);
        CHECK(asked == question.size());
        co_await asking;
        CHECK(ends.b.at_end());
        const auto late = co_await as_result(ends.a.write(question));
        CHECK(late.error() == errc::closed);
        // The other direction goes on.
        auto answering = start(write_randomly(ends.b, 30'000, 2, small_ones));
        const auto answered = co_await read_randomly(ends.a, 2, small_ones);
        CHECK(answered == 30'000);
        co_await answering;
        std::array<std::byte, 5> more{};
        const auto past_end = co_await ends.b.read_some(more);
        CHECK(past_end == 0);
        co_await ends.b.close();
        co_await ends.a.close();
    });
}

TEMPLATE_LIST_TEST_CASE("close brings all that was written, and then the end", "", every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        auto ends = co_await connected(w);
        const auto data = pattern(50'000, 4);
        auto closing = start([](byte_stream<T> from, std::span<const std::byte> what) -> task<> {
            for (std::size_t at = 0; at < what.size(); at += 100) co_await from.write(what.subspan(at, 100));
            co_await from.close();
        }(std::move(ends.a), data));
        const auto all = co_await read_randomly(ends.b, 4, small_ones);
        CHECK(all == data.size());
        co_await closing;
        CHECK_FALSE(ends.a);
    });
}

TEMPLATE_LIST_TEST_CASE("a peer that goes without an end is an error and not the end", "", every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        auto ends = co_await connected(w);
        const auto data = pattern(3000, 4);
        co_await ends.a.write(data);
        std::vector<std::byte> into(data.size());
        const auto before = co_await ends.b.read_exactly(into);
        CHECK(before == data.size());
        auto reading = start(as_result(ends.b.read_some(into)));
        co_await yield();
        ends.a = {};
        const auto end = co_await reading;
        CHECK(end.error() == errc::peer_lost);
        CHECK_FALSE(ends.b.at_end());
    });
}

TEMPLATE_LIST_TEST_CASE("a reader that leaves early ends the writer, whatever it writes", "", every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        for (const std::size_t bytes :
             {std::size_t{8}, std::size_t{4000}, std::size_t{300'000}, std::size_t{8} << 20}) {
            CAPTURE(bytes);
            auto ends = co_await connected(w);
            auto writing = start(as_result([](byte_stream<T>& to, std::size_t some) -> task<> {
                const auto data = pattern(some, 1);
                for (;;) co_await to.write(data);
            }(ends.a, bytes)));
            std::vector<std::byte> into(100);
            const auto some = co_await ends.b.read_some(into);
            CHECK(some != 0);
            for (int n = 0; n < 50; ++n) co_await yield();
            ends.b = {};
            const auto end = co_await writing;
            CHECK(end.error() == errc::peer_lost);
            const auto later = co_await as_result(ends.a.write(into));
            CHECK_FALSE(later);
            const auto closed = co_await as_result(ends.a.close());
            CHECK_FALSE(closed);  // what was written did not arrive
        }
    });
}

TEMPLATE_LIST_TEST_CASE(
    "short writes that the peer does not read fill two buffers and then wait; together they go on", "",
    every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        auto ends = co_await connected(w);
        const auto data = pattern(64, 9);
        std::uint64_t writes = 0;
        for (;;) {
            const auto wrote = co_await as_result(timeout(ends.a.write(data), 50ms));
            if (!wrote) {
                CHECK(wrote.error() == errc::timed_out);
                break;
            }
            ++writes;
            REQUIRE(writes < 1'000'000);  // bounded: the peer's budget and two buffers
        }
        // Not a byte of the write that gave up is in the stream, and the stream goes on.
        CHECK(ends.a.counts().bytes_written == writes * 64);
        CHECK(ends.a.counts().messages < writes);
        std::vector<std::byte> into(64);
        for (std::uint64_t n = 0; n < writes; ++n) {
            const auto one = co_await ends.b.read_exactly(into);
            REQUIRE(one == 64);
            REQUIRE(same_bytes(into, data));
        }
        co_await ends.a.write(std::string_view("more"));
        std::array<char, 4> more{};
        const auto last = co_await ends.b.read_exactly(more);
        CHECK(last == 4);
        CHECK(std::string_view(more.data(), 4) == "more");
        co_await ends.a.close();
    });
}

TEMPLATE_LIST_TEST_CASE("with a token that is stopped already nothing is written, and nothing is read", "",
                        every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        auto ends = co_await connected(w, small_ones);
        std::stop_source stop;
        stop.request_stop();
        const auto stopped = stop.get_token();
        const auto few = pattern(10, 1);
        const auto not_short = co_await as_result(with_stop(ends.a.write(few), stopped));
        CHECK(not_short.error() == errc::canceled);
        const auto longer = pattern(20'000, 1);
        const auto not_long = co_await as_result(with_stop(ends.a.write(longer), stopped));
        CHECK(not_long.error() == errc::canceled);
        const auto not_flushed = co_await as_result(with_stop(ends.a.flush(), stopped));
        CHECK(not_flushed.error() == errc::canceled);
        const auto data = pattern(100, 2);
        co_await ends.a.write(data);  // the stream goes on
        std::vector<std::byte> into(100);
        co_await ends.b.read_exactly(std::span(into).first(1));  // the rest is here
        const auto rest = std::span(into).subspan(1);
        const auto not_read = co_await as_result(with_stop(ends.b.read_exactly(rest), stopped));
        CHECK(not_read.error() == errc::canceled);
        co_await ends.b.read_exactly(rest);
        CHECK(into == data);
    });
}

TEMPLATE_LIST_TEST_CASE("reads that are canceled at any moment lose nothing", "", every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        for (const auto& sizes : {small_ones, byte_stream_options{.grace = 20s}}) {
            auto ends = co_await connected(w, sizes);
            constexpr std::size_t total = 2'000'000;
            auto writing = start(write_randomly(ends.a, total, 3, sizes));
            std::mt19937_64 random(3);
            std::size_t at = 0;
            int canceled = 0;
            while (!ends.b.at_end()) {
                std::vector<std::byte> into(any_size(random, sizes));
                local_stop_source stop;
                auto reading = start(as_result(with_stop(ends.b.read_exactly(into), stop.get_token())));
                for (std::uint64_t n = random() % 4; n > 0 && !reading.done(); --n) co_await yield();
                stop.request_stop();
                const auto got = co_await reading;
                if (got.error() == errc::canceled) ++canceled;
                const std::size_t some = got ? *got : got.info();
                REQUIRE(is_pattern(std::span(into).first(some), 3, at));
                at += some;
                if (!got && got.error() != errc::canceled) break;  // ended in the middle
            }
            CHECK(at == total);
            CHECK(canceled > 0);
            co_await writing;
        }
    });
}

TEMPLATE_LIST_TEST_CASE(
    "a long write that is given up in the middle is no end for the reader, and nothing follows it", "",
    every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        auto ends = co_await connected(w);
        const auto data = pattern(std::size_t{8} << 20, 5);
        const auto given_up = co_await as_result(timeout(ends.a.write(data), 20ms));  // nothing is read
        CHECK(given_up.error() == errc::timed_out);
        const auto after = co_await as_result(ends.a.write(std::string_view("after")));
        CHECK_FALSE(after);
        const auto closed = co_await as_result(ends.a.close());
        CHECK_FALSE(closed);
        std::vector<std::byte> into(data.size());
        std::size_t at = 0;
        for (;;) {
            const auto got = co_await as_result(ends.b.read_some(std::span(into).subspan(at)));
            if (!got) break;
            REQUIRE(*got != 0);
            at += *got;
        }
        CHECK(at < data.size());
        CHECK(is_pattern(std::span(into).first(at), 5));
    });
}

TEMPLATE_LIST_TEST_CASE("a second read or write at a time is refused, and so is a peer that is no stream", "",
                        every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        auto ends = co_await connected(w);
        std::vector<std::byte> into(10);
        std::vector<std::byte> other(10);
        auto first = start(ends.a.read_some(into));
        const auto second = co_await as_result(ends.a.read_some(other));
        CHECK(second.error() == errc::invalid_argument);
        co_await ends.b.write(std::string_view("one"));
        const auto three = co_await first;
        CHECK(three == 3);

        byte_stream<T> none;
        const auto nothing = co_await as_result(none.write(into));
        CHECK(nothing.error() == errc::invalid_argument);
        CHECK_FALSE(none);

        auto pair = co_await w.connected();
        CHECK_THROWS_AS(byte_stream<T>(std::move(pair.a), {.copy_limit = 100, .gather_bytes = 10}), error);
        pair = co_await w.connected();
        byte_stream<T> stream(std::move(pair.a));
        co_await pair.b.send(std::string_view("hello"), 7);
        const auto stranger = co_await as_result(stream.read_some(into));
        CHECK(stranger.error() == errc::protocol_violation);

        pair = co_await w.connected();
        byte_stream<T> short_pieces(std::move(pair.a), small_ones);
        byte_stream<T> long_pieces(std::move(pair.b));
        std::vector<std::byte> data(50'000);
        auto writing = start(as_result(long_pieces.write(data)));
        std::vector<std::byte> room(6000);
        const auto longer = co_await as_result(short_pieces.read_some(room));
        CHECK(longer.error() == errc::protocol_violation);
        static_cast<void>(co_await writing);
    });
}

TEMPLATE_LIST_TEST_CASE("a piece that is too long is refused by a read of any length", "", every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        for (const std::size_t length : {std::size_t{100}, std::size_t{5000}, std::size_t{2} << 20}) {
            CAPTURE(length);
            auto pair = co_await w.connected();
            byte_stream<T> a(std::move(pair.a));
            byte_stream<T> b(std::move(pair.b), {.gather_bytes = 8192, .piece_bytes = 8192});
            const auto data = pattern(std::size_t{1} << 20, 1);
            auto writing = start(as_result(a.write(data)));
            std::vector<std::byte> into(length);
            const auto refused = co_await as_result(b.read_some(into));
            CHECK(refused.error() == errc::protocol_violation);
            const auto again = co_await as_result(b.read_some(into));
            CHECK(again.error() == errc::protocol_violation);
            static_cast<void>(co_await writing);
        }
        mailbox_options short_ones;
        short_ones.lent_bytes = 5000;
        auto pair = co_await w.connected(short_ones, short_ones);
        const auto whole = [&] {
            return byte_stream<T>(std::move(pair.a), {.gather_bytes = 5000, .piece_bytes = 5000});
        };
        CHECK_NOTHROW(whole());
        CHECK_THROWS_AS(
            byte_stream<T>(std::move(pair.b), byte_stream_options{.gather_bytes = 5001, .piece_bytes = 5001}),
            error);
    });
}

TEMPLATE_LIST_TEST_CASE("what waits for a stream that is destroyed ends with closed", "", every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        const auto data = pattern(4096, 1);
        const auto much = pattern(std::size_t{8} << 20, 1);
        std::vector<std::byte> into(100'000);
        {
            auto ends = co_await connected(w);
            auto short_read = start(as_result(ends.b.read_some(std::span(into).first(10))));
            auto long_read = start(as_result(ends.a.read_exactly(into)));
            co_await yield();
            CHECK_FALSE(short_read.done());
            CHECK_FALSE(long_read.done());
            ends.b = {};
            ends.a = {};
            const auto of_short = co_await short_read;
            const auto of_long = co_await long_read;
            CHECK(of_short.error() == errc::closed);
            CHECK(of_long.error() == errc::closed);
        }
        {
            auto ends = co_await connected(w);
            auto writing = start(as_result(ends.a.write(much)));
            co_await yield();
            CHECK_FALSE(writing.done());
            ends.a = {};
            const auto wrote = co_await writing;
            CHECK(wrote.error() == errc::closed);
        }
        {
            auto ends = co_await connected(w);
            for (;;) {
                const auto wrote = co_await as_result(timeout(ends.a.write(data), 10ms));
                if (!wrote) break;
            }
            auto writing = start(as_result(ends.a.write(data)));
            co_await yield();
            CHECK_FALSE(writing.done());
            ends.a = {};
            const auto wrote = co_await writing;
            CHECK(wrote.error() == errc::closed);
        }
        {
            auto ends = co_await connected(w);
            for (;;) {
                const auto wrote = co_await as_result(timeout(ends.a.write(data), 10ms));
                if (!wrote) break;
            }
            auto flushing = start(as_result(ends.a.flush()));
            auto idle = ends.a.read_some(into);
            co_await yield();
            CHECK_FALSE(flushing.done());
            ends.a = {};
            const auto flushed = co_await flushing;
            CHECK(flushed.error() == errc::closed);
            const auto begun_late = co_await as_result(std::move(idle));
            CHECK(begun_late.error() == errc::closed);
        }
    });
}

namespace {

/// How the peer of a stream that is destroyed is: it reads, it has given up, or it is gone.
enum class other_end : int { reads, aborted, destroyed };

}  // namespace

TEMPLATE_LIST_TEST_CASE(
    "a stream that is destroyed with writes under way ends for both sides, and nothing else is read", "",
    every_kind) {
    using T = typename TestType::transport_type;
    streams<TestType>([](world<T>& w) -> task<> {
        for (const other_end how : {other_end::reads, other_end::aborted, other_end::destroyed}) {
            CAPTURE(static_cast<int>(how));
            auto ends = co_await connected(w);
            const auto data = pattern(4096, 1);
            std::size_t written = 0;
            std::error_code why;
            while (!why) {
                const auto one = co_await as_result(timeout(ends.a.write(data), 10ms));
                if (one) {
                    written += data.size();
                } else {
                    why = one.error();
                }
            }
            CHECK(why == errc::timed_out);
            CHECK(written > 0);
            if (how == other_end::aborted) ends.b.abort();
            if (how == other_end::destroyed) ends.b = {};
            ends.a = {};  // some of what was written has not left it, as its peer has read nothing
            if (how == other_end::destroyed) continue;
            std::vector<std::byte> into(1000);
            std::size_t at = 0;
            std::error_code end;
            while (!end) {
                const auto some = co_await as_result(timeout(ends.b.read_some(into), 20s));
                if (!some) {
                    end = some.error();
                    continue;
                }
                REQUIRE(*some != 0);  // the end of a stream is said by its writer
                for (std::size_t n = 0; n < *some; ++n) {
                    if (into[n] != data[(at + n) % data.size()]) FAIL("other bytes were read");
                }
                at += *some;
            }
            CHECK(end == (how == other_end::aborted ? errc::closed : errc::peer_lost));
            CHECK_FALSE(ends.b.at_end());
            CHECK(at <= written + data.size());
            if (how == other_end::reads) CHECK(at > 0);
            const auto back = co_await as_result(timeout(ends.b.write(data), 20s));
            CHECK(back.error());
            CHECK(back.error() != errc::timed_out);
        }
    });
}

namespace {

template <class Variant>
void write_and_die(const std::string& address) {
    using T = typename Variant::transport_type;
    scheduler on{idle::yield{}};
    const auto domain = Variant::open(on);
    on.run([](auto& in, const std::string& where) -> task<> {
        byte_stream<T> to(co_await timeout(connect<T>(in, where), 30s));
        const auto data = pattern(std::size_t{4} << 20, 1);
        co_await to.write(std::string_view("hello"));
        auto writing = start(to.write(data));
        while (to.counts().messages < 3) co_await yield();  // the second piece of the long write has begun
        ::kill(::getpid(), SIGKILL);
        co_await writing;
    }(*domain, address));
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a peer that is killed in the middle of a write is an error and not the end", "",
                        every_real_transport) {
    using Variant = TestType;
    using T = typename Variant::transport_type;
    child_process child([](const std::string& address) { write_and_die<Variant>(address); });
    scheduler on;
    const auto domain = Variant::open(on);
    on.run([](auto& in, child_process& of) -> task<> {
        auto listening = co_await listen<T>(in, Variant::address());
        of.tell(listening.address());
        byte_stream<T> from(co_await timeout(listening.accept(), 30s));
        std::array<char, 5> hello{};
        const auto greeted = co_await timeout(from.read_exactly(hello), 30s);
        REQUIRE(greeted == 5);
        CHECK(std::string_view(hello.data(), 5) == "hello");
        std::vector<std::byte> into(std::size_t{4} << 20);
        const auto cut = co_await as_result(timeout(from.read_exactly(into), 30s));
        CHECK(cut.error() == errc::peer_lost);
        CHECK(cut.info() < into.size());
        CHECK(is_pattern(std::span(into).first(cut.info()), 1));
        CHECK_FALSE(from.at_end());
    }(*domain, child));
    CHECK(WIFSIGNALED(child.wait()));
}

}  // namespace test_service_byte_stream

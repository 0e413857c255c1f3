#include <rdmacoro/service/detail/call_wire.hpp>

#include "support/bytes.hpp"
#include "support/calls_pair.hpp"

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace test_service_detail_call_wire {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEST_CASE("a tag of a call gives back its kind and number, and is none of the program's") {
    for (const call_kind kind : {call_kind::request, call_kind::one_way, call_kind::open, call_kind::note,
                                 call_kind::answer, call_kind::item, call_kind::caller_item}) {
        const tag_type tag = call_tag(kind, 0x123456789abULL, 0x7fff);
        CHECK(kind_of_call(tag) == kind);
        CHECK(call_number(tag) == 0x123456789abULL);
        CHECK((tag & calls_bit) != 0);
        CHECK((tag & first_call_bit) == 0);
        const bool request = kind <= call_kind::open;
        CHECK(requests_to(0x7fff).accepts(tag) == request);
        CHECK_FALSE(requests_to(0x7ffe).accepts(tag));
        CHECK(requests_to(0x7fff).accepts(tag | first_call_bit) == request);
        CHECK(first_requests.accepts(tag | first_call_bit) == request);
        CHECK_FALSE(first_requests.accepts(tag));
        CHECK(request_of(0x123456789abULL).accepts(tag) == request);
        CHECK(request_of(0x123456789abULL).accepts(tag | first_call_bit) == request);
        CHECK_FALSE(request_of(1).accepts(tag));
        CHECK(notes.accepts(tag) == (kind == call_kind::note));
        CHECK_FALSE(tag_match(no_message).accepts(tag));
    }
    CHECK(call_number(call_tag(call_kind::answer, ~0ULL)) == call_number_mask);
    CHECK((call_number_mask & caller_writes_bit) != 0);
    CHECK_FALSE(tag_match(no_message).accepts(call_tag(call_kind::caller_item, 0)));
}

TEST_CASE("the time of a call travels in microseconds, rounded up; none and too much are no limit") {
    CHECK(time_to_send(1ns) == 1);
    CHECK(time_to_send(1us) == 1);
    CHECK(time_to_send(1001ns) == 2);
    CHECK(time_to_send(0ns) == 1);
    CHECK(time_to_send(-5s) == 1);
    CHECK(time_to_send(1s) == 1000000);
    CHECK(time_to_send(1h) == 3600000000U);
    CHECK(time_to_send(2h) == 0);
    CHECK(time_to_send(std::chrono::nanoseconds::max()) == 0);
}

namespace {
bool is_golden(const message& got, const std::vector<std::byte>& golden) {
    return std::ranges::equal(got.bytes(), golden);
}
struct caller_rows {
    static constexpr method<"kv.keys", std::uint64_t(stream<row>)> keys{};
};
}  // namespace

TEST_CASE("requests, answers, items and notes are these bytes") {
    STATIC_REQUIRE(kv::add.number == 0x06417ecd50c9cb57);
    STATIC_REQUIRE(kv::add.service == 0xe36);
    run_ends(*over_sim.front(), [](calls_link link) -> task<> {
        {
            const auto calling = link.a.make_calls();
            any_calls& client = *calling;
            auto& peer = link.b;
            // A request: its method, the signature, the time in microseconds, and the arguments.
            auto asking = start(timeout(client.call(kv::add, 1U, 258U), 2s));
            const message request = co_await peer.recv_lent(first_requests);
            CHECK(is_golden(request, raw({0x57, 0xcb, 0xc9, 0x50, 0xcd, 0x7e, 0x41, 0x06, 0x5b, 0xe0, 0xbc,
                                          0x16, 0x80, 0x84, 0x1e, 0,    1,    0,    0,    0,    0,    0,
                                          0,    0,    2,    1,    0,    0,    0,    0,    0,    0})));
            CHECK((request.tag() >> 44) == 0x88e36);
            const std::uint64_t number = call_number(request.tag());
            // The service is known; the answer: a value.
            const auto known = raw({2, 0, 0, 0, 0x36, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
            co_await peer.send(known, call_tag(call_kind::note, 0));
            const auto answer = raw({0, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0});
            co_await peer.send(answer, std::uint64_t{0xd} << 60 | number);
            const std::uint64_t sum = co_await asking;
            CHECK(sum == 259);
            // Items of the caller, their end, and credit for them, in items and bytes.
            auto rows = co_await client.open(caller_rows::keys);
            const message opened = co_await peer.recv_lent(requests_to(0xe36));
            const tag_type items = std::uint64_t{0xf} << 60 | call_number(opened.tag());
            co_await rows.write(1U, 1.0F);
            const message item = co_await peer.recv_lent(items);
            CHECK(is_golden(item, raw({0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x80, 0x3f})));
            const auto room = raw({4, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0});
            co_await peer.send(room, std::uint64_t{0xc} << 60 | call_number(opened.tag()));
            auto finishing = start(rows.finish());
            const message end = co_await peer.recv_lent(items);
            CHECK(is_golden(end, raw({1, 0, 0, 0, 0, 0, 0, 0})));
            // An error: of the toolkit, 20, and its text.
            const auto failed = raw({3, 0, 0, 0, 20, 0, 0, 0, 'w', 'h', 'y'});
            co_await peer.send(failed, std::uint64_t{0xd} << 60 | call_number(opened.tag()));
            std::string said;
            try {
                static_cast<void>(co_await finishing);
            } catch (const error& why) {
                said = why.what();
                CHECK(why.code() == static_cast<errc>(20));
            }
            CHECK_THAT(said, Catch::Contains("why"));
            // Two items of a handler in one message, and the reader's credit when it has read half a window.
            auto read = co_await client.open(kv::scan, 7U);
            const message scan = co_await peer.recv_lent(requests_to(0xe36));
            const tag_type answers = std::uint64_t{0xe} << 60 | call_number(scan.tag());
            const auto two = raw({0, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0});
            for (int n = 0; n < 32; ++n) co_await peer.send(two, answers);
            for (std::uint32_t n = 0; n < 64; ++n) {
                const auto one = co_await read.next();
                REQUIRE(one);
                CHECK(one->key == 5 + n % 2);
            }
            auto last = start(read.next());
            const message credit = co_await peer.recv_lent(notes);
            CHECK(is_golden(credit, raw({1, 0, 0, 0, 64, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0})));
            const auto no_more = raw({1, 0, 0, 0, 0, 0, 0, 0});
            co_await peer.send(no_more, answers);
            const auto none = co_await last;
            CHECK_FALSE(none);
        }
    });
}

}  // namespace test_service_detail_call_wire

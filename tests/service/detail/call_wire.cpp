#include <rdmacoro/service/detail/call_wire.hpp>

#include "support/catch.hpp"

#include <initializer_list>

using namespace rdmacoro;
using namespace rdmacoro::detail;
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

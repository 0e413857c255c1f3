#include <rdmacoro/service/detail/meeting_server.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/meeting.hpp"

#include <rdmacoro/service/detail/meeting_launcher.hpp>

#include <array>
#include <chrono>
#include <random>

namespace test_service_detail_meeting_server {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;
using detail::meeting_launcher;

namespace {

const std::vector<std::byte> mine(10, std::byte{1});

/// Joins as this rank; empty, or the error's text.
std::string join(const std::map<std::string, std::string, std::less<>>& variables, duration limit = 10s) {
    return error_of([&] {
               meeting_launcher one{detail::launch_environment(variables)};
               one.open(patience_of(limit));
               static_cast<void>(one.exchange(mine, patience_of(limit)));
               one.leave(patience_of(limit));
           })
        .second;
}

}  // namespace

TEST_CASE("strangers who send garbage, nothing, or too much are refused, and ranks meet all the same") {
    served_meeting meeting(2);
    const std::string address = meeting.server.address();
    std::vector<std::unique_ptr<stranger>> silent;
    for (int n = 0; n < 200; ++n) silent.push_back(std::make_unique<stranger>(address));
    std::mt19937 random(seed());
    for (int n = 0; n < 50; ++n) {
        stranger one(address);
        std::vector<std::byte> bytes(256 + random() % 1024);
        for (std::byte& each : bytes) each = static_cast<std::byte>(random());
        one.say(bytes);
        CHECK(one.is_closed());
    }
    {
        // A frame that would be long, one of a wrong kind, one with a wrong mark.
        stranger longer(address), kind(address), mark(address);
        longer.say(std::vector<std::byte>{std::byte{255}, std::byte{255}, std::byte{255}, std::byte{127},
                                          std::byte{1}});
        kind.say(detail::meeting_message(detail::meeting_kind::put, detail::meeting_put{0, mine}));
        mark.say(detail::meeting_message(detail::meeting_kind::hello,
                                         detail::meeting_hello{.mark = 1, .size = 2}));
        CHECK(longer.is_closed());
        CHECK(kind.is_closed());
        CHECK(mark.is_closed());
    }
    std::string other;
    std::thread second([&] { other = join(meeting.variables(1, 2)); });
    CHECK(join(meeting.variables(0, 2)).empty());
    second.join();
    CHECK(other.empty());
}

TEST_CASE(
    "a rank with a wrong number, a wrong size, a wrong version or one that is there already is told so") {
    served_meeting meeting(3);
    meeting_launcher first{detail::launch_environment(meeting.variables(1, 3))};
    first.open(patience_of(10s));
    CHECK_THAT(join(meeting.variables(1, 3)), contains("rank 1 is there already"));
    CHECK_THAT(join(meeting.variables(1, 4)), contains("job of 4, this one is of 3"));
    stranger old(meeting.server.address());
    old.say(detail::meeting_message(detail::meeting_kind::hello,
                                    detail::meeting_hello{.version = 77, .rank = 2, .size = 3}));
    CHECK(old.is_closed());
    stranger high(meeting.server.address());
    high.say(
        detail::meeting_message(detail::meeting_kind::hello, detail::meeting_hello{.rank = 3, .size = 3}));
    CHECK(high.is_closed());
    first.leave(patience_of(10s));
    std::string text;
    do text = join(meeting.variables(1, 3));
    while (text.find("there already") != std::string::npos);  // its end is on its way
    CHECK_THAT(text, contains("has gone: a process joins once"));
}

TEST_CASE("with a key only ranks that have it may come, and only to a rendezvous that has it") {
    const std::string key = "00112233445566778899aabbccddeeff";
    const std::string other = "10112233445566778899aabbccddeeff";
    served_meeting meeting(1, &key);
    auto variables = meeting.variables(0, 1);
    CHECK_THAT(join(variables), contains("does not have the key"));
    variables["RDMACORO_KEY"] = other;
    CHECK_THAT(join(variables), contains("does not have the key"));
    variables["RDMACORO_KEY"] = key;
    CHECK(join(variables).empty());
    served_meeting open(1);
    auto there = open.variables(0, 1);
    there["RDMACORO_KEY"] = key;
    CHECK_THAT(join(there), contains("the rendezvous has none"));
}

TEST_CASE("the missing ranks are named when the limit is over, and each rank hears of it") {
    served_meeting meeting(5);
    std::vector<std::string> texts(5);
    std::vector<std::thread> ranks;
    for (const std::uint32_t rank : {0u, 2u, 4u})
        ranks.emplace_back([&, rank] { texts[rank] = join(meeting.variables(rank, 5), 700ms); });
    for (std::thread& one : ranks) one.join();
    for (const std::uint32_t rank : {0u, 2u, 4u}) {
        INFO(texts[rank]);
        // One whose limit ends a moment later hears from the one before.
        CHECK_THAT(texts[rank],
                   contains("ranks 1 and 3 of 5 have not come") || contains("ranks 1 and 3 have not come"));
    }
}

TEST_CASE("what all waiting ranks are told of the missing ones is made once for all of them") {
    using namespace detail;
    constexpr std::uint32_t size = 200;
    meeting_server server(loopback_endpoint(), size, job_key(), false);
    const inet_endpoint at = loopback_endpoint(server.address().substr(server.address().rfind(':') + 1));
    std::vector<int> guests;
    const auto come = [&](std::uint32_t rank) {
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        REQUIRE(::connect(fd, at.get(), at.bytes) == 0);
        guests.push_back(fd);
        const auto hello = meeting_message(meeting_kind::hello, meeting_hello{.rank = rank, .size = size});
        REQUIRE(::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(hello.size()));
        const auto put = meeting_message(meeting_kind::put, meeting_put{0, mine});
        REQUIRE(::send(fd, put.data(), put.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(put.size()));
    };
    for (std::uint32_t rank = 0; rank + 2 < size; ++rank) {
        come(rank);
        while (server.missing().size() + rank + 1 != size) server.turn(patience_of(20s));
    }
    // The last one that comes is news for all others.
    std::array<std::byte, 16384> room;
    while (::recv(guests[0], room.data(), room.size(), MSG_DONTWAIT) > 0) {}
    come(size - 2);
    pollfd told{guests[0], POLLIN, 0};
    const std::size_t before = allocations();
    while (::poll(&told, 1, 0) == 0) server.turn(patience_of(20s));
    const std::size_t taken = allocations() - before;
    if (counts_allocations) CHECK(taken < size);
    for (const int fd : guests) ::close(fd);
}

TEST_CASE("a rank that goes before all have come ends the wait of the others, and names itself") {
    served_meeting meeting(3);
    std::string text;
    std::thread waiting([&] { text = join(meeting.variables(0, 3)); });
    {
        meeting_launcher gone{detail::launch_environment(meeting.variables(2, 3))};
        gone.open(patience_of(10s));
    }
    waiting.join();
    CHECK_THAT(text,
               contains("rank 2 of 3 has gone before all had joined") && contains("rank 1 has not come"));
}

TEST_CASE("ranks that have taken the answer and left are not blamed for one that waited to its limit") {
    using namespace detail;
    meeting_server server(loopback_endpoint(), 3, job_key(), true);
    stranger first(server.address()), second(server.address());
    std::uint32_t rank = 1;
    for (stranger* const one : {&first, &second}) {
        one->say(meeting_message(meeting_kind::hello, meeting_hello{.rank = rank++, .size = 3}));
        one->say(meeting_message(meeting_kind::put, meeting_put{0, mine}));
    }
    server.put_own(mine);
    while (!server.complete(0)) server.turn(patience_of(10s));
    first.say(meeting_message(meeting_kind::bye, meeting_end::has_all));
    server.turn(patience_of(10s));
    CHECK(server.lost().empty());
    second.say(meeting_message(meeting_kind::bye, meeting_end::limit));
    while (server.lost().empty()) server.turn(patience_of(10s));
    CHECK_THAT(server.lost(), contains("rank 2 of 3 has waited to the limit") && !contains("1"));
}

TEST_CASE("the end of a process that never came is told to those that wait for it") {
    detail::meeting_server server(loopback_endpoint(), 2, detail::job_key(), true);
    server.put_own(mine);
    CHECK(server.missing() == std::vector<std::uint32_t>{1});
    CHECK(server.lost().empty());
    server.ended(1);
    CHECK_THAT(server.lost(), contains("rank 1 of 2 has gone"));
    CHECK(server.all_gone());
    CHECK_FALSE(server.complete(0));
}

TEST_CASE("an address that is taken is an error with the address") {
    detail::meeting_server one(loopback_endpoint(), 2, detail::job_key(), false);
    const std::string address = one.address();
    const auto [code, text] = error_of([&] {
        detail::meeting_server two(loopback_endpoint(address.substr(address.rfind(':') + 1)), 2,
                                   detail::job_key(), false);
    });
    CHECK(code == errc::address_in_use);
    CHECK_THAT(text, contains(address));
}

}  // namespace test_service_detail_meeting_server

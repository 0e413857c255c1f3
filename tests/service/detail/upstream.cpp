#include <rdmacoro/service/detail/upstream.hpp>

#include "support/calls_pair.hpp"

#include <array>
#include <cstring>

namespace test_service_detail_upstream {

using namespace rdmacoro;
using namespace rdmacoro::test;
using detail::call_kind;
using detail::call_tag;
using detail::note_kind;

namespace {

struct up {
    static constexpr method<"up.keys", std::uint64_t(stream<row>)> keys{};
};

/// A message about a call.
detail::note_head note(note_kind kind, std::uint32_t amount) {
    return {static_cast<std::uint32_t>(kind), amount, 0};
}
detail::answer_head head(detail::outcome_kind kind) { return {static_cast<std::uint32_t>(kind), 0}; }
template <class T>
std::span<const std::byte> bytes_of_one(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

/// Both ends of a connection, one with calls.
void run_against_raw(const variant& over, task<> (*body)(any_calls& mine, calls_link link)) {
    run_ends(over, [body](calls_link link) -> task<> {
        const auto mine = link.a.make_calls();
        co_await body(*mine, link);
    });
}

}  // namespace

CALLS_CASE("a peer that gives too much room, or for other calls, gets a window of items") {
    run_against_raw(over, [](any_calls& client, calls_link link) -> task<> {
        auto& raw = link.b;
        auto rows = co_await client.open(up::keys);
        const auto request = co_await raw.recv_lent(detail::first_requests);
        const std::uint64_t number = detail::call_number(request.tag());
        CHECK((number & detail::caller_writes_bit) != 0);
        for (const std::uint32_t amount : {7U, 0xffffffffU, 0x80000000U}) {
            const detail::note_head room = note(note_kind::room, amount);
            co_await raw.send(bytes_of_one(room), call_tag(call_kind::note, number));
            co_await raw.send(bytes_of_one(room), call_tag(call_kind::note, number + 1));
        }
        const detail::note_head other = note(note_kind::left, 0);
        co_await raw.send(bytes_of_one(other), call_tag(call_kind::note, number ^ 5));
        std::uint32_t written = 0;
        std::string said;
        auto writing = start([](auto& to, std::uint32_t& n, std::string& text) -> task<> {
            try {
                for (;; ++n) co_await to.write(n, 0.5F);
            } catch (const error& ended) {
                text = ended.what();
                if (ended.code() != call_errc::reader_left) throw;
            }
        }(rows, written, said));
        const tag_type items = call_tag(call_kind::caller_item, number);
        std::uint32_t came = 0;
        for (;;) {
            const auto item = co_await as_result(timeout(raw.recv_lent(items), 50ms));
            if (!item) break;
            detail::answer_head several{};
            REQUIRE(item->size() > sizeof several);
            std::memcpy(&several, item->bytes().data(), sizeof several);
            CHECK(item->size() == sizeof several + 8 * static_cast<std::size_t>(several.code));
            came += static_cast<std::uint32_t>(several.code);
        }
        // Each of the three words about this call may have come when the window was used up.
        CHECK(came >= detail::stream_window);
        CHECK(came <= 4 * detail::stream_window);
        CHECK(written == came);
        // The handler has left: the writer hears of it, and sends one end.
        const detail::note_head left = note(note_kind::left, 0);
        co_await raw.send(bytes_of_one(left), call_tag(call_kind::note, number));
        co_await writing;
        CHECK_THAT(said, Catch::Contains("up.keys"));
        co_await raw.send(bytes_of_one(left), call_tag(call_kind::note, number));
        detail::answer_head end{};
        const auto last = co_await raw.recv_lent(items);
        REQUIRE(last.size() == sizeof end);
        std::memcpy(&end, last.bytes().data(), sizeof end);
        CHECK(end.outcome != static_cast<std::uint32_t>(detail::outcome_kind::value));
        const std::array<std::byte, 3> nonsense{};
        co_await raw.send(std::span<const std::byte>(nonsense), call_tag(call_kind::answer, number));
        const auto result = co_await as_result(rows.finish());
        CHECK(result.error() == call_errc::malformed_answer);
        const auto once = co_await as_result(timeout(raw.recv_lent(items), 20ms));
        CHECK_FALSE(once);
    });
}

CALLS_CASE("items that are none end the call, and no other") {
    run_against_raw(over, [](any_calls& server, calls_link link) -> task<> {
        auto& raw = link.b;
        shop there;
        there.store.on(method<"kv.keys", std::uint64_t(stream<row>)>{},
                       [](call_context&, stream_reader<row>& in) -> task<std::uint64_t> {
                           std::uint64_t all = 0;
                           while (const auto one = co_await in.next()) all += one->key;
                           co_return all;
                       });
        server.serve(there.store);
        using keys = method<"kv.keys", std::uint64_t(stream<row>)>;
        const detail::request_head request{keys::number, keys::signature, 0};
        const detail::answer_head value{static_cast<std::uint32_t>(detail::outcome_kind::value), 1};
        const detail::answer_head end = head(detail::outcome_kind::end);
        struct item {
            detail::answer_head first;
            row value;
        };
        const auto answered = [&raw](std::uint64_t number) -> task<detail::answer_head> {
            detail::answer_head outcome{};
            const auto got = co_await raw.recv_lent(call_tag(call_kind::answer, number));
            std::memcpy(&outcome, got.bytes().data(), sizeof outcome);
            co_return outcome;
        };
        const auto left_note = [&raw](std::uint64_t number) -> task<> {
            const auto got = co_await raw.recv_lent(call_tag(call_kind::note, number));
            detail::note_head said{};
            std::memcpy(&said, got.bytes().data(), sizeof said);
            CHECK(said.kind == static_cast<std::uint32_t>(note_kind::left));
        };
        const auto malformed = static_cast<std::int32_t>(call_errc::malformed_request);
        for (std::uint64_t n = 0; n < 3; ++n) {
            const std::uint64_t number = detail::caller_writes_bit | (n + 1);
            const tag_type items = call_tag(call_kind::caller_item, number);
            const tag_type asked =
                call_tag(call_kind::request, number, keys::service) | detail::first_call_bit;
            co_await raw.send(bytes_of_one(request), asked);
            const item good{value, {5, 0.5F}};
            co_await raw.send(bytes_of_one(good), items);
            // Too short for a head, without a value, and with more than one.
            std::array<std::byte, 24> bytes{};
            std::memcpy(bytes.data(), &value, sizeof value);
            co_await raw.send(std::span<const std::byte>(bytes).first(n == 0 ? 3 : n == 1 ? 8 : 24), items);
            co_await left_note(number);
            const auto failed = co_await answered(number);
            CHECK(failed.outcome == static_cast<std::uint32_t>(detail::outcome_kind::call_error));
            CHECK(failed.code == malformed);
            co_await raw.send(bytes_of_one(good), items);
            co_await raw.send(bytes_of_one(end), items);
        }
        // A call of a method without a stream, by a caller that writes one all the same.
        const std::uint64_t other = detail::caller_writes_bit | 9;
        const detail::request_head wait{kv::add.number, kv::add.signature, 0};
        std::array<std::byte, sizeof wait + 16> add{};
        std::memcpy(add.data(), &wait, sizeof wait);
        co_await raw.send(std::span<const std::byte>(add),
                          call_tag(call_kind::request, other, kv::add.service) | detail::first_call_bit);
        co_await left_note(other);
        const auto sum = co_await answered(other);
        CHECK(sum.outcome == static_cast<std::uint32_t>(detail::outcome_kind::value));
        co_await raw.send(bytes_of_one(end), call_tag(call_kind::caller_item, other));
        // And one that never ends its streams: more of them than are waited for.
        for (std::uint64_t n = 0; n < 1100; ++n) {
            const std::uint64_t number = detail::caller_writes_bit | (n + 100);
            co_await raw.send(std::span<const std::byte>(add),
                              call_tag(call_kind::request, number, kv::add.service) | detail::first_call_bit);
            static_cast<void>(co_await answered(number));
        }
        while (there.store.running() != 0) co_await yield();
        const std::size_t left = co_await left_over(link.a);
        CHECK(left == 0);
        raw.abort();
        co_await server.drain();
    });
}

}  // namespace test_service_detail_upstream

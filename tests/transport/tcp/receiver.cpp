#include <rdmacoro/transport/tcp/receiver.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

#include <algorithm>
#include <cstdlib>

namespace test_transport_tcp_receiver {

using namespace rdmacoro;
using namespace rdmacoro::test;
using detail::tcp_frame;

namespace {

std::vector<std::byte> mixed_stream(std::vector<recorded_message>& expected) {
    std::vector<std::byte> stream;
    const std::size_t lengths[] = {0, 1, 8, 100, 4096, 4097, 9000, 70'000, 3};
    std::uint64_t number = 0;
    for (const std::size_t bytes : lengths) {
        const auto payload = pattern(bytes, static_cast<unsigned>(number));
        const auto one = message_frame(number, payload);
        stream.insert(stream.end(), one.begin(), one.end());
        expected.push_back({number++, payload, false});
    }
    return stream;
}

void check_all(const recording_sink& sink, const std::vector<recorded_message>& expected) {
    REQUIRE(sink.messages.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(sink.messages[i].number == expected[i].number);
        CHECK(sink.messages[i].payload == expected[i].payload);
    }
}

/// Stops the parser in mid-delivery, and reads the payload after that.
class stopping_sink final : public detail::tcp_upper {
public:
    stopping_sink(detail::tcp_receiver& from, detail::tcp_chunk_pool& chunks)
        : from_(from), chunks_(chunks) {}

    delivery deliver(const message_header&, std::span<const std::byte> payload) noexcept override {
        from_.stop();
        detail::tcp_chunk* next = chunks_.take();
        REQUIRE(next != nullptr);
        std::fill_n(next->bytes(), detail::tcp_chunk::capacity, std::byte{0xee});
        seen.assign(payload.begin(), payload.end());
        chunks_.drop(*next);
        return delivery::taken;
    }
    delivery begin_payload(const message_header&, std::size_t) noexcept override { return delivery::taken; }
    std::span<std::byte> payload_space() noexcept override { return {}; }
    void payload_arrived(std::size_t) noexcept override {}
    void writable() noexcept override {}
    void link_down(std::error_code) noexcept override {}

    std::vector<std::byte> seen;

private:
    detail::tcp_receiver& from_;
    detail::tcp_chunk_pool& chunks_;
};

class pausing_sink final : public detail::tcp_upper {
public:
    delivery deliver(const message_header&, std::span<const std::byte>) noexcept override {
        ++delivered;
        return delivery::pause;
    }
    delivery begin_payload(const message_header&, std::size_t) noexcept override { return delivery::taken; }
    std::span<std::byte> payload_space() noexcept override { return {}; }
    void payload_arrived(std::size_t) noexcept override {}
    void writable() noexcept override {}
    void link_down(std::error_code) noexcept override {}

    int delivered = 0;
};

}  // namespace

TEST_CASE("a payload stays readable until its delivery returns, also when the delivery stops the link") {
    std::vector<detail::region_entry> entries(4);
    detail::region_table table{entries};
    auto& chunks = *new detail::tcp_chunk_pool;
    {
        detail::tcp_operations operations;
        detail::tcp_server server{table};
        detail::tcp_receiver receiver{chunks, operations, server};
        stopping_sink sink{receiver, chunks};
        const auto payload = pattern(1000);
        const auto stream = message_frame(1, payload);
        iovec pieces[2];
        REQUIRE(receiver.space(sink, pieces) == 1);
        REQUIRE(pieces[0].iov_len >= stream.size());
        std::copy(stream.begin(), stream.end(), static_cast<std::byte*>(pieces[0].iov_base));
        receiver.arrived(sink, stream.size());
        unsigned budget = 1;
        CHECK(receiver.parse(sink, budget) == detail::tcp_receiver::state::stopped);
        CHECK(sink.seen == payload);
        CHECK(chunks.in_use() == 0);
    }
    chunks.abandon();
}

TEST_CASE(
    "a sink that pauses gets the next message in the next turn, and the budget is not used up by that") {
    std::vector<detail::region_entry> entries(4);
    detail::region_table table{entries};
    auto& chunks = *new detail::tcp_chunk_pool;
    {
        detail::tcp_operations operations;
        detail::tcp_server server{table};
        detail::tcp_receiver receiver{chunks, operations, server};
        pausing_sink sink;
        auto stream = message_frame(1, pattern(100));
        const auto second = message_frame(2, pattern(50));
        stream.insert(stream.end(), second.begin(), second.end());
        iovec pieces[2];
        REQUIRE(receiver.space(sink, pieces) == 1);
        REQUIRE(pieces[0].iov_len >= stream.size());
        std::copy(stream.begin(), stream.end(), static_cast<std::byte*>(pieces[0].iov_base));
        receiver.arrived(sink, stream.size());
        unsigned budget = 64;
        CHECK(receiver.parse(sink, budget) == detail::tcp_receiver::state::unfinished);
        CHECK(sink.delivered == 1);
        CHECK(budget == 63);
        CHECK(receiver.parse(sink, budget) == detail::tcp_receiver::state::unfinished);
        CHECK(sink.delivered == 2);
        CHECK(receiver.parse(sink, budget) == detail::tcp_receiver::state::hungry);
        CHECK(sink.delivered == 2);
        CHECK(budget == 62);
    }
    chunks.abandon();
}

TEST_CASE("frames may be cut anywhere on their way") {
    raw_pair p;
    std::vector<recorded_message> expected;
    const auto stream = mixed_stream(expected);
    const auto step = GENERATE(1u, 2u, 3u, 7u, 15u, 16u, 17u, 4095u, 4096u, 8191u);
    for (std::size_t at = 0; at < stream.size();) {
        // Byte by byte around heads is what matters; in the midst of long payloads it only takes time.
        const std::size_t now =
            std::min<std::size_t>(at > 20'000 && at + 5000 < stream.size() ? 4999 : step, stream.size() - at);
        p.peer.send(p, std::span(stream).subspan(at, now));
        p.turns(2);
        at += now;
    }
    p.until([&] { return p.b.sink.count == expected.size(); });
    check_all(p.b.sink, expected);
}

TEST_CASE("frames that come together are taken apart") {
    raw_pair p;
    std::vector<recorded_message> expected;
    std::vector<std::byte> stream;
    for (unsigned i = 0; i < 5000; ++i) {
        const auto payload = pattern(i % 60, i);
        const auto one = message_frame(i, payload);
        stream.insert(stream.end(), one.begin(), one.end());
        expected.push_back({i, payload, false});
    }
    p.peer.send(p, stream);
    p.until([&] { return p.b.sink.count == expected.size(); });
    check_all(p.b.sink, expected);
}

TEST_CASE("data of gets and puts may be cut anywhere on its way, too") {
    raw_pair p;
    std::vector<std::byte> memory(10'000);
    region open = p.server.register_memory(memory, access_rights::all);
    const auto source = pattern(10'000);
    std::vector<std::byte> into(10'000);
    recording_completion got;
    REQUIRE(p.b.link->get({0x1000, into.size(), 0x123456789, access_rights::all}, into, got) ==
            post_result::posted);
    const std::uint32_t id = detail::get_request::load(p.peer.receive(p, 36).data() + 4).operation;

    std::vector<std::byte> stream;
    const auto add = [&stream](const std::vector<std::byte>& one) {
        stream.insert(stream.end(), one.begin(), one.end());
    };
    const auto part = [&source](std::size_t at, std::size_t bytes) {
        return std::span(source).subspan(at, bytes);
    };
    const std::uint64_t at = open.remote().address;
    const std::uint64_t key = open.remote().key;
    add(one_sided_frame(tcp_frame::put_data, detail::put_data{key, at, 10'000, 3}, part(0, 10)));
    add(one_sided_frame(tcp_frame::get_data, detail::get_data{id}, part(0, 5000)));
    add(message_frame(1, part(0, 20)));
    add(one_sided_frame(tcp_frame::put_data, detail::put_data{key, at + 10, 9990, 3}, part(10, 9990)));
    add(one_sided_frame(tcp_frame::get_data, detail::get_data{id}, part(5000, 5000)));
    add(one_sided_frame(tcp_frame::one_sided_status, detail::one_sided_status{id, errc::ok}));
    add(message_frame(2, {}));
    const auto step = GENERATE(1u, 5u, 13u, 1000u, 100'000u);
    for (std::size_t sent = 0; sent < stream.size();) {
        const std::size_t now = std::min<std::size_t>(step, stream.size() - sent);
        p.peer.send(p, std::span(stream).subspan(sent, now));
        p.turns(1);
        sent += now;
    }
    p.until([&] { return p.b.sink.count == 2 && got.calls == 1; });
    CHECK_FALSE(got.outcome);
    CHECK(into == source);
    CHECK(memory == source);
    CHECK(p.peer.receive(p, 12) ==
          one_sided_frame(tcp_frame::one_sided_status, detail::one_sided_status{3, errc::ok}));
}

TEST_CASE("a peer that sends what no peer may send loses its link, and only that one") {
    raw_pair p;
    auto good = p.connect(p.listener);
    tcp_end a;
    tcp_end b;
    a.link = std::make_unique<recorded_link>(std::move(good.client), a.sink);
    b.link = std::make_unique<recorded_link>(std::move(good.server), b.sink);

    std::vector<std::byte> bad;
    SECTION("an unknown kind") {
        bad = frame(static_cast<tcp_frame>(GENERATE(0u, 6u, 9u, 15u)), 0, std::vector<std::byte>(64));
    }
    SECTION("a message that is too long") {
        bad = frame(tcp_frame::message, GENERATE(detail::tcp_most_message + 1, std::size_t{0x0fff'ffff}),
                    std::vector<std::byte>(64));
    }
    SECTION("a part that is too long") {
        bad = frame(tcp_frame::put_data, 0x0fff'ffff, std::vector<std::byte>(64));
    }
    SECTION("random bytes") {
        // Any first four bytes that are no good word; the rest is noise.
        bad = pattern(100'000, GENERATE(1u, 2u, 3u));
        bad[3] = std::byte{0xf7};
    }
    SECTION("a good message before it") {
        bad = message_frame(1, pattern(5));
        bad.resize(bad.size() + 100, std::byte{0xff});
    }
    p.peer.send(p, bad);
    p.until([&] { return p.b.sink.downs == 1; });
    CHECK(p.b.sink.reason == errc::protocol_violation);
    p.until([&] { return p.peer.ended(); });

    recording_completion c;
    REQUIRE(a.link->post_copied(header_of(9), pattern(9)) == post_result::done);
    p.until([&] { return b.sink.count == 1; });
    CHECK(b.sink.messages[0].payload == pattern(9));
}

TEST_CASE("a peer that goes in mid-frame loses its link as one that goes at any other time") {
    raw_pair p;
    const auto whole = message_frame(1, pattern(50'000));
    const auto bytes = GENERATE(0u, 1u, 4u, 15u, 16u, 17u, 49'000u);
    const bool cut = GENERATE(false, true);
    p.peer.send(p, std::span(whole).first(bytes));
    p.turns(3);
    if (cut) {
        p.peer.reset();
    } else {
        p.peer.hang_up();
    }
    p.until([&] { return p.b.sink.downs == 1; });
    CHECK(p.b.sink.reason == errc::peer_lost);
    CHECK(p.b.sink.count == 0);
}

}  // namespace test_transport_tcp_receiver

#include <rdmacoro/transport/tcp/one_sided.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

#include <rdmacoro/transport/tcp/engine.hpp>

#include <deque>

namespace test_transport_tcp_one_sided {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

std::error_code get(tcp_pair& p, const remote_region& there, std::span<std::byte> into) {
    recording_completion c;
    REQUIRE(p.a.link->get(there, into, c) == post_result::posted);
    p.until([&] { return c.calls == 1; });
    return c.outcome;
}
std::error_code put(tcp_pair& p, std::span<const std::byte> from, const remote_region& there) {
    recording_completion c;
    REQUIRE(p.a.link->put(from, there, c) == post_result::posted);
    p.until([&] { return c.calls == 1; });
    return c.outcome;
}

}  // namespace

TEST_CASE("get and put of any length move exactly the bytes that were named") {
    tcp_pair p;
    const auto bytes = GENERATE(0u, 1u, 8u, 4096u, 4097u, 16'384u, 262'144u, 262'145u, 3'000'001u);
    const auto source = pattern(bytes + 20, 5);
    std::vector<std::byte> memory = source;
    region open = p.server.register_memory(memory, access_rights::all);

    std::vector<std::byte> into(bytes);
    CHECK_FALSE(get(p, open.remote().part(7, bytes), into));
    CHECK(std::equal(into.begin(), into.end(), source.begin() + 7));

    const auto fresh = pattern(bytes, 77);
    CHECK_FALSE(put(p, fresh, open.remote().part(9, bytes)));
    CHECK(std::equal(fresh.begin(), fresh.end(), memory.begin() + 9));
    CHECK(std::equal(memory.begin(), memory.begin() + 9, source.begin()));
    CHECK(std::equal(memory.begin() + 9 + bytes, memory.end(), source.begin() + 9 + bytes));
}

TEST_CASE(
    "a get or put that is not allowed ends with its own code, touches nothing and leaves the link usable") {
    tcp_pair p;
    const auto bytes = GENERATE(0u, 100u, 20'000u, 1'000'000u);
    std::vector<std::byte> memory = pattern(bytes);
    region all = p.server.register_memory(memory, access_rights::all);
    region readable = p.server.register_memory(memory, access_rights::remote_read);
    region writable = p.server.register_memory(memory, access_rights::remote_write);
    std::vector<std::byte> into(bytes);
    const auto other = pattern(bytes, 9);

    remote_region wrong = all.remote();
    wrong.key ^= 0x10000;
    CHECK(get(p, wrong, into) == errc::bad_key);
    CHECK(put(p, other, wrong) == errc::bad_key);

    CHECK(get(p, writable.remote(), into) == errc::access_denied);
    CHECK(put(p, other, readable.remote()) == errc::access_denied);

    CHECK(get(p, all.remote().part(1, bytes), into) == errc::out_of_bounds);
    CHECK(put(p, other, all.remote().part(1, bytes)) == errc::out_of_bounds);
    CHECK(put(p, other, all.remote().part(static_cast<std::uint64_t>(-1), bytes)) == errc::out_of_bounds);

    const remote_region gone = all.remote();
    all.reset();
    CHECK(get(p, gone, into) == errc::bad_key);
    CHECK(put(p, other, gone) == errc::bad_key);

    CHECK(memory == pattern(bytes));
    CHECK(into == std::vector<std::byte>(bytes));
    CHECK_FALSE(get(p, readable.remote(), into));
    CHECK(into == memory);
    CHECK(p.a.sink.downs + p.b.sink.downs == 0);
}

TEST_CASE("memory that is deregistered while a get reads it is left alone, and the get ends with an error") {
    tcp_pair p;
    const auto polls = GENERATE(1u, 2u, 3u, 4u, 6u);
    auto memory = std::make_unique<std::vector<std::byte>>(pattern(20'000'000));
    region open = p.server.register_memory(*memory, access_rights::all);
    std::vector<std::byte> into(memory->size());
    recording_completion c;
    REQUIRE(p.a.link->get(open.remote(), into, c) == post_result::posted);
    p.turns(polls);
    REQUIRE(c.calls == 0);
    open.reset();
    memory.reset();
    p.until([&] { return c.calls == 1; });
    CHECK(c.outcome == errc::bad_key);
    REQUIRE(p.send(p.a, 1, pattern(10)));
    p.until([&] { return p.b.sink.count == 1; });
}

TEST_CASE("memory that is deregistered while a put writes it is left alone, and the put ends with an error") {
    tcp_pair p;
    const auto polls = GENERATE(1u, 2u, 3u, 4u, 6u);
    auto memory = std::make_unique<std::vector<std::byte>>(20'000'000);
    region open = p.server.register_memory(*memory, access_rights::all);
    const auto source = pattern(memory->size());
    recording_completion c;
    REQUIRE(p.a.link->put(source, open.remote(), c) == post_result::posted);
    p.turns(polls);
    REQUIRE(c.calls == 0);
    open.reset();
    memory.reset();
    p.until([&] { return c.calls == 1; });
    CHECK(c.outcome == errc::bad_key);
    REQUIRE(p.send(p.a, 1, pattern(10)));
    p.until([&] { return p.b.sink.count == 1; });
}

TEST_CASE("messages pass between the parts of long gets and puts") {
    tcp_pair p;
    std::vector<std::byte> memory = pattern(30'000'000);
    region open = p.server.register_memory(memory, access_rights::all);
    std::vector<std::byte> into(memory.size());
    std::vector<std::byte> from(10'000'000);
    recording_completion got;
    recording_completion put_done;
    REQUIRE(p.a.link->get(open.remote(), into, got) == post_result::posted);
    REQUIRE(p.a.link->put(from, open.remote().part(0, from.size()), put_done) == post_result::posted);
    p.turns(2);
    REQUIRE(p.send(p.a, 1, pattern(10)));
    REQUIRE(p.send(p.b, 2, pattern(10)));
    p.until([&] { return p.a.sink.count == 1 && p.b.sink.count == 1; });
    CHECK(got.calls == 0);
    p.until([&] { return got.calls == 1 && put_done.calls == 1; });
}

TEST_CASE("more operations than may be unanswered at a time wait for their turn") {
    tcp_pair p;
    std::vector<std::byte> memory(8 * 3000);
    region open = p.server.register_memory(memory, access_rights::all);
    std::deque<recording_completion> completions;
    std::vector<std::uint64_t> values(3000);
    for (std::uint64_t i = 0; i < values.size(); ++i) {
        values[i] = i;
        const auto bytes = std::as_bytes(std::span(values)).subspan(8 * i, 8);
        REQUIRE(p.a.link->put(bytes, open.remote().part(8 * i, 8), completions.emplace_back()) ==
                post_result::posted);
    }
    std::vector<std::uint64_t> back(3000);
    for (std::uint64_t i = 0; i < values.size(); ++i) {
        const auto bytes = std::as_writable_bytes(std::span(back)).subspan(8 * i, 8);
        REQUIRE(p.a.link->get(open.remote().part(8 * i, 8), bytes, completions.emplace_back()) ==
                post_result::posted);
    }
    p.until([&] {
        for (const auto& c : completions) {
            if (c.calls == 0) return false;
        }
        return true;
    });
    for (const auto& c : completions) CHECK_FALSE(c.outcome);
    CHECK(back == values);
}

TEST_CASE("both ends get from and put to each other at a time") {
    tcp_pair p;
    std::vector<std::byte> memory[2] = {pattern(5'000'000, 1), pattern(5'000'000, 2)};
    region open[2] = {p.client.register_memory(memory[0], access_rights::all),
                      p.server.register_memory(memory[1], access_rights::all)};
    std::vector<std::byte> into[2] = {std::vector<std::byte>(5'000'000), std::vector<std::byte>(5'000'000)};
    std::vector<std::byte> landing[2] = {std::vector<std::byte>(2'000'000),
                                         std::vector<std::byte>(2'000'000)};
    region land[2] = {p.client.register_memory(landing[0], access_rights::remote_write),
                      p.server.register_memory(landing[1], access_rights::remote_write)};
    recording_completion done[4];
    REQUIRE(p.a.link->get(open[1].remote(), into[0], done[0]) == post_result::posted);
    REQUIRE(p.b.link->get(open[0].remote(), into[1], done[1]) == post_result::posted);
    REQUIRE(p.a.link->put(std::span(memory[0]).first(2'000'000), land[1].remote(), done[2]) ==
            post_result::posted);
    REQUIRE(p.b.link->put(std::span(memory[1]).first(2'000'000), land[0].remote(), done[3]) ==
            post_result::posted);
    p.until([&] { return done[0].calls + done[1].calls + done[2].calls + done[3].calls == 4; });
    for (const auto& c : done) CHECK_FALSE(c.outcome);
    CHECK(into[0] == memory[1]);
    CHECK(into[1] == memory[0]);
    CHECK(std::equal(landing[1].begin(), landing[1].end(), memory[0].begin()));
    CHECK(std::equal(landing[0].begin(), landing[0].end(), memory[1].begin()));
}

TEST_CASE("a get that the server answers slowly holds up neither its reader nor its memory") {
    raw_pair p;
    // Many long gets from a peer that reads nothing: the server's memory stays what it was.
    std::vector<std::byte> memory = pattern(4'000'000);
    region open = p.server.register_memory(memory, access_rights::all);
    for (std::uint32_t i = 0; i < detail::most_outstanding; ++i) {
        p.peer.send(p, one_sided_frame(
                           detail::tcp_frame::get_request,
                           detail::get_request{open.remote().key, open.remote().address, memory.size(), i}));
    }
    p.peer.send(p, message_frame(5, pattern(10)));
    p.until([&] { return p.b.sink.count == 1; });
    p.turns(100);
    CHECK(p.server.chunks() <= 4);
    const auto first = p.peer.receive(p, 12 + 262'144);
    CHECK(std::equal(first.begin() + 12, first.end(), memory.begin()));
}

TEST_CASE("a get or put that finds no memory for its request goes out when there is some") {
    tcp_world w;
    tcp_listener listener = w.listen();
    auto made = w.connect(listener);
    detail::tcp_session* const session = made.client.release();
    detail::tcp_chunk_pool& pool = session->engine().chunks();
    tcp_end a;
    tcp_end b;
    a.link = std::make_unique<recorded_link>(tcp_connection(*session), a.sink);
    b.link = std::make_unique<recorded_link>(std::move(made.server), b.sink);
    w.turns(100);
    std::vector<std::byte> memory = pattern(1000);
    const region open = w.server.register_memory(memory, access_rights::all);
    std::vector<std::byte> here(memory.size());
    recording_completion c;
    const bool gets = GENERATE(true, false);
    std::vector<detail::tcp_chunk*> taken;
    while (detail::tcp_chunk* one = pool.take()) taken.push_back(one);
    CHECK(taken.size() > 1000);
    const post_result answer =
        gets ? a.link->get(open.remote(), here, c) : a.link->put(here, open.remote(), c);
    REQUIRE(answer == post_result::posted);
    const std::uint64_t before = w.client.system_calls();
    w.turns(100);
    CHECK(c.calls == 0);
    CHECK(w.client.system_calls() == before);
    for (detail::tcp_chunk* one : taken) pool.drop(*one);
    w.turns(1);
    w.until([&] { return c.calls == 1; });
    CHECK_FALSE(c.outcome);
    CHECK(here == memory);
}

// The judgement of each frame of a peer, as a table: the frames after which the link must go down.
TEST_CASE("a peer that breaks the rules of get and put loses its link") {
    raw_pair p;
    using detail::tcp_frame;
    std::vector<std::byte> memory = pattern(1000);
    region open = p.server.register_memory(memory, access_rights::all);
    const std::uint64_t key = open.remote().key;
    const std::uint64_t at = open.remote().address;
    std::vector<std::byte> bad;
    const auto add = [&bad](const std::vector<std::byte>& one) {
        bad.insert(bad.end(), one.begin(), one.end());
    };
    const auto four = pattern(4);

    SECTION("data of a get that nobody asked for") {
        add(one_sided_frame(tcp_frame::get_data, detail::get_data{0}, four));
    }
    SECTION("data of an operation that does not exist") {
        add(one_sided_frame(tcp_frame::get_data, detail::get_data{0xffff'ffff}, four));
    }
    SECTION("a status of no operation") {
        add(one_sided_frame(tcp_frame::one_sided_status, detail::one_sided_status{0, errc::ok}));
    }
    SECTION("a get request with data") {
        add(frame(tcp_frame::get_request, 4, std::vector<std::byte>(32), four));
    }
    SECTION("get data without data") { add(one_sided_frame(tcp_frame::get_data, detail::get_data{0})); }
    SECTION("more data of a put than it said") {
        add(one_sided_frame(tcp_frame::put_data, detail::put_data{key, at, 3, 0}, four));
    }
    SECTION("a put that begins with no data though it has some") {
        add(one_sided_frame(tcp_frame::put_data, detail::put_data{key, at, 4, 0}));
    }
    SECTION("another put in the middle of one") {
        add(one_sided_frame(tcp_frame::put_data, detail::put_data{key, at, 8, 0}, four));
        add(one_sided_frame(tcp_frame::put_data, detail::put_data{key, at + 4, 4, 1}, four));
    }
    SECTION("a put that jumps") {
        add(one_sided_frame(tcp_frame::put_data, detail::put_data{key, at, 8, 0}, four));
        add(one_sided_frame(tcp_frame::put_data, detail::put_data{key, at + 5, 4, 0}, four));
    }
    SECTION("a put that changes its key") {
        add(one_sided_frame(tcp_frame::put_data, detail::put_data{key, at, 8, 0}, four));
        add(one_sided_frame(tcp_frame::put_data, detail::put_data{key + 1, at + 4, 4, 0}, four));
    }
    SECTION("a put that changes its length") {
        add(one_sided_frame(tcp_frame::put_data, detail::put_data{key, at, 8, 0}, four));
        add(one_sided_frame(tcp_frame::put_data, detail::put_data{key, at + 4, 100, 0}, four));
    }
    SECTION("more gets than may be unanswered") {
        for (std::uint32_t i = 0; i < 2 * detail::most_outstanding; ++i) {
            add(one_sided_frame(tcp_frame::get_request, detail::get_request{key, at, 1000, i}));
        }
    }
    p.peer.send(p, bad);
    p.until([&] { return p.b.sink.downs == 1; });
    CHECK(p.b.sink.reason == errc::protocol_violation);
    CHECK(memory.size() == 1000);
}

TEST_CASE("a peer that answers a get wrongly loses its link, and the get ends") {
    raw_pair p;
    using detail::tcp_frame;
    std::vector<std::byte> into(100);
    recording_completion c;
    REQUIRE(p.b.link->get({0x1000, 100, 0x12345678, access_rights::all}, into, c) == post_result::posted);
    const auto request = p.peer.receive(p, 36);
    const detail::get_request asked = detail::get_request::load(request.data() + 4);
    CHECK(asked.address == 0x1000);
    CHECK(asked.length == 100);
    const std::uint32_t id = asked.operation;
    SECTION("more data than was asked for") {
        p.peer.send(p, one_sided_frame(tcp_frame::get_data, detail::get_data{id}, pattern(101)));
    }
    SECTION("more data, in two frames") {
        p.peer.send(p, one_sided_frame(tcp_frame::get_data, detail::get_data{id}, pattern(60)));
        p.peer.send(p, one_sided_frame(tcp_frame::get_data, detail::get_data{id}, pattern(60)));
    }
    SECTION("ok before all data has come") {
        p.peer.send(p, one_sided_frame(tcp_frame::get_data, detail::get_data{id}, pattern(60)));
        p.peer.send(p, one_sided_frame(tcp_frame::one_sided_status, detail::one_sided_status{id, errc::ok}));
    }
    SECTION("canceled, which nothing here has asked for") {
        p.peer.send(
            p, one_sided_frame(tcp_frame::one_sided_status, detail::one_sided_status{id, errc::canceled}));
    }
    SECTION("a status that means nothing") {
        auto bad = one_sided_frame(tcp_frame::one_sided_status, detail::one_sided_status{id, errc::ok});
        bad[8] = std::byte{99};
        p.peer.send(p, bad);
    }
    p.until([&] { return p.b.sink.downs == 1; });
    CHECK(p.b.sink.reason == errc::protocol_violation);
    CHECK(c.calls == 1);
    CHECK(c.outcome == errc::protocol_violation);
}

}  // namespace test_transport_tcp_one_sided

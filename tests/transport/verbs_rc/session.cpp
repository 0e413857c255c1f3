#include <rdmacoro/transport/verbs_rc/session.hpp>

#include "verbs/pair.hpp"

#include "support/catch.hpp"
#include "support/held.hpp"

#include <array>
#include <vector>

namespace test_transport_verbs_rc_session {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("messages sent before a close arrive, then the peer's link goes down") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    for (const bool destroyed : {false, true}) {
        for (const unsigned messages : {0u, 1u, 40u}) {
            verbs_end a;
            verbs_end b;
            w.link(a, b);
            for (std::uint64_t n = 0; n < messages; ++n)
                post_for_sure(w, a, n, pattern(n % 3 == 0 ? 3000 : 8));
            if (destroyed) {
                a.link.reset();
                CHECK(a.sink.downs == 0);
            } else {
                a.link->close(make_error_code(errc::closed));
                CHECK(a.sink.downs == 1);
                CHECK(a.sink.reason == errc::closed);
                recording_completion none;
                CHECK(a.link->post(header_of(1), {}, none) == post_result::failed);
            }
            w.until([&] { return b.sink.downs == 1; });
            CHECK(b.sink.reason == errc::peer_lost);
            CHECK(b.sink.count == messages);
            CHECK_FALSE(b.sink.after_down);
        }
    }
    w.until_all_gone();
}

TEST_CASE("memory that was exposed over a link is its owner's alone when the link is down") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    for (int round = 0; round < 10; ++round) {
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        std::vector<std::byte> memory(4096);
        region open = a.link->expose(memory, access_rights::all);
        REQUIRE(open);
        const remote_region there = open.remote();
        const auto data = pattern(3000);
        recording_completion none;
        // The device has much to send when the link is closed: in some rounds more than a close waits for.
        for (std::uint64_t n = 0; n < 60 && a.link->post(header_of(n), data, none) == post_result::done;
             ++n) {}
        if (round % 2 == 0) {
            a.link->close(make_error_code(errc::closed));
        } else {
            a.link.reset();
        }
        const auto late = pattern(memory.size());
        recording_completion put;
        if (b.link->put(late, there, put) == post_result::posted) w.until([&] { return put.calls != 0; });
        CHECK((put.calls == 0 || put.outcome));
        CHECK(memory == std::vector<std::byte>(4096));
        b.link.reset();
        // The region's end is the last that it waits for, where the owner has gone before.
        if (round % 4 == 1) {
            w.until([&] { return w.server.connections() == 0; });
            CHECK(w.client.connections() == 1);
        }
        open = {};
        a.link.reset();
        w.until_all_gone();
    }
}

TEST_CASE("links, connections and domains close in any order, and no descriptor is left") {
    FOR_EACH_VERBS_DEVICE(way);
    for (const int order : {0, 1, 2, 3, 4, 5}) {
        CAPTURE(order);
        const std::size_t descriptors = open_descriptors();
        {
            verbs_world w(way.options);
            {
                verbs_end a;
                verbs_end b;
                w.link(a, b);
                post_for_sure(w, a, 1);
                auto unused = w.connect();
                switch (order) {
                    case 0:
                        a.link.reset();
                        b.link.reset();
                        break;
                    case 1:
                        b.link.reset();
                        a.link.reset();
                        break;
                    case 2:
                        unused.client.reset();
                        w.turns(50);
                        break;
                    case 3:
                        unused.server.reset();
                        a.link.reset();
                        break;
                    case 4:
                        a.link->close(make_error_code(errc::closed));
                        b.link->close(make_error_code(errc::closed));
                        break;
                    default: break;
                }
            }
            if (order % 2 == 0) w.until_all_gone();
        }
        CHECK(open_descriptors() == descriptors);
    }
}

TEST_CASE("connections that follow each other, each after the end of the one before, map nothing new") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    static mappings before;
    static mappings after;
    const auto one = [&](int way_to_end) {
        {
            verbs_end a;
            verbs_end b;
            w.link(a, b);
            if (way_to_end == 1) a.link->close(make_error_code(errc::closed));
            if (way_to_end == 2) b.link.reset();
        }
        w.until_all_gone();
    };
    for (int n = 0; n < 6; ++n) one(n % 3);
    before.read();
    for (int n = 0; n < 30; ++n) one(n % 3);
    after.read();
    CAPTURE(mappings::difference(before, after));
    CHECK(after.sum() == before.sum());
}

TEST_CASE("a listener closes with clients that were not accepted") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    verbs_listener listening = w.on.run(w.server.listen("*:0"));
    std::vector<verbs_connection> clients;
    for (int n = 0; n < 5; ++n) clients.push_back(w.on.run(w.client.connect(listening.address())));
    listening = verbs_listener();
    std::vector<verbs_end> ends(clients.size());
    for (std::size_t n = 0; n < clients.size(); ++n)
        ends[n].link = std::make_unique<verbs_recorded_link>(std::move(clients[n]), ends[n].sink);
    for (verbs_end& e : ends) {
        w.until([&] { return e.sink.downs == 1; });
        CHECK(e.sink.reason == errc::peer_lost);
        e.link.reset();
    }
    w.until_all_gone();
}

TEST_CASE("closing ends gets and puts that are under way, and their memory is not touched afterwards") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    std::vector<std::byte> there(std::size_t{4} << 20, std::byte{1});
    std::vector<std::byte> here(there.size());
    const region open = w.server.register_memory(there, access_rights::all);
    for (const bool by_peer : {false, true}) {
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        recording_completion moved[4];
        for (unsigned n = 0; n < 4; ++n) {
            const post_result answer = n % 2 == 0 ? a.link->get(open.remote(), here, moved[n])
                                                  : a.link->put(here, open.remote(), moved[n]);
            REQUIRE(answer == post_result::posted);
        }
        if (by_peer) {
            b.link.reset();
            w.until([&] { return a.sink.downs == 1; });
        } else {
            a.link->close(make_error_code(errc::closed));
        }
        for (const recording_completion& m : moved) {
            CHECK(m.calls == 1);
            const bool ended_well = !m.outcome || m.outcome == (by_peer ? errc::peer_lost : errc::closed);
            CAPTURE(m.outcome.message(), by_peer);
            CHECK(ended_well);
        }
        // The last one is cut off; but siw, and an adapter of hardware, may move all of it before the peer's close is over.
        if (!by_peer || way.rxe) CHECK(moved[3].outcome == (by_peer ? errc::peer_lost : errc::closed));
        std::fill(here.begin(), here.end(), std::byte{0x77});
        w.turns(200);
        CHECK(std::all_of(here.begin(), here.end(), [](std::byte x) { return x == std::byte{0x77}; }));
    }
}

TEST_CASE("a queue pair that is forced into its error state ends the link at both ends") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    ibv_qp_attr broken{};
    broken.qp_state = IBV_QPS_ERR;
    REQUIRE(::ibv_modify_qp(a.link->queue_pair(), &broken, IBV_QP_STATE) == 0);
    // Found out at the latest by the next post.
    recording_completion none;
    w.until([&] {
        static_cast<void>(a.link->post(header_of(1), {}, none));
        return a.sink.downs == 1 && b.sink.downs == 1;
    });
    CHECK(a.sink.reason == errc::peer_lost);
    CHECK(b.sink.reason == errc::peer_lost);
}

namespace {

/// While one lives, the device takes no work request of `queue_pair`'s context; it names the first refused one, or none, as siw does
/// when it has no connection any more.
class refusing_device {
public:
    refusing_device(ibv_qp* queue_pair, bool names)
        : context_(*queue_pair->context), real_(context_.ops.post_send) {
        posts = 0;
        context_.ops.post_send = names ? &naming : &nameless;
    }
    ~refusing_device() { context_.ops.post_send = real_; }
    refusing_device(const refusing_device&) = delete;
    refusing_device& operator=(const refusing_device&) = delete;

    inline static int posts = 0;

private:
    static int naming(ibv_qp*, ibv_send_wr* first, ibv_send_wr** refused) {
        ++posts;
        *refused = first;
        return ENOTCONN;
    }
    static int nameless(ibv_qp*, ibv_send_wr*, ibv_send_wr**) {
        ++posts;
        return ENOTCONN;
    }

    ibv_context& context_;
    int (*real_)(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
};

}  // namespace

TEST_CASE("a device that refuses a post, and does not say which request, ends the link with all that was "
          "under way") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    std::vector<std::byte> there(std::size_t{1} << 20, std::byte{1});
    std::vector<std::byte> here(there.size());
    const region open = w.server.register_memory(there, access_rights::all);
    for (const bool names : {true, false}) {
        for (const bool message_first : {true, false}) {
            CAPTURE(names, message_first);
            verbs_end a;
            verbs_end b;
            w.link(a, b);
            recording_completion moved[3];
            {
                const refusing_device refuses(a.link->queue_pair(), names);
                recording_completion none;
                if (message_first) static_cast<void>(a.link->post(header_of(1), {}, none));
                for (unsigned n = 0; n < 3; ++n) {
                    const post_result answer = n == 1 ? a.link->put(here, open.remote(), moved[n])
                                                      : a.link->get(open.remote(), here, moved[n]);
                    CHECK(answer == (message_first || n != 0 ? post_result::failed : post_result::posted));
                }
                CHECK(refusing_device::posts > 0);
                w.until([&] { return a.sink.downs == 1; });
            }
            CHECK(a.sink.reason == errc::peer_lost);
            CHECK(moved[0].calls == (message_first ? 0 : 1));
            if (!message_first) CHECK(moved[0].outcome == errc::peer_lost);
            w.until([&] { return b.sink.downs == 1; });
        }
    }
    // The domain goes on.
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    post_for_sure(w, a, 1);
    w.until([&] { return b.sink.count == 1; });
    a.link.reset();
    b.link.reset();
    w.until_all_gone();
}

TEST_CASE("a refused access ends the link at both ends, and the domain stays usable") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    std::vector<std::byte> there(5000);
    std::vector<std::byte> here(5000);
    region open = w.server.register_memory(there, access_rights::all);
    const remote_region past_the_end = open.remote().part(1000, 5000);
    const remote_region revoked = open.remote();
    for (const bool revoke : {false, true}) {
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        if (revoke) open.reset();
        recording_completion got;
        REQUIRE(a.link->get(revoke ? revoked : past_the_end, here, got) == post_result::posted);
        w.until([&] { return got.calls == 1 && a.sink.downs == 1 && b.sink.downs == 1; });
        // siw does not report why the other side has ended the connection.
        CHECK(got.outcome == (way.siw ? errc::peer_lost : errc::access_denied));
        CHECK(a.sink.reason == errc::peer_lost);
        CHECK(b.sink.reason == errc::peer_lost);
    }
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    post_for_sure(w, a, 5);
    w.until([&] { return b.sink.count == 1; });
}

TEST_CASE("a get of no bytes touches no memory, whatever was got before it") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options, way.options);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    std::vector<std::byte> there(4096, std::byte{0x11});
    std::vector<std::byte> here(4096);
    const region open = w.server.register_memory(there, access_rights::all);
    for (int n = 0; n < 300; ++n) {  // each place of the queue has had one
        recording_completion got;
        REQUIRE(a.link->get(open.remote(), here, got) == post_result::posted);
        w.until([&] { return got.calls == 1; });
    }
    std::fill(here.begin(), here.end(), std::byte{0x77});
    for (int n = 0; n < 10; ++n) {
        recording_completion none;
        const post_result answer = a.link->get(open.remote().part(0, 0), {}, none);
        if (answer == post_result::posted) w.until([&] { return none.calls == 1; });
        CHECK_FALSE(none.outcome);
    }
    w.turns(200);
    CHECK(std::all_of(here.begin(), here.end(), [](std::byte one) { return one == std::byte{0x77}; }));
    CHECK(a.sink.downs + b.sink.downs == 0);
}

TEST_CASE("a get ends when its data is there, whatever was sent behind it") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_options o = way.options;
    o.credits = 2 * o.send_depth;  // the burst below never waits for credit
    verbs_world w(o);
    std::vector<std::byte> there(std::size_t{4} << 20, std::byte{1});
    std::vector<std::byte> here(there.size());
    std::vector<std::byte> far(8);
    const region open = w.server.register_memory(there, access_rights::all);
    const region small = w.server.register_memory(far, access_rights::all);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    b.sink.count_only = true;
    std::uint64_t all = 0;
    for (int round = 0; round < 5; ++round) {
        CAPTURE(round);
        // Nothing of the round before is with the device any more: a put ends behind the messages before it.
        recording_completion behind;
        w.until([&] {
            return a.link->put(std::span(there).first(8), small.remote(), behind) == post_result::posted;
        });
        w.until([&] { return behind.calls == 1 && b.sink.count == all; });
        std::fill(here.begin(), here.end(), std::byte{2});
        recording_completion got;
        REQUIRE(a.link->get(open.remote(), here, got) == post_result::posted);
        recording_completion none;
        std::uint64_t sent = 0;
        bool whole = false;
        recording_completion put;
        const bool puts = round % 2 == 0;
        if (puts) REQUIRE(a.link->put(std::span(there).first(8), small.remote(), put) == post_result::posted);
        // So many at once that one of them asks for a completion, before the get can end. (A put keeps messages back.)
        for (; !puts && sent <= o.send_depth / 4; ++sent)
            REQUIRE(a.link->post(header_of(sent), {}, none) == post_result::done);
        REQUIRE(got.calls == 0);
        w.until([&] {
            if (got.calls != 0) {
                whole = here.back() == std::byte{1};
                return true;
            }
            for (int n = 0; n < 8 && a.link->post(header_of(sent), {}, none) == post_result::done; ++n)
                ++sent;
            return false;
        });
        CHECK(whole);
        CHECK_FALSE(got.outcome);
        w.until([&] { return !puts || put.calls == 1; });
        all += sent;
    }
}

TEST_CASE("a frame that returns credits waits for a slot where nothing travels inside work requests and then "
          "returns all of them") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_options o = way.options;
    o.inline_bytes = 0;
    o.credits = 8;
    verbs_world w(o);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    REQUIRE(a.link->capabilities().inline_bytes == 0);
    namespace verbs = rdmacoro::detail::verbs;
    verbs::slot_pool& slots = static_cast<verbs::session*>(b.link->queue_pair()->qp_context)->of().slots();
    std::vector<verbs::slot*> taken;
    while (verbs::slot* const s = slots.take()) taken.push_back(s);
    REQUIRE_FALSE(taken.empty());
    const std::uint64_t frames = b.link->counts().control_frames;
    recording_completion none;
    std::uint64_t posted = 0;
    while (a.link->post(header_of(posted), {}, none) == post_result::done) ++posted;
    REQUIRE(posted >= o.credits / 2);  // so many that their credits are due
    w.until([&] { return b.sink.count == posted; });
    w.turns(200);
    CHECK(slots.take() == nullptr);
    CHECK(b.link->counts().control_frames == frames);
    CHECK(a.sink.writables == 0);
    for (verbs::slot* const s : taken) slots.give(*s);
    w.until([&] { return a.sink.writables != 0; });
    constexpr std::uint64_t all = 100;
    while (posted < all) post_for_sure(w, a, posted++);
    w.until([&] { return b.sink.count == all; });
    CHECK(a.sink.downs + b.sink.downs == 0);
}

TEST_CASE("of many links that close while the device completes nothing only the first is waited for") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    constexpr std::size_t links = 5;
    std::array<verbs_end, links> as;
    std::array<verbs_end, links> bs;
    for (std::size_t n = 0; n < links; ++n) w.link(as[n], bs[n]);
    ibv_context& client = *as[0].link->queue_pair()->context;
    const auto poll = client.ops.poll_cq;
    client.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return 0; };
    recording_completion none;
    for (verbs_end& a : as) CHECK(a.link->post(header_of(1), {}, none) == post_result::done);
    std::uint64_t before = w.client.counts().polls;
    as[0].link.reset();
    CHECK(w.client.counts().polls > before);
    before = w.client.counts().polls;
    for (verbs_end& a : as) a.link.reset();
    CHECK(w.client.counts().polls == before);
    CHECK(w.client.connections() == links);
    client.ops.poll_cq = poll;
    for (verbs_end& b : bs) {
        w.until([&] { return b.sink.downs == 1; });
        CHECK(b.sink.count == 1);
        b.link.reset();
    }
    w.until_all_gone();
}

}  // namespace test_transport_verbs_rc_session

#include "ofi/stranger.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include <rdma/fi_tagged.h>

// A peer that uses the provider and the transport's wire format, and sends messages that no link would.

namespace test_ofi_hostile {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// An endpoint for tagged messages that belongs to no link, of a provider that another device has open.
class forger : private progress_source {
public:
    forger(scheduler& on, const fabric::device& of, const std::vector<std::byte>& to) : on_(on) {
        const fabric::unique_info hints = fabric::hints_of(of.profile());
        hints->caps = FI_TAGGED;
        hints->fabric_attr->name = ::strdup(of.info().fabric_attr->name);
        hints->domain_attr->name = ::strdup(of.info().domain_attr->name);
        fi_info* found = nullptr;
        const char* const node = of.profile().tells_address_by_ip ? "127.0.0.1" : nullptr;
        REQUIRE(::fi_getinfo(fabric::spoken_version, node, nullptr, node != nullptr ? FI_SOURCE : 0,
                             hints.get(), &found) == 0);
        const fabric::unique_info info(found);
        fi_av_attr table{};
        table.type = FI_AV_TABLE;
        fid_av* addresses = nullptr;
        REQUIRE(::fi_av_open(of.domain(), &table, &addresses, nullptr) == 0);
        addresses_.reset(addresses);
        fi_cq_attr wanted{};
        wanted.format = FI_CQ_FORMAT_TAGGED;
        fid_cq* queue = nullptr;
        REQUIRE(::fi_cq_open(of.domain(), &wanted, &queue, nullptr) == 0);
        queue_.reset(queue);
        fid_ep* endpoint = nullptr;
        REQUIRE(::fi_endpoint(of.domain(), info.get(), &endpoint, nullptr) == 0);
        endpoint_.reset(endpoint);
        REQUIRE(::fi_ep_bind(endpoint, &addresses->fid, 0) == 0);
        REQUIRE(::fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV) == 0);
        REQUIRE(::fi_enable(endpoint) == 0);
        REQUIRE(::fi_av_insert(addresses, to.data(), 1, &to_, 0, nullptr) == 1);
        on.add_source(*this);
    }
    ~forger() override { on_.remove_source(*this); }

    void send(std::uint64_t tag, std::span<const std::byte> bytes) {
        on_.run_until(
            [&] { return ::fi_tinject(endpoint_.get(), bytes.data(), bytes.size(), to_, tag) == 0; });
    }

private:
    bool poll() noexcept override {
        fi_cq_tagged_entry entries[8];
        return ::fi_cq_read(queue_.get(), entries, 8) > 0;
    }

    scheduler& on_;
    fabric::unique_addresses addresses_;
    fabric::unique_queue queue_;
    fabric::unique_endpoint endpoint_;  // goes first
    fi_addr_t to_ = FI_ADDR_UNSPEC;
};

using spoiler = std::function<void(fabric::connect_info&)>;

}  // namespace

TEST_CASE("connect_info that can't be are turned away, and others are still let in") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    besieged w(provider);
    const spoiler all[] = {
        [](fabric::connect_info& c) { c.magic ^= 1; },
        [](fabric::connect_info& c) { ++c.version; },
        [](fabric::connect_info& c) { c.slot_bytes = 0; },
        [](fabric::connect_info& c) { c.slot_bytes = 4096; },
        [](fabric::connect_info& c) { c.credits = 0xffffffff; },
        [](fabric::connect_info& c) { c.flags ^= fabric::connect_info::served; },
        [](fabric::connect_info& c) { c.name_provider("udp;ofi_rxd"); },
        [](fabric::connect_info& c) { c.provider.fill('x'); },
        [](fabric::connect_info& c) { c.address_bytes = 0; },
        [](fabric::connect_info& c) { c.address_bytes = 0xffffffff; },
        [](fabric::connect_info& c) { --c.address_bytes; },
        [](fabric::connect_info& c) { c.address_format ^= 1; },
        [](fabric::connect_info& c) { c.address.fill(std::byte{0xff}); },
    };
    for (const spoiler& spoil : all) {
        CAPTURE(&spoil - all);
        stranger bad(w.on, provider);
        bad.connect(w.listening.address());
        fabric::connect_info own = bad.connect_info();
        spoil(own);
        bad.show(own);
        w.on.run_until([&] { return !bad.hear(); });
    }
    if (provider == "shm") {
        stranger far(w.on, provider);
        far.connect(w.listening.address());
        fabric::connect_info own = far.connect_info();
        own.host ^= 1;
        far.show(own);
        w.on.run_until([&] { return !far.hear(); });
        REQUIRE(far.heard().size() == fabric::connect_info::wire_bytes + 1);
        CHECK(static_cast<fabric::verdict>(far.heard().back()) == fabric::verdict::other_host);
    }
    w.on.run_until([&] { return w.domain.connections() == 0; });
    stranger good(w.on, provider);
    ofi_end end;
    w.take(good, end);
    good.frame(fabric::frame_kind::message, pattern(12));
    w.on.run_until([&] { return end.sink.count == 1; });
}

TEST_CASE("a connect_info in pieces is a connect_info, and half of one is given up in time") {
    ofi_options hasty = ofi_here("tcp");
    hasty.handshake_timeout = std::chrono::milliseconds(200);
    besieged w(hasty);
    stranger half(w.on, "tcp");
    half.connect(w.listening.address());
    std::vector<std::byte> info(fabric::connect_info::wire_bytes);
    half.connect_info().store(info.data());
    half.say(std::span(info).first(info.size() / 2));
    w.on.run_until([&] { return !half.hear(); });
    CHECK(half.heard().size() <= fabric::connect_info::wire_bytes);  // and no verdict
    w.on.run_until([&] { return w.domain.connections() == 0; });
    stranger slow(w.on, "tcp");
    slow.connect(w.listening.address());
    std::vector<std::byte> raw(fabric::connect_info::wire_bytes);
    slow.connect_info().store(raw.data());
    for (const std::byte one : raw) {
        slow.say(std::span(&one, 1));
        w.on.turn();
    }
    w.on.run_until([&] {
        slow.hear();
        return slow.heard().size() == fabric::connect_info::wire_bytes + 1;
    });
    CHECK(static_cast<fabric::verdict>(slow.heard().back()) == fabric::verdict::welcome);
    slow.hang_up();
    w.on.run_until([&] { return w.domain.connections() == 0; });
}

TEST_CASE("frames for no link are dropped and counted, and cost no link") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    besieged w(provider);
    stranger peer(w.on, provider);
    ofi_end end;
    w.take(peer, end);
    const std::uint64_t before = w.domain.counts().strangers;
    const std::vector<std::byte> rest = pattern(12);
    std::uint64_t expected = 0;
    for (const std::uint64_t link :
         {std::uint64_t{0}, peer.peer() ^ (std::uint64_t{1} << 40), peer.peer() + 1, ~std::uint64_t{0}}) {
        peer.frame(fabric::frame{fabric::frame_kind::message, 0, peer.next(), link}, rest);
        ++expected;
    }
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{11}, std::size_t{23}, std::size_t{60}}) {
        const std::vector<std::byte> noise(bytes, std::byte{0x0f});
        peer.send(noise);
        ++expected;
    }
    w.on.run_until([&] { return w.domain.counts().strangers == before + expected; });
    peer.frame(fabric::frame_kind::message, rest);
    w.on.run_until([&] { return end.sink.count == 1; });
    CHECK(end.sink.downs == 0);
}

TEST_CASE("a message that a peer must not send ends its link with protocol_violation, and no other link") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    besieged w(provider);
    stranger good(w.on, provider);
    ofi_end kept;
    w.take(good, kept);
    std::vector<std::byte> status(8);
    std::vector<std::byte> request(fabric::service_request::wire_bytes);
    const bool served = provider == "shm";
    const std::function<void(stranger&)> all[] = {
        [&](stranger& s) { s.frame(fabric::frame_kind::credit, {}, 2); },  // more credits than there are
        [&](stranger& s) { s.frame(fabric::frame_kind::credit, {}, 0xffff); },
        [&](stranger& s) { s.frame(fabric::frame_kind::hello); },           // a second one
        [&](stranger& s) { s.frame(fabric::frame_kind::status, status); },  // an answer to nothing
        [&](stranger& s) {                                                  // the same number twice
            const fabric::frame twice{fabric::frame_kind::message, 0, s.next() + 1, s.peer()};
            s.frame(twice, pattern(12));
            s.frame(twice, pattern(12));
        },
        [&](stranger& s) {  // far beyond what it may send
            s.frame(fabric::frame{fabric::frame_kind::message, 0, s.next() + 100, s.peer()}, pattern(12));
        },
        [&](stranger&
                s) {  // an answer to nothing where the memory's owner serves; a request where no side serves
            s.frame(served ? fabric::frame_kind::status : fabric::frame_kind::get,
                    served ? std::span(status) : std::span(request));
        },
    };
    for (const auto& misbehave : all) {
        CAPTURE(&misbehave - all);
        stranger bad(w.on, provider);
        ofi_end end;
        w.take(bad, end);
        misbehave(bad);
        w.on.run_until([&] { return end.sink.downs != 0; });
        CHECK(end.sink.reason == errc::protocol_violation);
        end.link.reset();
    }
    CHECK(kept.sink.downs == 0);
    good.frame(fabric::frame_kind::message, pattern(12));
    w.on.run_until([&] { return kept.sink.count == 1; });
}

TEST_CASE(
    "frames that ask whether a violator's connection has ended have numbers of their own, and credits") {
    besieged w("tcp");
    stranger bad(w.on, "tcp");
    ofi_end end;
    w.take(bad, end);
    std::vector<std::byte> here(1000);
    const region open = end.link->expose(here, access_rights::all);
    bad.frame(fabric::frame_kind::hello);  // a second one
    w.on.run_until([&] { return end.sink.downs != 0; });
    CHECK(end.sink.reason == errc::protocol_violation);
    const std::vector<fabric::frame> got = bad.words();
    CHECK(got.size() >= 5);  // it did ask, and more than once
    CHECK(got.size() <= 65);
    for (std::size_t n = 0; n < got.size(); ++n) CHECK(got[n].sequence == n);
    end.link.reset();
}

TEST_CASE("frames that came before a first one which ends the link leave their slots to the others") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    besieged w(provider);
    for (int n = 0; n < 4; ++n) {
        stranger bad(w.on, provider);
        bad.meet(w.listening.address());
        for (int turn = 0; turn < 1000; ++turn) w.on.turn();  // it knows that it is welcome
        const auto early = [&](fabric::frame_kind kind, std::uint32_t sequence) {
            const std::size_t rest = kind == fabric::frame_kind::message ? 12 : 0;
            bad.frame(fabric::frame{kind, 0, sequence, bad.peer()}, pattern(rest));
        };
        const std::uint64_t before = w.domain.counts().received;
        for (std::uint32_t sequence = 2; sequence < 63; ++sequence)
            early(fabric::frame_kind::message, sequence);
        early(fabric::frame_kind::hello, 1);
        w.on.run_until([&] { return w.domain.counts().received >= before + 62; });
        // Both are there in one poll: the one breaks the protocol, and behind the other all may be taken.
        early(fabric::frame_kind::message, 2);
        early(fabric::frame_kind::credit, 0);
        for (int turn = 0; turn < 1000; ++turn) w.on.turn();
        bad.hang_up();
        w.on.run_until([&] { return w.domain.connections() == 0; });
    }
    // Another peer, which sends more than there are slots for one.
    ofi_any_domain elsewhere(w.on, ofi_here(provider));
    ofi_end near, far;
    far.link =
        std::make_unique<ofi_recorded_link>(w.on.run(elsewhere.connect(w.listening.address())), far.sink);
    near.link = std::make_unique<ofi_recorded_link>(w.on.run(w.listening.accept()), near.sink);
    recording_completion none;
    std::uint64_t sent = 0;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (near.sink.count != 500 && std::chrono::steady_clock::now() < until) {
        if (sent != 500 && far.link->post(header_of(sent), {}, none) == post_result::done) ++sent;
        w.on.turn();
    }
    CHECK(near.sink.count == 500);
    CHECK(near.sink.downs + far.sink.downs == 0);
}

TEST_CASE("slots that peers do not take are the links' that had them, and others have their own") {
    besieged w("shm");
    std::vector<std::unique_ptr<stranger>> silent;
    recording_completion none;
    std::uint64_t kept = 0;
    for (int n = 0; n < 8; ++n) {
        silent.push_back(std::make_unique<stranger>(w.on, "shm"));
        ofi_end end;
        w.take(*silent.back(), end);
        silent.back()->stand_still();
        const auto data = pattern(end.link->capabilities().max_message);
        for (int tries = 0; tries < 1000; ++tries) {
            if (end.link->post(header_of(1), data, none) == post_result::done) ++kept;
            w.on.turn();
        }
        silent.back()->hang_up();
        end.link.reset();
        for (int turn = 0; turn < 1000; ++turn) w.on.turn();
    }
    CHECK(kept > 100);  // the provider has them still
    stranger good(w.on, "shm");
    ofi_end end;
    w.take(good, end);
    const auto data = pattern(end.link->capabilities().max_message);
    for (std::uint64_t n = 0; n < 20; ++n) {
        post_result how = post_result::retry;
        for (int tries = 0; tries < 1000 && how == post_result::retry; ++tries) {
            how = end.link->post(header_of(n), data, none);
            w.on.turn();
        }
        CHECK(how == post_result::done);
    }
}

TEST_CASE("of a peer that sends more than it may no more than its credits is taken") {
    besieged w("tcp");
    stranger greedy(w.on, "tcp");
    ofi_end end;
    w.take(greedy, end);
    end.sink.refuse_all = true;
    for (unsigned n = 0; n < 80; ++n) greedy.frame(fabric::frame_kind::message, pattern(12));
    w.on.run_until([&] { return w.domain.counts().received == 65; });
    for (int n = 0; n < 1000; ++n) w.on.turn();
    CHECK(w.domain.counts().received ==
          65);  // the first frame, and 64 credits: the rest waits in the network
    CHECK(end.sink.count == 0);
    end.sink.refuse_all = false;
    w.on.run_until([&] { return end.sink.count >= 64; });
}

TEST_CASE("a served get or put of memory that the peer must not reach is refused, and the link stays up") {
    besieged w("shm");
    stranger bad(w.on, "shm");
    ofi_end end;
    w.take(bad, end);
    std::vector<std::byte> memory(100);
    const region open = w.domain.register_memory(memory, access_rights::remote_read);
    const auto ask = [&](fabric::frame_kind kind, std::uint64_t key, std::uint64_t address,
                         std::uint64_t length) {
        const unsigned before = bad.received();
        std::vector<std::byte> request(fabric::service_request::wire_bytes);
        fabric::service_request{key, address, length, 1, 0, 0}.store(request.data());
        bad.frame(kind, request);
        w.on.run_until([&] { return bad.received() == before + 1; });
        const std::vector<std::byte> answer = bad.last_rest_of(fabric::frame_kind::status);
        REQUIRE(answer.size() == rdmacoro::detail::one_sided_status::wire_bytes);
        return rdmacoro::detail::one_sided_status::load(answer.data()).outcome;
    };
    const remote_region& there = open.remote();
    CHECK(ask(fabric::frame_kind::get, there.key ^ 1, there.address, 10) == errc::bad_key);
    CHECK(ask(fabric::frame_kind::get, there.key, there.address + 91, 10) == errc::out_of_bounds);
    CHECK(ask(fabric::frame_kind::get, there.key, there.address - 1, 10) == errc::out_of_bounds);
    CHECK(ask(fabric::frame_kind::get, there.key, there.address, ~std::uint64_t{0}) == errc::out_of_bounds);
    CHECK(ask(fabric::frame_kind::put, there.key, there.address, 10) == errc::access_denied);
    CHECK(end.sink.downs == 0);
    CHECK(w.domain.counts().served == 5);
    CHECK(memory == std::vector<std::byte>(100));
}

namespace {

/// Eight credits, of which the domain of `w` has one left, and the peer has sent seven messages for its own.
void spend_credits(besieged& w, stranger& peer, ofi_end& end) {
    peer.give(8);
    w.take(peer, end);
    const std::vector<std::byte> request(fabric::service_request::wire_bytes);  // of no region
    while (end.link->credits() > 1) {
        const unsigned before = peer.received();
        peer.frame(fabric::frame_kind::get, request);
        w.on.run_until([&] { return peer.received() == before + 1; });
    }
    end.sink.refuse_all = true;
    for (int n = 0; n < 7; ++n) peer.frame(fabric::frame_kind::message, pattern(12));
    w.on.run_until([&] { return end.sink.offers != 0; });
}
ofi_options with_eight_credits() {
    ofi_options o = ofi_here("shm");
    o.credits = 8;
    return o;
}
/// Turns until `done`, for some seconds at most.
template <class Done>
void turn_until(besieged& w, Done done) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!done() && std::chrono::steady_clock::now() < limit) w.on.turn();
}

}  // namespace

TEST_CASE("a side with one credit left spends it to return those that its peer waits for") {
    besieged w(with_eight_credits());
    stranger peer(w.on, "shm");
    ofi_end end;
    spend_credits(w, peer, end);
    const unsigned before = peer.received();
    end.sink.refuse_all = false;
    turn_until(w, [&] { return peer.received() != before; });
    REQUIRE(peer.received() == before + 1);
    const fabric::frame last = peer.words().back();
    CHECK(last.kind == fabric::frame_kind::credit);
    CHECK(last.credits >= 4);
    CHECK(end.link->credits() == 0);
    peer.frame(fabric::frame_kind::credit, {}, 8);
    w.on.run_until([&] { return end.link->credits() == 8; });
    CHECK(end.sink.downs == 0);
}

TEST_CASE("a link that is closed without a credit left says so when its peer has returned some") {
    besieged w(with_eight_credits());
    stranger peer(w.on, "shm");
    ofi_end end;
    spend_credits(w, peer, end);
    end.sink.refuse_all = false;
    turn_until(w, [&] { return end.link->credits() == 0; });
    REQUIRE(end.link->credits() == 0);
    end.link.reset();
    for (int n = 0; n < 100; ++n) w.on.turn();
    CHECK(peer.hear());  // it has not hung up
    CHECK(peer.words().back().kind != fabric::frame_kind::bye);
    peer.frame(fabric::frame_kind::credit, {}, 8);
    turn_until(w, [&] { return peer.words().back().kind == fabric::frame_kind::bye; });
    CHECK(peer.words().back().kind == fabric::frame_kind::bye);
}

TEST_CASE("a peer that asks for a get or put before its first frame is not served, and not let in") {
    besieged w("shm");
    std::vector<std::byte> memory(1 << 20);
    const region open = w.domain.register_memory(memory, access_rights::all);
    const remote_region& there = open.remote();
    for (const fabric::frame_kind kind : {fabric::frame_kind::get, fabric::frame_kind::put}) {
        stranger bad(w.on, "shm");
        bad.meet(w.listening.address());
        bad.stand_still();  // the provider would not be done with a piece
        std::vector<std::byte> request(fabric::service_request::wire_bytes);
        fabric::service_request{there.key, there.address, memory.size(), 1, there.address, 0}.store(
            request.data());
        bad.frame(kind, request);
        w.on.run_until([&] { return w.domain.connections() == 0; });
        CHECK(w.domain.counts().served == 0);
    }
}

TEST_CASE("a frame that never comes ends its link in time, and the others wait for it") {
    besieged w("tcp");
    stranger bad(w.on, "tcp");
    ofi_end end;
    w.take(bad, end);
    bad.frame(fabric::frame{fabric::frame_kind::message, 0, bad.next() + 1, bad.peer()}, pattern(12));
    for (int n = 0; n < 1000; ++n) w.on.turn();
    CHECK(end.sink.count == 0);
    CHECK(end.sink.downs == 0);
    w.on.run_until([&] { return end.sink.downs != 0; });
    CHECK(end.sink.reason == errc::peer_lost);
    CHECK(end.sink.count == 0);
}

TEST_CASE("frames that are reported in another order all the time do not end their link") {
    besieged w("tcp");
    stranger peer(w.on, "tcp");
    ofi_end end;
    w.take(peer, end);
    const auto send = [&](std::uint32_t number) {
        peer.frame(fabric::frame{fabric::frame_kind::message, 0, number, peer.peer()}, header_of(number));
    };
    send(2);
    constexpr std::uint32_t last = 50;
    for (std::uint32_t number = 4; number <= last && end.sink.downs == 0; number += 2) {
        w.on.run([]() -> task<> { co_await sleep_for(std::chrono::milliseconds(100)); }());
        send(number);  // at any time there is one that waits for its predecessor
        send(number - 3);
    }
    send(last - 1);
    w.on.run_until([&] { return end.sink.count == last || end.sink.downs != 0; });
    CHECK(end.sink.downs == 0);
    REQUIRE(end.sink.messages.size() == last);
    for (std::uint32_t number = 1; number <= last; ++number)
        CHECK(end.sink.messages[number - 1].number == number);
}

TEST_CASE("a frame that never comes ends its link in time, also where the next one came before the first") {
    besieged w("tcp");
    stranger bad(w.on, "tcp");
    bad.meet(w.listening.address());
    bad.frame(fabric::frame{fabric::frame_kind::message, 0, 2, bad.peer()}, pattern(12));
    w.on.run_until([&] { return w.domain.counts().received == 1; });
    bad.frame(fabric::frame_kind::hello);
    ofi_end end;
    end.link = std::make_unique<ofi_recorded_link>(w.on.run(w.listening.accept()), end.sink);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(4);
    while (end.sink.downs == 0 && std::chrono::steady_clock::now() < limit) w.on.turn();
    CHECK(end.sink.downs == 1);
    CHECK(end.sink.reason == errc::peer_lost);
    CHECK(end.sink.count == 0);
}

TEST_CASE("a peer that hangs up without a last frame is lost, after what it had sent") {
    besieged w("tcp");
    stranger bad(w.on, "tcp");
    ofi_end end;
    w.take(bad, end);
    for (int n = 0; n < 5; ++n) bad.frame(fabric::frame_kind::message, pattern(12));
    bad.hang_up();
    w.on.run_until([&] { return end.sink.downs != 0; });
    CHECK(end.sink.reason == errc::peer_lost);
    CHECK(end.sink.count == 5);
}

TEST_CASE("a get whose peer is gone ends also while a message that came before it waits for its receiver") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    besieged w(provider);
    stranger dying(w.on, provider);
    ofi_end end;
    w.take(dying, end);
    end.sink.refuse_all = true;
    dying.frame(fabric::frame_kind::message, pattern(12));
    w.on.run_until([&] { return end.sink.offers != 0; });
    dying.stand_still();
    std::vector<std::byte> into(1 << 20);
    recording_completion got;
    REQUIRE(end.link->get({4096, into.size(), 7, access_rights::remote_read, 0}, into, got) ==
            post_result::posted);
    dying.hang_up();
    dying.close_endpoint();
    turn_until(w, [&] { return got.calls != 0; });
    CHECK(got.calls == 1);
    CHECK(got.outcome == errc::peer_lost);
    CHECK(end.sink.downs == 0);
    end.sink.refuse_all = false;
    w.on.run_until([&] { return end.sink.downs != 0; });
    CHECK(end.sink.count == 1);
}

TEST_CASE("a peer that dies amid a get costs no other link though its connections end one after the other") {
    besieged w("tcp");
    stranger dying(w.on, "tcp");
    ofi_end end;
    w.take(dying, end);
    // Another peer, which goes on.
    ofi_any_domain elsewhere(w.on, ofi_here("tcp"));
    ofi_end near, far;
    far.link =
        std::make_unique<ofi_recorded_link>(w.on.run(elsewhere.connect(w.listening.address())), far.sink);
    near.link = std::make_unique<ofi_recorded_link>(w.on.run(w.listening.accept()), near.sink);
    recording_completion none;
    w.on.run_until([&] { return far.link->post(header_of(1), {}, none) == post_result::done; });
    w.on.run_until([&] { return near.sink.count == 1; });

    dying.stand_still();
    std::vector<std::byte> into(1 << 20);
    const remote_region there{4096, into.size(), 7, access_rights::remote_read, 0};
    recording_completion got;
    REQUIRE(end.link->get(there, into, got) == post_result::posted);
    dying.hang_up();
    // Longer than a get may stand still that was given up while its peer lives.
    w.on.run([]() -> task<> { co_await sleep_for(std::chrono::milliseconds(400)); }());
    CHECK(end.sink.downs == 0);
    CHECK(got.calls == 0);
    dying.close_endpoint();
    w.on.run_until([&] { return end.sink.downs != 0; });
    CHECK(end.sink.reason == errc::peer_lost);
    CHECK(got.calls == 1);
    CHECK(got.outcome);
    CHECK(w.domain.counts().reopened == 0);
    CHECK(near.sink.downs + far.sink.downs == 0);
    w.on.run_until([&] { return far.link->post(header_of(2), {}, none) == post_result::done; });
    w.on.run_until([&] { return near.sink.count == 2; });
}

namespace {

struct recorded_receive : tagged_completion {
    recorded_receive() noexcept {
        done = [](completion& c, std::error_code with) noexcept {
            auto& self = static_cast<recorded_receive&>(c);
            ++self.calls;
            self.outcome = with;
        };
    }
    int calls = 0;
    std::error_code outcome;
};

}  // namespace

TEST_CASE("a tagged message from an endpoint that is no peer fills no receive: the link ends") {
    const std::string provider = "tcp";
    // 0: the peer, by another endpoint; 1, 2: a wrong link number; 3: no head; 4: a wrong long head; 5: to a claim
    const int how = GENERATE(0, 1, 2, 3, 4, 5);
    CAPTURE(how);
    besieged w(provider);
    stranger peer(w.on, provider);
    stranger other(w.on, provider);
    ofi_end end;
    ofi_end kept;
    w.take(peer, end);
    w.take(other, kept);
    static_cast<void>(end.link->matching());
    w.on.run_until([&] { return !peer.rest_of(fabric::frame_kind::tagged_address).empty(); });
    forger from(w.on, peer.device(), peer.rest_of(fabric::frame_kind::tagged_address));
    std::vector<std::byte> into(8, std::byte{0xee});
    recorded_receive got;
    if (how == 5) {
        REQUIRE(end.link->claim(got) == post_result::posted);
    } else {
        REQUIRE(end.link->post_receive(7, ~std::uint64_t{0}, mutable_buffers(std::span(into)), got) ==
                post_result::posted);
    }
    fabric::tagged_head head;
    head.link = how == 0 ? peer.peer() : how == 1 ? 0 : peer.peer() ^ (std::uint64_t{1} << 60);
    head.number = how == 4 ? 1 : 0;
    std::vector<std::byte> message(head.bytes() + (how == 4 ? 0 : into.size()));
    head.store(message.data());
    from.send(7, how == 3 ? std::span(message).first(15) : std::span(message));
    w.on.run_until([&] { return got.calls == 1; });
    if (how == 0) {
        CHECK_FALSE(got.outcome);
        CHECK(into == std::vector<std::byte>(8));
        CHECK(end.sink.downs == 0);
    } else {
        CHECK(got.outcome == errc::protocol_violation);
        CHECK(into == std::vector<std::byte>(8, std::byte{0xee}));
        w.on.run_until([&] { return end.sink.downs == 1; });
        CHECK(end.sink.reason == errc::protocol_violation);
    }
    CHECK(kept.sink.downs == 0);
}

}  // namespace test_ofi_hostile

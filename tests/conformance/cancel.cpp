#include "conformance.hpp"

#include "support/death.hpp"
#include "support/seldom.hpp"

#include <atomic>
#include <chrono>
#include <deque>
#include <optional>
#include <stop_token>
#include <thread>

namespace test_conformance_cancel {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// That a message of each protocol still goes each way, and meets nothing that was left behind.
task<> still_talks(peer& a, peer& b) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{600000}}) {
        const auto data = pattern(bytes, 3);
        std::vector<std::byte> into(bytes);
        auto to_b = start(b.recv(into, 4711));
        co_await a.send(data, 4711);
        co_await to_b;
        CHECK(same_bytes(into, data));
        std::fill(into.begin(), into.end(), std::byte{0});
        auto to_a = start(a.recv(into, 4711));
        co_await b.send(data, 4711);
        co_await to_a;
        CHECK(same_bytes(into, data));
    }
    CHECK(a.connection().mailbox().matching().posted() == 0);
    CHECK(b.connection().mailbox().matching().posted() == 0);
}

/// Whether it ends soon, that is in some turns, or on a device that the kernel or a thread helps in less than any time limit of a transport.
template <class Operation>
task<bool> ends_soon(const Operation& of) {
    const auto until = std::chrono::steady_clock::now() + 2s;
    for (int n = 0; !of.done() && (n < 1000 || std::chrono::steady_clock::now() < until); ++n)
        co_await yield();
    co_return of.done();
}

constexpr std::size_t long_bytes = std::size_t{2} << 20;

/// The next stage at which to stop something: each of the first 60, then ever larger strides, until one has come too late
/// (`through`). The test's time limit ends a search that finds none.
int next_stage(int stage) { return stage < 60 ? stage + 1 : stage + stage / 8; }
bool stages_go_on(int stage, bool through) { return stage < 60 || !through; }

/// Sends until the peer's credits are used up, with tags from 0 on, and returns how many messages that took.
task<std::size_t> use_up_credit(peer& from, std::span<const std::byte> data) {
    std::size_t sent = 0;
    while (from.connection().credits().available() >= detail::message_cost(data.size())) {
        co_await from.send(data, sent);
        ++sent;
    }
    co_return sent;
}

// ---- a token that is stopped already

task<> stopped_already(two_domains& w) {
    auto listening = co_await w.there().listen(w.address());
    auto p = co_await w.connected();
    local_stop_source quit;
    quit.request_stop();
    const auto token = quit.get_token();
    std::vector<std::byte> untouched(100, std::byte{0x11});
    const std::vector<std::byte> memory_before = pattern(100, 1);
    std::vector<std::byte> memory = memory_before;
    const region open = w.there().register_memory(memory, access_rights::all);
    const auto posted = p.a.counts();

    const std::uint64_t number = 1;
    const auto sent = co_await as_result(with_stop(p.a.send(bytes_of(number), 1), token));
    CHECK(sent.error() == errc::canceled);
    const auto synchronous = co_await as_result(with_stop(p.a.ssend(bytes_of(number), 1), token));
    CHECK(synchronous.error() == errc::canceled);
    const auto data = pattern(long_bytes, 1);
    const auto segments = co_await as_result(with_stop(p.a.send(data, 1), token));
    CHECK(segments.error() == errc::canceled);
    CHECK(p.a.counts().messages_sent == posted.messages_sent);
    CHECK(p.a.counts().segments_sent == posted.segments_sent);

    // A message that waits is not taken either.
    co_await p.a.send(bytes_of(number), 2);
    co_await p.b.probe(2);
    const auto received_none = co_await as_result(with_stop(p.b.recv(untouched), token));
    CHECK(received_none.error() == errc::canceled);
    const auto lent = co_await as_result(with_stop(p.b.recv_lent(), token));
    CHECK(lent.error() == errc::canceled);
    const auto probed = co_await as_result(with_stop(p.b.probe(), token));
    CHECK(probed.error() == errc::canceled);
    const auto got = co_await as_result(with_stop(p.a.rdma_get(open.remote(), untouched), token));
    CHECK(got.error() == errc::canceled);
    const auto put = co_await as_result(with_stop(p.a.rdma_put(untouched, open.remote()), token));
    CHECK(put.error() == errc::canceled);
    CHECK(memory == memory_before);
    CHECK(untouched == std::vector<std::byte>(100, std::byte{0x11}));
    CHECK(p.b.connection().mailbox().matching().unexpected() == 1);
    std::uint64_t heard = 0;
    co_await p.b.recv(room_for(heard));
    CHECK(heard == 1);

    const auto connected = co_await as_result(with_stop(w.here().connect(listening.address()), token));
    CHECK(connected.error() == errc::canceled);
    const auto accepted = co_await as_result(with_stop(listening.accept(), token));
    CHECK(accepted.error() == errc::canceled);
    co_await still_talks(p.a, p.b);

    const auto closed = co_await as_result(with_stop(p.a.close(), token));
    CHECK(closed.error() == errc::canceled);
}
CONFORMANCE_CASE("an operation that begins with a stopped token does nothing and ends canceled",
                 every_transport) {
    conform(over, stopped_already);
}

// ---- sends

task<> send_waiting_for_credit(two_domains& w) {
    auto p = co_await w.connected({}, least_memory());
    // Fills the receiver's budget.
    const auto data = pattern(1000, 1);
    std::deque<started<any_operation<void>>> before;
    const auto& credits = p.a.connection().credits();
    while (credits.available() >= detail::message_cost(data.size())) {
        before.emplace_back(p.a.send(data, before.size()));
        co_await yield();  // it may wait for room in the network first
    }
    local_stop_source stop;
    auto canceled = stoppable(p.a.send(data, 1'000'000), stop);
    auto behind = start(p.a.send(data, 1'000'001));
    CHECK_FALSE(canceled.done());
    stop.request_stop();
    const auto ended = co_await canceled;
    CHECK(ended.error() == errc::canceled);
    std::vector<std::byte> into(1000);
    for (std::size_t n = 0; n < before.size(); ++n) {
        const received got = co_await p.b.recv(into);
        CHECK(got.tag == n);
    }
    const received next = co_await p.b.recv(into);
    CHECK(next.tag == 1'000'001);
    co_await behind;
    for (auto& s : before) co_await s;
    co_await still_talks(p.a, p.b);
}
CONFORMANCE_CASE("a send that waits for credit is withdrawn, and those behind it go on", every_transport) {
    conform(over, send_waiting_for_credit);
}

task<> send_waiting_for_proceed(two_domains& w) {
    auto p = co_await w.connected({}, least_memory());
    const auto data = pattern(long_bytes, 1);
    for (const bool synchronous : {false, true}) {
        for (const std::size_t bytes : {long_bytes, std::size_t{8}}) {
            if (!synchronous && bytes == 8) continue;
            local_stop_source stop;
            const auto part = std::span(data).first(bytes);
            auto sending = stoppable(synchronous ? p.a.ssend(part, 1) : p.a.send(part, 1), stop);
            co_await p.b.probe(1);
            co_await turns(30);
            CHECK_FALSE(sending.done());
            stop.request_stop();
            const auto ended = co_await sending;
            CHECK(ended.error() == errc::canceled);
            // Its announcement goes from the receiver's mailbox too, once the word has come.
            co_await turns(30);
            const std::uint64_t marker = 5;
            co_await p.a.send(bytes_of(marker), 1);
            std::uint64_t got = 0;
            co_await p.b.recv(room_for(got), 1);
            CHECK(got == 5);
            CHECK(p.b.connection().mailbox().matching().unexpected() == 0);
        }
    }
    CHECK(p.b.connection().mailbox().store().live() == 0);
    co_await still_talks(p.a, p.b);
}
CONFORMANCE_CASE("a send that waits for its receiver is withdrawn from the receiver's mailbox",
                 every_transport) {
    conform(over, send_waiting_for_proceed);
}

task<> sender_stops_anywhere(two_domains& w) {
    auto p = co_await w.connected({}, least_memory());
    const auto data = pattern(long_bytes, 1);
    std::vector<std::byte> into(long_bytes);
    int withdrawn = 0;
    int cut = 0;
    int through = 0;
    for (int stage = 0; stages_go_on(stage, through != 0); stage = next_stage(stage)) {
        CAPTURE(stage);
        std::vector<std::byte> sent = data;
        local_stop_source stop;
        auto receiving = start(p.b.recv(into, 1));
        auto sending = stoppable(p.a.send(sent, 1), stop);
        co_await turns(stage);
        stop.request_stop();
        const auto ended = co_await sending;
        // The memory is the sender's again, whatever is still on its way.
        std::fill(sent.begin(), sent.end(), std::byte{0xdd});
        const std::uint64_t marker = 99;
        co_await p.a.send(bytes_of(marker), 1);
        const auto got = co_await as_result(receiving);
        if (!ended) CHECK(ended.error() == errc::canceled);
        if (got && got->bytes == sizeof marker) {
            CHECK_FALSE(ended);  // never announced
            ++withdrawn;
            continue;
        }
        if (got) {
            if (ended) ++through;
            CHECK(got->bytes == long_bytes);
            CHECK(same_bytes(into, data));
        } else {
            CHECK(got.error() == errc::peer_canceled);
            CHECK_FALSE(ended);
            ++cut;
        }
        std::uint64_t end = 0;
        co_await p.b.recv(room_for(end), 1);
        CHECK(end == marker);
    }
    // The stages lead through all that can happen, but for being withdrawn where the announcement goes out at once.
    CAPTURE(withdrawn, cut, through);
    CHECK((cut > 0) == w.is().cuts_sends);
    CHECK(through > 0);
    co_await still_talks(p.a, p.b);
}
CONFORMANCE_CASE("a long send stopped at any stage gives its memory back and the receiver a clear end",
                 every_transport) {
    conform(over, sender_stops_anywhere);
}

// ---- receives

task<> posted_receive(two_domains& w) {
    auto p = co_await w.connected();
    std::vector<std::byte> untouched(8, std::byte{0x11});
    for (const tag_match wanted : {tag_match(1), tag_match(1, 3), any_tag}) {
        local_stop_source stop;
        auto receiving = stoppable(p.b.recv(untouched, wanted), stop);
        local_stop_source stop_lent;
        auto lent = stoppable(p.b.recv_lent(wanted), stop_lent);
        local_stop_source stop_probe;
        auto probing = stoppable(p.b.probe(wanted), stop_probe);
        std::uint64_t value = 0;
        auto behind = start(p.b.recv(room_for(value), wanted));
        co_await turns(3);
        stop.request_stop();
        stop_lent.request_stop();
        stop_probe.request_stop();
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
        const auto ended_lent = co_await lent;
        CHECK(ended_lent.error() == errc::canceled);
        const auto ended_probe = co_await probing;
        CHECK(ended_probe.error() == errc::canceled);
        const std::uint64_t said = 12;
        co_await p.a.send(bytes_of(said), 1);
        co_await behind;
        CHECK(value == 12);
    }
    CHECK(untouched == std::vector<std::byte>(8, std::byte{0x11}));
    co_await still_talks(p.a, p.b);
}
CONFORMANCE_CASE("a posted receive or probe is withdrawn, and the message goes to the next",
                 every_transport) {
    conform(over, posted_receive);
}

task<> receiver_stops_anywhere(two_domains& w) {
    auto p = co_await w.connected({}, least_memory());
    const auto data = pattern(long_bytes, 1);
    for (const bool lent : {false, true}) {
        int cut = 0;
        int through = 0;
        for (int stage = 0; stages_go_on(stage, through != 0); stage = next_stage(stage)) {
            CAPTURE(stage, lent);
            std::vector<std::byte> into(lent ? 0 : long_bytes);
            local_stop_source stop;
            std::optional<decltype(stoppable(p.b.recv(into, 1), stop))> receiving;
            std::optional<decltype(stoppable(p.b.recv_lent(1), stop))> borrowing;
            if (lent) {
                borrowing.emplace(as_result(with_stop(p.b.recv_lent(1), stop.get_token())));
            } else {
                receiving.emplace(as_result(with_stop(p.b.recv(into, 1), stop.get_token())));
            }
            auto sending = start(p.a.send(data, 1));
            co_await turns(stage);
            stop.request_stop();
            std::error_code ended;
            if (lent) {
                const auto got = co_await *borrowing;
                ended = got.error();
                if (got) CHECK(is_pattern(got->bytes(), 1));
            } else {
                const auto got = co_await *receiving;
                ended = got.error();
                if (got) CHECK(same_bytes(into, data));
            }
            if (!ended) ++through;
            if (ended) {
                CHECK(ended == errc::canceled);
                // Not touched any more, though the rest of the message may still be coming.
                std::fill(into.begin(), into.end(), std::byte{0x11});
                co_await turns(3);
            }
            // Met no receive at all: another gets it. Otherwise the sender ends by itself.
            bool matched = true;
            local_stop_source found_or_not;
            auto unmet = stoppable(p.b.probe(1), found_or_not);
            while (!sending.done()) {
                if (unmet.done() && matched) {
                    const message whole = co_await p.b.recv_lent(1);
                    CHECK(is_pattern(whole.bytes(), 1));
                    CHECK(whole.size() == long_bytes);
                    matched = false;
                }
                co_await yield();
            }
            found_or_not.request_stop();
            const auto found = co_await unmet;
            CHECK((found || found.error() == errc::canceled));
            CHECK_FALSE((found && matched));
            co_await sending;
            if (ended && matched) ++cut;
            if (ended) {
                CHECK(all_are(std::byte{0x11}, into));
            }
        }
        CAPTURE(lent, cut, through);
        // Stopped with the message half there, where it does not arrive within one turn.
        if (w.is().timing_decides) {
            if (w.is().cuts_receives)
                seldom("a receive was stopped with its message half there", w.is().name, cut > 0);
        } else {
            CHECK((cut > 0) == w.is().cuts_receives);
        }
        CHECK(through > 0);
    }
    co_await still_talks(p.a, p.b);
    CHECK(p.b.connection().mailbox().store().live() == 0);
}
CONFORMANCE_CASE("a receive stopped at any stage leaves its memory alone and the sender in peace",
                 every_transport) {
    conform(over, receiver_stops_anywhere);
}

// ---- get and put

task<> one_sided_stops_anywhere(two_domains& w) {
    auto p = co_await w.connected();
    const std::size_t bytes = (std::size_t{6} << 20) / static_cast<std::size_t>(w.is().slowness);
    std::vector<std::byte> memory = pattern(bytes, 1);
    const region open = w.there().register_memory(memory, access_rights::all);
    std::vector<std::byte> here(bytes);
    // Where the peer's scheduler has no part in it, it may be over before anything can stop it.
    const bool may_end_at_once = p.a.link_capabilities().one_sided_offloaded;
    for (const bool read : {true, false}) {
        int canceled = 0;
        int through = 0;
        int at_once = 0;
        for (int stage = 0; stages_go_on(stage, through != 0); stage = next_stage(stage)) {
            CAPTURE(stage, read);
            std::vector<std::byte>& target = read ? here : memory;
            const std::vector<std::byte>& source = read ? memory : here;
            std::fill(target.begin(), target.end(), std::byte{0x22});
            local_stop_source stop;
            auto moving =
                stoppable(read ? p.a.rdma_get(open.remote(), here) : p.a.rdma_put(here, open.remote()), stop);
            if (moving.done()) ++at_once;
            co_await turns(stage);
            stop.request_stop();
            const auto ended = co_await moving;
            if (ended) {
                ++through;
                CHECK(static_cast<bool>(target == source));
                continue;
            }
            ++canceled;
            CHECK(ended.error() == errc::canceled);
            if (read) {
                std::fill(here.begin(), here.end(), std::byte{0x11});
                co_await turns(20);
                CHECK(all_are(std::byte{0x11}, here));
            }
        }
        CAPTURE(read, canceled, through, at_once);
        CHECK(through > 0);
        // Where nothing is revoked at once, it goes on to its end: its memory is the device's until then.
        if (!p.a.link_capabilities().revokes_at_once || (may_end_at_once && at_once > 0)) {
            CHECK(canceled == 0);
        } else {
            CHECK(canceled > 0);
        }
        here = pattern(bytes, 2);
    }
    co_await p.a.rdma_put(here, open.remote());
    CHECK(is_pattern(memory, 2));
    co_await still_talks(p.a, p.b);
}
CONFORMANCE_CASE("a get or put stopped at any stage gives its memory back, and the link goes on",
                 every_transport) {
    conform(over, one_sided_stops_anywhere);
}

// ---- connect, accept, close

task<> connect_and_accept(two_domains& w) {
    // A listener of the bare transport: connections are made, and no hello is sent on them.
    auto silent = co_await w.there().listen_bare(w.address());
    for (int stage = 0; stage < 8; ++stage) {
        local_stop_source stop;
        auto connecting = stoppable(w.here().connect(silent->address()), stop);
        co_await turns(stage);
        CHECK_FALSE(connecting.done());
        stop.request_stop();
        const bool soon = co_await ends_soon(connecting);
        CHECK(soon);
        const auto ended = co_await connecting;
        CHECK(ended.error() == errc::canceled);
    }
    auto listening = co_await w.there().listen(w.address());
    local_stop_source stop;
    auto accepting = stoppable(listening.accept(), stop);
    co_await turns(3);
    stop.request_stop();
    const bool soon = co_await ends_soon(accepting);
    CHECK(soon);
    const auto ended = co_await accepting;
    CHECK(ended.error() == errc::canceled);
    // No peer was lost: the next accept gets it.
    auto a = co_await w.here().connect(listening.address());
    auto b = co_await listening.accept();
    co_await still_talks(a, b);
}
CONFORMANCE_CASE("connect and accept stop at once", every_transport) { conform(over, connect_and_accept); }

task<> close_stops(two_domains& w) {
    for (int stage = 0; stage < 6; ++stage) {
        auto p = co_await w.connected();
        // The close waits for the message, which is not received.
        const auto data = pattern(std::size_t{8} << 20, 1);
        auto sending = start(p.a.send(data));
        local_stop_source stop;
        auto closing = stoppable(p.a.close(), stop);
        co_await turns(stage * 4);
        CHECK_FALSE(closing.done());
        stop.request_stop();
        const bool soon = co_await ends_soon(closing);
        CHECK(soon);
        const auto ended = co_await closing;
        CHECK(ended.error() == errc::canceled);
        const auto lost = co_await as_result(sending);
        CHECK(lost.error() == errc::closed);
        CHECK_FALSE(p.a.is_open());
        std::byte nothing[1];
        const auto gone = co_await as_result(p.b.recv(nothing, 5));
        CHECK(gone.error() == errc::peer_lost);
    }
}
CONFORMANCE_CASE("a close that is stopped closes at once", every_transport) { conform(over, close_stops); }

// ---- a token that another thread stops

task<> stopped_by_a_thread(two_domains& w) {
    auto p = co_await w.connected({}, least_memory());
    const auto data = pattern(1000, 1);
    const std::size_t sent = co_await use_up_credit(p.a, data);
    std::vector<std::byte> into(1000);
    std::stop_source quit;
    auto receiving = start(as_result(with_stop(p.b.recv(into, 1'000'000), quit.get_token())));
    auto sending = start(as_result(with_stop(p.a.send(data, 1'000'001), quit.get_token())));
    auto behind = start(p.a.send(data, 1'000'002));
    co_await turns(30);
    CHECK_FALSE(receiving.done());
    CHECK_FALSE(sending.done());
    const std::jthread other([&quit] { quit.request_stop(); });
    const auto received_none = co_await receiving;
    CHECK(received_none.error() == errc::canceled);
    const auto sent_none = co_await sending;
    CHECK(sent_none.error() == errc::canceled);
    CHECK_FALSE(behind.done());
    for (std::size_t n = 0; n < sent; ++n) co_await p.b.recv(into, n);
    const received next = co_await p.b.recv(into);
    CHECK(next.tag == 1'000'002);
    co_await behind;
    co_await still_talks(p.a, p.b);
}
CONFORMANCE_CASE("a receive and a send that waits for credit are stopped by another thread",
                 every_transport) {
    conform(over, stopped_by_a_thread);
}

enum class waits_for { message, credit };

/// Waits for a message or for credits that never come and returns the error; `waiting` becomes true once it waits.
task<std::error_code> waits_in_vain(two_domains& w, waits_for what, std::atomic<bool>& waiting) {
    auto p = co_await w.connected({}, least_memory());
    const auto data = pattern(1000, 1);
    std::vector<std::byte> into(1000);
    std::error_code ended;
    const auto wait = [&](auto op) -> task<std::error_code> {
        auto pending = start(as_result(std::move(op)));
        co_await turns(3);
        CHECK_FALSE(pending.done());
        waiting.store(true);
        waiting.notify_one();
        const auto outcome = co_await pending;
        co_return outcome.error();
    };
    if (what == waits_for::message) {
        ended = co_await wait(p.b.recv(into));
    } else {
        co_await use_up_credit(p.a, data);
        ended = co_await wait(p.a.send(data));
    }
    co_return ended;
}

CONFORMANCE_CASE("a scheduler that sleeps is woken by a stop from another thread, and what it waits for ends",
                 every_real_transport) {
    for (const waits_for what : {waits_for::message, waits_for::credit}) {
        for (int round = 0; round < 10; ++round) {
            const auto loop = make_loop(idle::adaptive(duration::zero(), duration::zero()));
            two_domains w(loop->on(), over);
            std::stop_source quit;
            std::atomic<bool> waiting{false};
            const std::jthread other([&] {
                waiting.wait(false);
                quit.request_stop();
            });
            // However this ends, the thread does.
            struct let_go {
                ~let_go() {
                    flag.store(true);
                    flag.notify_one();
                }
                std::atomic<bool>& flag;
            };
            const let_go at_the_end{waiting};
            const std::error_code ended = loop->run(
                [](two_domains& in, waits_for kind, std::atomic<bool>& flag) -> task<std::error_code> {
                    co_return co_await timeout(waits_in_vain(in, kind, flag), case_limit);
                }(w, what, waiting),
                quit.get_token());
            CHECK(ended == errc::canceled);
        }
    }
}

// ---- timeout

/// Get and put on a connection whose other end no endpoint polls.
task<> one_sided_times_out(two_domains& w) {
    auto raw = co_await w.there().listen_bare(w.address());
    auto accepting = start(raw->accept());
    peer alone = w.here().endpoint_over(co_await w.here().connect_bare(raw->address()));
    const auto held = co_await accepting;
    std::vector<std::byte> memory = pattern(1000, 1);
    const region open = w.there().register_memory(memory, access_rights::all);
    std::vector<std::byte> here(1000, std::byte{0x11});
    if (alone.link_capabilities().one_sided_offloaded) {  // needs no poll by the peer
        co_await timeout(alone.rdma_get(open.remote(), here), case_limit);
        CHECK(is_pattern(here, 1));
        here = pattern(1000, 2);
        co_await timeout(alone.rdma_put(here, open.remote()), case_limit);
        CHECK(is_pattern(memory, 2));
        co_return;
    }
    const auto getting = co_await as_result(timeout(alone.rdma_get(open.remote(), here), 2ms));
    REQUIRE(static_cast<bool>(getting) == w.is().serves_bare_links);
    if (getting) {
        CHECK(is_pattern(here, 1));
        here = pattern(1000, 2);
        co_await timeout(alone.rdma_put(here, open.remote()), case_limit);
        CHECK(is_pattern(memory, 2));
        co_return;
    }
    CHECK(getting.error() == errc::timed_out);
    CHECK(here == std::vector<std::byte>(1000, std::byte{0x11}));
    const auto putting = co_await as_result(timeout(alone.rdma_put(here, open.remote()), 2ms));
    CHECK(putting.error() == errc::timed_out);
    CHECK(is_pattern(memory, 1));
}

task<> mailbox_times_out(two_domains& w) {
    auto p = co_await w.connected({}, least_memory());
    const auto owned = w.there().make_mailbox();
    any_mailbox& box = *owned;
    const peer_id id = box.attach(std::move(p.b));
    std::vector<std::byte> into(10);
    for (const peer_id source : {any_source, id}) {
        const auto receive = co_await as_result(timeout(box.recv(into, any_tag, source), 2ms));
        CHECK(receive.error() == errc::timed_out);
        const auto lent = co_await as_result(timeout(box.recv_lent(any_tag, source), 2ms));
        CHECK(lent.error() == errc::timed_out);
        const auto probe = co_await as_result(timeout(box.probe(any_tag, source), 2ms));
        CHECK(probe.error() == errc::timed_out);
    }
    // None of them is left to take a message.
    CHECK(box.base().matching().posted() == 0);
    CHECK_FALSE(box.base().matching().has_probes());
    const std::uint64_t said = 3;
    std::uint64_t heard = 0;
    co_await p.a.send(bytes_of(said), 1);
    co_await box.recv(room_for(heard));
    CHECK(heard == 3);
    const auto synchronous = co_await as_result(timeout(box.ssend(id, into), 2ms));
    CHECK(synchronous.error() == errc::timed_out);
}

task<> times_out(two_domains& w) {
    auto silent = co_await w.there().listen_bare(w.address());
    auto p = co_await w.connected({}, least_memory());
    std::vector<std::byte> into(10);
    const auto data = pattern(long_bytes, 1);
    const auto receive = co_await as_result(timeout(p.b.recv(into), 2ms));
    CHECK(receive.error() == errc::timed_out);
    const auto lent = co_await as_result(timeout(p.b.recv_lent(), 2ms));
    CHECK(lent.error() == errc::timed_out);
    const auto probe = co_await as_result(timeout(p.b.probe(), 2ms));
    CHECK(probe.error() == errc::timed_out);
    const auto synchronous = co_await as_result(timeout(p.a.ssend(into), 2ms));
    CHECK(synchronous.error() == errc::timed_out);
    const auto send = co_await as_result(timeout(p.a.send(data), 2ms));
    CHECK(send.error() == errc::timed_out);
    co_await one_sided_times_out(w);
    co_await mailbox_times_out(w);
    const auto connecting = co_await as_result(timeout(w.here().connect(silent->address()), 2ms));
    CHECK(connecting.error() == errc::timed_out);
    auto listening = co_await w.there().listen(w.address());
    const auto accepting = co_await as_result(timeout(listening.accept(), 2ms));
    CHECK(accepting.error() == errc::timed_out);
    co_await still_talks(p.a, p.b);
    auto sending = start(p.a.send(data, 8));
    const auto closing = co_await as_result(timeout(p.a.close(), 2ms));
    CHECK(closing.error() == errc::timed_out);
    const auto cut = co_await as_result(sending);
    CHECK(cut.error() == errc::closed);
}
CONFORMANCE_CASE("every operation can be given a time limit", every_transport) { conform(over, times_out); }

// ---- destroyed while pending

task<> destroys_receive(two_domains& w) {
    auto p = co_await w.connected();
    std::byte into[8];
    auto op = p.b.recv(into);
    op.begin();
}
task<> destroys_probe(two_domains& w) {
    auto p = co_await w.connected();
    auto op = p.b.probe();
    op.begin();
}
task<> destroys_send(two_domains& w) {
    auto p = co_await w.connected();
    std::byte from[8] = {};
    auto op = p.b.ssend(from);
    op.begin();
}
task<> destroys_close(two_domains& w) {
    auto p = co_await w.connected();
    auto sending = start(p.a.ssend({}));
    auto op = p.a.close();
    op.begin();
}
CONFORMANCE_CASE("destroying an operation that is pending ends the process with a message", every_transport) {
    for (auto* body : {destroys_receive, destroys_probe, destroys_send}) {
        const death seen = dies([&over, body] { conform(over, body); });
        CHECK(seen.aborted);
        CHECK_THAT(seen.said, contains("destroyed while pending"));
    }
    const death seen = dies([&over] { conform(over, destroys_close); });
    CHECK(seen.aborted);
}

}  // namespace

}  // namespace test_conformance_cancel

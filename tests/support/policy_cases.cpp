#include "support/policy_cases.hpp"

#include <rdmacoro/protocol/staged_get.hpp>

#include "support/seldom.hpp"

#include <deque>
#include <string>

namespace rdmacoro::test {

void nothing_left(two_domains& w, two_domains::pair& p) {
    CHECK(p.a.connection().mailbox().matching().posted() == 0);
    CHECK(p.b.connection().mailbox().matching().posted() == 0);
    CHECK(p.a.connection().mailbox().store().live() == 0);
    CHECK(p.b.connection().mailbox().store().live() == 0);
    if (!p.a.link_capabilities().revokes_at_once) return;  // registrations may linger
    // Blocks that messages are staged in stay open.
    const bool staged = p.a.counts().staged_sent + p.b.counts().staged_sent != 0;
    const std::size_t most = staged ? std::size_t{rdmacoro::detail::most_staged} : 0;
    CHECK(w.here().registered() <= most);
    CHECK(w.there().registered() <= most);
}

task<> exchange(peer& from, peer& to, laid_out& data, laid_out& into, manner how) {
    static std::uint64_t seed = 0;
    ++seed;
    data.fill(seed);
    received got;
    const auto send = [&] {
        return how.synchronous ? from.ssend(data.from(), 3) : from.send(data.from(), 3);
    };
    if (how.receive != posted::late) {
        auto receiving = start(to.recv(into.into(), how.wanted));
        if (how.receive == posted::early) co_await turns(soon);
        co_await send();
        got = co_await receiving;
    } else {
        auto sending = start(send());
        const received seen = co_await to.probe(how.wanted);
        CHECK(seen.bytes == data.size());
        got = co_await to.recv(into.into(), how.wanted);
        co_await sending;
    }
    CHECK(got.bytes == data.size());
    CHECK(got.tag == 3);
    CHECK(into.holds(seed, data.size()));
    CHECK(data.holds(seed, data.size()));
}

task<> still_good(two_domains& w, two_domains::pair& p) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{600000}}) {
        for (const posted when : posted_when) {
            laid_out data(bytes, laid_out::as::whole);
            laid_out there(bytes, laid_out::as::whole);
            laid_out back(bytes, laid_out::as::whole);
            co_await exchange(p.a, p.b, data, there, {when, tag_match(3), false});
            co_await exchange(p.b, p.a, data, back, {when, tag_match(3), true});
        }
    }
    nothing_left(w, p);
}

namespace {

/// Both sides of every limit, as far as a test has time for them.
std::vector<std::size_t> sizes_around_limits(peer& end) {
    const capabilities& link = end.link_capabilities();
    std::vector<std::size_t> limits{link.inline_bytes, link.eager_bytes,      link.segment_bytes,
                                    link.max_message,  link.rendezvous_bytes, link.get_bytes,
                                    std::size_t{65536}};
    for (const std::size_t longest : end.longest_of_each()) limits.push_back(longest);
    std::vector<std::size_t> sizes{0, 1, std::size_t{1} << 20};
    for (const std::size_t limit : limits) {
        if (limit == 0 || limit > std::size_t{3} << 20) continue;
        for (const std::size_t near : {limit - 1, limit, limit + 1}) sizes.push_back(near);
    }
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    return sizes;
}

// ---- the bodies

task<> carries_all_sizes(two_domains& w, list_name list) {
    auto p = co_await w.connected_with(list);
    for (const std::size_t bytes : sizes_around_limits(p.a)) {
        for (const auto from : {laid_out::as::whole, laid_out::as::odd}) {
            for (const auto to : {laid_out::as::whole, laid_out::as::odd}) {
                // Long ones once for each protocol there, not once for each pair of layouts.
                if (w.is().slowness != 1 && bytes > std::size_t{70000} && from != to) continue;
                laid_out data(bytes, from);
                for (const posted when : posted_when) {
                    for (const tag_match wanted : {tag_match(3), any_tag}) {
                        CAPTURE(bytes, from, to, when, wanted.exact());
                        laid_out there(bytes, to);
                        co_await exchange(p.a, p.b, data, there, {when, wanted, false});
                        laid_out back(bytes, to);
                        co_await exchange(p.b, p.a, data, back, {when, wanted, true});
                    }
                }
            }
        }
    }
    nothing_left(w, p);
}

task<> carries_pieces(two_domains& w, list_name list) {
    auto p = co_await w.connected_with(list);
    for (const std::size_t bytes : {std::size_t{40}, std::size_t{3000}, std::size_t{200000}}) {
        for (const auto from : laid_out::all) {
            for (const auto to : laid_out::all) {
                for (const posted when : posted_when) {
                    CAPTURE(bytes, from, to, when);
                    laid_out data(bytes, from);
                    laid_out into(bytes, to);
                    if (data.size() > into.size()) continue;
                    co_await exchange(p.a, p.b, data, into, {when, tag_match(3), false});
                    laid_out wild(bytes, to);
                    co_await exchange(p.a, p.b, data, wild, {when, any_tag, true});
                }
            }
        }
    }
    nothing_left(w, p);
}

task<> lends(two_domains& w, list_name list) {
    auto p = co_await w.connected_with(list);
    for (const std::size_t bytes : sizes_around_limits(p.a)) {
        const auto data = pattern(bytes, 5);
        for (const bool expected : {true, false}) {
            CAPTURE(bytes, expected);
            message got;
            if (expected) {
                auto receiving = start(p.b.recv_lent(expected ? tag_match(3) : any_tag));
                co_await p.a.send(data, 3);
                got = co_await receiving;
            } else {
                auto sending = start(p.a.ssend(data, 3));
                co_await p.b.probe();
                got = co_await p.b.recv_lent();
                co_await sending;
            }
            CHECK(got.size() == bytes);
            CHECK(is_pattern(got.bytes(), 5));
        }
    }
    nothing_left(w, p);
}

task<> truncates_all(two_domains& w, list_name list) {
    auto p = co_await w.connected_with(list);
    for (const std::size_t bytes :
         {std::size_t{8}, std::size_t{5000}, std::size_t{100000}, std::size_t{2} << 20}) {
        const auto data = pattern(bytes, 1);
        for (const posted when : posted_when) {
            for (const bool synchronous : {false, true}) {
                CAPTURE(bytes, when, synchronous);
                std::vector<std::byte> into(bytes, std::byte{0x11});
                const auto most = std::span(into).first(bytes - 1);
                const auto send = [&] { return synchronous ? p.a.ssend(data, 1) : p.a.send(data, 1); };
                result<received> got = errc::ok;
                if (when != posted::late) {
                    auto receiving = start(p.b.recv(most, 1));
                    if (when == posted::early) co_await turns(soon);
                    co_await send();
                    got = co_await as_result(receiving);
                } else {
                    auto sending = start(send());
                    co_await p.b.probe(1);
                    got = co_await as_result(p.b.recv(most, 1));
                    co_await sending;
                }
                CHECK(got.error() == errc::truncated);
                CHECK(got.info() == bytes);
                CHECK(into.back() == std::byte{0x11});
                // The message is consumed and the link goes on.
                const std::uint64_t marker = 77;
                std::uint64_t next = 0;
                auto sending = start(p.a.send(bytes_of(marker), 1));
                co_await p.b.recv(room_for(next), 1);
                co_await sending;
                CHECK(next == marker);
            }
        }
    }
    nothing_left(w, p);
}

/// The sizes of messages that are under way together; neighbours go by different policies where there are several.
std::vector<std::size_t> mixed_sizes() {
    return {9,     200000, 0,  5000, 100000, 48,   49,    300000, 1,     4096,  4097,    32768,  65536,
            32769, 65537,  12, 1008, 65535,  1009, 70001, 3,      16385, 16384, 1 << 20, 150000, 7};
}

task<> overlaps(two_domains& w, list_name list) {
    auto p = co_await w.connected_with(list);
    const auto sizes = mixed_sizes();
    using sent = started<any_operation<void>>;
    using got = started<any_operation<received>>;
    struct side {
        std::vector<std::vector<std::byte>> out;
        std::vector<std::vector<std::byte>> in;
        std::deque<sent> sends;
        std::deque<got> receives;
    };
    std::array<side, 2> sides;
    std::array<peer*, 2> ends{&p.a, &p.b};
    for (std::size_t s = 0; s < 2; ++s) {
        for (std::size_t n = 0; n < sizes.size(); ++n) {
            sides[s].out.push_back(pattern(sizes[n], 100 * s + n));
            sides[s].in.emplace_back(sizes[n]);
        }
    }
    // Half of the receives, of the messages sent last, are there first; the others come in the opposite order.
    const auto receive = [&](std::size_t s, std::size_t n) {
        sides[s].receives.emplace_back(ends[s]->recv(sides[s].in[n], n));
    };
    for (std::size_t n = sizes.size(); n > sizes.size() / 2; --n) {
        receive(0, n - 1);
        receive(1, n - 1);
    }
    for (std::size_t n = 0; n < sizes.size(); ++n) {
        for (std::size_t s = 0; s < 2; ++s) {
            const std::span<const std::byte> data = sides[s].out[n];
            sides[s].sends.emplace_back(n % 3 == 0 ? ends[s]->ssend(data, n) : ends[s]->send(data, n));
        }
        if (n % 4 == 0) co_await yield();
    }
    for (std::size_t n = sizes.size() / 2; n > 0; --n) {
        receive(0, n - 1);
        receive(1, n - 1);
    }
    for (std::size_t s = 0; s < 2; ++s) {
        for (auto& each : sides[s].sends) co_await each;
        for (auto& each : sides[s].receives) co_await each;
    }
    for (std::size_t s = 0; s < 2; ++s) {
        for (std::size_t n = 0; n < sizes.size(); ++n) {
            CAPTURE(s, n, sizes[n]);
            CHECK(is_pattern(sides[s].in[n], 100 * (1 - s) + n));
        }
    }
    nothing_left(w, p);
}

task<> keeps_order_of_mixed_sizes(two_domains& w, list_name list) {
    auto p = co_await w.connected_with(list);
    const auto sizes = mixed_sizes();
    auto sender = [](peer& from, const std::vector<std::size_t>& all) -> task<> {
        using sent = started<any_operation<void>>;
        std::vector<std::vector<std::byte>> data;
        std::deque<sent> sends;
        for (std::size_t n = 0; n < all.size(); ++n) data.push_back(pattern(all[n], n));
        for (std::size_t n = 0; n < all.size(); ++n) {
            const std::span<const std::byte> one = data[n];
            sends.emplace_back(n % 5 == 4 ? from.ssend(one, 5) : from.send(one, 5));
        }
        for (auto& each : sends) co_await each;
    };
    for (const bool wild : {false, true}) {
        task_group group;
        group.spawn(sender, std::ref(p.a), std::cref(sizes));
        std::vector<std::byte> into(1 << 20);
        for (std::size_t n = 0; n < sizes.size(); ++n) {
            CAPTURE(wild, n);
            const received got = co_await p.b.recv(into, wild && n % 2 == 0 ? any_tag : tag_match(5));
            CHECK(got.bytes == sizes[n]);
            CHECK(is_pattern(std::span(into).first(got.bytes), n));
            if (n % 3 == 0) co_await yield();
        }
        co_await group.join();
    }
    nothing_left(w, p);
}

// ---- canceled

/// The moments at which to stop something, in turns: every early one, then ever larger strides, until it has come too late
/// three times. The test's time limit ends a search that finds none.
class moments {
public:
    [[nodiscard]] int turn() const noexcept { return turn_; }
    [[nodiscard]] bool go_on() const noexcept { return turn_ < 12 || late_ < 3; }
    void next() noexcept { turn_ += turn_ < 40 ? 1 : turn_ / 8; }
    void too_late() noexcept { ++late_; }

private:
    int turn_ = 0;
    int late_ = 0;
};

/// Long enough to be stopped in the middle of.
std::size_t cancel_length(const traits& is) { return (std::size_t{is.slowness == 1 ? 4u : 1u} << 20) + 3; }

/// Whether some stop must meet a message of the list in the middle.
bool is_cut(const traits& is, list_name list) {
    const bool by_get =
        list == list_name::get || list == list_name::speculative_get || list == list_name::staged;
    return is.moves == in_turns::all || (is.moves == in_turns::all_but_gets && !by_get);
}

/// Some stop has met a message of the list in the middle; where timing decides, and for gets that may be over at once, on one of this
/// program's transports at least.
void expect_cut(const traits& is, list_name list, const char* what, int cut) {
    if (is_cut(is, list) && !is.timing_decides && !is.lingers) {
        CHECK(cut > 0);
    } else {
        seldom(std::string(what) + ", list " + std::to_string(static_cast<int>(list)), is.name, cut > 0);
    }
}

task<> sender_stops(two_domains& w, list_name list) {
    auto p = co_await w.connected_with(list);
    const std::size_t cancel_bytes = cancel_length(w.is());
    const auto data = pattern(cancel_bytes, 1);
    for (const posted receive : posted_when) {
        const bool expected = receive != posted::late;
        int cut = 0;
        for (moments when; when.go_on(); when.next()) {
            CAPTURE(receive, when.turn());
            std::vector<std::byte> from = data;
            std::vector<std::byte> into(cancel_bytes);
            local_stop_source stop;
            auto early =
                start(p.b.recv(expected ? std::span(into) : std::span<std::byte>(), expected ? 1 : 2));
            if (receive == posted::early) co_await turns(soon);
            auto sending = stoppable(p.a.send(from, 1), stop);
            if (!expected) co_await turns(soon);
            auto late =
                start(p.b.recv(expected ? std::span<std::byte>() : std::span(into), expected ? 2 : 1));
            co_await turns(when.turn());
            stop.request_stop();
            const auto ended = co_await sending;
            // The memory is the sender's again, whatever is still on its way.
            std::fill(from.begin(), from.end(), std::byte{0xdd});
            if (!ended) CHECK(ended.error() == errc::canceled);
            const std::uint64_t marker = 99;
            auto marking = start(p.a.send(bytes_of(marker), 1));
            auto ending = start(p.a.send({}, 2));
            const auto first = co_await as_result(early);
            const auto second = co_await as_result(late);
            const auto& got = expected ? first : second;
            const auto& other = expected ? second : first;
            CHECK(static_cast<bool>(other));
            if (got && got->bytes == sizeof marker) {
                CHECK_FALSE(ended);  // never announced, or taken back before it was met
                co_await marking;
                co_await ending;
                continue;
            }
            if (got) {
                CHECK(got->bytes == cancel_bytes);
                CHECK(same_bytes(into, data));
                when.too_late();
            } else {
                CHECK(got.error() == errc::peer_canceled);
                CHECK_FALSE(ended);
                ++cut;
            }
            std::uint64_t end = 0;
            co_await p.b.recv(room_for(end), 1);
            CHECK(end == marker);
            co_await marking;
            co_await ending;
        }
        CAPTURE(receive, cut);
        expect_cut(w.is(), list, "a send was stopped in the middle of its message", cut);
    }
    co_await still_good(w, p);
}

task<> receiver_stops(two_domains& w, list_name list) {
    auto p = co_await w.connected_with(list);
    const std::size_t cancel_bytes = cancel_length(w.is());
    const auto data = pattern(cancel_bytes, 1);
    for (const int kind : {0, 1, 2}) {
        const bool early = kind == 2;
        const bool lent = kind == 1;
        int cut = 0;
        for (moments when; when.go_on(); when.next()) {
            CAPTURE(kind, when.turn());
            std::vector<std::byte> into(lent ? 0 : cancel_bytes);
            local_stop_source stop;
            auto receiving = stoppable(p.b.recv(into, lent ? 2 : 1), stop);
            auto lending = stoppable(p.b.recv_lent(lent ? 1 : 2), stop);
            if (early) co_await turns(soon);
            auto sending = start(p.a.send(data, 1));
            co_await turns(when.turn());
            stop.request_stop();
            const auto whole = co_await receiving;
            const auto borrowed = co_await lending;
            const std::error_code ended = lent ? borrowed.error() : whole.error();
            if (!ended) {
                when.too_late();
                CHECK((lent ? is_pattern(borrowed->bytes(), 1) : same_bytes(into, data)));
            } else {
                CHECK(ended == errc::canceled);
                // Not touched any more, though the rest of the message may still be coming.
                std::fill(into.begin(), into.end(), std::byte{0x11});
            }
            // Met no receive at all: another gets it. Otherwise the sender ends by itself.
            bool matched = true;
            while (!sending.done()) {
                if (p.b.connection().mailbox().matching().find(0, tag_match(1)) != nullptr) {
                    const message taken = co_await p.b.recv_lent(1);
                    CHECK(taken.size() == cancel_bytes);
                    CHECK(is_pattern(taken.bytes(), 1));
                    matched = false;
                }
                co_await yield();
            }
            co_await sending;
            if (ended) {
                if (matched) ++cut;
                CHECK(all_are(std::byte{0x11}, into));
            }
        }
        CAPTURE(kind, cut);
        expect_cut(w.is(), list, "a receive was stopped in the middle of its message", cut);
    }
    co_await still_good(w, p);
}

// ---- canceled, with both ends on threads of their own

int cancel_rounds(const traits& is) { return is.slowness == 1 ? 150 : 15; }
constexpr std::size_t cancel_race_bytes = (std::size_t{2} << 20) + 1;

/// Which end stops its operation in a round, and after how many turns; in each tenth one, neither.
bool sender_gives_up(int round) { return round % 10 != 5 && round % 3 != 0; }
bool receiver_gives_up(int round) { return round % 10 != 5 && round % 3 != 1; }
/// Whether the sender waits until the receive is posted.
bool waits_for_receive(int round) { return round % 4 >= 2; }
int patience(int round, int other) { return (round * 37 + other) % (round % 2 == 0 ? 30 : 400); }

/// Rounds in which nothing that is stopped can have ended before: the receives are for a tag that no message has, and no receive is for
/// the messages. Timing decides how far each is then, and what the other thread does meanwhile, but not how it ends.
int sure_rounds(const traits& is) { return cancel_rounds(is) / 5; }
constexpr tag_type never_sent = 7;

task<> sends_for_no_receive(peer& end, any_domain& domain, const traits& is) {
    for (int round = 0; round < sure_rounds(is); ++round) {
        auto from = pattern(cancel_race_bytes, static_cast<std::uint64_t>(round));
        local_stop_source stop;
        auto sending = stoppable(end.ssend(from, 1), stop);
        co_await turns(patience(round, 0));
        stop.request_stop();
        const auto ended = co_await sending;
        demand(ended.error() == errc::canceled, "how a send ended that no receive could meet");
        std::fill(from.begin(), from.end(), std::byte{0xdd});
        co_await end.send({}, 2);
        co_await end.recv({}, 3);
        demand(domain.registered() == 0, "the sender left memory open");
    }
}

task<> receives_what_never_comes(peer& end, any_domain& domain, const traits& is) {
    for (int round = 0; round < sure_rounds(is); ++round) {
        std::vector<std::byte> into(cancel_race_bytes);
        local_stop_source stop;
        auto receiving = stoppable(end.recv(into, never_sent), stop);
        auto over = start(end.recv({}, 2));
        co_await turns(patience(round, 101));
        stop.request_stop();
        const auto got = co_await receiving;
        demand(got.error() == errc::canceled, "how a receive ended that no message could meet");
        co_await over;
        demand(all_are(std::byte{0}, into), "a message was written to a receive of another tag");
        co_await end.send({}, 3);
        demand(domain.registered() == 0, "the receiver left memory open");
    }
}

task<> sends_and_gives_up(peer& end, any_domain& domain, const traits& is) {
    int sent = 0;
    for (int round = 0; round < cancel_rounds(is); ++round) {
        const auto seed = static_cast<std::uint64_t>(round);
        auto from = pattern(cancel_race_bytes, seed);
        local_stop_source stop;
        if (waits_for_receive(round)) co_await end.recv({}, 5);
        auto sending = stoppable(end.send(from, 1), stop);
        if (sender_gives_up(round)) {
            co_await turns(patience(round, 0));
            stop.request_stop();
        }
        const auto ended = co_await sending;
        demand(ended || ended.error() == errc::canceled, "how a send ended");
        if (ended) ++sent;
        // The memory is free again: bytes written to it now must not be received.
        std::fill(from.begin(), from.end(), std::byte{0xdd});
        co_await end.send({}, 2);
        if (!waits_for_receive(round)) co_await end.recv({}, 5);
        co_await end.recv({}, 3);
        demand(domain.registered() == 0, "the sender left memory open");
    }
    demand(sent > 0, "no send came to its end");
    co_await sends_for_no_receive(end, domain, is);
    co_await end.close();
}

task<> receives_and_gives_up(peer& end, any_domain& domain, const traits& is) {
    int whole = 0;
    for (int round = 0; round < cancel_rounds(is); ++round) {
        const auto seed = static_cast<std::uint64_t>(round);
        std::vector<std::byte> into(cancel_race_bytes);
        local_stop_source stop;
        auto receiving = stoppable(end.recv(into, 1), stop);
        auto over = start(end.recv({}, 2));
        auto saying = start(end.send({}, 5));
        bool given_up = false;
        const auto settle = [&](const result<received>& got) {
            if (got) {
                ++whole;
                demand(got->bytes == cancel_race_bytes && is_pattern(into, seed), "the bytes of a message");
            } else if (got.error() == errc::canceled) {
                given_up = true;
                std::fill(into.begin(), into.end(), std::byte{0x11});
            } else {
                demand(got.error() == errc::peer_canceled, "how a receive ended");
            }
        };
        if (receiver_gives_up(round)) {
            co_await turns(patience(round, 101));
            stop.request_stop();
            settle(co_await receiving);
        }
        while (!over.done()) {
            if (given_up && end.connection().mailbox().matching().find(0, tag_match(1)) != nullptr) {
                const auto got = co_await as_result(end.recv_lent(1));
                demand(got ? is_pattern(got->bytes(), seed) : got.error() == errc::peer_canceled,
                       "a message that was met by nobody");
            }
            co_await yield();
        }
        co_await over;
        co_await saying;
        if (!receiver_gives_up(round)) {
            stop.request_stop();  // the message may have been taken back before it was met
            settle(co_await receiving);
        }
        demand(!given_up || all_are(std::byte{0x11}, into), "a buffer was written to after its receive");
        co_await end.send({}, 3);
        demand(domain.registered() == 0, "the receiver left memory open");
    }
    demand(whole > 0, "no message was received");
    co_await receives_what_never_comes(end, domain, is);
    const auto last = co_await as_result(end.recv({}, 4));
    demand(last.error() == errc::closed, "how the last receive ended");
}

}  // namespace

void cancel_across_threads(const variant& over, list_name list) {
    across_threads(over, list, idle::yield{}, receives_and_gives_up, sends_and_gives_up);
}

void conform_all(const variant& over, list_name list) {
    struct named {
        const char* name;
        task<> (*body)(two_domains&, list_name);
    };
    static constexpr named bodies[] = {
        {"messages of all sizes, aligned and not, expected and not, arrive whole", carries_all_sizes},
        {"gathered and strided memory at either end", carries_pieces},
        {"messages are lent", lends},
        {"a receive that is too short ends truncated", truncates_all},
        {"many at once in both directions", overlaps},
        {"messages of one tag keep their order", keeps_order_of_mixed_sizes},
        {"a send stopped at any moment", sender_stops},
        {"a receive stopped at any moment", receiver_stops},
    };
    for (const named& each : bodies) {
        DYNAMIC_SECTION(each.name) { conform(over, list, each.body); }
    }
}

task<> carries_huge_message(two_domains& w, list_name list) {
    auto p = co_await w.connected_with(list);
    const std::size_t bytes = (std::size_t{64} << 20) / static_cast<std::size_t>(w.is().slowness) / 4 * 4 + 3;
    const std::vector<std::byte> data = pattern(bytes, 1);
    std::vector<std::byte> into(bytes);
    auto receiving = start(p.b.recv(into, 1));
    co_await p.a.send(data, 1);
    const received got = co_await receiving;
    CHECK(got.bytes == bytes);
    CHECK(same_bytes(into, data));
    nothing_left(w, p);
}

}  // namespace rdmacoro::test

#pragma once

// What every list of protocol policies must do on every transport: bodies of test cases, for each list a file of its own.

#include <rdmacoro/transport/sim.hpp>

#include "conformance/transports.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>

namespace rdmacoro::test {

/// Two ends of one connection whose messages travel as `P` says.
template <class T, class P>
struct joined {
    endpoint<T, P> a;
    endpoint<T, P> b;
};
template <class P, class T>
task<joined<T, P>> join(world<T>& w, mailbox_options of_b = {}) {
    auto listening = co_await listen<T, P>(w.there(), w.address(), of_b);
    auto accepting = start(listening.accept());
    endpoint<T, P> a = co_await connect<T, P>(w.here(), listening.address());
    endpoint<T, P> b = co_await accepting;
    co_return joined<T, P>{std::move(a), std::move(b)};
}

/// Regions that peers of this domain can reach now.
template <class Domain>
std::size_t regions_of(Domain& domain) {
    if constexpr (requires { domain.regions().registered(); }) {
        return domain.regions().registered();
    } else {
        return domain.registered();
    }
}

/// That nothing is left of what was sent and received: no memory is open to the peer, none is kept.
template <class T, class P>
void nothing_left(world<T>& w, joined<T, P>& p) {
    CHECK(p.a.connection().box().matching().posted() == 0);
    CHECK(p.b.connection().box().matching().posted() == 0);
    CHECK(p.a.connection().box().store().live() == 0);
    CHECK(p.b.connection().box().store().live() == 0);
    if (!p.a.link_capabilities().revokes_at_once) return;  // registrations may linger
    // Blocks that messages are staged in stay open.
    const bool staged = p.a.counts().staged_sent + p.b.counts().staged_sent != 0;
    const std::size_t most = staged ? std::size_t{rdmacoro::detail::most_staged} : 0;
    CHECK(regions_of(w.here()) <= most);
    CHECK(regions_of(w.there()) <= most);
}

/// Both sides of every limit, as far as a test has time for them.
template <class P>
std::vector<std::size_t> sizes_around_limits(const capabilities& link) {
    std::vector<std::size_t> limits{link.inline_bytes, link.eager_bytes,      link.segment_bytes,
                                    link.max_message,  link.rendezvous_bytes, link.get_bytes,
                                    std::size_t{65536}};
    for (std::size_t i = 0; i < P::count; ++i) limits.push_back(P::longest_of(i, link));
    std::vector<std::size_t> sizes{0, 1, std::size_t{1} << 20};
    for (const std::size_t limit : limits) {
        if (limit == 0 || limit > std::size_t{3} << 20) continue;
        for (const std::size_t near : {limit - 1, limit, limit + 1}) sizes.push_back(near);
    }
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    return sizes;
}

/// Memory of a message in pieces, and what lies between them, which nobody may touch.
class laid_out {
public:
    enum class as { whole, odd, seven, forty, strided };
    static constexpr std::array all{as::whole, as::odd, as::seven, as::forty, as::strided};
    static constexpr std::byte between{0xee};

    laid_out(std::size_t bytes, as how) : how_(how), bytes_(bytes) {
        switch (how) {
            case as::whole: cut({0, bytes}); break;
            case as::odd: cut({0, bytes}); break;
            case as::seven:
                cut({0, std::min<std::size_t>(1, bytes), bytes / 8, bytes / 8, bytes / 3, bytes / 2,
                     bytes - std::min<std::size_t>(1, bytes), bytes});
                break;
            case as::forty:
            case as::strided: {
                std::vector<std::size_t> cuts;
                for (std::size_t i = 0; i <= blocks; ++i) cuts.push_back(bytes / blocks * i);
                cuts.back() = how == as::strided ? cuts.back() : bytes;
                bytes_ = cuts.back();
                cut(cuts);
                break;
            }
        }
        std::fill(memory_.begin(), memory_.end(), between);
    }

    [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
    void fill(std::uint64_t seed) {
        std::size_t at = 0;
        for (const auto piece : pieces_) {
            write_pattern(piece, at, seed);
            at += piece.size();
        }
    }
    /// Whether it holds the first `bytes` of this pattern, and nothing beside it was written to.
    [[nodiscard]] bool holds(std::uint64_t seed, std::size_t bytes) const {
        std::size_t at = 0;
        const std::byte* gap = memory_.data();
        for (const std::span<const std::byte> piece : pieces_) {
            const std::size_t whole = std::min(piece.size(), bytes - std::min(at, bytes));
            if (!all_are(between, {gap, piece.data()}) || !is_pattern(piece.first(whole), seed, at) ||
                !all_are(between, piece.subspan(whole)))
                return false;
            at += piece.size();
            gap = piece.data() + piece.size();
        }
        return all_are(between, {gap, memory_.data() + memory_.size()});
    }
    [[nodiscard]] mutable_buffers into() {
        if (how_ == as::strided)
            return strided(memory_.data() + lead, bytes_ / blocks, bytes_ / blocks + gap_bytes, blocks);
        return mutable_buffers(std::span<const std::span<std::byte>>(pieces_));
    }
    [[nodiscard]] const_buffers from() {
        if (how_ == as::strided) {
            return strided(static_cast<const std::byte*>(memory_.data() + lead), bytes_ / blocks,
                           bytes_ / blocks + gap_bytes, blocks);
        }
        return const_buffers(std::span<const std::span<const std::byte>>(read_));
    }

private:
    static constexpr std::size_t blocks = 40;    // more than a message names at a time
    static constexpr std::size_t gap_bytes = 5;  // so that most pieces begin at odd addresses
    static constexpr std::size_t lead = 64;

    void cut(const std::vector<std::size_t>& cuts) {
        memory_.resize(lead + bytes_ + gap_bytes * (cuts.size() + 1));
        std::size_t at = how_ == as::odd ? lead + 1 : lead;
        for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
            pieces_.push_back(std::span(memory_).subspan(at, cuts[i + 1] - cuts[i]));
            read_.push_back(pieces_.back());
            at += pieces_.back().size() + gap_bytes;
        }
    }

    as how_;
    std::size_t bytes_;
    std::vector<std::byte> memory_;
    std::vector<std::span<std::byte>> pieces_;
    std::vector<std::span<const std::byte>> read_;
};

/// When the receive of a message is posted.
enum class posted { late, together, early };
inline constexpr std::array posted_when{posted::late, posted::together, posted::early};

inline task<> pass_turns(int count) {
    for (int n = 0; n < count; ++n) co_await yield();
}
/// So many turns that what one side has said is heard by the other, nearly always.
inline constexpr int soon = 20;

/// How one message is sent and met.
struct manner {
    posted receive;
    tag_match wanted;  ///< the receive's
    bool synchronous;
};

template <class T, class P>
task<> exchange(endpoint<T, P>& from, endpoint<T, P>& to, laid_out& data, laid_out& into, manner how) {
    static std::uint64_t seed = 0;
    ++seed;
    data.fill(seed);
    received got;
    const auto send = [&] {
        return how.synchronous ? from.ssend(data.from(), 3) : from.send(data.from(), 3);
    };
    if (how.receive != posted::late) {
        auto receiving = start(to.recv(into.into(), how.wanted));
        if (how.receive == posted::early) co_await pass_turns(soon);
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

// ---- the bodies

template <class P, class T>
task<> carries_all_sizes(world<T>& w) {
    auto p = co_await join<P>(w);
    for (const std::size_t bytes : sizes_around_limits<P>(p.a.link_capabilities())) {
        for (const auto from : {laid_out::as::whole, laid_out::as::odd}) {
            for (const auto to : {laid_out::as::whole, laid_out::as::odd}) {
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

template <class P, class T>
task<> carries_pieces(world<T>& w) {
    auto p = co_await join<P>(w);
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

template <class P, class T>
task<> lends(world<T>& w) {
    auto p = co_await join<P>(w);
    for (const std::size_t bytes : sizes_around_limits<P>(p.a.link_capabilities())) {
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

template <class P, class T>
task<> truncates_all(world<T>& w) {
    auto p = co_await join<P>(w);
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
                    if (when == posted::early) co_await pass_turns(soon);
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
inline std::vector<std::size_t> mixed_sizes() {
    return {9,     200000, 0,  5000, 100000, 48,   49,    300000, 1,     4096,  4097,    32768,  65536,
            32769, 65537,  12, 1008, 65535,  1009, 70001, 3,      16385, 16384, 1 << 20, 150000, 7};
}

template <class P, class T>
task<> overlaps(world<T>& w) {
    auto p = co_await join<P>(w);
    const auto sizes = mixed_sizes();
    using sent = started<decltype(p.a.send(std::span<const std::byte>(), 1))>;
    using got = started<decltype(p.a.recv(std::span<std::byte>(), 1))>;
    struct side {
        std::vector<std::vector<std::byte>> out;
        std::vector<std::vector<std::byte>> in;
        std::deque<sent> sends;
        std::deque<got> receives;
    };
    std::array<side, 2> sides;
    std::array<endpoint<T, P>*, 2> ends{&p.a, &p.b};
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

template <class P, class T>
task<> keeps_order_of_mixed_sizes(world<T>& w) {
    auto p = co_await join<P>(w);
    const auto sizes = mixed_sizes();
    auto sender = [](endpoint<T, P>& from, const std::vector<std::size_t>& all) -> task<> {
        using sent = started<decltype(from.send(std::span<const std::byte>(), 1))>;
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

/// Whether a long message takes several turns of the scheduler, so that some moment is in the middle of it. What adapters
/// or network libraries have begun goes to its end.
template <class T>
inline constexpr bool takes_turns = !std::is_same_v<T, sim> && !std::is_same_v<T, loopback> &&
                                    !T::static_capabilities.one_sided_offloaded && !moved_by_library;

inline constexpr std::size_t cancel_bytes = (std::size_t{4} << 20) + 3;

/// That both ends still carry messages, short and long, and nothing is left.
template <class T, class P>
task<> still_good(world<T>& w, joined<T, P>& p) {
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

template <class Op>
auto stoppable(Op op, local_stop_source& stop) {
    return start(as_result(with_stop(std::move(op), stop.get_token())));
}

template <class P, class T>
task<> sender_stops(world<T>& w) {
    auto p = co_await join<P>(w);
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
            if (receive == posted::early) co_await pass_turns(soon);
            auto sending = stoppable(p.a.send(from, 1), stop);
            if (!expected) co_await pass_turns(soon);
            auto late =
                start(p.b.recv(expected ? std::span<std::byte>() : std::span(into), expected ? 2 : 1));
            co_await pass_turns(when.turn());
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
        if (takes_turns<T>) CHECK(cut > 0);
    }
    co_await still_good(w, p);
}

template <class P, class T>
task<> receiver_stops(world<T>& w) {
    auto p = co_await join<P>(w);
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
            if (early) co_await pass_turns(soon);
            auto sending = start(p.a.send(data, 1));
            co_await pass_turns(when.turn());
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
                if (p.b.connection().box().matching().find(0, tag_match(1)) != nullptr) {
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
        if (takes_turns<T>) CHECK(cut > 0);
    }
    co_await still_good(w, p);
}

// ---- canceled, with both ends on threads of their own

// Catch2's assertions are not for several threads: what is wrong is thrown.
inline void demand(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

inline constexpr int cancel_rounds = slowness == 1 ? 150 : 40;
inline constexpr std::size_t cancel_race_bytes = (std::size_t{2} << 20) + 1;

/// Who gives up in a round, and after how many turns.
inline bool sender_gives_up(int round) { return round % 3 != 0; }
inline bool receiver_gives_up(int round) { return round % 3 != 1; }
/// Whether the sender waits until the receive is posted.
inline bool waits_for_receive(int round) { return round % 4 >= 2; }
inline int patience(int round, int other) { return (round * 37 + other) % (round % 2 == 0 ? 30 : 400); }

template <class P, class T>
task<> sends_and_gives_up(endpoint<T, P>& end, typename T::domain& domain) {
    for (int round = 0; round < cancel_rounds; ++round) {
        const auto seed = static_cast<std::uint64_t>(round);
        auto from = pattern(cancel_race_bytes, seed);
        local_stop_source stop;
        if (waits_for_receive(round)) co_await end.recv({}, 5);
        auto sending = stoppable(end.send(from, 1), stop);
        if (sender_gives_up(round)) {
            co_await pass_turns(patience(round, 0));
            stop.request_stop();
        }
        const auto ended = co_await sending;
        demand(ended || ended.error() == errc::canceled, "how a send ended");
        // The memory is ours again: what is written to it now, nobody receives.
        std::fill(from.begin(), from.end(), std::byte{0xdd});
        co_await end.send({}, 2);
        if (!waits_for_receive(round)) co_await end.recv({}, 5);
        co_await end.recv({}, 3);
        demand(regions_of(domain) == 0, "the sender left memory open");
    }
    co_await end.close();
}

template <class P, class T>
task<> receives_and_gives_up(endpoint<T, P>& end, typename T::domain& domain) {
    for (int round = 0; round < cancel_rounds; ++round) {
        const auto seed = static_cast<std::uint64_t>(round);
        std::vector<std::byte> into(cancel_race_bytes);
        local_stop_source stop;
        auto receiving = stoppable(end.recv(into, 1), stop);
        auto over = start(end.recv({}, 2));
        auto saying = start(end.send({}, 5));
        bool given_up = false;
        const auto settle = [&](const result<received>& got) {
            if (got) {
                demand(got->bytes == cancel_race_bytes && is_pattern(into, seed), "the bytes of a message");
            } else if (got.error() == errc::canceled) {
                given_up = true;
                std::fill(into.begin(), into.end(), std::byte{0x11});
            } else {
                demand(got.error() == errc::peer_canceled, "how a receive ended");
            }
        };
        if (receiver_gives_up(round)) {
            co_await pass_turns(patience(round, 101));
            stop.request_stop();
            settle(co_await receiving);
        }
        while (!over.done()) {
            if (given_up && end.connection().box().matching().find(0, tag_match(1)) != nullptr) {
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
        demand(regions_of(domain) == 0, "the receiver left memory open");
    }
    static_cast<void>(co_await as_result(end.recv({}, 4)));
}

/// Two schedulers on two threads, with one connection between them.
template <class P, class Variant>
void cancel_across_threads() {
    using T = typename Variant::transport_type;
    using namespace std::chrono_literals;
    scheduler here{idle::yield{}};
    const auto here_domain = Variant::open(here);
    std::exception_ptr failure;
    std::exception_ptr own;
    std::atomic<bool> listens{false};
    std::string address;
    std::thread other([&] {
        try {
            scheduler there{idle::yield{}};
            const auto domain = Variant::open(there);
            there.run([](auto& in, std::string& where, std::atomic<bool>& ready) -> task<> {
                auto listening = co_await listen<T, P>(in, Variant::address());
                where = listening.address();
                ready.store(true, std::memory_order_release);
                ready.notify_one();
                auto end = co_await timeout(listening.accept(), 60s);
                co_await timeout(receives_and_gives_up<P, T>(end, in), case_limit);
            }(*domain, address, listens));
        } catch (...) {
            failure = std::current_exception();
            listens.store(true, std::memory_order_release);
            listens.notify_one();
        }
    });
    listens.wait(false, std::memory_order_acquire);
    if (!address.empty()) {
        try {
            here.run([](auto& in, std::string& where) -> task<> {
                auto end = co_await timeout(connect<T, P>(in, where), 60s);
                co_await timeout(sends_and_gives_up<P, T>(end, in), case_limit);
            }(*here_domain, address));
        } catch (...) {
            own = std::current_exception();
        }
    }
    other.join();
    if (failure) std::rethrow_exception(failure);
    if (own) std::rethrow_exception(own);
}

// ---- all of them on one transport

/// Runs each body for the list `P` on the transport as `Variant` opens it, one at a time.
template <class P, class Variant>
void conform_all() {
    using T = typename Variant::transport_type;
    struct named {
        const char* name;
        task<> (*body)(world<T>&);
    };
    static constexpr named bodies[] = {
        {"messages of all sizes, aligned and not, expected and not, arrive whole", carries_all_sizes<P, T>},
        {"gathered and strided memory at either end", carries_pieces<P, T>},
        {"messages are lent", lends<P, T>},
        {"a receive that is too short ends truncated", truncates_all<P, T>},
        {"many at once in both directions", overlaps<P, T>},
        {"messages of one tag keep their order", keeps_order_of_mixed_sizes<P, T>},
        {"a send stopped at any moment", sender_stops<P, T>},
        {"a receive stopped at any moment", receiver_stops<P, T>},
    };
    for (const named& each : bodies) {
        DYNAMIC_SECTION(each.name) { conform<Variant>(each.body); }
    }
}

template <class P, class T>
task<> carries_huge_message(world<T>& w) {
    auto p = co_await join<P>(w);
    const std::size_t bytes = (std::size_t{64} << 20) / slowness / 4 * 4 + 3;
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

// One connection between two workers, from hello to its end: rounds of random messages, gets and puts, each byte checked.
#pragma once

#include "journal.hpp"
#include "mishap.hpp"
#include "options.hpp"
#include "plan.hpp"
#include "transports.hpp"

#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/rdmacoro.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>
#include <vector>

namespace soak {

/// The first message of a client.
struct hello {
    std::uint64_t seed = 0;  ///< of the rounds
    std::uint32_t worker = 0;
    std::uint32_t reserved = 0;
    std::int64_t began = 0;  ///< `session_facts::began`, as a count
};

inline constexpr rdmacoro::tag_type hello_tag = 7;
/// Set in the tags of messages about gets and puts; not in those of planned messages.
inline constexpr rdmacoro::tag_type aside = rdmacoro::tag_type{1} << 63;

/// The owner of the memory gets this at the end: where it was written.
struct put_note {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t content = 0;
};

/// The ends of a session.
struct session_facts {
    std::string transport;
    unsigned other = 0;  ///< the worker at the other end
    bool client = false;
    std::uint64_t seed = 0;
    mishap::time_point
        began;  ///< before the client connected: a life of either end that had ended by then has no part in it
};

/// Thrown for wrong contents.
struct wrong_content {
    std::string what;
};

template <class Endpoint, class Domain>
class session {
public:
    /// All of them outlive the session.
    session(Endpoint& peer, Domain& domain, journal& log, const options& asked, const session_facts& facts,
            const bool& over)
        : peer_(peer),
          domain_(domain),
          log_(log),
          asked_(asked),
          facts_(facts),
          over_(over),
          shared_(facts.seed),
          own_(facts.seed * 2 + (facts.client ? 1 : 0)) {}

    /// Ends without an error, whatever happened: the journal is told.
    rdmacoro::task<> run() {
        namespace rc = rdmacoro;
        for (;;) {
            plan_ = next_round(shared_, asked_.longest);
            std::string wrong;
            std::error_code how{};
            try {
                co_await rc::timeout(round(), round_limit());
                ++log_.sums.rounds;
                ++log_.sums.rounds_over[transport_index(facts_.transport)];
                if (plan_.pause_ms != 0) co_await rc::sleep_for(std::chrono::milliseconds(plan_.pause_ms));
            } catch (const std::system_error& error) {
                how = error.code();
            } catch (const wrong_content& error) {
                wrong = error.what;
            }
            if (!wrong.empty()) {
                log_.tell_fault(wrong + where());
                break;  // closes, so that the other end counts no second fault
            }
            if (how) {
                // The end that drops a link has finished its own part of the round. Messages under way to this end may be lost.
                if (how != rc::errc::peer_lost || !other_end_drops()) ended_early(how);
                co_return;
            }
            if (asked_.drop != 0 && own_.once_in(asked_.drop)) {
                peer_.abort();
                co_return;
            }
            if (facts_.client && over_) break;
            if (plan_.end == ending::none) continue;
            if (plan_.end == ending::close) break;
            if (other_end_drops()) {
                co_await see_drop();
            } else {
                peer_.abort();
            }
            co_return;
        }
        static_cast<void>(co_await rc::as_result(rc::timeout(peer_.close(), std::chrono::seconds(30))));
    }

private:
    [[nodiscard]] std::string where() const {
        return ", over " + facts_.transport + " with worker " + std::to_string(facts_.other) +
               (facts_.client ? " as client" : " as server");
    }

    [[nodiscard]] rdmacoro::duration round_limit() const {
        return std::chrono::duration_cast<rdmacoro::duration>(
            std::chrono::duration<double>(asked_.round_limit));
    }
    [[nodiscard]] bool other_end_drops() const noexcept {
        return plan_.end == (facts_.client ? ending::server_drops : ending::client_drops);
    }

    void ended_early(std::error_code how) {
        using rdmacoro::errc;
        if (how == errc::closed || how == errc::canceled || how == errc::peer_lost) {
            const auto what = how == errc::peer_lost ? mishap::kind::lost : mishap::kind::cut;
            log_.tell({what, facts_.other, facts_.transport, facts_.began, how.message()});
        } else if (how == errc::timed_out) {
            log_.tell_fault("a round did not end" + where());
        } else {
            log_.tell_fault(how.message() + where());
        }
    }

    /// The other end drops the link: this end notices.
    rdmacoro::task<> see_drop() {
        namespace rc = rdmacoro;
        std::byte nothing[1];
        const auto got = co_await rc::as_result(
            rc::timeout(peer_.recv(std::span<std::byte>(nothing), aside | 99), round_limit()));
        if (got) {
            log_.tell_fault("a message after the last" + where());
        } else if (got.error() == rc::errc::timed_out) {
            log_.tell_fault("a dropped link was not noticed" + where());
        }
    }

    rdmacoro::task<> round() {
        namespace rc = rdmacoro;
        if (plan_.in_step) {
            co_await peer_.send({}, aside | 3);
            co_await peer_.recv({}, aside | 3);
        }
        rc::task_group parts(rc::on_child_error::stop_others);
        parts.spawn([this] { return send_all(); });
        parts.spawn([this] { return receive_all(); });
        if (plan_.exposed_bytes != 0) {
            if (plan_.client_owns == facts_.client) {
                parts.spawn([this] { return expose(); });
            } else {
                parts.spawn([this] { return access(); });
            }
        }
        co_await parts.join();
    }

    [[nodiscard]] bool is_mine(const planned_message& m) const noexcept {
        return m.from_client == facts_.client;
    }

    rdmacoro::task<> send_all() {
        namespace rc = rdmacoro;
        rc::task_group sends(rc::on_child_error::stop_others);
        const bool one_at_a_time = own_.once_in(2);
        for (const planned_message& m : plan_.messages) {
            if (!is_mine(m)) continue;
            if (own_.once_in(8)) {  // where that is canceled, so are the sends, which are joined
                auto pause = rc::sleep_for(std::chrono::microseconds(own_.below(2000)));
                static_cast<void>(co_await rc::as_result(std::move(pause)));
            }
            if (one_at_a_time) {
                co_await send_one(m);
            } else {
                sends.spawn([this, &m] { return send_one(m); });
            }
        }
        co_await sends.join();
    }

    rdmacoro::task<> send_one(const planned_message& m) {
        std::vector<std::byte> bytes(m.bytes);
        fill(bytes, m.content);
        if (asked_.corrupt != 0 && !bytes.empty() && own_.once_in(asked_.corrupt))
            bytes[bytes.size() / 2] ^= std::byte{1};
        co_await peer_.send(std::span<const std::byte>(bytes), m.tag);
    }

    rdmacoro::task<> receive_all() {
        namespace rc = rdmacoro;
        if (own_.once_in(4)) co_await rc::sleep_for(std::chrono::microseconds(own_.below(5000)));
        rc::task_group receives(rc::on_child_error::stop_others);
        if (own_.once_in(2)) {  // all at once, in the order of sending
            for (const planned_message& m : plan_.messages) {
                if (!is_mine(m)) receives.spawn([this, &m] { return receive_one(m, false); });
            }
        } else if (plan_.any_tag) {
            receives.spawn([this] { return receive_in_turn(0); });
        } else {
            for (rc::tag_type tag = 1; tag <= 5; ++tag)
                receives.spawn([this, tag] { return receive_in_turn(tag); });
        }
        co_await receives.join();
    }

    /// The messages of a tag, or of every tag where it is 0, one after the other.
    rdmacoro::task<> receive_in_turn(rdmacoro::tag_type tag) {
        for (const planned_message& m : plan_.messages) {
            if (!is_mine(m) && (tag == 0 || m.tag == tag)) co_await receive_one(m, true);
        }
    }

    rdmacoro::task<> receive_one(const planned_message& m, bool may_withdraw) {
        namespace rc = rdmacoro;
        std::vector<std::byte> into(m.bytes + own_.below(64));
        const rc::tag_match wanted = plan_.any_tag ? rc::tag_match(0, aside) : rc::tag_match(m.tag);
        // A receive that is withdrawn while its message arrives loses it: messages that may come in parts are waited for with a probe, which takes
        // nothing.
        const bool whole = comes_whole(m);
        while (may_withdraw && own_.once_in(6)) {
            const auto limit = std::chrono::microseconds(own_.below(3000));
            std::error_code how{};
            if (whole) {
                auto answer = co_await rc::as_result(
                    rc::timeout(peer_.recv(std::span<std::byte>(into), wanted), limit));
                if (answer) {
                    check(m, *answer, into);
                    co_return;
                }
                how = answer.error();
            } else {
                auto answer = co_await rc::as_result(rc::timeout(peer_.probe(wanted), limit));
                if (answer) break;
                how = answer.error();
            }
            if (how != rc::errc::timed_out) throw std::system_error(how);
            ++log_.sums.withdrawn;
        }
        const rc::received got = co_await peer_.recv(std::span<std::byte>(into), wanted);
        check(m, got, into);
    }

    /// Whether a message is surely sent at once, all of it: it is short, and its sender has credit for it and for what goes before. Without
    /// credit it is offered to its receive, and comes when that has been accepted. With hundreds of links each is granted little, and what
    /// this end has not received of the rounds before takes of it.
    [[nodiscard]] bool comes_whole(const planned_message& m) const noexcept {
        namespace inner = rdmacoro::detail;
        constexpr std::size_t longest = 4096;
        if (!plan_.in_step || m.bytes > longest) return false;
        std::size_t stored = 3 * inner::least_storage;  // to be in step, and about gets and puts
        for (const planned_message& before : plan_.messages) {
            if (!is_mine(before)) stored += inner::storage_bytes(before.bytes);
            if (&before == &m) break;
        }
        // As much again may be given back late.
        return stored <= std::size_t{inner::least_grant} * inner::credit_bytes / 2;
    }

    void check(const planned_message& m, const rdmacoro::received& got, std::span<const std::byte> into) {
        if (got.tag != m.tag || got.bytes != m.bytes) {
            throw wrong_content{"a message of " + std::to_string(got.bytes) + " bytes and tag " +
                                std::to_string(got.tag) + " in place of one of " + std::to_string(m.bytes) +
                                " and " + std::to_string(m.tag)};
        }
        if (!holds(into.first(m.bytes), m.content))
            throw wrong_content{"wrong bytes in a message of " + std::to_string(m.bytes)};
        ++log_.sums.messages;
        log_.sums.bytes += m.bytes;
    }

    rdmacoro::task<> expose() {
        namespace rc = rdmacoro;
        std::vector<std::byte> memory(plan_.exposed_bytes);
        fill(memory, plan_.exposed_content);
        const rc::region open = domain_.register_memory(std::span<std::byte>(memory), rc::access_rights::all);
        const rc::remote_region there = open.remote();
        co_await peer_.send(std::as_bytes(std::span(&there, 1)), aside | 1);
        put_note note;
        co_await peer_.recv(std::as_writable_bytes(std::span(&note, 1)), aside | 2);
        if (note.offset > memory.size() || note.bytes > memory.size() - note.offset ||
            !holds(std::span(memory).subspan(note.offset, note.bytes), note.content)) {
            throw wrong_content{"wrong bytes after a put of " + std::to_string(note.bytes)};
        }
    }

    rdmacoro::task<> access() {
        namespace rc = rdmacoro;
        rc::remote_region there;
        co_await peer_.recv(std::as_writable_bytes(std::span(&there, 1)), aside | 1);
        for (std::uint64_t gets = own_.below(4); gets > 0; --gets) {
            const std::size_t offset = own_.below(plan_.exposed_bytes);
            std::vector<std::byte> into(1 + own_.below(plan_.exposed_bytes - offset));
            co_await peer_.rdma_get(there.part(offset, into.size()), std::span<std::byte>(into));
            if (!holds(into, plan_.exposed_content, offset))
                throw wrong_content{"wrong bytes in a get of " + std::to_string(into.size())};
            ++log_.sums.transfers;
        }
        put_note note;
        note.offset = own_.below(plan_.exposed_bytes);
        note.bytes = 1 + own_.below(plan_.exposed_bytes - note.offset);
        note.content = own_.next();
        std::vector<std::byte> from(note.bytes);
        fill(from, note.content);
        co_await peer_.rdma_put(std::span<const std::byte>(from), there.part(note.offset, note.bytes));
        ++log_.sums.transfers;
        co_await peer_.send(std::as_bytes(std::span(&note, 1)), aside | 2);
    }

    Endpoint& peer_;
    Domain& domain_;
    journal& log_;
    const options& asked_;
    const session_facts& facts_;
    const bool& over_;
    random shared_;
    random own_;
    round_plan plan_;
};

}  // namespace soak

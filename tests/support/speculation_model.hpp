#pragma once

// A model of the speculative, receiver-initiated rendezvous, small enough to be searched through: one sender, one receiver,
// all messages with one tag, channels that keep order both ways. Everything else happens in any order.
//
// The protocol as published (M. J. Rashti, "Improving Message-Passing Performance and Scalability in High-Performance
// Clusters", Queen's University, 2010, chapter 4). A sender that begins a long message says RTS, and the receiver reads
// the data. A receiver that expects a long message speculates: it says RTR at once, and a sender that finds an RTR writes
// without asking. Requests carry no numbers; sender and receiver pair them by order, and these rules shall keep the two
// orders the same:
//
//   acknowledgements  an end that begins after the other's RTR or RTS arrived sends RTR-ACK or RTS-ACK in place of its own RTS or RTR
//   blocking          no RTR while an earlier receive waits that has said none
//   eager flag        an eager send makes RTRs stale: the next long send throws them away and says RTS+stop; when that has
//                     been answered, a later one says RTS+resume
//
// The alternative is `numbered`: sends and receives are counted, RTR and RTS say their number, and an RTR that meets a send
// already begun is dropped. It needs none of the rules.
//
// What must not happen: a send paired with another receive than that of its place, a write into memory whose receive has
// ended, an end at which not all are paired.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rdmacoro::test::speculation {

inline constexpr unsigned most_messages = 6;

/// The actions of the two sides, in order. Sends: `E` eager, `R` rendezvous. Receives: `R` speculates, `N` does not (it expects
/// an eager message, or is not sure of its peer).
struct program {
    unsigned messages = 0;
    std::uint8_t eager = 0;   ///< a bit for each send
    std::uint8_t silent = 0;  ///< a bit for each receive

    constexpr program(unsigned count, std::uint8_t eager_sends, std::uint8_t silent_receives) noexcept
        : messages(count), eager(eager_sends), silent(silent_receives) {}
    program(std::string_view sends, std::string_view receives)
        : messages(static_cast<unsigned>(sends.size())) {
        if (sends.size() != receives.size() || sends.size() > most_messages)
            throw std::invalid_argument("as many receives as sends, and not too many");
        for (unsigned i = 0; i < messages; ++i) {
            if (sends[i] == 'E') eager = static_cast<std::uint8_t>(eager | 1u << i);
            if (receives[i] == 'N') silent = static_cast<std::uint8_t>(silent | 1u << i);
        }
    }
    [[nodiscard]] std::string text() const {
        std::string sends;
        std::string receives;
        for (unsigned i = 0; i < messages; ++i) {
            sends += (eager >> i & 1u) != 0 ? 'E' : 'R';
            receives += (silent >> i & 1u) != 0 ? 'N' : 'R';
        }
        return sends + "/" + receives;
    }
};

/// Which rules the two sides follow.
struct rules {
    bool rtr_ack = true;
    bool rts_ack = true;          ///< from receives that find an RTS when they begin
    bool rts_ack_always = false;  ///< and from those that an RTS finds, unless they have said RTR
    bool blocking = true;
    bool eager_flag = true;
    bool purge_one = false;  ///< a long send under the eager flag throws one RTR away, not all
    bool chained = false;    ///< a write and the word that it is done travel together, in order with messages
    bool numbered = false;
};

/// The events that can happen next. Each is possible or not in a state, and has one outcome.
enum class action : std::uint8_t {
    send,            ///< the sender begins its next send
    receive,         ///< the receiver begins its next receive
    sender_hears,    ///< the oldest message to the sender arrives
    receiver_hears,  ///< the oldest message to the receiver arrives
    read_ends,       ///< the receiver's oldest read of the sender's memory is complete
    write_ends,      ///< the sender's oldest write into the receiver's memory is complete
};
inline constexpr std::array every_action{action::send,           action::receive,   action::sender_hears,
                                         action::receiver_hears, action::read_ends, action::write_ends};

/// Bytes in order; those past the end are zero, so that equal lists are equal memory.
template <std::size_t Capacity>
class byte_list {
public:
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::uint8_t& operator[](std::size_t i) noexcept { return bytes_[i]; }
    [[nodiscard]] std::uint8_t operator[](std::size_t i) const noexcept { return bytes_[i]; }
    void push(unsigned byte) { bytes_.at(size_++) = static_cast<std::uint8_t>(byte); }
    void erase(std::size_t i) noexcept {
        for (--size_; i < size_; ++i) bytes_[i] = bytes_[i + 1];
        bytes_[size_] = 0;
    }
    [[nodiscard]] std::uint8_t pop() noexcept {
        const std::uint8_t first = bytes_[0];
        erase(0);
        return first;
    }
    void clear() noexcept { *this = {}; }
    /// The first for which `is` holds; `size()` if none.
    template <class Predicate>
    [[nodiscard]] std::size_t find(Predicate is) const noexcept {
        std::size_t i = 0;
        while (i < size_ && !is(bytes_[i])) ++i;
        return i;
    }

private:
    std::uint8_t size_ = 0;
    std::array<std::uint8_t, Capacity> bytes_{};
};

/// A message is its kind in the high four bits and the number of its send or receive in the low four.
enum class kind : std::uint8_t { eager, rts, rts_stop, rts_resume, rtr, rtr_ack, rts_ack, done, written };
[[nodiscard]] constexpr unsigned message(kind what, unsigned number) noexcept {
    return static_cast<unsigned>(what) << 4 | number;
}
[[nodiscard]] constexpr kind kind_of(unsigned said) noexcept { return static_cast<kind>(said >> 4); }
/// The low half of a message, of a waiting send or of a waiting receive.
[[nodiscard]] constexpr unsigned number_of(unsigned entry) noexcept { return entry & 15u; }
/// The high half of a waiting send or receive.
[[nodiscard]] constexpr unsigned note_of(unsigned entry) noexcept { return entry >> 4; }

/// Both sides and all that is under way between them. Bytes only, without gaps: compared and hashed as memory.
struct state {
    // Notes on a waiting send: no RTR was assigned to it; the receiver has acknowledged it; else the RTR's number + 2.
    static constexpr unsigned unassigned = 0;
    static constexpr unsigned acknowledged = 1;
    static constexpr std::uint8_t nobody = 15;

    // The sender.
    std::uint8_t sends = 0;                  // begun
    byte_list<most_messages> waiting_sends;  // that have said RTS, until done
    byte_list<most_messages> kept_rtrs;      // that found no send
    std::uint8_t flagged = 0;                // the eager flag
    std::uint8_t stopper = nobody;           // the send that said RTS+stop
    std::uint8_t stop_answered = 0;
    byte_list<most_messages> writes;  // under way
    // The receiver.
    std::uint8_t receives = 0;                  // begun
    byte_list<most_messages> waiting_receives;  // noted with 1 when it has said RTR
    byte_list<most_messages> unexpected;        // eager and RTS messages that found no receive
    std::uint8_t stopped = 0;                   // says no RTR
    std::uint8_t paired = 0;                    // a bit for each message
    byte_list<most_messages> reads;             // under way
    // Between them.
    byte_list<3 * most_messages> to_sender;
    byte_list<2 * most_messages> to_receiver;

    friend bool operator==(const state& a, const state& b) noexcept {
        return std::memcmp(&a, &b, sizeof(state)) == 0;
    }
    [[nodiscard]] std::size_t hash() const noexcept {
        std::array<std::uint64_t, (sizeof(state) + 7) / 8> words{};
        std::memcpy(words.data(), this, sizeof(state));
        std::uint64_t mixed = 0x9e3779b97f4a7c15;
        for (const std::uint64_t word : words) {
            mixed = (mixed ^ word) * 0xff51afd7ed558ccd;
            mixed ^= mixed >> 32;
        }
        return mixed;
    }
};
static_assert(std::has_unique_object_representations_v<state>);

/// The effect of one action.
struct outcome {
    bool possible = false;
    std::string_view wrong;  ///< empty: nothing
    std::string said;        ///< for people; only if it was asked for
};

/// Lets things happen.
class model {
public:
    model(const program& what, const rules& how) noexcept : program_(what), rules_(how) {}

    /// Does `next` in `s`, if it is possible.
    outcome apply(state& s, action next, bool tell = false) const {
        outcome result;
        step now{s, result, tell};
        switch (next) {
            case action::send: begin_send(now); break;
            case action::receive: begin_receive(now); break;
            case action::sender_hears:
                if (!s.to_sender.empty()) sender_hears(now, s.to_sender.pop());
                break;
            case action::receiver_hears:
                if (!s.to_receiver.empty()) receiver_hears(now, s.to_receiver.pop());
                break;
            case action::read_ends:
                if (s.reads.empty()) break;
                now.tell("read ", s.reads[0], " ends");
                s.to_sender.push(message(kind::done, s.reads.pop()));
                break;
            case action::write_ends:
                if (s.writes.empty()) break;
                now.tell("write ", s.writes[0], " ends");
                s.to_receiver.push(message(kind::written, s.writes.pop()));
                break;
        }
        return result;
    }

    [[nodiscard]] bool all_paired(const state& s) const noexcept {
        return s.paired == (1u << program_.messages) - 1;
    }

private:
    struct step {
        state& s;
        outcome& result;
        bool telling;

        /// Each possible action comes by here once.
        void tell(const char* before, unsigned number, const char* after, unsigned other = state::nobody) {
            result.possible = true;
            if (!telling) return;
            result.said = before + std::to_string(number) + after;
            if (other != state::nobody) result.said += std::to_string(other);
        }
        void pair(unsigned send, unsigned receive) noexcept {
            if (send != receive) result.wrong = "a send is paired with another's receive";
            s.paired = static_cast<std::uint8_t>(s.paired | 1u << receive);
        }
    };

    void begin_send(step& now) const {
        state& s = now.s;
        if (s.sends == program_.messages) return;
        const unsigned k = s.sends++;
        if ((program_.eager >> k & 1u) != 0) {
            now.tell("send ", k, " is eager");
            s.flagged = rules_.eager_flag;
            s.to_receiver.push(message(kind::eager, k));
        } else if (rules_.numbered) {
            const std::size_t found = s.kept_rtrs.find([&](unsigned rtr) { return rtr == k; });
            if (found == s.kept_rtrs.size()) return ask(now, k, kind::rts);
            s.kept_rtrs.erase(found);
            now.tell("send ", k, " writes into receive ", k);
            s.writes.push(k);
        } else if (s.flagged != 0) {
            send_flagged(now, k);
        } else if (!s.kept_rtrs.empty()) {
            write(now, k, s.kept_rtrs.pop());
        } else {
            ask(now, k, kind::rts);
        }
    }

    void send_flagged(step& now, unsigned k) const {
        state& s = now.s;
        unsigned note = state::unassigned;
        if (!rules_.purge_one) {
            s.kept_rtrs.clear();
        } else if (!s.kept_rtrs.empty()) {
            note = s.kept_rtrs.pop() + 2u;
        }
        if (s.stopper == state::nobody) {
            s.stopper = static_cast<std::uint8_t>(k);
            s.stop_answered = 0;
            ask(now, k, kind::rts_stop, note);
        } else if (s.stop_answered != 0 && s.kept_rtrs.empty()) {
            s.stopper = state::nobody;
            s.stop_answered = 0;
            s.flagged = 0;
            ask(now, k, kind::rts_resume, note);
        } else {
            ask(now, k, kind::rts, note);
        }
    }

    void ask(step& now, unsigned k, kind how, unsigned note = state::unassigned) const {
        now.tell("send ", k,
                 how == kind::rts        ? " says RTS"
                 : how == kind::rts_stop ? " says RTS+stop"
                                         : " says RTS+resume");
        now.s.to_receiver.push(message(how, k));
        now.s.waiting_sends.push(note << 4 | k);
    }

    void write(step& now, unsigned k, unsigned into) const {
        now.tell("send ", k, " writes into receive ", into);
        if (into != k) now.result.wrong = "a send writes into another's receive";
        if (rules_.rtr_ack) now.s.to_receiver.push(message(kind::rtr_ack, k));
        if (rules_.chained) {
            now.s.to_receiver.push(message(kind::written, into));
        } else {
            now.s.writes.push(into);
        }
    }

    void begin_receive(step& now) const {
        state& s = now.s;
        if (s.receives == program_.messages) return;
        const unsigned k = s.receives++;
        const std::size_t found =
            s.unexpected.find([&](unsigned m) { return !rules_.numbered || number_of(m) == k; });
        if (found < s.unexpected.size()) {
            const unsigned m = s.unexpected[found];
            s.unexpected.erase(found);
            const bool eager = kind_of(m) == kind::eager;
            now.tell("receive ", k, eager ? " finds eager " : " finds RTS ", number_of(m));
            now.pair(number_of(m), k);
            if (eager) return;
            if (rules_.rts_ack && !rules_.numbered) s.to_sender.push(message(kind::rts_ack, number_of(m)));
            s.reads.push(number_of(m));
            return;
        }
        const bool none_silent =
            s.waiting_receives.find([](unsigned r) { return note_of(r) == 0; }) == s.waiting_receives.size();
        const bool speculates = (program_.silent >> k & 1u) == 0 && s.stopped == 0 &&
                                (rules_.numbered || !rules_.blocking || none_silent);
        now.tell("receive ", k, speculates ? " says RTR" : " waits");
        s.waiting_receives.push((speculates ? 1u : 0u) << 4 | k);
        if (speculates) s.to_sender.push(message(kind::rtr, k));
    }

    void sender_hears(step& now, unsigned m) const {
        state& s = now.s;
        const unsigned k = number_of(m);
        const auto is_k = [&](unsigned send) { return number_of(send) == k; };
        if (kind_of(m) == kind::rtr) {
            if (rules_.numbered) {
                const bool late = k < s.sends;
                now.tell("RTR ", k, late ? " is late" : " is kept");
                if (!late) s.kept_rtrs.push(k);
                return;
            }
            const std::size_t first =
                s.waiting_sends.find([](unsigned send) { return note_of(send) == state::unassigned; });
            if (first == s.waiting_sends.size()) {
                now.tell("RTR ", k, " is kept");
                s.kept_rtrs.push(k);
            } else {
                now.tell("RTR ", k, " is dropped for send ", number_of(s.waiting_sends[first]));
                s.waiting_sends[first] = static_cast<std::uint8_t>(s.waiting_sends[first] | (k + 2u) << 4);
            }
            return;
        }
        const std::size_t found = s.waiting_sends.find(is_k);
        if (kind_of(m) == kind::rts_ack) {
            now.tell("RTS-ACK ", k, " arrives");
            if (found < s.waiting_sends.size() && note_of(s.waiting_sends[found]) == state::unassigned)
                s.waiting_sends[found] = static_cast<std::uint8_t>(k | state::acknowledged << 4);
        } else {
            now.tell("done ", k, " arrives");
            if (found < s.waiting_sends.size()) s.waiting_sends.erase(found);
        }
        if (k == s.stopper) s.stop_answered = 1;
    }

    void receiver_hears(step& now, unsigned m) const {
        state& s = now.s;
        const unsigned k = number_of(m);
        if (kind_of(m) == kind::rtr_ack) {
            now.tell("RTR-ACK of send ", k, " arrives");
            if (s.waiting_receives.empty()) {
                now.result.wrong = "an RTR-ACK finds no receive";
            } else {
                s.waiting_receives.erase(0);
            }
        } else if (kind_of(m) == kind::written) {
            now.tell("receive ", k, " is written");
            if ((s.paired >> k & 1u) != 0) now.result.wrong = "a write into memory whose receive has ended";
            now.pair(k, k);
            if (!rules_.numbered && rules_.rtr_ack) return;
            const std::size_t found =
                s.waiting_receives.find([&](unsigned receive) { return number_of(receive) == k; });
            if (found < s.waiting_receives.size()) s.waiting_receives.erase(found);
        } else {
            message_arrives(now, m);
        }
    }

    void message_arrives(step& now, unsigned m) const {
        state& s = now.s;
        const unsigned k = number_of(m);
        const bool eager = kind_of(m) == kind::eager;
        if (kind_of(m) == kind::rts_stop) s.stopped = 1;
        if (kind_of(m) == kind::rts_resume) s.stopped = 0;
        const std::size_t found =
            s.waiting_receives.find([&](unsigned r) { return !rules_.numbered || number_of(r) == k; });
        if (found == s.waiting_receives.size()) {
            now.tell(eager ? "eager " : "RTS ", k, " is unexpected");
            s.unexpected.push(m);
            return;
        }
        const unsigned receive = s.waiting_receives[found];
        s.waiting_receives.erase(found);
        now.tell(eager ? "eager " : "RTS ", k, " finds receive ", number_of(receive));
        now.pair(k, number_of(receive));
        if (eager) return;
        if (rules_.rts_ack_always && note_of(receive) == 0 && !rules_.numbered)
            s.to_sender.push(message(kind::rts_ack, k));
        s.reads.push(k);
    }

    program program_;
    rules rules_;
};

/// The result of a search: `wrong` is empty when nothing that must not happen can.
struct verdict {
    std::string_view wrong;
    std::vector<action> how;  ///< a shortest way there
    std::size_t states = 0;   ///< that were seen
};

/// Searches breadth first through all orders in which things can happen. One of these serves many searches in a row: it
/// keeps its memory.
class search {
public:
    [[nodiscard]] verdict operator()(const program& what, const rules& how) {
        const model world(what, how);
        nodes_.clear();
        table_.assign(table_.empty() ? std::size_t{1} << 14 : table_.size(), 0);
        visit(state{}, 0, action::send);
        for (std::size_t at = 0; at < nodes_.size(); ++at) {
            bool at_end = true;
            for (const action next : every_action) {
                state s = nodes_[at].now;
                const outcome did = world.apply(s, next);
                if (!did.possible) continue;
                at_end = false;
                if (!did.wrong.empty()) return {did.wrong, way(at, next), nodes_.size()};
                visit(s, static_cast<std::uint32_t>(at), next);
            }
            if (at_end && !world.all_paired(nodes_[at].now))
                return {"nothing goes on, and not all is paired", way(at), nodes_.size()};
        }
        return {{}, {}, nodes_.size()};
    }

private:
    struct node {
        state now;
        action by;
        std::uint32_t before;
    };

    void visit(const state& s, std::uint32_t before, action by) {
        const std::size_t slot = slot_of(s);
        if (table_[slot] != 0) return;
        nodes_.push_back({s, by, before});
        table_[slot] = static_cast<std::uint32_t>(nodes_.size());
        if (2 * nodes_.size() < table_.size()) return;
        table_.assign(table_.size() * 2, 0);
        for (std::size_t i = 0; i < nodes_.size(); ++i)
            table_[slot_of(nodes_[i].now)] = static_cast<std::uint32_t>(i + 1);
    }

    /// Where `s` is in the table, or would be.
    [[nodiscard]] std::size_t slot_of(const state& s) const noexcept {
        std::size_t slot = s.hash() & (table_.size() - 1);
        while (table_[slot] != 0 && !(nodes_[table_[slot] - 1].now == s))
            slot = (slot + 1) & (table_.size() - 1);
        return slot;
    }

    [[nodiscard]] std::vector<action> way(std::size_t to) const {
        std::vector<action> backwards;
        for (std::size_t i = to; i != 0; i = nodes_[i].before) backwards.push_back(nodes_[i].by);
        return {backwards.rbegin(), backwards.rend()};
    }
    [[nodiscard]] std::vector<action> way(std::size_t to, action last) const {
        std::vector<action> all = way(to);
        all.push_back(last);
        return all;
    }

    std::vector<node> nodes_;           // in the order in which they are looked at
    std::vector<std::uint32_t> table_;  // open addressing: index into `nodes_` + 1; 0: free
};

/// Tells what happens when `actions` do, one after another; the last line is what went wrong, if anything did. An action
/// that is not possible ends the story.
[[nodiscard]] inline std::vector<std::string> story(const program& what, const rules& how,
                                                    const std::vector<action>& actions) {
    const model world(what, how);
    state s;
    std::vector<std::string> lines;
    for (const action next : actions) {
        const outcome did = world.apply(s, next, true);
        if (!did.possible) {
            lines.emplace_back("impossible");
            break;
        }
        lines.push_back(did.said);
        if (did.wrong.empty()) continue;
        lines.emplace_back(did.wrong);
        break;
    }
    return lines;
}

}  // namespace rdmacoro::test::speculation

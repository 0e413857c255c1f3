// group_state: the members of a group, its running collectives, and how it ends.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/algorithm.hpp>
#include <rdmacoro/service/detail/rank_links.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

/// A running collective, which is told when its group is revoked.
class running_collective : public list_node<running_collective> {
public:
    virtual void revoked() noexcept = 0;

protected:
    ~running_collective() = default;
};

/// A group of ranks. Ranks here are those of the group.
class group_state final : public counted {
public:
    /// `members`: the ranks of the job, in the order of the group, this process among them. Throws `errc::no_resources` when there are no
    /// contexts left.
    group_state(counted_ptr<rank_links> links, std::vector<unsigned> members, std::uint64_t context,
                const algorithm_choice& choice);
    RDMACORO_DECL ~group_state() override;

    [[nodiscard]] unsigned rank() const noexcept { return rank_; }
    [[nodiscard]] unsigned size() const noexcept { return static_cast<unsigned>(members_.size()); }
    [[nodiscard]] std::uint64_t context() const noexcept { return context_; }
    [[nodiscard]] rank_links& links() noexcept { return *links_; }
    [[nodiscard]] const counted_ptr<rank_links>& shared_links() const noexcept { return links_; }
    [[nodiscard]] const std::vector<unsigned>& members() const noexcept { return members_; }
    [[nodiscard]] rank_peer& peer(unsigned rank) noexcept { return links_->peer(members_[rank]); }
    [[nodiscard]] unsigned host_of(unsigned rank) const noexcept { return links_->host_of(members_[rank]); }
    [[nodiscard]] bool is_first_on_host(unsigned rank) const noexcept { return first_on_host_[rank]; }
    /// The ranks on this rank's host, and the first rank of each host; both in the order of ranks.
    [[nodiscard]] std::span<const unsigned> ranks_here() const noexcept { return here_; }
    [[nodiscard]] std::span<const unsigned> first_ranks() const noexcept { return leaders_; }
    [[nodiscard]] unsigned hosts() const noexcept { return static_cast<unsigned>(leaders_.size()); }
    /// Whether ranks of one host do not follow each other.
    [[nodiscard]] bool hosts_in_turn() const noexcept { return hosts_in_turn_; }
    /// The group's rank of a rank of the job; `size()`: it is no member.
    [[nodiscard]] unsigned rank_of(unsigned of_job) const noexcept;

    // ---- collectives

    /// The number of the next collective, which begins now: taken before anything is awaited, so that all ranks number alike.
    [[nodiscard]] std::uint32_t next_number() noexcept { return ++entered_; }
    void enter(running_collective& begins) noexcept { running_.push_back(begins); }
    [[nodiscard]] const std::optional<group_failure>& failure() const noexcept { return failure_; }

    // ---- the end

    // The end of a group needs memory for its words. Where there is none, the group ends all the same, with fewer words, and those ranks
    // that could not be told then are told by `tell_again`.

    /// A transfer with that rank has failed.
    void transfer_failed(unsigned rank, std::error_code why) noexcept;
    /// The connection with a rank of the job is gone.
    void rank_ended(unsigned rank, std::error_code why) noexcept;
    /// This rank, or the one that said so, gives the group up; all others are told.
    void revoke(group_failure why) noexcept;
    /// For a reason of this rank's own.
    void revoke_alone(std::error_code why, const char* text) noexcept;
    /// A collective that has its number cannot go on here: the others would wait for this rank.
    void end_without_memory(const char* text) noexcept {
        if (!failure_) revoke_alone(make_error_code(errc::no_resources), text);
    }
    /// As `whole` was, of which this group was to be a part; the lost ranks are named as those of this group.
    void revoke_with(const group_state& whole);
    /// Before this rank's connections are closed in good order: those that wait for this rank hear first why nothing comes.
    void tell_connected() noexcept;
    void tell_again() noexcept {
        if (has_untold_) tell_neighbours();
        if (decision_) tell_decision();
    }
    /// The caller has given a wrong argument: the others, which would wait for this rank, are told. Throws `errc::invalid_argument`.
    [[noreturn]] void refuse(const std::string& why);
    /// Awaits, for a short time, which ranks have not entered the collective of that number, which was canceled here. One search goes on at a time: collectives
    /// that are canceled meanwhile have its result, of the first of them all, or nothing where the group is revoked with that.
    struct absence {
        std::uint32_t number = 0;  // the collective that it is about
        std::string_view title{};
        std::vector<unsigned> ranks{};
        std::vector<unsigned> silent{};  // of them, those that did not answer, and may have entered
    };
    [[nodiscard]] static task<absence> find_absent(group_state* self, std::uint32_t number,
                                                   std::string_view title = {});
    /// Another rank has given a collective up, or has left in good order amid it: awaits, for a short time, the word that says why. `left`: the
    /// rank that has left; without a word it has not entered the collective.
    [[nodiscard]] static task<> find_failure(group_state* self, std::optional<unsigned> left);
    /// Awaits the agreement on the ranks that are left. Ends with them, as ranks of the job, and the context of their group.
    struct agreement {
        std::vector<unsigned> left;
        std::uint64_t context = 0;
    };
    [[nodiscard]] static task<agreement> agree(group_state* self);
    /// This process has entered the group of those that are left, or never will.
    void agreed() noexcept { agreeing_.reset(); }
    void word_arrived(unsigned from, const group_word& word);

    /// The algorithm that the environment names; nullptr: none.
    [[nodiscard]] const algorithm* forced(collective_kind kind) const noexcept {
        return forced_[static_cast<std::size_t>(kind)];
    }

    /// The last choice for each kind: a program asks for the same again and again.
    struct chosen {
        std::size_t bytes = 0;
        unsigned flags = 0;
        const algorithm* how = nullptr;  // nullptr: nothing yet
    };
    [[nodiscard]] chosen& last_choice(collective_kind kind) noexcept {
        return chosen_[static_cast<std::size_t>(kind)];
    }
    void choose_by(algorithm_choice by) noexcept {
        choice = by;
        chosen_ = {};
    }

    algorithm_choice choice;
    bool
        checks;  ///< whether ranks compare what they ask for before each collective; all of a job do, or none

private:
    /// The ranks that hear of a revocation from this one, and it from them: those at distances of powers of two. The graph stays
    /// connected while fewer ranks are lost than a rank has neighbours. Source: Angskun, Bosilca and Dongarra, "Binomial graph: a scalable
    /// and fault-tolerant logical network topology", ISPA 2007.
    template <class F>
    static void for_neighbours(unsigned rank, unsigned ranks, F tell) {
        for (unsigned distance = 1; distance < ranks; distance *= 2) {
            tell((rank + distance) % ranks);
            tell((rank + ranks - distance) % ranks);
        }
    }
    void send(unsigned to, word_kind kind, std::uint64_t number = 0);
    void tell_ready(unsigned to);
    void tell_absence() noexcept;
    void refuse_decided() noexcept;
    void give_up(unsigned rank) noexcept;
    using rank_pair = std::pair<unsigned, unsigned>;
    [[nodiscard]] std::vector<rank_pair> strangers(const std::vector<unsigned>& left) const;
    static void leave_out(std::vector<unsigned>& left, std::vector<rank_pair> apart);
    void is_not_left(unsigned rank) noexcept;
    void ask(unsigned to);
    [[nodiscard]] bool has_heard_of_all() noexcept;
    [[nodiscard]] bool are_alive(const std::vector<unsigned>& ranks);
    [[nodiscard]] bool is_gone(unsigned rank) const noexcept {
        return std::binary_search(gone_.begin(), gone_.end(), rank);
    }
    /// The answer to a rank that asks for the decision.
    [[nodiscard]] group_word decision_word() const;
    void tell_decision() noexcept;
    void give_up_unreached() noexcept;
    void decide(agreement found);
    void tell_neighbours() noexcept;
    void answer_entered(unsigned to) { send(to, word_kind::entered, entered_); }

    counted_ptr<rank_links> links_;
    std::array<const algorithm*, collective_kinds> forced_{};
    std::array<chosen, collective_kinds> chosen_{};
    std::vector<unsigned> members_;
    std::vector<bool> first_on_host_;
    std::vector<unsigned> here_;
    std::vector<unsigned> leaders_;
    bool hosts_in_turn_ = false;
    bool has_untold_ = false;  // neighbours that could not be told of the failure
    unsigned rank_ = 0;
    std::uint64_t context_;
    std::uint32_t entered_ = 0;
    intrusive_list<running_collective> running_;
    std::optional<group_failure> failure_;
    std::vector<unsigned> gone_;  // ranks without a connection any more, for whatever reason; sorted

    // The questions to a rank, `ask`, and its answers, which come in their order, with the number of its last collective.
    struct progress {
        std::uint64_t asked = 0;
        std::uint64_t answers = 0;
        std::uint64_t entered = 0;
        [[nodiscard]] bool is_known() const noexcept { return answers >= asked; }
    };
    std::vector<progress> progress_;
    /// What `find_absent` searches for.
    struct canceled_collective {
        std::uint32_t number;
        std::string_view title;
        time_point until;
    };
    std::optional<canceled_collective> canceled_;
    // Of `agree`.
    std::optional<rank_links::naming> agreeing_;  // a shrink that was canceled may be decided all the same
    std::vector<bool> ready_;
    std::vector<std::vector<std::uint32_t>> lost_by_;  // what those that are ready have lost
    std::vector<bool> asked_by_;
    bool asked_alive_ = false;      // all that are left, since the last one said that it is ready
    std::optional<unsigned> told_;  // the rank that this one has told last that it is ready
    std::optional<agreement> decision_;
    event changed_;
    event revoked_;  // set for good
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/group_absence.ipp>
#include <rdmacoro/service/detail/impl/group_state.ipp>
#include <rdmacoro/service/detail/impl/rank_links.ipp>
#endif

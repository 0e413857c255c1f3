// rank_links: the connections of one process to all ranks of a job, the groups over them, and the words that their failures travel by.
#pragma once

#include <rdmacoro/coro/detail/counted.hpp>
#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/service/detail/group_words.hpp>
#include <rdmacoro/service/detail/rank_link.hpp>
#include <rdmacoro/service/detail/scratch.hpp>
#include <rdmacoro/service/group_failure.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

class group_state;

/// Whether all ranks that a failure names are below `size`.
[[nodiscard]] bool names_ranks_below(const group_failure& why, unsigned size) noexcept;
/// Why a group ends that was left of another one: that rank of it does not enter it.
[[nodiscard]] group_failure never_entered(unsigned rank);

/// The connections carry nothing but collectives: a user's `recv(any_tag)` on a node sees none of their messages, and messages that
/// the user leaves unreceived take none of their credit.
class rank_links : public counted {
public:
    rank_links(scheduler& on, unsigned rank, unsigned size);
    RDMACORO_DECL ~rank_links() override;

    [[nodiscard]] rank_peer& peer(unsigned rank) noexcept { return peers_[rank]; }
    [[nodiscard]] unsigned rank() const noexcept { return rank_; }
    [[nodiscard]] unsigned size() const noexcept { return size_; }
    [[nodiscard]] scheduler& owner() const noexcept { return owner_; }
    [[nodiscard]] scratch_pool& scratch() noexcept { return scratch_; }
    /// Whether the ranks compare what they ask for before each collective: all of them, or none. Before groups are made; at first as
    /// `wants_comparison` says.
    void compare_calls(bool all_do) noexcept { compares_calls_ = all_do; }
    [[nodiscard]] bool compares_calls() const noexcept { return compares_calls_; }
    /// This process's wish: RDMACORO_CHECK_COLLECTIVES, and without it whether it was compiled without NDEBUG. Throws `errc::invalid_argument` for a value
    /// that means neither.
    [[nodiscard]] static bool wants_comparison();

    // ---- connections

    /// Awaits that what was sent has arrived, and closes all connections.
    [[nodiscard]] virtual task<> close() = 0;
    /// Begins to connect; `attached` or `lost` follows.
    virtual void begin_connect(unsigned rank) = 0;
    /// How the connection to a rank came about, for people.
    [[nodiscard]] virtual std::string explain(unsigned rank) const = 0;
    /// The host that a rank is on, as a number among the hosts of the job; for hierarchical algorithms.
    [[nodiscard]] unsigned host_of(unsigned rank) const noexcept { return hosts_.empty() ? 0 : hosts_[rank]; }
    void set_hosts(std::vector<unsigned> hosts) { hosts_ = std::move(hosts); }
    void want(rank_peer& which) noexcept;
    /// Memory is short for a connection: what waits for it fails, and the next transfer tries again.
    void without_memory(unsigned rank) noexcept;
    /// There is a connection: what waits for it begins.
    void attached(unsigned rank, rank_link& link) noexcept;
    /// The connection has ended, or could not be made. Operations that wait for it fail.
    void ended(unsigned rank, std::error_code why) noexcept;
    /// This connection has ended. Nothing: another one has taken its place meanwhile, and the rank is not lost.
    void link_ended(unsigned rank, const rank_link& which, std::error_code why) noexcept {
        if (peers_[rank].link == &which) ended(rank, why);
    }

    /// The rank has closed the connection in good order: what it sent before can still be received.
    void left(unsigned rank) noexcept;

    // ---- groups

    /// A context that no group of the job has had; 0: this rank has named as many as it may.
    [[nodiscard]] std::uint64_t name_context() noexcept {
        return named_ == most_names ? 0 : context_of(rank_, ++named_);
    }
    /// While one lives, this process may enter groups that others have entered before: what comes for a group that it does not know waits.
    /// Without one it is for groups that the process has left, or never enters.
    class naming {
    public:
        explicit naming(counted_ptr<rank_links> of) noexcept : of_(std::move(of)) { ++of_->namings_; }
        naming(const naming&) = delete;
        naming& operator=(const naming&) = delete;
        ~naming();

    private:
        counted_ptr<rank_links> of_;
    };
    /// From now on words about its context go to it. Throws `errc::no_resources` when there are no contexts left.
    void enter(group_state& group);
    /// `is_decided`: its ranks have agreed on which are left.
    void leave(group_state& group, bool is_decided) noexcept;
    /// Drops what has come for groups that are revoked or were left, where it is likely that something has.
    void drop_stale() noexcept;
    /// A group is revoked: drops what has come for it, and what is under way at the next occasion.
    void group_revoked() noexcept {
        may_be_stale_ = true;
        if (ending_ != 0) return;
        drop_stale();
        may_be_stale_ = true;
    }
    /// Whether a message of that context will never be received.
    [[nodiscard]] bool is_stale(std::uint64_t context) const noexcept;
    /// Of a group that is left with its decision of a shrink: ranks that ask later are answered, as far as the last few of them go.
    void keep_decision(group_word done) noexcept;

    // ---- words

    /// Sends a word to another rank, in the background; what cannot be sent is lost with its connection.
    void send_word(unsigned to, group_word what);
    /// Awaits, for a short time, that those which were sent are on their way: a program that ends because a collective has failed takes them
    /// with it otherwise, and its end is taken for the reason.
    [[nodiscard]] static task<> words_are_out(rank_links* self,
                                              duration patience = std::chrono::milliseconds(50));
    /// The same for a process that leaves the job, after a last word to all that are connected about groups that have failed.
    [[nodiscard]] static task<> say_goodbye(rank_links* self);
    /// One has come. Every byte is checked; false: it is not one, and the connection must end.
    [[nodiscard]] bool word_arrived(unsigned from, std::span<const std::byte> bytes);
    /// Ends all work in the background.
    void stop() noexcept;

private:
    [[gnu::cold]] static task<> send_words(rank_links* self, unsigned to);
    void tell_absence(unsigned to, std::uint64_t context) noexcept;
    void refuse_decision(unsigned from, const group_word& done);
    [[nodiscard]] bool was_left(std::uint64_t context) const noexcept;

    scheduler& owner_;
    unsigned rank_;
    unsigned size_;
    std::unique_ptr<rank_peer[]> peers_;
    std::vector<unsigned> hosts_;
    std::uint32_t named_ = 1;  // the first is that of the group of all
    unsigned namings_ = 0;
    bool compares_calls_ = wants_comparison();
    bool begun_ = false;         // there has been a group
    bool may_be_stale_ = false;  // something that has come
    unsigned ending_ = 0;        // connections of which the groups hear now that they have ended
    std::unordered_map<std::uint64_t, group_state*> groups_;
    /// Failures of contexts that this process has not entered yet.
    struct early_failure {
        unsigned from = 0;  // a rank of the job
        group_failure why;
    };
    std::unordered_map<std::uint64_t, early_failure> revoked_;
    /// Questions of a `shrink` about contexts that this process has not entered, and may.
    struct early_question {
        unsigned from = 0;  // a rank of the job
        group_word word;
    };
    std::vector<early_question> unanswered_;
    std::deque<group_word> decisions_;
    /// Groups that had no decision when the last copy of them was gone: by context, this process's rank in them.
    std::unordered_map<std::uint64_t, unsigned> let_go_;
    std::deque<std::uint64_t> let_go_in_turn_;
    struct outgoing {
        std::vector<group_word> words;
        bool sending = false;
    };
    std::unordered_map<unsigned, outgoing> outgoing_;
    event words_out_;
    scratch_pool scratch_;
    std::optional<task_group> work_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/group_state.hpp>  // which the bodies need
#endif

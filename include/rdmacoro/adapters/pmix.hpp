// pmix: jobs of launchers that speak PMIx, such as mpirun of Open MPI and srun --mpi=pmix. Needs libpmix, 3 or newer.
#pragma once

#include <rdmacoro/service/detail/launcher.hpp>
#include <rdmacoro/service/detail/thread_wait.hpp>

#include <pmix.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace rdmacoro {

namespace detail {

/// A job through libpmix. Its calls block, and some have no limit of time: they run on a thread that is left to itself where they hang.
class pmix_conversation final : public launcher {
public:
    [[nodiscard]] std::string name() const override { return "PMIx"; }
    [[nodiscard]] bool may_hang() const noexcept override { return true; }

    void open(const patience& limit) override {
        check("PMIx_Init", PMIx_Init(&own_, nullptr, 0));
        size_ = number(PMIX_JOB_SIZE, limit).value_or(0);
        rank_ = own_.rank;
        if (size_ == 0 || size_ > most_ranks || rank_ >= size_)
            throw error(errc::protocol_violation, "PMIx: the launcher says that this is rank " +
                                                      std::to_string(rank_) + " of " + std::to_string(size_));
        if (const auto here = number(PMIX_LOCAL_SIZE, limit)) on_one_host_ = *here == size_;
        std::vector<std::uint32_t> here = ranks_here(limit);
        if (!here.empty()) look_out(own_.nspace, std::move(here));
    }

    [[nodiscard]] std::vector<blob> exchange(const blob& mine, const patience& limit) override {
        if (mine.size() > most_bytes)
            throw_error(errc::invalid_argument, "a launcher carries 16384 bytes a rank at most");
        const std::string key = "rdmacoro-" + std::to_string(exchanges_++);
        blob copy = mine;  // the interface has no const
        pmix_value_t value{};
        value.type = PMIX_BYTE_OBJECT;
        value.data.bo.bytes = reinterpret_cast<char*>(copy.data());
        value.data.bo.size = copy.size();
        check("PMIx_Put", PMIx_Put(PMIX_GLOBAL, key.c_str(), &value));
        check("PMIx_Commit", PMIx_Commit());
        fence(key, limit);
        std::vector<blob> all(size_);
        std::vector<std::uint32_t> missing;
        for (std::uint32_t rank = 0; rank < size_; ++rank) {
            all[rank] = rank == rank_ ? mine : bytes_of(rank, key, limit);
            if (all[rank].empty()) missing.push_back(rank);
        }
        if (!missing.empty())
            throw error(errc::peer_lost, "PMIx: the launcher has nothing of rank " +
                                             list_of_ranks(missing, missing.size()) + " of " +
                                             std::to_string(size_));
        return all;
    }

    /// libpmix counts: where the program had initialized it before, it goes on.
    void leave(const patience&) override { check("PMIx_Finalize", PMIx_Finalize(nullptr, 0)); }

private:
    /// Of calls that may be answered when the caller has gone on: each of them keeps it.
    struct answers {
        std::mutex lock{};
        std::condition_variable changed{};
        std::optional<pmix_status_t> fenced{};
        std::vector<bool> come{};  // by rank
        std::uint32_t unheard = 0;
        pmix_info_t infos[2];  // of the fence
        bool collect = true;
        int seconds = 1;
        std::string key{};
    };
    struct asked {
        std::shared_ptr<answers> to;
        pmix_rank_t rank = 0;
    };
    static void fence_ended(pmix_status_t status, void* of) {
        const std::unique_ptr<asked> call(static_cast<asked*>(of));
        const std::lock_guard held(call->to->lock);
        call->to->fenced = status;
        call->to->changed.notify_all();
    }
    static void get_ended(pmix_status_t status, pmix_value_t*, void* of) {
        const std::unique_ptr<asked> call(static_cast<asked*>(of));
        const std::lock_guard held(call->to->lock);
        call->to->come[call->rank] = status == PMIX_SUCCESS;
        --call->to->unheard;
        call->to->changed.notify_all();
    }
    [[nodiscard]] static bool is_through(const answers& of) {
        if (!of.fenced || *of.fenced == PMIX_ERR_TIMEOUT) return false;
        check("PMIx_Fence_nb", *of.fenced);
        return true;
    }

    /// All ranks come to it. The server answers a get of a value as soon as its rank has given it, before the fence has ended, and not while there is none:
    /// at the end of the limit those without an answer have not come.
    void fence(const std::string& key, const patience& limit) const {
        const auto shared = std::make_shared<answers>();
        shared->come.resize(size_);
        shared->seconds = seconds_of(limit);
        shared->key = key;
        load(shared->infos[0], PMIX_COLLECT_DATA, &shared->collect, PMIX_BOOL);
        load(shared->infos[1], PMIX_TIMEOUT, &shared->seconds, PMIX_INT);
        auto ends = std::make_unique<asked>(asked{shared});
        const pmix_status_t fenced = PMIx_Fence_nb(nullptr, 0, shared->infos, 2, &fence_ended, ends.get());
        if (fenced == PMIX_OPERATION_SUCCEEDED) return;  // it has ended: there is no answer
        check("PMIx_Fence_nb", fenced);
        ends.release();
        const duration quarter = std::max(duration::zero(), limit.until() - monotonic_now()) / 4;
        const time_point asks = limit.until() - std::min<duration>(quarter, std::chrono::milliseconds(500));
        std::unique_lock held(shared->lock);
        while (!shared->fenced && monotonic_now() < asks)
            shared->changed.wait_for(held, asks - monotonic_now());
        if (is_through(*shared)) return;
        for (pmix_rank_t rank = 0; rank < size_; ++rank) {
            if (rank == rank_) continue;
            pmix_proc_t of{};
            std::memcpy(of.nspace, own_.nspace, sizeof of.nspace);
            of.rank = rank;
            auto one = std::make_unique<asked>(asked{shared, rank});
            ++shared->unheard;
            held.unlock();  // it may be answered at once
            const pmix_status_t begun =
                PMIx_Get_nb(&of, shared->key.c_str(), nullptr, 0, &get_ended, one.get());
            held.lock();
            if (begun == PMIX_SUCCESS) {
                one.release();
            } else {
                --shared->unheard;
                if (begun == PMIX_OPERATION_SUCCEEDED) shared->come[rank] = true;
            }
        }
        // Before the end, at which others stop to wait for this thread.
        const time_point end = asks + (limit.until() - asks) / 2;
        while (shared->unheard != 0 && !is_through(*shared) && monotonic_now() < end)
            shared->changed.wait_for(held, end - monotonic_now());
        if (is_through(*shared)) return;
        std::vector<std::uint32_t> absent;
        for (std::uint32_t rank = 0; rank < size_; ++rank) {
            if (rank != rank_ && !shared->come[rank]) absent.push_back(rank);
        }
        throw error(errc::timed_out,
                    "PMIx: not all of the " + std::to_string(size_) +
                        " ranks have come within the limit; rank " + std::to_string(rank_) + " has" +
                        (absent.empty()
                             ? std::string("; the others have, too, but the launcher does not say so")
                             : (absent.size() == 1 ? "; rank " : "; ranks ") +
                                   list_of_ranks(absent, absent.size()) +
                                   (absent.size() == 1 ? " has not come" : " have not come")));
    }

    static void load(pmix_info_t& into, const char* key, const void* value, pmix_data_type_t type) {
        std::memset(&into, 0, sizeof into);
        std::strncpy(into.key, key, PMIX_MAX_KEYLEN);
        into.value.type = type;
        if (type == PMIX_BOOL) {
            std::memcpy(&into.value.data.flag, value, sizeof into.value.data.flag);
        } else {
            std::memcpy(&into.value.data.integer, value, sizeof into.value.data.integer);
        }
    }
    /// Whole seconds, within the limit; but at least 1: 0 is no limit.
    [[nodiscard]] static int seconds_of(const patience& limit) noexcept {
        const auto left = std::chrono::floor<std::chrono::seconds>(limit.until() - monotonic_now()).count();
        return static_cast<int>(std::clamp<std::int64_t>(left, 1, std::numeric_limits<int>::max()));
    }
    static void check(const char* call, pmix_status_t ended) {
        if (ended == PMIX_SUCCESS || ended == PMIX_OPERATION_SUCCEEDED) return;
        errc code = errc::unsupported;
        if (ended == PMIX_ERR_TIMEOUT) code = errc::timed_out;
        if (ended == PMIX_ERR_UNREACH || ended == PMIX_ERR_LOST_CONNECTION ||
            ended == PMIX_ERR_PROC_ABORTED || ended == PMIX_ERR_PROC_TERM_WO_SYNC ||
            ended == PMIX_ERR_PARTIAL_SUCCESS)  // a rank has ended that others wait for
            code = errc::peer_lost;
        throw error(code, std::string("PMIx: the launcher cannot be spoken to: ") + call + ": " +
                              PMIx_Error_string(ended));
    }
    struct value_end {
        void operator()(pmix_value_t* value) const noexcept { PMIX_VALUE_RELEASE(value); }
    };
    using value_pointer = std::unique_ptr<pmix_value_t, value_end>;
    [[nodiscard]] value_pointer get(pmix_rank_t rank, const char* key, const patience& limit) const {
        pmix_proc_t of{};
        std::memcpy(of.nspace, own_.nspace, sizeof of.nspace);
        of.rank = rank;
        int seconds = seconds_of(limit);
        pmix_info_t info;
        load(info, PMIX_TIMEOUT, &seconds, PMIX_INT);
        pmix_value_t* found = nullptr;
        if (PMIx_Get(&of, key, &info, 1, &found) != PMIX_SUCCESS) return {};
        return value_pointer(found);
    }
    [[nodiscard]] std::optional<std::uint32_t> number(const char* key, const patience& limit) const {
        const value_pointer found = get(PMIX_RANK_WILDCARD, key, limit);
        if (!found || found->type != PMIX_UINT32) return {};
        return found->data.uint32;
    }
    /// Of the job, sorted; empty where the launcher does not say it.
    [[nodiscard]] std::vector<std::uint32_t> ranks_here(const patience& limit) const {
        const value_pointer found = get(PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS, limit);
        if (!found || found->type != PMIX_STRING || found->data.string == nullptr) return {};
        std::vector<std::uint32_t> ranks;
        std::istringstream text(found->data.string);
        for (std::string one; std::getline(text, one, ',');) {
            std::uint32_t rank = 0;
            const auto read = std::from_chars(one.data(), one.data() + one.size(), rank);
            if (read.ec != std::errc() || rank >= size_) return {};
            ranks.push_back(rank);
        }
        std::sort(ranks.begin(), ranks.end());
        return ranks;
    }
    [[nodiscard]] blob bytes_of(std::uint32_t rank, const std::string& key, const patience& limit) const {
        const value_pointer found = get(rank, key.c_str(), limit);
        if (!found || found->type != PMIX_BYTE_OBJECT || found->data.bo.size > most_bytes) return {};
        const auto* const first = reinterpret_cast<const std::byte*>(found->data.bo.bytes);
        return {first, first + found->data.bo.size};
    }

    pmix_proc_t own_{};
    std::uint32_t exchanges_ = 0;
};

}  // namespace detail

/// For `job_options::pmix`: the program can join jobs of launchers that speak PMIx. Example:
///
///     rdmacoro::job_options options;
///     options.pmix = rdmacoro::pmix_launcher;
///     rdmacoro::job ranks = co_await rdmacoro::join_job(here, options);
[[nodiscard]] inline std::unique_ptr<detail::launcher> pmix_launcher(const detail::launch_environment&) {
    return std::make_unique<detail::pmix_conversation>();
}

}  // namespace rdmacoro

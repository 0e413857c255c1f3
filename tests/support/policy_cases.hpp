#pragma once

// Bodies of the test cases that every list of protocol policies passes on every transport. Each list has a file of its own in
// tests/conformance.

#include "conformance/conformance.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rdmacoro::test {

/// Memory of a message in pieces, with gaps between them that must not be written to.
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

/// Turns within which a message of one side nearly always reaches the other.
inline constexpr int soon = 20;

/// How one message is sent and received.
struct manner {
    posted receive;
    tag_match wanted;  ///< the receive's
    bool synchronous;
};

/// Sends `data` and receives it into `into`, both of which are checked.
task<> exchange(peer& from, peer& to, laid_out& data, laid_out& into, manner how);

/// Checks that finished messages leave nothing: no receive is posted, no memory is open to the peer, no message is stored.
void nothing_left(two_domains& w, two_domains::pair& p);

/// Checks that both ends still carry messages, short and long, and that nothing is left.
task<> still_good(two_domains& w, two_domains::pair& p);

/// Runs each body with a list on a transport, one at a time, in a section of its own.
void conform_all(const variant& over, list_name list);

/// A message of 64 MiB and 3 bytes arrives whole.
task<> carries_huge_message(two_domains& w, list_name list);

/// Both ends give up while the other is at work, on threads of their own.
void cancel_across_threads(const variant& over, list_name list);

}  // namespace rdmacoro::test

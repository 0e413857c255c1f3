// group_failure: why a group's collectives end with errors, and which ranks it names.
#pragma once

#include <rdmacoro/coro/error.hpp>

#include <string>
#include <system_error>
#include <type_traits>
#include <vector>

namespace rdmacoro {

/// Errors of collectives, beside those of `errc`.
enum class group_errc {
    ok = 0,
    revoked,  ///< another rank's collective failed, was canceled or timed out: the group cannot be used any more
    mismatch,    ///< ranks disagree about the operation, its length, root or type
    not_member,  ///< this rank is not of the group
};

/// The category of `group_errc`; its name is "rdmacoro.group".
[[nodiscard]] RDMACORO_DECL const std::error_category& group_category() noexcept;
/// `group_errc::ok` is the code that means no error.
[[nodiscard]] RDMACORO_DECL std::error_code make_error_code(group_errc code) noexcept;

/// Why a group was revoked. Ranks are those of the group.
struct group_failure {
    std::error_code why{};         ///< at the rank that noticed first
    unsigned by = 0;               ///< that rank
    std::vector<unsigned> lost{};  ///< ranks that died, or cannot be reached; sorted
    std::vector<unsigned>
        absent{};  ///< ranks that had not entered the collective that was canceled or timed out, or did not say so in time; sorted
    std::string text{};  ///< what the rank that noticed first says of it

    /// Whether the loss of ranks is why; else some may have been lost since.
    [[nodiscard]] bool is_loss() const noexcept;
    /// For people: "rank 2 has lost rank 5 (...)".
    [[nodiscard]] std::string describe() const;
    /// Adds the ranks of another report. False: all were known.
    bool merge(const group_failure& other);
};

namespace detail {
/// "rank 5", "ranks 5, 7 and 9", "ranks 5, 7, 9 and 20 more".
[[nodiscard]] std::string rank_list(const std::vector<unsigned>& ranks);
}  // namespace detail

}  // namespace rdmacoro

template <>
struct std::is_error_code_enum<rdmacoro::group_errc> : std::true_type {};

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/group_failure.ipp>
#endif

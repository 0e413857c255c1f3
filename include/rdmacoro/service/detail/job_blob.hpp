// job_blob: what each rank of a job tells the others through their launcher.
#pragma once

#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/service/node_card.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rdmacoro::detail {

/// One rank's announcement: its host, and the addresses of its nodes.
struct job_blob {
    static constexpr std::size_t most_cards = 8;
    static constexpr std::size_t most_host_bytes = 255;

    host_identity host{};            ///< all zero: not known
    std::string launched_on{};       ///< the launcher's name of the host; may be empty
    std::vector<node_card> cards{};  ///< that of the program's node first; none in a question for hosts
    bool compares_calls = false;  ///< it wants the ranks to compare what they ask for before each collective
};

/// With a mark and a version. Throws `errc::invalid_argument` for what cannot be said.
[[nodiscard]] RDMACORO_DECL std::vector<std::byte> encode_job_blob(const job_blob& from);
/// A rank's announcement, or `std::errc::bad_message`, or `errc::version_mismatch` where it is of another version.
[[nodiscard]] RDMACORO_DECL result<job_blob> decode_job_blob(std::span<const std::byte> bytes);

/// The blobs of all ranks, checked: all as many cards, and no id twice. Throws `errc::protocol_violation`, `errc::version_mismatch` and
/// `errc::invalid_argument`, with the ranks in the text.
[[nodiscard]] RDMACORO_DECL std::vector<job_blob>
decode_job_blobs(std::span<const std::vector<std::byte>> of_all);

/// The host of each rank: a number that is the same for ranks on one host. Hosts are numbered in the order of their lowest ranks.
[[nodiscard]] RDMACORO_DECL std::vector<std::uint32_t> number_hosts(std::span<const job_blob> of_all);

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/job_blob.ipp>
#endif

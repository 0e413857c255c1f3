// Failures that libfabric reports, as codes and as texts for users.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/error.hpp>

#include <cerrno>
#include <cstring>
#include <string>

#include <rdma/fi_errno.h>
#include <sys/resource.h>

namespace rdmacoro::detail::fabric {

/// "Resource temporarily unavailable", for a number as functions of libfabric return it: negative.
[[nodiscard]] std::string text_of(long failed);

/// The link's error for a failed get, put or send; `error` as in an error entry of a completion queue.
[[nodiscard]] errc errc_of(int error) noexcept;

/// The error for an object of libfabric that could not be opened; `failed` as functions of libfabric return it.
[[nodiscard]] errc errc_of_opening(long failed) noexcept;

/// Whether the provider has no room now, and trying again makes sense.
[[nodiscard]] constexpr bool is_busy(long failed) noexcept { return failed == -FI_EAGAIN; }

/// The reason why memory of that length could not be registered, and the remedy.
[[nodiscard]] std::string registration_failure(const std::string& prefix, std::size_t bytes, long failed);
[[gnu::cold, noreturn]] void throw_registration_failure(const std::string& prefix, std::size_t bytes,
                                                        long failed);

/// Step `what` failed with libfabric's number `failed`.
[[gnu::cold, noreturn]] void throw_failure(const std::string& what, long failed);

}  // namespace rdmacoro::detail::fabric

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/ofi/impl/error.ipp>
#endif

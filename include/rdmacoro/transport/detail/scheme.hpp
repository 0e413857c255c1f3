// The schemes of addresses: "tcp://" and its like, and what to say about a wrong one.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <string>
#include <string_view>

namespace rdmacoro::detail {

/// Removes `own` and "://" from the beginning of an address, where they are. Leaves an address of another scheme as it is: see
/// `wrong_scheme`.
[[nodiscard]] RDMACORO_DECL std::string_view without_scheme(std::string_view own,
                                                            std::string_view address) noexcept;

/// The fault of an address's scheme, in an address of the transport with the scheme `own`, for the text of an error: the header of
/// the transport that has this scheme, or the schemes that are known, and the nearest. Empty: the scheme is right, or left out.
[[nodiscard]] RDMACORO_DECL std::string wrong_scheme(std::string_view own, std::string_view address);

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/detail/impl/scheme.ipp>
#endif

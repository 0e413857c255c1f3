// launcher_choice: which launcher started this process.
#pragma once

#include <rdmacoro/service/detail/launcher.hpp>

#include <memory>

namespace rdmacoro::detail {

/// The launcher that the environment speaks of. `pmix`: nullptr where the program has no PMIx. `alone`: without a launcher, a job of one.
/// Throws `errc::invalid_argument` without a launcher, and `errc::unsupported`, which says what to do, where there is one with which the
/// toolkit cannot speak.
[[nodiscard]] RDMACORO_DECL std::unique_ptr<launcher> choose_launcher(const launch_environment& from,
                                                                      launcher_maker pmix, bool alone);

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/launcher_choice.ipp>
#endif

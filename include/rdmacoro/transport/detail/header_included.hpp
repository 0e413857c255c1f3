// The transports by name, so that the compiler says which header is missing where a program uses one without it.
#pragma once

#include <type_traits>

namespace rdmacoro {

struct shm;       // #include <rdmacoro/transport/shm.hpp>
struct tcp;       // #include <rdmacoro/transport/tcp.hpp>
struct verbs_rc;  // #include <rdmacoro/transport/verbs_rc.hpp>
struct sim;       // #include <rdmacoro/transport/sim.hpp>

namespace detail {

template <class T>
concept complete = requires { sizeof(T); };

/// Instantiated before a transport is used. Its messages are errors of their own and not failed constraints, which compilers
/// print last, or not at all.
template <class T>
struct header_check {
    template <class Named>
    static constexpr bool missing = std::is_same_v<T, Named> && !complete<T>;

    static_assert(!missing<rdmacoro::shm>,
                  "rdmacoro::shm needs its header: #include <rdmacoro/transport/shm.hpp>");
    static_assert(!missing<rdmacoro::tcp>,
                  "rdmacoro::tcp needs its header: #include <rdmacoro/transport/tcp.hpp>");
    static_assert(!missing<rdmacoro::verbs_rc>,
                  "rdmacoro::verbs_rc needs its header: #include <rdmacoro/transport/verbs_rc.hpp>");
    static_assert(!missing<rdmacoro::sim>,
                  "rdmacoro::sim needs its header: #include <rdmacoro/transport/sim.hpp>");

    using type = T;
    static constexpr bool passed = true;
};

/// Always satisfied, or the reason is printed.
template <class T>
concept header_included = header_check<T>::passed;

}  // namespace detail
}  // namespace rdmacoro

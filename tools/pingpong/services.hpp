// The tests of the toolkit's services: calls, casts and streams of typed values.
#pragma once

#include "exchange.hpp"

#include <rdmacoro/messaging/endpoint.hpp>

#include <cstddef>
#include <memory>

namespace pingpong {

/// The most bytes that a value of these tests can have: what a side takes in a request, less some room for its head.
inline constexpr std::size_t longest_value = (std::size_t{64} << 20) - 1024;

/// One side of these tests, on one connection, for as long as that is used.
class service_side {
public:
    service_side() = default;
    service_side(const service_side&) = delete;
    service_side& operator=(const service_side&) = delete;
    virtual ~service_side() = default;

    /// Begins an exchange, before the peer may send anything of it. `x` is borrowed until it is over.
    virtual void prepare(exchange& x, bool connecting) = 0;
    /// The connecting side's part; gives the ticks that it took.
    virtual rdmacoro::task<tick_count> ask() = 0;
    /// The listening side's part.
    virtual rdmacoro::task<> answer() = 0;
};

/// For an endpoint of `T`, with the library's own protocol list. Defined in services_over.hpp, and compiled apart for each
/// transport: it is much code, and only one list's.
template <rdmacoro::transport T>
[[nodiscard]] std::unique_ptr<service_side> make_service_side(rdmacoro::endpoint<T>& over);

}  // namespace pingpong

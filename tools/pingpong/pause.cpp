#include "pause.hpp"

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/timeout.hpp>

namespace pingpong {

rdmacoro::task<bool> pause(rdmacoro::duration time) {
    rdmacoro::event never;
    const auto ended = co_await rdmacoro::as_result(rdmacoro::timeout(never.wait(), time));
    co_return !ended && ended.error() == rdmacoro::errc::timed_out;
}

}  // namespace pingpong

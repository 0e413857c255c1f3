// The bodies of coro/, for one unit of a program: see <rdmacoro/src.hpp>, which includes those of all rooms.
#pragma once

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#error "define RDMACORO_SEPARATE_COMPILATION for the whole program before this is included"
#endif

#include <rdmacoro/coro/detail/impl/adaptor.ipp>
#include <rdmacoro/coro/detail/impl/child.ipp>
#include <rdmacoro/coro/detail/impl/describe_signal.ipp>
#include <rdmacoro/coro/detail/impl/fan_out.ipp>
#include <rdmacoro/coro/detail/impl/outcome.ipp>
#include <rdmacoro/coro/detail/impl/owner_check.ipp>
#include <rdmacoro/coro/detail/impl/plain_vector.ipp>
#include <rdmacoro/coro/detail/impl/stall_watch.ipp>
#include <rdmacoro/coro/detail/impl/stop_bridge.ipp>
#include <rdmacoro/coro/detail/impl/ticks.ipp>
#include <rdmacoro/coro/impl/clock.ipp>
#include <rdmacoro/coro/impl/describe.ipp>
#include <rdmacoro/coro/impl/error.ipp>
#include <rdmacoro/coro/impl/event.ipp>
#include <rdmacoro/coro/impl/frame_pool.ipp>
#include <rdmacoro/coro/impl/idle.ipp>
#include <rdmacoro/coro/impl/local_stop.ipp>
#include <rdmacoro/coro/impl/operation.ipp>
#include <rdmacoro/coro/impl/progress_source.ipp>
#include <rdmacoro/coro/impl/scheduler.ipp>
#include <rdmacoro/coro/impl/scheduler_guest.ipp>
#include <rdmacoro/coro/impl/semaphore.ipp>
#include <rdmacoro/coro/impl/signals.ipp>
#include <rdmacoro/coro/impl/sleep_for.ipp>
#include <rdmacoro/coro/impl/start.ipp>
#include <rdmacoro/coro/impl/task.ipp>
#include <rdmacoro/coro/impl/task_group.ipp>
#include <rdmacoro/coro/impl/timeout.ipp>
#include <rdmacoro/coro/impl/timer.ipp>
#include <rdmacoro/coro/impl/without_stop.ipp>
#include <rdmacoro/coro/impl/yield.ipp>

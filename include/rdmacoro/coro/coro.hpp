// All of coro: tasks, the scheduler that runs them, and the primitives they wait for.
//
// Belongs here: the parts of any cooperative program that need no network: tasks, the scheduler with its clock, timers,
// progress sources and idle strategies, stop requests, the base of awaitable operations, adaptors (timeout, with_stop,
// as_result, start), groups (task_group, when_all, when_any), and synchronization of coroutines (event, semaphore,
// channels).
//
// Does not belong here: memory registration, addresses, links, messages; anything that includes a network header or
// another room.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/awaitable.hpp>
#include <rdmacoro/coro/channel.hpp>
#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/frame_pool.hpp>
#include <rdmacoro/coro/idle.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/next_actor.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/progress_source.hpp>
#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/coro/root_task.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/semaphore.hpp>
#include <rdmacoro/coro/signals.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/thread_channel.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/timer.hpp>
#include <rdmacoro/coro/when_all.hpp>
#include <rdmacoro/coro/when_any.hpp>
#include <rdmacoro/coro/window.hpp>
#include <rdmacoro/coro/with_stop.hpp>
#include <rdmacoro/coro/without_stop.hpp>
#include <rdmacoro/coro/yield.hpp>

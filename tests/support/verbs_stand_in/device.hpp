#pragma once

// An RDMA device of InfiniBand within this process: a program that is compiled with device.cpp and cm.cpp has its own functions of
// libibverbs and librdmacm, and that device alone. It carries out what is posted at once, in the call, and misbehaves as tests ask. One thread.

#include <cstddef>

#include <infiniband/verbs.h>

namespace rdmacoro::test::verbs_stand_in {

inline constexpr const char* device_name = "standin0";

/// What a queue pair that carries nothing out does once it is in its error state.
enum class stalled { flushes, flushes_nothing };

/// The device carries out nothing of what is posted to `of` from now on.
void stall(ibv_qp& of, stalled how);

/// `of` enters its error state by itself, and what is posted to it is flushed. The event `QP_FATAL` reports that, or nothing does.
enum class report { event, none };
void fail(ibv_qp& of, report how);

/// A receive of `of` ends with this status, after all that is in the completion queue by now; `of` has entered its error state before.
void fail_receive(ibv_qp& of, ibv_wc_status how);

/// While one lives, the device is gone: nothing completes, and its contexts have reported `DEVICE_FATAL`.
class without_device {
public:
    without_device();
    without_device(const without_device&) = delete;
    without_device& operator=(const without_device&) = delete;
    ~without_device();
};

/// While one lives, the last message of each handshake of the connection manager is lost: the accepting side does not hear that the
/// connection is established.
class without_ready_to_use {
public:
    without_ready_to_use();
    without_ready_to_use(const without_ready_to_use&) = delete;
    without_ready_to_use& operator=(const without_ready_to_use&) = delete;
    ~without_ready_to_use();
};

/// How often a message has found no receive so far. It waits for one.
[[nodiscard]] std::size_t times_not_ready();

/// The most completions that a queue has held so far.
[[nodiscard]] std::size_t most_waiting();

/// For cm.cpp.
[[nodiscard]] ibv_device& the_device();

}  // namespace rdmacoro::test::verbs_stand_in

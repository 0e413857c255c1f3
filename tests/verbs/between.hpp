#pragma once

// Calls of libibverbs and librdmacm that tests change on their way: what adapters do and devices in software do not.

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace rdmacoro::test {

/// Functions that are called between the toolkit and the libraries; none by default.
struct between {
    /// Before a queue pair is destroyed.
    inline static void (*destroying)(const ibv_qp&) = nullptr;
    /// With each asynchronous event of a device.
    inline static void (*event)(ibv_async_event&) = nullptr;
    /// With each event of the connection manager.
    inline static void (*cm_event)(rdma_cm_event&) = nullptr;
    /// True: the process may not lock this memory.
    inline static bool (*may_not_lock)(const ibv_pd&) = nullptr;

    between() = default;
    between(const between&) = delete;
    between& operator=(const between&) = delete;
    ~between() {
        destroying = nullptr;
        event = nullptr;
        cm_event = nullptr;
        may_not_lock = nullptr;
    }
};

}  // namespace rdmacoro::test

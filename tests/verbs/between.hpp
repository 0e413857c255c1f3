#pragma once

// Calls of libibverbs and librdmacm that tests change on their way: what adapters do and devices in software do not.

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace rdmacoro::test {

/// Functions that are called between the toolkit and the libraries; none by default. Those that return a number return 0, or the
/// error that the call is to fail with.
struct between {
    /// With what a device tells of itself.
    inline static void (*device)(ibv_device_attr&) = nullptr;
    /// With what a device tells of a port, of devices that are opened after this was set.
    inline static void (*port)(ibv_port_attr&) = nullptr;
    /// With an entry of a port's table of partitions, and its index.
    inline static void (*partition)(int index, __be16& key) = nullptr;
    /// After a completion channel is created.
    inline static void (*channel)(const ibv_comp_channel&) = nullptr;
    /// Before a completion queue is created.
    inline static int (*creating_queue)(const ibv_context&) = nullptr;
    /// Before a shared receive queue is created.
    inline static int (*creating_shared)(const ibv_pd&) = nullptr;
    /// Before a queue pair is created.
    inline static int (*creating)(const ibv_pd&, const ibv_qp_init_attr&) = nullptr;
    /// After that.
    inline static void (*created)(const ibv_qp&) = nullptr;
    /// Before a queue pair is changed.
    inline static int (*modifying)(const ibv_qp&, ibv_qp_attr&, int mask) = nullptr;
    /// Before a queue pair is destroyed.
    inline static void (*destroying)(const ibv_qp&) = nullptr;
    /// With each asynchronous event of a device. The device is told that the event which it reported was taken.
    inline static void (*event)(ibv_async_event&) = nullptr;
    /// With each event of the connection manager.
    inline static void (*cm_event)(rdma_cm_event&) = nullptr;
    /// After an identifier has asked for a connection.
    inline static void (*asked)(const rdma_cm_id&) = nullptr;
    /// Before an identifier is destroyed.
    inline static void (*destroying_id)(const rdma_cm_id&) = nullptr;
    /// This address is not among those of the host's network interfaces.
    inline static const char* hidden_address = nullptr;
    /// True: the process may not lock this memory.
    inline static bool (*may_not_lock)(const ibv_pd&) = nullptr;

    between() = default;
    between(const between&) = delete;
    between& operator=(const between&) = delete;
    ~between() {
        device = nullptr;
        port = nullptr;
        partition = nullptr;
        channel = nullptr;
        creating_queue = nullptr;
        creating_shared = nullptr;
        creating = nullptr;
        created = nullptr;
        modifying = nullptr;
        destroying = nullptr;
        event = nullptr;
        cm_event = nullptr;
        asked = nullptr;
        destroying_id = nullptr;
        hidden_address = nullptr;
        may_not_lock = nullptr;
    }
};

}  // namespace rdmacoro::test

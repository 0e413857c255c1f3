// The rules that a stand-in enforces: the documented limits of a provider that needs its own hardware, as one table each.
//
// Sources: libfabric 1.20.2, the last release with it, for gni; 1.21 for cxi; 1.20.2 for efa (manual pages fi_gni, fi_cxi,
// fi_efa and what those providers' fi_getinfo answers).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <cstddef>
#include <cstdint>

namespace stand_in {

/// Which of the three groups of atomic operations.
enum class atomic_kind { plain, fetching, comparing };

struct rules {
    const char* name;
    const char* domain_name;
    std::uint64_t caps;
    int mr_required;  ///< bits of `mr_mode` that an application must offer
    int mr_optional;  ///< bits that are honoured where it offers them
    /// What the layer below is asked for, so that remote addresses mean the same there: virtual ones or offsets.
    bool virtual_addresses;
    std::size_t mr_key_size;
    std::size_t mr_cnt;
    std::size_t mr_iov_limit;
    std::size_t cq_data_size;
    std::size_t max_msg_size;
    std::size_t inject_size;
    std::size_t iov_limit;
    std::size_t rma_local_iov_limit;
    std::size_t rma_iov_limit;
    std::size_t atomic_iov_limit;
    std::size_t atomic_count;  ///< operands of one atomic operation
    std::size_t tx_size;
    std::size_t rx_size;
    std::uint64_t msg_order;
    std::size_t get_alignment;  ///< of a read's two addresses and its length
    std::size_t eager_size;     ///< longer messages' receives may be overtaken in a completion queue
    unsigned tag_bits;
    bool rma_cq_data;         ///< has fi_writedata
    bool tagged_inject_data;  ///< has fi_tinjectdata
    unsigned wait_objects;    ///< bit n: `fi_wait_obj` n
    bool trywait;             ///< has fi_trywait
    fi_progress data_progress;
    int refused_wait;  ///< error codes, positive
    int refused_inject;
    bool (*atomic)(fi_datatype type, fi_op op, atomic_kind kind);
};

constexpr unsigned wait_bit(fi_wait_obj object) { return 1U << static_cast<unsigned>(object); }

constexpr std::uint64_t usual_caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ |
                                     FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_DIRECTED_RECV |
                                     FI_MULTI_RECV | FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM;

/// Aries: 32 and 64 bits; no unsigned minimum and maximum; no sum of doubles; compare-and-swap for equality only.
constexpr bool aries_atomic(fi_datatype type, fi_op op, atomic_kind kind) {
    const bool is_signed = type == FI_INT32 || type == FI_INT64;
    const bool is_integer = is_signed || type == FI_UINT32 || type == FI_UINT64;
    const bool is_real = type == FI_FLOAT || type == FI_DOUBLE;
    if (!is_integer && !is_real) return false;
    if (kind == atomic_kind::comparing) return op == FI_CSWAP || op == FI_MSWAP;
    switch (op) {
        case FI_MIN:
        case FI_MAX: return is_signed || is_real;
        case FI_SUM: return type != FI_DOUBLE;
        case FI_BOR:
        case FI_BAND:
        case FI_BXOR: return is_integer;
        case FI_ATOMIC_WRITE: return true;
        case FI_ATOMIC_READ: return kind == atomic_kind::fetching;
        default: return false;
    }
}

/// Integers of 8 to 64 bits and reals, all operations: what Cassini and the emulation over EFA have in common.
constexpr bool usual_atomic(fi_datatype type, fi_op op, atomic_kind kind) {
    if (type > FI_DOUBLE) return false;
    const bool is_real = type == FI_FLOAT || type == FI_DOUBLE;
    const bool is_comparing = op >= FI_CSWAP && op <= FI_MSWAP;
    if (is_comparing != (kind == atomic_kind::comparing)) return false;
    if (op == FI_ATOMIC_READ) return kind == atomic_kind::fetching;
    if (is_real) return op != FI_BOR && op != FI_BAND && op != FI_BXOR && op != FI_MSWAP;
    return op <= FI_MSWAP;
}

inline constexpr rules gni{
    .name = "gni",
    .domain_name = "/sys/class/gni/kgni0",
    .caps = usual_caps | FI_FENCE,
    .mr_required = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
    .mr_optional = FI_MR_LOCAL,
    .virtual_addresses = true,
    .mr_key_size = 8,
    .mr_cnt = 65535,
    .mr_iov_limit = 1,
    .cq_data_size = 8,
    .max_msg_size = 0xffffffff,
    .inject_size = 64,
    .iov_limit = 8,
    .rma_local_iov_limit = 1,
    .rma_iov_limit = 1,
    .atomic_iov_limit = 1,
    .atomic_count = 1,
    .tx_size = 500,
    .rx_size = 500,
    .msg_order = FI_ORDER_SAS,
    .get_alignment = 4,
    .eager_size = 16384,
    .tag_bits = 64,
    .rma_cq_data = true,
    .tagged_inject_data = false,
    .wait_objects = wait_bit(FI_WAIT_NONE) | wait_bit(FI_WAIT_UNSPEC) | wait_bit(FI_WAIT_SET),
    .trywait = false,
    .data_progress = FI_PROGRESS_AUTO,
    .refused_wait = FI_EINVAL,
    .refused_inject = FI_EINVAL,
    .atomic = aries_atomic,
};

inline constexpr rules cxi{
    .name = "cxi",
    .domain_name = "cxi0",
    .caps = usual_caps | FI_FENCE,
    .mr_required = FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
    .mr_optional = 0,
    .virtual_addresses = false,
    .mr_key_size = 8,
    .mr_cnt = 100,  // the recommended number, not the limit: see `most_registrations`
    .mr_iov_limit = 1,
    .cq_data_size = 8,
    .max_msg_size = 0xffffffff,
    .inject_size = 192,
    .iov_limit = 1,
    .rma_local_iov_limit = 1,
    .rma_iov_limit = 1,
    .atomic_iov_limit = 1,
    .atomic_count = 1,
    .tx_size = 512,
    .rx_size = 512,
    .msg_order = FI_ORDER_SAS | FI_ORDER_WAW | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_WAW | FI_ORDER_ATOMIC_WAR |
                 FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_RAR,
    .get_alignment = 1,
    .eager_size = 2048,
    .tag_bits = 48,
    .rma_cq_data = false,
    .tagged_inject_data = true,
    .wait_objects =
        wait_bit(FI_WAIT_NONE) | wait_bit(FI_WAIT_UNSPEC) | wait_bit(FI_WAIT_FD) | wait_bit(FI_WAIT_POLLFD),
    .trywait = true,
    .data_progress = FI_PROGRESS_MANUAL,
    .refused_wait = FI_ENOSYS,
    .refused_inject = FI_EMSGSIZE,
    .atomic = usual_atomic,
};

inline constexpr rules efa{
    .name = "efa",
    .domain_name = "rdmap0s6-rdm",
    .caps = usual_caps,
    .mr_required = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
    .mr_optional = FI_MR_LOCAL,
    .virtual_addresses = true,
    .mr_key_size = 4,
    .mr_cnt = 262144,
    .mr_iov_limit = 1,
    .cq_data_size = 4,
    .max_msg_size = static_cast<std::size_t>(-1),
    .inject_size = 4096,
    .iov_limit = 4,
    .rma_local_iov_limit = 4,
    .rma_iov_limit = 1,
    .atomic_iov_limit = 4,
    .atomic_count = static_cast<std::size_t>(-1),
    .tx_size = 1024,
    .rx_size = 8192,
    .msg_order =
        FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW,
    .get_alignment = 1,
    .eager_size = 8192,
    .tag_bits = 64,
    .rma_cq_data = true,
    .tagged_inject_data = true,
    .wait_objects = wait_bit(FI_WAIT_NONE),
    .trywait = true,
    .data_progress = FI_PROGRESS_AUTO,
    .refused_wait = FI_ENOSYS,
    .refused_inject = FI_EINVAL,
    .atomic = usual_atomic,
};

#ifndef STAND_IN_RULES
#define STAND_IN_RULES gni
#endif

/// The table that this library was built with.
inline constexpr const rules& enforced = STAND_IN_RULES;

/// The bits of a tag.
inline constexpr std::uint64_t tag_mask = ~std::uint64_t{0} >> (64 - enforced.tag_bits);

/// How many registrations a domain may hold. cxi recommends 100 and takes many more.
inline constexpr std::size_t most_registrations = enforced.mr_cnt < 4096 ? 4096 : enforced.mr_cnt;

}  // namespace stand_in

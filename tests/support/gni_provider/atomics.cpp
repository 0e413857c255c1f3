// Atomic operations: what the hardware computes, and of how many operands at once.

#include "objects.hpp"

#include <algorithm>

namespace stand_in {

namespace {

endpoint& endpoint_of(fid_ep* object) { return static_cast<endpoint&>(*object); }

constexpr std::size_t most_pieces = 4;
static_assert(enforced.atomic_iov_limit <= most_pieces);

std::size_t bytes_of(fi_datatype type) {
    switch (type) {
        case FI_INT8:
        case FI_UINT8: return 1;
        case FI_INT16:
        case FI_UINT16: return 2;
        case FI_INT32:
        case FI_UINT32:
        case FI_FLOAT: return 4;
        default: return 8;
    }
}

/// Operands in memory, of which there may be none.
struct operands {
    const fi_ioc* pieces = nullptr;
    void* const* descriptors = nullptr;
    std::size_t count = 0;
};

int check_valid(fi_datatype type, fi_op op, atomic_kind kind) {
    if (enforced.atomic(type, op, kind)) return 0;
    return violated("atomic", FI_EOPNOTSUPP, "datatype %d with operation %d", static_cast<int>(type),
                    static_cast<int>(op));
}

int check_operands(domain& in, const operands& some, fi_datatype type, std::uint64_t right, bool aligned,
                   void** lower) {
    if (some.count > enforced.atomic_iov_limit)
        return violated("iov_limit", FI_EINVAL, "%zu pieces of operands; there may be %zu", some.count,
                        enforced.atomic_iov_limit);
    std::array<iovec, most_pieces> memory{};
    for (std::size_t i = 0; i != some.count; ++i) {
        const fi_ioc& piece = some.pieces[i];
        if (piece.count > enforced.atomic_count)
            return violated("atomic_count", FI_EINVAL, "%zu operands; there may be %zu", piece.count,
                            enforced.atomic_count);
        if (aligned && (reinterpret_cast<std::uintptr_t>(piece.addr) & (bytes_of(type) - 1)) != 0)
            return violated("atomic_alignment", FI_EINVAL, "an operand at %p", piece.addr);
        memory[i] = {piece.addr, piece.count * bytes_of(type)};
    }
    return check_local(in, memory.data(), some.descriptors, some.count, right, lower);
}

ssize_t compute(endpoint& on, atomic_kind kind, const fi_msg_atomic& message, const operands& compared,
                const operands& results, std::uint64_t flags, bool silent) {
    const fi_datatype type = message.datatype;
    if (const int refused = check_valid(type, message.op, kind); refused != 0) return refused;
    if (message.rma_iov_count != 1)
        return violated("rma_iov_limit", FI_EINVAL, "%zu remote pieces; there may be 1",
                        message.rma_iov_count);
    if ((message.rma_iov[0].addr & (bytes_of(type) - 1)) != 0 && enforced.virtual_addresses)
        return violated("atomic_alignment", FI_EINVAL, "the target %#llx",
                        static_cast<unsigned long long>(message.rma_iov[0].addr));
    const bool injects = (flags & FI_INJECT) != 0;
    const std::lock_guard lock(on.in->mutex);
    std::array<void*, most_pieces> here{}, compared_here{}, results_here{};
    const bool unused = message.op == FI_ATOMIC_READ;
    const operands operand{message.msg_iov, injects ? nullptr : message.desc, unused ? 0 : message.iov_count};
    if (!injects) {
        if (const int refused = check_operands(*on.in, operand, type, FI_WRITE, false, here.data());
            refused != 0)
            return refused;
    } else if (message.iov_count != 1 || message.msg_iov[0].count > enforced.atomic_count) {
        return violated("atomic_count", FI_EINVAL, "injected: one piece of operands");
    }
    if (const int refused = check_operands(*on.in, compared, type, FI_WRITE, false, compared_here.data());
        refused != 0)
        return refused;
    if (const int refused = check_operands(*on.in, results, type, FI_READ, true, results_here.data());
        refused != 0)
        return refused;
    if (injects)
        if (const int refused = check_inject(message.msg_iov[0].count * bytes_of(type)); refused != 0)
            return refused;

    // Behind writes that wait: where the rules order them, they stay in order.
    on.let_go();
    if (!on.held_back.empty()) return -FI_EAGAIN;
    operation* begun = nullptr;
    const bool wanted = !silent && wants(on, flags, false);
    const int full =
        begin(on, {message.context, false, wanted, (flags & FI_FENCE) != 0, message.addr}, &begun);
    if (full != 0) return full;

    fi_ioc copy{};
    fi_msg_atomic lower = message;
    if (injects) {
        const auto* from = static_cast<const std::byte*>(message.msg_iov[0].addr);
        begun->copy.assign(from, from + message.msg_iov[0].count * bytes_of(type));
        copy = {begun->copy.data(), message.msg_iov[0].count};
        lower.msg_iov = &copy;
    }
    lower.desc = here.data();
    lower.context = begun;
    const std::uint64_t lower_flags = (flags & passed_flags) | FI_COMPLETION;
    switch (kind) {
        case atomic_kind::plain: return end(begun, fi_atomicmsg(on.lower, &lower, lower_flags));
        case atomic_kind::fetching:
            return end(begun, fi_fetch_atomicmsg(on.lower, &lower, const_cast<fi_ioc*>(results.pieces),
                                                 results_here.data(), results.count, lower_flags));
        case atomic_kind::comparing:
            return end(begun, fi_compare_atomicmsg(on.lower, &lower, compared.pieces, compared_here.data(),
                                                   compared.count, const_cast<fi_ioc*>(results.pieces),
                                                   results_here.data(), results.count, lower_flags));
    }
    return -FI_EINVAL;
}

std::size_t operand_count(const fi_ioc* pieces, std::size_t count) {
    std::size_t all = 0;
    for (std::size_t i = 0; i != std::min(count, most_pieces); ++i) all += pieces[i].count;
    return all;
}

/// The forms of call that name an address and a key.
ssize_t compute_at(fid_ep* object, atomic_kind kind, const fi_ioc* pieces, void** descriptors,
                   std::size_t count, const operands& compared, const operands& results, fi_addr_t peer,
                   std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op, void* context,
                   bool silent = false) {
    endpoint& on = endpoint_of(object);
    const fi_rma_ioc there{address, operand_count(pieces, count), key};
    const fi_msg_atomic message{pieces, descriptors, count, peer, &there, 1, type, op, context, 0};
    return compute(on, kind, message, compared, results, silent ? FI_INJECT : on.transmit_flags & ~FI_INJECT,
                   silent);
}

template <atomic_kind Kind>
int valid(fid_ep*, fi_datatype type, fi_op op, std::size_t* count) {
    if (!enforced.atomic(type, op, Kind)) return -FI_EOPNOTSUPP;
    if (count != nullptr) *count = std::min<std::size_t>(enforced.atomic_count, 64 / bytes_of(type));
    return 0;
}

fi_ops_atomic made_operations() {
    fi_ops_atomic table{};
    table.size = sizeof table;
    table.write = [](fid_ep* on, const void* from, std::size_t count, void* descriptor, fi_addr_t peer,
                     std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op, void* context) {
        const fi_ioc piece{const_cast<void*>(from), count};
        return compute_at(on, atomic_kind::plain, &piece, &descriptor, 1, {}, {}, peer, address, key, type,
                          op, context);
    };
    table.writev = [](fid_ep* on, const fi_ioc* pieces, void** descriptors, std::size_t count, fi_addr_t peer,
                      std::uint64_t address, std::uint64_t key, fi_datatype type, fi_op op, void* context) {
        return compute_at(on, atomic_kind::plain, pieces, descriptors, count, {}, {}, peer, address, key,
                          type, op, context);
    };
    table.writemsg = [](fid_ep* on, const fi_msg_atomic* message, std::uint64_t flags) {
        return compute(endpoint_of(on), atomic_kind::plain, *message, {}, {}, flags, false);
    };
    table.inject = [](fid_ep* on, const void* from, std::size_t count, fi_addr_t peer, std::uint64_t address,
                      std::uint64_t key, fi_datatype type, fi_op op) {
        const fi_ioc piece{const_cast<void*>(from), count};
        return compute_at(on, atomic_kind::plain, &piece, nullptr, 1, {}, {}, peer, address, key, type, op,
                          nullptr, true);
    };
    table.readwrite = [](fid_ep* on, const void* from, std::size_t count, void* descriptor, void* result,
                         void* result_descriptor, fi_addr_t peer, std::uint64_t address, std::uint64_t key,
                         fi_datatype type, fi_op op, void* context) {
        const fi_ioc piece{const_cast<void*>(from), count};
        const fi_ioc into{result, count};
        return compute_at(on, atomic_kind::fetching, &piece, &descriptor, 1, {},
                          {&into, &result_descriptor, 1}, peer, address, key, type, op, context);
    };
    table.readwritev = [](fid_ep* on, const fi_ioc* pieces, void** descriptors, std::size_t count,
                          fi_ioc* results, void** result_descriptors, std::size_t result_count,
                          fi_addr_t peer, std::uint64_t address, std::uint64_t key, fi_datatype type,
                          fi_op op, void* context) {
        return compute_at(on, atomic_kind::fetching, pieces, descriptors, count, {},
                          {results, result_descriptors, result_count}, peer, address, key, type, op, context);
    };
    table.readwritemsg = [](fid_ep* on, const fi_msg_atomic* message, fi_ioc* results,
                            void** result_descriptors, std::size_t result_count, std::uint64_t flags) {
        return compute(endpoint_of(on), atomic_kind::fetching, *message, {},
                       {results, result_descriptors, result_count}, flags, false);
    };
    table.compwrite = [](fid_ep* on, const void* from, std::size_t count, void* descriptor,
                         const void* compared, void* compared_descriptor, void* result,
                         void* result_descriptor, fi_addr_t peer, std::uint64_t address, std::uint64_t key,
                         fi_datatype type, fi_op op, void* context) {
        const fi_ioc piece{const_cast<void*>(from), count};
        const fi_ioc with{const_cast<void*>(compared), count};
        const fi_ioc into{result, count};
        return compute_at(on, atomic_kind::comparing, &piece, &descriptor, 1,
                          {&with, &compared_descriptor, 1}, {&into, &result_descriptor, 1}, peer, address,
                          key, type, op, context);
    };
    table.compwritev = [](fid_ep* on, const fi_ioc* pieces, void** descriptors, std::size_t count,
                          const fi_ioc* compared, void** compared_descriptors, std::size_t compared_count,
                          fi_ioc* results, void** result_descriptors, std::size_t result_count,
                          fi_addr_t peer, std::uint64_t address, std::uint64_t key, fi_datatype type,
                          fi_op op, void* context) {
        return compute_at(on, atomic_kind::comparing, pieces, descriptors, count,
                          {compared, compared_descriptors, compared_count},
                          {results, result_descriptors, result_count}, peer, address, key, type, op, context);
    };
    table.compwritemsg = [](fid_ep* on, const fi_msg_atomic* message, const fi_ioc* compared,
                            void** compared_descriptors, std::size_t compared_count, fi_ioc* results,
                            void** result_descriptors, std::size_t result_count, std::uint64_t flags) {
        return compute(endpoint_of(on), atomic_kind::comparing, *message,
                       {compared, compared_descriptors, compared_count},
                       {results, result_descriptors, result_count}, flags, false);
    };
    table.writevalid = valid<atomic_kind::plain>;
    table.readwritevalid = valid<atomic_kind::fetching>;
    table.compwritevalid = valid<atomic_kind::comparing>;
    return table;
}

}  // namespace

int query_atomic(fid_domain*, fi_datatype type, fi_op op, fi_atomic_attr* attributes, std::uint64_t flags) {
    const atomic_kind kind = (flags & FI_COMPARE_ATOMIC) != 0 ? atomic_kind::comparing
                             : (flags & FI_FETCH_ATOMIC) != 0 ? atomic_kind::fetching
                                                              : atomic_kind::plain;
    if (!enforced.atomic(type, op, kind)) return -FI_EOPNOTSUPP;
    attributes->size = bytes_of(type);
    attributes->count = std::min<std::size_t>(enforced.atomic_count, 64 / attributes->size);
    return 0;
}

fi_ops_atomic* atomic_operations() {
    static fi_ops_atomic table = made_operations();
    return &table;
}

}  // namespace stand_in

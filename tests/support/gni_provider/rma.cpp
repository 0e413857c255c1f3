// Reads and writes. Nothing orders them with messages, so now and then one is held back until its queue is next read.

#include "objects.hpp"

#include <algorithm>

namespace stand_in {

namespace {

endpoint& endpoint_of(fid_ep* object) { return static_cast<endpoint&>(*object); }

constexpr std::size_t most_held_back = 8;

ssize_t give(endpoint& on, operation& what) {
    return what.reads ? fi_readmsg(on.lower, &what.message, what.flags)
                      : fi_writemsg(on.lower, &what.message, what.flags);
}

int check_alignment(const fi_msg_rma& message) {
    const std::uint64_t mask = enforced.get_alignment - 1;
    const fi_rma_iov& there = message.rma_iov[0];
    for (std::size_t i = 0; i != message.iov_count; ++i) {
        const auto here = reinterpret_cast<std::uintptr_t>(message.msg_iov[i].iov_base);
        if (((here | message.msg_iov[i].iov_len | there.addr) & mask) == 0) continue;
        return violated("get_alignment", FI_EINVAL,
                        "a read of %zu bytes from %#llx to %p; all are to be multiples of %zu",
                        message.msg_iov[i].iov_len, static_cast<unsigned long long>(there.addr),
                        message.msg_iov[i].iov_base, enforced.get_alignment);
    }
    return 0;
}

int check(const fi_msg_rma& message, std::uint64_t flags, bool reads, std::size_t bytes) {
    if (message.rma_iov_count != 1)
        return violated("rma_iov_limit", FI_EINVAL, "%zu remote pieces; there may be 1",
                        message.rma_iov_count);
    if (const int refused = check_message(message.iov_count, enforced.rma_local_iov_limit, bytes);
        refused != 0)
        return refused;
    if (message.rma_iov[0].len != bytes)
        return violated("rma_length", FI_EINVAL, "%zu bytes here, %zu there", bytes, message.rma_iov[0].len);
    if (enforced.mr_key_size < sizeof message.rma_iov[0].key &&
        message.rma_iov[0].key >> (8 * enforced.mr_key_size) != 0)
        return violated("mr_key_size", FI_EINVAL, "the key does not fit %zu bytes", enforced.mr_key_size);
    if ((flags & FI_REMOTE_CQ_DATA) != 0) {
        if (!enforced.rma_cq_data || reads)
            return violated("rma_cq_data", FI_ENOSYS, "reads and writes carry no remote data");
        if (const int refused = check_data(message.data); refused != 0) return refused;
    }
    if (reads) return check_alignment(message);
    return (flags & FI_INJECT) != 0 ? check_inject(bytes) : 0;
}

ssize_t transfer(endpoint& on, const fi_msg_rma& message, std::uint64_t flags, bool reads, bool silent) {
    const std::size_t bytes =
        length_of(message.msg_iov, std::min(message.iov_count, enforced.rma_local_iov_limit));
    if (const int refused = check(message, flags, reads, bytes); refused != 0) return refused;
    const bool injects = !reads && (flags & FI_INJECT) != 0;

    const std::lock_guard lock(on.in->mutex);
    std::array<void*, 4> descriptors{};
    if (!injects) {
        const int refused = check_local(*on.in, message.msg_iov, message.desc, message.iov_count,
                                        reads ? FI_READ : FI_WRITE, descriptors.data());
        if (refused != 0) return refused;
    }
    operation* begun = nullptr;
    const bool wanted = !silent && wants(on, flags, false);
    const int full =
        begin(on, {message.context, false, wanted, (flags & FI_FENCE) != 0, message.addr}, &begun);
    if (full != 0) return full;

    begun->reads = reads;
    // As on the hardware: a write that has completed was taken at the other side, or refused there.
    begun->flags = (flags & passed_flags) | FI_COMPLETION | (reads ? 0 : FI_DELIVERY_COMPLETE);
    begun->there = message.rma_iov[0];
    begun->descriptors = descriptors;
    std::copy_n(message.msg_iov, message.iov_count, begun->from.begin());
    std::size_t count = message.iov_count;
    if (injects) {
        for (std::size_t i = 0; i != count; ++i) {
            const auto* from = static_cast<const std::byte*>(message.msg_iov[i].iov_base);
            begun->copy.insert(begun->copy.end(), from, from + message.msg_iov[i].iov_len);
        }
        begun->from[0] = {begun->copy.data(), bytes};
        count = 1;
    }
    begun->message = {
        begun->from.data(), begun->descriptors.data(), count, message.addr, &begun->there, 1, begun,
        message.data};
    // What waits keeps its order: the rules may promise it among writes.
    const bool may_wait = on.transmits != nullptr && !on.counts &&
                          on.in->asked.order != completion_order::kept &&
                          on.held_back.size() < most_held_back;
    if (!on.held_back.empty() || (may_wait && on.in->lot(2))) {
        if (on.held_back.size() >= most_held_back) {
            on.forget(begun);
            return -FI_EAGAIN;
        }
        on.held_back.push_back(begun);
        return 0;
    }
    return end(begun, give(on, *begun));
}

ssize_t transfer_pieces(fid_ep* object, const iovec* pieces, void** descriptors, std::size_t count,
                        fi_addr_t peer, std::uint64_t address, std::uint64_t key, void* context, bool reads,
                        std::uint64_t flags = 0, std::uint64_t data = 0, bool silent = false) {
    endpoint& on = endpoint_of(object);
    const fi_rma_iov there{address, length_of(pieces, std::min(count, enforced.rma_local_iov_limit)), key};
    const fi_msg_rma message{pieces, descriptors, count, peer, &there, 1, context, data};
    const std::uint64_t usual = on.transmit_flags & (reads ? ~FI_INJECT : ~std::uint64_t{0});
    return transfer(on, message, silent ? flags : flags | usual, reads, silent);
}

ssize_t write_one(fid_ep* on, const void* from, std::size_t bytes, void* descriptor, fi_addr_t peer,
                  std::uint64_t address, std::uint64_t key, void* context, std::uint64_t flags,
                  std::uint64_t data, bool silent) {
    const iovec piece{const_cast<void*>(from), bytes};
    return transfer_pieces(on, &piece, &descriptor, 1, peer, address, key, context, false, flags, data,
                           silent);
}

fi_ops_rma made_operations() {
    fi_ops_rma table{};
    table.size = sizeof table;
    table.read = [](fid_ep* on, void* into, std::size_t bytes, void* descriptor, fi_addr_t peer,
                    std::uint64_t address, std::uint64_t key, void* context) {
        const iovec piece{into, bytes};
        return transfer_pieces(on, &piece, &descriptor, 1, peer, address, key, context, true);
    };
    table.readv = [](fid_ep* on, const iovec* pieces, void** descriptors, std::size_t count, fi_addr_t peer,
                     std::uint64_t address, std::uint64_t key, void* context) {
        return transfer_pieces(on, pieces, descriptors, count, peer, address, key, context, true);
    };
    table.readmsg = [](fid_ep* on, const fi_msg_rma* message, std::uint64_t flags) {
        return transfer(endpoint_of(on), *message, flags, true, false);
    };
    table.write = [](fid_ep* on, const void* from, std::size_t bytes, void* descriptor, fi_addr_t peer,
                     std::uint64_t address, std::uint64_t key, void* context) {
        return write_one(on, from, bytes, descriptor, peer, address, key, context, 0, 0, false);
    };
    table.writev = [](fid_ep* on, const iovec* pieces, void** descriptors, std::size_t count, fi_addr_t peer,
                      std::uint64_t address, std::uint64_t key, void* context) {
        return transfer_pieces(on, pieces, descriptors, count, peer, address, key, context, false);
    };
    table.writemsg = [](fid_ep* on, const fi_msg_rma* message, std::uint64_t flags) {
        return transfer(endpoint_of(on), *message, flags, false, false);
    };
    table.inject = [](fid_ep* on, const void* from, std::size_t bytes, fi_addr_t peer, std::uint64_t address,
                      std::uint64_t key) {
        return write_one(on, from, bytes, nullptr, peer, address, key, nullptr, FI_INJECT, 0, true);
    };
    table.writedata = [](fid_ep* on, const void* from, std::size_t bytes, void* descriptor,
                         std::uint64_t data, fi_addr_t peer, std::uint64_t address, std::uint64_t key,
                         void* context) {
        return write_one(on, from, bytes, descriptor, peer, address, key, context, FI_REMOTE_CQ_DATA, data,
                         false);
    };
    table.injectdata = [](fid_ep* on, const void* from, std::size_t bytes, std::uint64_t data, fi_addr_t peer,
                          std::uint64_t address, std::uint64_t key) {
        return write_one(on, from, bytes, nullptr, peer, address, key, nullptr, FI_INJECT | FI_REMOTE_CQ_DATA,
                         data, true);
    };
    return table;
}

}  // namespace

void endpoint::let_go() {
    while (!held_back.empty()) {
        operation& next = *held_back.front();
        const ssize_t result = give(*this, next);
        if (result == -FI_EAGAIN) return;
        held_back.pop_front();
        if (result == 0) continue;
        fi_cq_err_entry error{};
        error.op_context = next.context;
        error.flags = FI_RMA | (next.reads ? FI_READ : FI_WRITE);
        error.err = static_cast<int>(-result);
        transmits->errors.push_back(error);
        forget(&next);
    }
}

fi_ops_rma* rma_operations() {
    static fi_ops_rma table = made_operations();
    return &table;
}

}  // namespace stand_in

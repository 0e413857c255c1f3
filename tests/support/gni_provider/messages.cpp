// Sends and receives, tagged and not.

#include "objects.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace stand_in {

namespace {

endpoint& endpoint_of(fid_ep* object) { return static_cast<endpoint&>(*object); }

constexpr std::size_t most_pieces = 8;
static_assert(enforced.iov_limit <= most_pieces);

/// Both kinds of message in one form.
struct envelope {
    const iovec* pieces;
    void* const* descriptors;
    std::size_t count;
    fi_addr_t peer;
    void* context;
    std::uint64_t data = 0;
    std::uint64_t tag = 0;
    std::uint64_t ignore = 0;
    bool tagged = false;
};

int check_tag(const envelope& message) {
    if ((message.tag & ~tag_mask) == 0) return 0;
    return violated("tag", FI_EINVAL, "tag %#llx does not fit %u bits",
                    static_cast<unsigned long long>(message.tag), enforced.tag_bits);
}

fi_msg_tagged tagged_form(const envelope& message, const iovec* pieces, void** descriptors, std::size_t count,
                          operation& by) {
    return {pieces, descriptors, count, message.peer, message.tag, message.ignore, &by, message.data};
}
fi_msg plain_form(const envelope& message, const iovec* pieces, void** descriptors, std::size_t count,
                  operation& by) {
    return {pieces, descriptors, count, message.peer, &by, message.data};
}

ssize_t send(endpoint& on, const envelope& message, std::uint64_t flags, bool silent) {
    const std::size_t bytes = length_of(message.pieces, std::min(message.count, most_pieces));
    if (const int refused = check_message(message.count, enforced.iov_limit, bytes); refused != 0)
        return refused;
    if (const int refused = check_tag(message); refused != 0) return refused;
    const bool injects = (flags & FI_INJECT) != 0;
    if (injects)
        if (const int refused = check_inject(bytes); refused != 0) return refused;
    if ((flags & FI_REMOTE_CQ_DATA) != 0)
        if (const int refused = check_data(message.data); refused != 0) return refused;

    const std::lock_guard lock(on.in->mutex);
    const char* const losing = silent ? "RDMACORO_STAND_IN_LOSE_INJECTS" : "RDMACORO_STAND_IN_LOSE_SENDS";
    if (std::getenv(losing) != nullptr && on.transmits != nullptr) {
        fi_cq_err_entry error{};
        error.op_context = silent ? nullptr : message.context;
        error.flags = FI_SEND | (message.tagged ? FI_TAGGED : FI_MSG);
        error.err = FI_EIO;
        error.prov_errno = lost_code;
        on.transmits->errors.push_back(error);
        return 0;
    }
    std::array<void*, most_pieces> descriptors{};
    if (!injects) {
        const int refused = check_local(*on.in, message.pieces, message.descriptors, message.count, FI_SEND,
                                        descriptors.data());
        if (refused != 0) return refused;
    }
    operation* begun = nullptr;
    const bool wanted = !silent && wants(on, flags, false);
    const int full =
        begin(on, {message.context, false, wanted, (flags & FI_FENCE) != 0, message.peer}, &begun);
    if (full != 0) return full;
    if (const int refused = message.tagged ? 0 : count_message(on, message.peer); refused != 0)
        return end(begun, refused);

    const iovec* pieces = message.pieces;
    std::size_t count = message.count;
    iovec copy{};
    if (injects || count > on.lower_pieces) {
        begun->copy.reserve(bytes);
        for (std::size_t i = 0; i != count; ++i) {
            const auto* from = static_cast<const std::byte*>(pieces[i].iov_base);
            begun->copy.insert(begun->copy.end(), from, from + pieces[i].iov_len);
        }
        copy = {begun->copy.data(), bytes};
        pieces = &copy;
        count = 1;
        descriptors[0] = nullptr;
    }
    const std::uint64_t lower_flags = (flags & passed_flags & ~FI_MULTI_RECV) | FI_COMPLETION |
                                      (injects && bytes <= on.lower_inject ? FI_INJECT : 0);
    if (message.tagged) {
        const fi_msg_tagged lower = tagged_form(message, pieces, descriptors.data(), count, *begun);
        return end(begun, fi_tsendmsg(on.lower, &lower, lower_flags));
    }
    const fi_msg lower = plain_form(message, pieces, descriptors.data(), count, *begun);
    const ssize_t result = fi_sendmsg(on.lower, &lower, lower_flags);
    if (result != 0) uncount_message(on, message.peer);
    return end(begun, result);
}

ssize_t receive(endpoint& on, const envelope& message, std::uint64_t flags) {
    const std::size_t bytes = length_of(message.pieces, std::min(message.count, most_pieces));
    if (message.count > enforced.iov_limit) return check_message(message.count, enforced.iov_limit, bytes);
    if (const int refused = check_tag(message); refused != 0) return refused;
    const std::lock_guard lock(on.in->mutex);
    std::array<void*, most_pieces> descriptors{};
    if (const int refused = check_local(*on.in, message.pieces, message.descriptors, message.count, FI_RECV,
                                        descriptors.data());
        refused != 0)
        return refused;
    operation* begun = nullptr;
    const bool claims = (flags & FI_CLAIM) != 0 && (flags & FI_PEEK) == 0;
    if (const auto claimed = on.found.find(message.context); claims && claimed != on.found.end()) {
        // The layer below knows the message by the operation that found it.
        begun = claimed->second;
        on.found.erase(claimed);
        begun->place = on.under_way.insert(on.under_way.end(), begun);
        begun->claims = false;
        ++on.receiving;
    } else {
        const int full = begin(on, {message.context, true, wants(on, flags, true)}, &begun);
        if (full != 0) return full;
        begun->claims = (flags & FI_PEEK) != 0 && (flags & FI_CLAIM) != 0;
        begun->multiple = (flags & FI_MULTI_RECV) != 0;
        begun->tagged = message.tagged;
    }
    const iovec* pieces = message.pieces;
    std::size_t count = message.count;
    iovec copy{};
    if (count > on.lower_pieces) {
        begun->copy.resize(bytes);
        std::copy_n(pieces, count, begun->scattered.begin());
        begun->scattered_count = count;
        copy = {begun->copy.data(), bytes};
        pieces = &copy;
        count = 1;
        descriptors[0] = nullptr;
    }
    const std::uint64_t lower_flags = (flags & passed_flags) | FI_COMPLETION;
    if (message.tagged) {
        const fi_msg_tagged lower = tagged_form(message, pieces, descriptors.data(), count, *begun);
        return end(begun, fi_trecvmsg(on.lower, &lower, lower_flags));
    }
    const fi_msg lower = plain_form(message, pieces, descriptors.data(), count, *begun);
    return end(begun, fi_recvmsg(on.lower, &lower, lower_flags));
}

ssize_t send_one(fid_ep* object, const void* from, std::size_t bytes, void* descriptor, fi_addr_t peer,
                 void* context, std::uint64_t flags, std::uint64_t data, bool silent, bool tagged,
                 std::uint64_t tag) {
    endpoint& on = endpoint_of(object);
    const iovec piece{const_cast<void*>(from), bytes};
    const std::uint64_t all = silent ? flags : flags | on.transmit_flags;
    return send(on, {&piece, &descriptor, 1, peer, context, data, tag, 0, tagged}, all, silent);
}

fi_ops_msg made_message_operations() {
    fi_ops_msg table{};
    table.size = sizeof table;
    table.recv = [](fid_ep* on, void* into, std::size_t bytes, void* descriptor, fi_addr_t peer,
                    void* context) {
        const iovec piece{into, bytes};
        return receive(endpoint_of(on), {&piece, &descriptor, 1, peer, context},
                       endpoint_of(on).receive_flags);
    };
    table.recvv = [](fid_ep* on, const iovec* pieces, void** descriptors, std::size_t count, fi_addr_t peer,
                     void* context) {
        return receive(endpoint_of(on), {pieces, descriptors, count, peer, context},
                       endpoint_of(on).receive_flags);
    };
    table.recvmsg = [](fid_ep* on, const fi_msg* m, std::uint64_t flags) {
        return receive(endpoint_of(on), {m->msg_iov, m->desc, m->iov_count, m->addr, m->context, m->data},
                       flags);
    };
    table.send = [](fid_ep* on, const void* from, std::size_t bytes, void* descriptor, fi_addr_t peer,
                    void* context) {
        return send_one(on, from, bytes, descriptor, peer, context, 0, 0, false, false, 0);
    };
    table.sendv = [](fid_ep* on, const iovec* pieces, void** descriptors, std::size_t count, fi_addr_t peer,
                     void* context) {
        return send(endpoint_of(on), {pieces, descriptors, count, peer, context},
                    endpoint_of(on).transmit_flags, false);
    };
    table.sendmsg = [](fid_ep* on, const fi_msg* m, std::uint64_t flags) {
        return send(endpoint_of(on), {m->msg_iov, m->desc, m->iov_count, m->addr, m->context, m->data}, flags,
                    false);
    };
    table.inject = [](fid_ep* on, const void* from, std::size_t bytes, fi_addr_t peer) {
        return send_one(on, from, bytes, nullptr, peer, nullptr, FI_INJECT, 0, true, false, 0);
    };
    table.senddata = [](fid_ep* on, const void* from, std::size_t bytes, void* descriptor, std::uint64_t data,
                        fi_addr_t peer, void* context) {
        return send_one(on, from, bytes, descriptor, peer, context, FI_REMOTE_CQ_DATA, data, false, false, 0);
    };
    table.injectdata = [](fid_ep* on, const void* from, std::size_t bytes, std::uint64_t data,
                          fi_addr_t peer) {
        return send_one(on, from, bytes, nullptr, peer, nullptr, FI_INJECT | FI_REMOTE_CQ_DATA, data, true,
                        false, 0);
    };
    return table;
}

fi_ops_tagged made_tagged_operations() {
    fi_ops_tagged table{};
    table.size = sizeof table;
    table.recv = [](fid_ep* on, void* into, std::size_t bytes, void* descriptor, fi_addr_t peer,
                    std::uint64_t tag, std::uint64_t ignore, void* context) {
        const iovec piece{into, bytes};
        return receive(endpoint_of(on), {&piece, &descriptor, 1, peer, context, 0, tag, ignore, true},
                       endpoint_of(on).receive_flags);
    };
    table.recvv = [](fid_ep* on, const iovec* pieces, void** descriptors, std::size_t count, fi_addr_t peer,
                     std::uint64_t tag, std::uint64_t ignore, void* context) {
        return receive(endpoint_of(on), {pieces, descriptors, count, peer, context, 0, tag, ignore, true},
                       endpoint_of(on).receive_flags);
    };
    table.recvmsg = [](fid_ep* on, const fi_msg_tagged* m, std::uint64_t flags) {
        return receive(
            endpoint_of(on),
            {m->msg_iov, m->desc, m->iov_count, m->addr, m->context, m->data, m->tag, m->ignore, true},
            flags);
    };
    table.send = [](fid_ep* on, const void* from, std::size_t bytes, void* descriptor, fi_addr_t peer,
                    std::uint64_t tag, void* context) {
        return send_one(on, from, bytes, descriptor, peer, context, 0, 0, false, true, tag);
    };
    table.sendv = [](fid_ep* on, const iovec* pieces, void** descriptors, std::size_t count, fi_addr_t peer,
                     std::uint64_t tag, void* context) {
        return send(endpoint_of(on), {pieces, descriptors, count, peer, context, 0, tag, 0, true},
                    endpoint_of(on).transmit_flags, false);
    };
    table.sendmsg = [](fid_ep* on, const fi_msg_tagged* m, std::uint64_t flags) {
        return send(endpoint_of(on),
                    {m->msg_iov, m->desc, m->iov_count, m->addr, m->context, m->data, m->tag, 0, true}, flags,
                    false);
    };
    table.inject = [](fid_ep* on, const void* from, std::size_t bytes, fi_addr_t peer, std::uint64_t tag) {
        return send_one(on, from, bytes, nullptr, peer, nullptr, FI_INJECT, 0, true, true, tag);
    };
    table.senddata = [](fid_ep* on, const void* from, std::size_t bytes, void* descriptor, std::uint64_t data,
                        fi_addr_t peer, std::uint64_t tag, void* context) {
        return send_one(on, from, bytes, descriptor, peer, context, FI_REMOTE_CQ_DATA, data, false, true,
                        tag);
    };
    table.injectdata = [](fid_ep* on, const void* from, std::size_t bytes, std::uint64_t data, fi_addr_t peer,
                          std::uint64_t tag) -> ssize_t {
        if (!enforced.tagged_inject_data)
            return violated("tinjectdata", FI_ENOSYS, "there is no fi_tinjectdata");
        return send_one(on, from, bytes, nullptr, peer, nullptr, FI_INJECT | FI_REMOTE_CQ_DATA, data, true,
                        true, tag);
    };
    return table;
}

}  // namespace

fi_ops_msg* message_operations() {
    static fi_ops_msg table = made_message_operations();
    return &table;
}

fi_ops_tagged* tagged_operations() {
    static fi_ops_tagged table = made_tagged_operations();
    return &table;
}

}  // namespace stand_in

// Memory registration: the mode's rules, and the check of what an operation names as local memory.

#include "objects.hpp"

#include <algorithm>

#include <sys/mman.h>
#include <unistd.h>

namespace stand_in {

namespace {

memory& memory_of(fid* object) { return static_cast<memory&>(*reinterpret_cast<fid_mr*>(object)); }

/// FI_MR_ALLOCATED: there must be memory behind the addresses when they are registered.
bool is_mapped(std::uintptr_t begin, std::size_t bytes) {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const std::uintptr_t first = begin & ~(page - 1);
    const std::uintptr_t end = begin + bytes;
    if (end < begin) return false;
    std::vector<unsigned char> resident(std::min<std::size_t>((end - first + page - 1) / page, 4096));
    for (std::uintptr_t at = first; at < end; at += resident.size() * page) {
        const std::size_t length = std::min<std::size_t>(end - at, resident.size() * page);
        if (::mincore(reinterpret_cast<void*>(at), length, resident.data()) != 0) return false;
    }
    return true;
}

int close_memory(fid* object) {
    memory& closing = memory_of(object);
    domain& in = *closing.in;
    {
        const std::lock_guard lock(in.mutex);
        if (const int result = fi_close(&closing.lower->fid); result != 0) return result;
        in.memories.erase(&closing);
        if (closing.bound != nullptr) --closing.bound->bound_memories;
    }
    delete &closing;
    return 0;
}

int bind_memory(fid* object, fid* to, std::uint64_t flags) {
    memory& binding = memory_of(object);
    if (to->fclass != FI_CLASS_EP) return fi_mr_bind(binding.lower, to, flags);
    if ((binding.in->mr_mode & FI_MR_ENDPOINT) == 0)
        return violated("mr_bind", FI_EINVAL,
                        "a registration is bound to an endpoint only where FI_MR_ENDPOINT is set");
    if (binding.bound != nullptr || binding.enabled)
        return violated("mr_bind", FI_EINVAL, "the registration is bound or enabled already");
    const std::lock_guard lock(binding.in->mutex);
    binding.bound = &static_cast<endpoint&>(*reinterpret_cast<fid_ep*>(to));
    ++binding.bound->bound_memories;
    return 0;
}

int control_memory(fid* object, int command, void* argument) {
    memory& controlled = memory_of(object);
    if (command != FI_ENABLE) return fi_control(&controlled.lower->fid, command, argument);
    if (controlled.bound == nullptr)
        return violated("mr_enable", FI_EINVAL, "the registration is not bound to an endpoint");
    if (controlled.enabled) return violated("mr_enable", FI_EINVAL, "the registration is enabled already");
    controlled.enabled = true;
    controlled.key = fi_mr_key(controlled.lower);
    return 0;
}

fi_ops object_operations() {
    fi_ops table{};
    table.size = sizeof table;
    table.close = close_memory;
    table.bind = bind_memory;
    table.control = control_memory;
    table.ops_open = no_ops_open;
    return table;
}

int register_attributes(fid* object, const fi_mr_attr* asked, std::uint64_t flags, fid_mr** registered) {
    static fi_ops object_table = object_operations();
    constexpr std::uint64_t rights =
        FI_READ | FI_WRITE | FI_SEND | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if (object->fclass != FI_CLASS_DOMAIN || asked == nullptr || asked->mr_iov == nullptr ||
        registered == nullptr)
        return -FI_EINVAL;
    domain& in = static_cast<domain&>(*reinterpret_cast<fid_domain*>(object));
    if (flags != 0) return violated("mr_flags", FI_EBADFLAGS, "flags must be 0");
    if (asked->iov_count != 1)
        return violated("mr_iov_limit", FI_EOPNOTSUPP, "%zu pieces; there may be 1", asked->iov_count);
    const iovec& piece = asked->mr_iov[0];
    const auto begin = reinterpret_cast<std::uintptr_t>(piece.iov_base);
    if (asked->offset != 0) return violated("mr_offset", FI_EINVAL, "the offset must be 0");
    if (piece.iov_base == nullptr || piece.iov_len == 0)
        return violated("mr_address", FI_EINVAL, "a registration of no memory");
    if (asked->access == 0 || (asked->access & ~rights) != 0)
        return violated("mr_access", FI_EINVAL, "access %#llx",
                        static_cast<unsigned long long>(asked->access));
    if ((in.mr_mode & FI_MR_ALLOCATED) != 0 && !is_mapped(begin, piece.iov_len))
        return violated("mr_allocated", FI_EINVAL, "%zu bytes at %p are not all allocated", piece.iov_len,
                        piece.iov_base);

    const std::lock_guard lock(in.mutex);
    if (in.memories.size() >= in.asked.registrations)
        return violated("mr_cnt", FI_ENOSPC, "%zu registrations exist already", in.memories.size());
    auto made = std::make_unique<memory>();
    fi_mr_attr lower = *asked;
    lower.context = nullptr;
    lower.auth_key = nullptr;
    lower.auth_key_size = 0;
    int result = 0;
    do {
        // Where the layer below takes the application's keys, they are drawn at random, so that no peer can guess them.
        lower.requested_key = in.lots();
        if (enforced.mr_key_size < sizeof(std::uint64_t)) lower.requested_key &= 0xffffffff;
        result = fi_mr_regattr(in.lower, &lower, 0, &made->lower);
    } while (result == -FI_ENOKEY);
    if (result != 0) return result;
    made->in = &in;
    made->begin = begin;
    made->bytes = piece.iov_len;
    made->access = asked->access;
    made->enabled = (in.mr_mode & FI_MR_ENDPOINT) == 0;
    made->fid.fclass = FI_CLASS_MR;
    made->fid.context = asked->context;
    made->fid.ops = &object_table;
    made->mem_desc = made.get();
    made->key = made->enabled ? fi_mr_key(made->lower) : FI_KEY_NOTAVAIL;
    in.memories.insert(made.get());
    *registered = made.release();
    return 0;
}

int register_pieces(fid* object, const iovec* pieces, std::size_t count, std::uint64_t access,
                    std::uint64_t offset, std::uint64_t key, std::uint64_t flags, fid_mr** registered,
                    void* context) {
    fi_mr_attr asked{};
    asked.mr_iov = pieces;
    asked.iov_count = count;
    asked.access = access;
    asked.offset = offset;
    asked.requested_key = key;
    asked.context = context;
    return register_attributes(object, &asked, flags, registered);
}

int register_one(fid* object, const void* begin, std::size_t bytes, std::uint64_t access,
                 std::uint64_t offset, std::uint64_t key, std::uint64_t flags, fid_mr** registered,
                 void* context) {
    const iovec piece{const_cast<void*>(begin), bytes};
    return register_pieces(object, &piece, 1, access, offset, key, flags, registered, context);
}

}  // namespace

fi_ops_mr* memory_operations() {
    static fi_ops_mr table = [] {
        fi_ops_mr made{};
        made.size = sizeof made;
        made.reg = register_one;
        made.regv = register_pieces;
        made.regattr = register_attributes;
        return made;
    }();
    return &table;
}

int check_local(domain& in, const iovec* pieces, void* const* descriptors, std::size_t count,
                std::uint64_t right, void** lower) {
    for (std::size_t i = 0; i != count; ++i) {
        lower[i] = nullptr;
        auto* named = static_cast<memory*>(descriptors != nullptr ? descriptors[i] : nullptr);
        if (named == nullptr) {
            if ((in.mr_mode & FI_MR_LOCAL) == 0 || pieces[i].iov_len == 0) continue;
            return violated("mr_local", FI_EINVAL, "%zu bytes at %p without a descriptor", pieces[i].iov_len,
                            pieces[i].iov_base);
        }
        if (!in.memories.contains(named))
            return violated("mr_local", FI_EINVAL, "the descriptor names no registration of this domain");
        const auto begin = reinterpret_cast<std::uintptr_t>(pieces[i].iov_base);
        if (begin < named->begin || pieces[i].iov_len > named->bytes ||
            begin - named->begin > named->bytes - pieces[i].iov_len)
            return violated("mr_local", FI_EINVAL, "%zu bytes at %p are not within their registration",
                            pieces[i].iov_len, pieces[i].iov_base);
        if ((named->access & right) != right)
            return violated("mr_local", FI_EACCES, "the registration's access %#llx lacks %#llx",
                            static_cast<unsigned long long>(named->access),
                            static_cast<unsigned long long>(right));
        lower[i] = fi_mr_desc(named->lower);
    }
    return 0;
}

}  // namespace stand_in

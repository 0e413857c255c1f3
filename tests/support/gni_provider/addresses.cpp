// Address vectors: an address is used between its insertion and its removal, and removed when nothing is under way to it.

#include "objects.hpp"

namespace stand_in {

namespace {

address_vector& vector_of(fid_av* object) { return static_cast<address_vector&>(*object); }
address_vector& vector_of(fid* object) { return vector_of(reinterpret_cast<fid_av*>(object)); }

int close_addresses(fid* object) {
    address_vector& closing = vector_of(object);
    {
        const std::lock_guard lock(closing.in->mutex);
        if (closing.endpoints != 0)
            return violated("av_close", FI_EBUSY, "%zu endpoints are bound to it", closing.endpoints);
        if (const int result = fi_close(&closing.lower->fid); result != 0) return result;
    }
    delete &closing;
    return 0;
}

int bind_addresses(fid* object, fid* bound, std::uint64_t flags) {
    fid* const lower = &vector_of(object).lower->fid;
    return lower->ops->bind(lower, bound, flags);
}

/// Counts what the layer below has inserted, and answers its answer.
int inserted(address_vector& into, int result, const fi_addr_t* numbers, std::size_t count) {
    for (std::size_t i = 0; result > 0 && i != count; ++i)
        if (numbers[i] != FI_ADDR_NOTAVAIL) ++into.peers[numbers[i]].inserted;
    return result;
}

int insert(fid_av* object, const void* addresses, std::size_t count, fi_addr_t* numbers, std::uint64_t flags,
           void* context) {
    address_vector& into = vector_of(object);
    if (numbers == nullptr) return -FI_EINVAL;
    const std::lock_guard lock(into.in->mutex);
    return inserted(into, fi_av_insert(into.lower, addresses, count, numbers, flags, context), numbers,
                    count);
}

int insert_service(fid_av* object, const char* node, const char* service, fi_addr_t* number,
                   std::uint64_t flags, void* context) {
    address_vector& into = vector_of(object);
    if (number == nullptr) return -FI_EINVAL;
    const std::lock_guard lock(into.in->mutex);
    return inserted(into, fi_av_insertsvc(into.lower, node, service, number, flags, context), number, 1);
}

int remove(fid_av* object, fi_addr_t* numbers, std::size_t count, std::uint64_t flags) {
    address_vector& from = vector_of(object);
    const std::lock_guard lock(from.in->mutex);
    for (std::size_t i = 0; i != count; ++i) {
        const auto found = from.peers.find(numbers[i]);
        if (found == from.peers.end())
            return violated("av_remove", FI_EINVAL, "address %llu was not inserted, or was removed",
                            static_cast<unsigned long long>(numbers[i]));
        if (found->second.under_way != 0)
            return violated("av_remove", FI_EBUSY, "%zu operations are under way to address %llu",
                            found->second.under_way, static_cast<unsigned long long>(numbers[i]));
    }
    if (const int result = fi_av_remove(from.lower, numbers, count, flags); result != 0) return result;
    for (std::size_t i = 0; i != count; ++i) {
        const auto found = from.peers.find(numbers[i]);
        if (--found->second.inserted == 0) from.peers.erase(found);
    }
    return 0;
}

fi_ops object_operations() {
    fi_ops table{};
    table.size = sizeof table;
    table.close = close_addresses;
    table.bind = bind_addresses;
    table.control = no_control;
    table.ops_open = no_ops_open;
    return table;
}

fi_ops_av vector_operations() {
    fi_ops_av table{};
    table.size = sizeof table;
    table.insert = insert;
    table.insertsvc = insert_service;
    table.insertsym = [](fid_av*, const char*, std::size_t, const char*, std::size_t, fi_addr_t*,
                         std::uint64_t, void*) { return -FI_ENOSYS; };
    table.remove = remove;
    table.lookup = [](fid_av* object, fi_addr_t number, void* address, std::size_t* bytes) {
        return fi_av_lookup(vector_of(object).lower, number, address, bytes);
    };
    table.straddr = [](fid_av* object, const void* address, char* text, std::size_t* bytes) {
        return fi_av_straddr(vector_of(object).lower, address, text, bytes);
    };
    table.av_set = [](fid_av*, fi_av_set_attr*, fid_av_set**, void*) { return -FI_ENOSYS; };
    return table;
}

}  // namespace

int open_addresses(fid_domain* in, fi_av_attr* attributes, fid_av** opened, void* context) {
    static fi_ops object_table = object_operations();
    static fi_ops_av table = vector_operations();
    auto made = std::make_unique<address_vector>();
    made->in = &static_cast<domain&>(*in);
    if (const int result = fi_av_open(made->in->lower, attributes, &made->lower, nullptr); result != 0)
        return result;
    made->fid.fclass = FI_CLASS_AV;
    made->fid.context = context;
    made->fid.ops = &object_table;
    made->ops = &table;
    *opened = made.release();
    return 0;
}

}  // namespace stand_in

#include "verbs/between.hpp"

#include <cerrno>

#include <dlfcn.h>

// In place of the libraries' own, which they call in turn.

namespace {

using rdmacoro::test::between;

template <class Function>
Function* library_function(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int ibv_destroy_qp(ibv_qp* which) {
    static auto* const real = library_function<int(ibv_qp*)>("ibv_destroy_qp");
    if (between::destroying != nullptr) between::destroying(*which);
    return real(which);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    static auto* const real = library_function<int(ibv_context*, ibv_async_event*)>("ibv_get_async_event");
    const int outcome = real(context, event);
    if (outcome == 0 && between::event != nullptr) between::event(*event);
    return outcome;
}

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
    static auto* const real =
        library_function<int(rdma_event_channel*, rdma_cm_event**)>("rdma_get_cm_event");
    const int outcome = real(channel, event);
    if (outcome == 0 && between::cm_event != nullptr) between::cm_event(**event);
    return outcome;
}

#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd* domain, void* memory, size_t bytes, int access) {
    static auto* const real = library_function<ibv_mr*(ibv_pd*, void*, size_t, int)>("ibv_reg_mr");
    if (between::may_not_lock == nullptr || !between::may_not_lock(*domain))
        return real(domain, memory, bytes, access);
    errno = ENOMEM;
    return nullptr;
}

}  // extern "C"

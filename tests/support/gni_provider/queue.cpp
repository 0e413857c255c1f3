// Completion queues: completions in the order that the hardware may give them, which is not the one below.

#include "objects.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace stand_in {

namespace {

queue& queue_of(fid_cq* object) { return static_cast<queue&>(*object); }
queue& queue_of(fid* object) { return queue_of(reinterpret_cast<fid_cq*>(object)); }

constexpr std::size_t most_held = 32;

std::size_t bytes_of(fi_cq_format format) {
    switch (format) {
        case FI_CQ_FORMAT_MSG: return sizeof(fi_cq_msg_entry);
        case FI_CQ_FORMAT_DATA: return sizeof(fi_cq_data_entry);
        case FI_CQ_FORMAT_TAGGED: return sizeof(fi_cq_tagged_entry);
        default: return sizeof(fi_cq_entry);
    }
}

/// The completed operation's bookkeeping ends, but for a buffer that goes on receiving. Answers its context.
struct told {
    void* context;
    bool wanted;
    bool receives;
    bool multiple;
};

/// Received into a copy: to where the application wanted it.
void scatter(const operation& received, std::size_t bytes) {
    const std::byte* from = received.copy.data();
    for (std::size_t i = 0; i != received.scattered_count && bytes != 0; ++i) {
        const std::size_t part = std::min(bytes, received.scattered[i].iov_len);
        std::memcpy(received.scattered[i].iov_base, from, part);
        from += part;
        bytes -= part;
    }
}

told settle(operation& done, bool failed, std::uint64_t flags) {
    const told result{done.context, done.wanted || failed, done.receives, done.multiple};
    if (done.multiple && !failed && (flags & FI_MULTI_RECV) == 0) return result;
    endpoint& owner = *done.owner;
    if (done.claims && !failed) {
        // The layer below keeps the message it found by this operation.
        owner.under_way.erase(done.place);
        --owner.receiving;
        owner.found[done.context] = &done;
        return result;
    }
    owner.forget(&done);
    return result;
}

/// Which of the held completions comes next.
std::size_t next_of(queue& in) {
    const completion_order order = in.in->asked.order;
    if (order == completion_order::kept) return 0;
    const std::size_t chosen = in.in->lots() % in.held.size();
    const finished& drawn = in.held[chosen];
    if (!drawn.receives) return chosen;
    // Receives in order, but for those that may be overtaken.
    const auto first = std::find_if(in.held.begin(), in.held.end(),
                                    [](const finished& each) { return each.receives && !each.movable; });
    if (first == in.held.end()) return chosen;
    const auto at = static_cast<std::size_t>(first - in.held.begin());
    return at < chosen || !drawn.movable ? at : chosen;
}

/// 0, or the error that each read of the queue fails with while this variable has its number; of the queues of tagged messages alone
/// while RDMACORO_STAND_IN_CQ_OF is "tagged".
int asked_error(const queue& of, const char* variable) {
    const char* const error = std::getenv(variable);
    const char* const which = std::getenv("RDMACORO_STAND_IN_CQ_OF");
    const bool tagged = of.entry_bytes == bytes_of(FI_CQ_FORMAT_TAGGED);
    if (error == nullptr || (which != nullptr && std::strcmp(which, "tagged") == 0 && !tagged)) return 0;
    return std::atoi(error);
}

ssize_t read_from(fid_cq* object, void* into, std::size_t count, fi_addr_t* sources) {
    queue& in = queue_of(object);
    const std::lock_guard lock(in.in->mutex);
    if (const int error = asked_error(in, "RDMACORO_STAND_IN_CQ_ERROR"); error != 0) return -error;
    in.fetch();
    if (!in.errors.empty()) return -FI_EAVAIL;
    if (in.held.empty() && in.overrun) return -FI_EOVERRUN;
    if (in.held.empty() || count == 0) return in.held.empty() ? -FI_EAGAIN : 0;
    std::size_t give = std::min(count, in.held.size());
    const bool holds = !in.waited_for && in.in->asked.order != completion_order::kept;
    if (holds && !in.answered_nothing && in.held.size() < most_held) give = in.in->lots() % (give + 1);
    in.answered_nothing = give == 0;
    if (give == 0) return -FI_EAGAIN;
    auto* to = static_cast<std::byte*>(into);
    for (std::size_t i = 0; i != give; ++i) {
        const auto next = in.held.begin() + static_cast<std::ptrdiff_t>(next_of(in));
        std::memcpy(to + i * in.entry_bytes, &next->entry, in.entry_bytes);
        if (sources != nullptr) sources[i] = next->source;
        in.held.erase(next);
    }
    return static_cast<ssize_t>(give);
}

ssize_t read(fid_cq* object, void* into, std::size_t count) {
    return read_from(object, into, count, nullptr);
}

ssize_t read_error(fid_cq* object, fi_cq_err_entry* into, std::uint64_t) {
    queue& in = queue_of(object);
    const std::lock_guard lock(in.in->mutex);
    if (const int error = asked_error(in, "RDMACORO_STAND_IN_CQ_READERR"); error != 0) return -error;
    in.fetch();
    if (in.errors.empty()) return -FI_EAGAIN;
    *into = in.errors.front();
    in.errors.pop_front();
    return 1;
}

ssize_t wait_and_read_from(fid_cq* object, void* into, std::size_t count, fi_addr_t* sources, const void*,
                           int timeout) {
    queue& in = queue_of(object);
    if (!in.waited_for) return violated("wait_obj", FI_EINVAL, "the queue was opened without a wait object");
    for (;;) {
        if (const ssize_t result = read_from(object, into, count, sources); result != -FI_EAGAIN)
            return result;
        fi_cq_tagged_entry entry{};
        // Of no entries: it waits, and what has come stays to be fetched.
        const ssize_t result = fi_cq_sread(in.lower, &entry, 0, nullptr, timeout);
        if (result < 0 && result != -FI_EAVAIL) return result;
        if (result >= 0) {
            const std::lock_guard lock(in.in->mutex);
            in.fetch();
            if (!in.has_any()) return -FI_EAGAIN;
        }
    }
}

ssize_t wait_and_read(fid_cq* object, void* into, std::size_t count, const void* condition, int timeout) {
    return wait_and_read_from(object, into, count, nullptr, condition, timeout);
}

int signal_readers(fid_cq* object) { return fi_cq_signal(queue_of(object).lower); }

const char* error_text(fid_cq* object, int code, const void* data, char* into, std::size_t bytes) {
    if (code == lost_code) return "lost by the stand-in";
    return fi_cq_strerror(queue_of(object).lower, code, data, into, bytes);
}

int close_queue(fid* object) {
    queue& closing = queue_of(object);
    const std::unique_lock lock(closing.in->mutex);
    for (const endpoint* each : closing.in->endpoints)
        if (each->transmits == &closing || each->receives == &closing) return -FI_EBUSY;
    fid_cq* const lower = closing.lower;
    if (const int result = fi_close(&lower->fid); result != 0) return result;
    closing.lower = nullptr;
    delete &closing;
    return 0;
}

int control_queue(fid* object, int command, void* argument) {
    queue& controlled = queue_of(object);
    constexpr unsigned descriptors = wait_bit(FI_WAIT_FD) | wait_bit(FI_WAIT_POLLFD);
    if (command == FI_GETWAIT && (enforced.wait_objects & descriptors) == 0)
        return violated("wait_obj", FI_ENOSYS,
                        "FI_GETWAIT: the queue has no object to wait on in the kernel");
    return fi_control(&controlled.lower->fid, command, argument);
}

fi_ops object_operations() {
    fi_ops table{};
    table.size = sizeof table;
    table.close = close_queue;
    table.bind = no_bind;
    table.control = control_queue;
    table.ops_open = no_ops_open;
    return table;
}

fi_ops_cq queue_operations() {
    fi_ops_cq table{};
    table.size = sizeof table;
    table.read = read;
    table.readfrom = read_from;
    table.readerr = read_error;
    table.sread = wait_and_read;
    table.sreadfrom = wait_and_read_from;
    table.signal = signal_readers;
    table.strerror = error_text;
    return table;
}

}  // namespace

queue::~queue() {
    if (lower != nullptr) fi_close(&lower->fid);
}

void queue::fetch() {
    for (endpoint* each : in->endpoints) each->let_go();
    constexpr std::size_t at_once = 16;
    fi_cq_tagged_entry entries[at_once];
    fi_addr_t sources[at_once];
    while (!overrun) {
        const ssize_t count = fi_cq_readfrom(lower, entries, at_once, sources);
        if (count == -FI_EAVAIL) {
            fi_cq_err_entry error{};
            if (fi_cq_readerr(lower, &error, 0) != 1) return;
            error.err_data = nullptr;
            error.err_data_size = 0;
            auto* done = static_cast<operation*>(error.op_context);
            if (in->live.contains(done)) {
                if (done->receives && !done->tagged && error.err != FI_ECANCELED) --done->owner->under_way_to;
                error.op_context = settle(*done, true, error.flags).context;
                errors.push_back(error);
            } else if (done == nullptr) {
                errors.push_back(error);
            }
            continue;
        }
        if (count <= 0) return;
        for (std::size_t i = 0; i != static_cast<std::size_t>(count); ++i) {
            finished one{entries[i], sources[i], true, false};
            auto* done = static_cast<operation*>(one.entry.op_context);
            if (in->live.contains(done)) {
                scatter(*done, one.entry.len);
                if (done->receives && !done->tagged) --done->owner->under_way_to;
                const told result = settle(*done, false, one.entry.flags);
                if (!result.wanted) continue;
                one.entry.op_context = result.context;
                one.receives = result.receives;
                one.movable =
                    result.receives && !result.multiple &&
                    (in->asked.order == completion_order::any || one.entry.len > enforced.eager_size);
            } else if ((one.entry.flags & FI_REMOTE_WRITE) != 0) {
                one.entry.op_context = nullptr;  // a peer wrote with data: nothing here was posted for it
                one.movable = true;
            } else {
                continue;  // of an endpoint that is closed
            }
            if (entries_room != 0 && held.size() == entries_room && !std::exchange(overrun, true) &&
                !overrun_wanted)
                violated("cq_size", FI_EOVERRUN, "more than %zu completions were not read", entries_room);
            if (!overrun) held.push_back(one);
        }
    }
}

int check_wait(fi_wait_obj object, const char* what) {
    if ((enforced.wait_objects & wait_bit(object)) != 0) return 0;
    return violated("wait_obj", enforced.refused_wait, "%s with wait object %d", what,
                    static_cast<int>(object));
}

int open_queue(fid_domain* in, fi_cq_attr* attributes, fid_cq** opened, void* context) {
    static fi_ops object_table = object_operations();
    static fi_ops_cq table = queue_operations();
    if (const int refused = check_wait(attributes->wait_obj, "a completion queue"); refused != 0)
        return refused;
    auto made = std::make_unique<queue>();
    made->in = &static_cast<domain&>(*in);
    made->entry_bytes = bytes_of(attributes->format);
    made->waited_for = attributes->wait_obj != FI_WAIT_NONE;
    made->entries_room = attributes->size;
    if (const char* few = std::getenv("RDMACORO_STAND_IN_CQ_SIZE")) {
        made->entries_room = std::strtoull(few, nullptr, 0);
        made->overrun_wanted = true;
    }
    fi_cq_attr lower = *attributes;
    lower.format = FI_CQ_FORMAT_TAGGED;
    if (const int result = fi_cq_open(made->in->lower, &lower, &made->lower, nullptr); result != 0)
        return result;
    made->fid.fclass = FI_CLASS_CQ;
    made->fid.context = context;
    made->fid.ops = &object_table;
    made->ops = &table;
    *opened = made.release();
    return 0;
}

}  // namespace stand_in

// The stand-in's objects: each is a libfabric object of its own above one of the provider below.
//
// Event queues, counters and wait sets are the layer below's own, handed out as they are.
#pragma once

#include "rules.hpp"
#include "settings.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace stand_in {

struct domain;
struct endpoint;
struct memory;
struct queue;

/// The list of what the provider below offers, and this provider's account of it.
int answer_getinfo(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
                   const fi_info* hints, fi_info** info);

struct freeing_info {
    void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using owned_info = std::unique_ptr<fi_info, freeing_info>;

/// The layer below's own account of what an application got from `answer_getinfo`. Empty: it offers it no longer.
[[nodiscard]] owned_info below(std::uint32_t version, const fi_info& shown);

struct fabric : fid_fabric {
    fid_fabric* lower = nullptr;
};
int open_fabric(fi_fabric_attr* attributes, fid_fabric** opened, void* context);
int open_domain(fid_fabric* in, fi_info* info, fid_domain** opened, void* context);

/// Something posted, until its completion has been read. The layer below gets it as the operation's context, and may write
/// to the first member.
struct operation {
    fi_context2 lower;
    endpoint* owner;
    void* context;   ///< the application's
    fi_addr_t peer;  ///< of those that do not receive
    bool receives;
    bool wanted;    ///< the application gets a completion
    bool multiple;  ///< a buffer for many messages
    bool claims;    ///< found a message that it may receive later
    bool tagged;    ///< of receives
    std::list<operation*>::iterator place;

    // The arguments of a one-sided operation that is held back.
    std::array<iovec, 4> from;
    std::array<void*, 4> descriptors;
    fi_rma_iov there;
    fi_msg_rma message;
    std::uint64_t flags;
    bool reads;

    /// A copy of what the application may overwrite, or one piece in place of more than the layer below takes.
    std::vector<std::byte> copy;
    std::array<iovec, enforced.iov_limit> scattered;  ///< where a copy goes when it has been received
    std::size_t scattered_count;
};

struct domain : fid_domain {
    fabric* in = nullptr;
    fid_domain* lower = nullptr;
    settings asked;
    int mr_mode = 0;  ///< as agreed with the application
    std::mt19937_64 lots;
    std::recursive_mutex mutex;
    std::unordered_set<operation*> live;
    std::vector<std::unique_ptr<operation>> spare;
    std::vector<std::unique_ptr<operation>>
        gone;  ///< of closed endpoints: the layer below may still name them
    std::set<memory*> memories;
    std::set<endpoint*> endpoints;
    std::unique_ptr<queue> unread;  ///< where completions go that the application bound no queue for

    [[nodiscard]] operation* take();
    void give_back(operation* done);
    /// True once in `n` times.
    bool lot(std::uint64_t n) { return lots() % n == 0; }
};

/// The addresses that an application inserted, each with what it has under way there.
struct address_vector : fid_av {
    struct peer {
        std::size_t inserted = 0;   ///< so often
        std::size_t under_way = 0;  ///< operations
    };

    domain* in = nullptr;
    fid_av* lower = nullptr;
    std::size_t endpoints = 0;  ///< bound to it
    std::unordered_map<fi_addr_t, peer> peers;
};
int open_addresses(fid_domain* in, fi_av_attr* attributes, fid_av** opened, void* context);

/// The memory that an application registered.
struct memory : fid_mr {
    domain* in = nullptr;
    fid_mr* lower = nullptr;
    endpoint* bound = nullptr;
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    std::uint64_t access = 0;
    bool enabled = false;
};
fi_ops_mr* memory_operations();

struct finished {
    fi_cq_tagged_entry entry;
    fi_addr_t source;
    bool receives;
    bool movable;  ///< among receives
};

/// The provider's own number, in an error entry, of an injected message that was lost because a test said so.
inline constexpr int lost_code = 4711;

struct queue : fid_cq {
    domain* in = nullptr;
    fid_cq* lower = nullptr;
    std::size_t entry_bytes = 0;
    bool waited_for = false;  ///< has a wait object: nothing is held back
    bool answered_nothing = false;
    std::size_t entries_room = 0;  ///< completions that it has room for; 0: any number
    bool overrun_wanted = false;   ///< the test asked for so few
    bool overrun = false;
    std::vector<finished> held;
    std::deque<fi_cq_err_entry> errors;

    ~queue();
    /// Takes in what the layer below has.
    void fetch();
    [[nodiscard]] bool has_any() const { return !held.empty() || !errors.empty(); }
};
int open_queue(fid_domain* in, fi_cq_attr* attributes, fid_cq** opened, void* context);
/// Whether the rules have the wait object.
int check_wait(fi_wait_obj object, const char* what);

struct endpoint : fid_ep {
    domain* in = nullptr;
    fid_ep* lower = nullptr;
    queue* transmits = nullptr;
    queue* receives = nullptr;
    bool transmits_select = false;  ///< completions only where asked for
    bool receives_select = false;
    bool counts = false;  ///< has a counter, which the application may be waiting for
    std::uint64_t transmit_flags = 0;
    std::uint64_t receive_flags = 0;
    std::size_t lower_inject = 0;  ///< limits of the layer below
    std::size_t lower_pieces = 0;
    std::size_t most_transmits = 0;
    std::size_t most_receives = 0;
    std::size_t transmitting = 0;
    std::size_t receiving = 0;
    address_vector* addresses = nullptr;
    std::string name;                   ///< its own address
    std::atomic<long> under_way_to{0};  ///< untagged messages of this process for it that it has not received
    std::size_t bound_memories = 0;
    std::list<operation*> under_way;
    std::deque<operation*> held_back;             ///< not yet given to the layer below
    std::unordered_map<void*, operation*> found;  ///< messages that may be claimed, by context

    /// Posts the held-back operations to the layer below, as far as it takes them.
    void let_go();
    void forget(operation* done);
    /// It is not under way to its peer any more.
    void leaves_peer(const operation& done);
};
int open_endpoint(fid_domain* in, fi_info* info, fid_ep** opened, void* context);

fi_ops_msg* message_operations();
fi_ops_tagged* tagged_operations();
fi_ops_rma* rma_operations();
fi_ops_atomic* atomic_operations();
int query_atomic(fid_domain* in, fi_datatype type, fi_op op, fi_atomic_attr* attributes, std::uint64_t flags);

// ------------------------------------------------------------------------------------------ checks of a posted operation

/// Bytes of all pieces; the number of pieces must be within limits.
[[nodiscard]] std::size_t length_of(const iovec* pieces, std::size_t count);
/// 0, or the error: descriptors name registrations of this domain that hold the pieces with this right; where FI_MR_LOCAL
/// was agreed there must be one for each. Writes the layer below's descriptors.
int check_local(domain& in, const iovec* pieces, void* const* descriptors, std::size_t count,
                std::uint64_t right, void** lower);
int check_message(std::size_t pieces, std::size_t most_pieces, std::size_t bytes);
int check_inject(std::size_t bytes);
int check_data(std::uint64_t data);

/// Starts an operation: `post(operation&)` gives it to the layer below.
struct start_request {
    void* context = nullptr;
    bool receives = false;
    bool wanted = true;
    bool fenced = false;
    fi_addr_t peer = FI_ADDR_UNSPEC;  ///< of what does not receive
};
/// Counts an untagged message to that peer; the rule `rx_size`: an endpoint has room for as many as it takes receives. Sees the
/// endpoints of this process alone. 0, or the error.
[[nodiscard]] int count_message(endpoint& from, fi_addr_t to);
void uncount_message(endpoint& from, fi_addr_t to);
/// Endpoints are found by their names from now on, until they are closed.
void enlist(endpoint& enabled);
void delist(endpoint& closing);

[[nodiscard]] int begin(endpoint& on, const start_request& what, operation** begun);
[[nodiscard]] inline ssize_t end(operation* begun, ssize_t result) {
    if (result != 0) begun->owner->forget(begun);
    return result;
}
[[nodiscard]] inline bool wants(const endpoint& on, std::uint64_t flags, bool receives) {
    return !(receives ? on.receives_select : on.transmits_select) || (flags & FI_COMPLETION) != 0;
}

/// Flags that are passed to the layer below.
inline constexpr std::uint64_t passed_flags = FI_REMOTE_CQ_DATA | FI_MULTI_RECV | FI_TRANSMIT_COMPLETE |
                                              FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_PEEK | FI_CLAIM |
                                              FI_DISCARD;

// ------------------------------------------------------------------------------------------ the C objects' tables

inline int no_bind(fid*, fid*, std::uint64_t) { return -FI_ENOSYS; }
inline int no_control(fid*, int, void*) { return -FI_ENOSYS; }
inline int no_ops_open(fid*, const char*, std::uint64_t, void**, void*) { return -FI_EINVAL; }

}  // namespace stand_in

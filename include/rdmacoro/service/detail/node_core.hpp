// node_core: a node without the types of its transports: the nodes that it knows, its connections, and its watchers.
#pragma once

#include <rdmacoro/coro/detail/counted.hpp>
#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/protocol/connection_base.hpp>
#include <rdmacoro/service/detail/node_wire.hpp>
#include <rdmacoro/service/node_card.hpp>
#include <rdmacoro/service/node_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

struct method_facts;
class node_core;
class node_peer;
class node_stranger;

/// A connection to another node, whichever transport it is over.
class node_record : public counted, public list_node<node_record> {
public:
    node_record(node_peer& to, unsigned by, generation life, std::uint64_t attempts) noexcept;
    RDMACORO_DECL ~node_record() override;

    /// Ends the link now: with `errc::peer_lost` where the node's next life has connected, as what waits for this one is lost.
    void abort() noexcept;
    /// In the connection's domain.
    [[nodiscard]] virtual region register_memory(std::span<std::byte> memory, access_rights rights) = 0;
    /// Counts of the user's messages: sent, received, and waiting for a receive.
    [[nodiscard]] std::uint64_t traffic() const noexcept {
        return link->counts().messages_sent + link->counts().messages_received;
    }
    [[nodiscard]] std::size_t unread() const noexcept { return link->mailbox().matching().unexpected(); }
    /// It is used now.
    void touch() noexcept;
    /// Whether there was traffic beside the operations of `peer()` since it was last looked at.
    [[nodiscard]] bool used_directly() noexcept {
        const std::uint64_t messages = traffic() - seen;
        const std::uint64_t told_of = operations - seen_operations;
        seen += messages;
        seen_operations = operations;
        return messages > told_of;
    }
    /// Whether it was closed for being idle, by either side: nothing was lost.
    [[nodiscard]] bool closed_idle() const noexcept {
        return closing == leave_reason::idle || left == leave_reason::idle;
    }

    /// Its peer keeps it from now on, among its leftovers, and no longer the other way round.
    void leave_to_peer() noexcept;

    connection_base* link = nullptr;
    node_peer* peer;           // in one that is retired it may be gone
    unsigned index;            // of the transport
    std::uint32_t uses = 0;    // operations that wait, and holds
    std::uint64_t number = 0;  // in the order in which connections were made
    std::uint64_t stamp = 0;   // of its last use
    // Operations of `peer()` say when they use it. What was sent and received beside them is seen by the traffic, when the next one looks.
    std::uint64_t operations = 0;
    std::uint64_t seen = 0;             // traffic when it was last looked at
    std::uint64_t seen_operations = 0;  // and those
    generation born;
    std::uint64_t theirs;  // attempts of the other node that began before this connection was agreed on
    bool retired = false;
    bool outlived = false;                  // the node's next life has connected
    bool kept = false;                      // among its peer's leftovers
    bool told = false;                      // an operation has told the user that it was lost
    std::optional<leave_reason> closing{};  // this side closes it
    std::optional<leave_reason> left{};     // the other side has said so
    local_stop_source ends;                 // asked to stop: it is to end now
    event closed;                           // what `closing` began has ended

private:
    counted_ptr<node_peer> keeps_peer_;
};

/// An operation that waits for a connection has its place among the others while this lives.
class node_turn : public list_node<node_turn> {
public:
    using list = intrusive_list<node_turn>;

    explicit node_turn(list& among) noexcept : among_(among) { among_.push_back(*this); }
    RDMACORO_DECL ~node_turn();

    [[nodiscard]] bool is_first() noexcept { return among_.front() == this; }
    event comes;  ///< set when it has become the first

private:
    list& among_;
};

/// Another node, as this one knows it: while it is in the book, has a connection, or a handle or an operation refers to it.
class node_peer : public counted {
public:
    node_peer(node_id which, node_core* by) noexcept : id(which), core(by) {}
    RDMACORO_DECL ~node_peer() override;

    /// All that wait for a connection look again.
    void change() noexcept {
        changed.set();
        changed.reset();
    }
    /// Handles of it, or operations by them.
    [[nodiscard]] bool has_users() const noexcept { return owners() > own; }
    /// The node keeps it, whatever else refers to it.
    void keep() noexcept {
        if (kept_) return;
        kept_ = counted_ptr<node_peer>(this);
        ++own;
    }
    /// It ends with the last that refers to it; that may be now.
    void let_go() noexcept {
        if (!kept_) return;
        --own;
        kept_.reset();
    }
    [[nodiscard]] node_record* open() const noexcept {
        return current != nullptr && current->link->is_open() ? current : nullptr;
    }
    /// Former connections of one peer that may have messages: while there are so many it makes no other one.
    static constexpr std::size_t most_leftovers = 4;
    [[nodiscard]] bool is_behind() noexcept {
        std::erase_if(leftovers, [](const auto& one) { return one->unread() == 0; });
        return leftovers.size() >= most_leftovers;
    }
    /// The first former connection with messages that has a number above this one; nullptr: there is none.
    [[nodiscard]] node_record* leftover_above(std::uint64_t number) const noexcept {
        for (const auto& one : leftovers) {
            if (one->number > number) return one.get();
        }
        return nullptr;
    }
    /// For the error of what waits for a connection and is canceled: what the attempts have come to.
    [[nodiscard]] std::string still_unconnected() const;
    /// A receive may go to the connection as it is.
    void see_receives() noexcept { plain_receives = leftovers.empty() && !lost; }

    node_id id;
    node_core* core;             // nullptr: it is gone
    bool listed = false;         // in the book
    bool learned = false;        // by a discovery, and not by the user
    bool connecting = false;     // a coroutine makes a connection
    bool hello_sent = false;     // it has said hello
    bool closed_idle = false;    // the last connection was, and there is none since
    bool plain_receives = true;  // nothing of former connections is left to be received or told
    node_record* current = nullptr;
    std::uint32_t accepting = 0;  // connections of the peer's that wait for room
    // Of the `owners`: itself by `keep`, connections, what makes and accepts them, and what runs calls over them. The others are its users.
    std::uint32_t own = 0;
    unsigned tries = 0;  // that failed one after another
    node_card card{};
    generation last_born{};
    /// Former connections with messages that were not received, in their order.
    std::vector<counted_ptr<node_record>> leftovers;
    std::error_code lost{};  // why the last connection was lost, if no operation was told
    generation lost_born{};
    std::uint64_t failures = 0;  // times that connecting was given up
    std::error_code failure{};
    std::string explained;   // the last round of attempts that has ended, a line each
    std::string explaining;  // the one that is under way
    time_point next_try{};
    local_stop_source* attempt = nullptr;
    event changed;
    // That wait for a connection, in the order in which they began; what begins later goes behind them.
    node_turn::list sends;
    node_turn::list receives;

private:
    counted_ptr<node_peer> kept_;
};

/// The queue of a `node_watch`.
class node_watcher : public counted, public list_node<node_watcher> {
public:
    /// Of 1 to 65,536 events.
    explicit node_watcher(std::size_t most) : most_(std::clamp<std::size_t>(most, 1, 65536)) {
        ring_.reserve(most_);
    }
    RDMACORO_DECL ~node_watcher() override;  // leaves the list
    void tell(node_event what) noexcept;
    void end() noexcept;
    [[nodiscard]] std::optional<node_event> take() noexcept;

    event changed;
    bool ended = false;

private:
    std::size_t most_;
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    std::uint64_t missed_ = 0;
    std::vector<node_event> ring_;  // grows to `most_`
};

/// Names the work that a node's user runs over its connections, for texts.
class node_work {
public:
    node_work(const node_work&) = delete;
    node_work& operator=(const node_work&) = delete;
    /// The names of the work for that node; empty: no more than the function of its connection.
    [[nodiscard]] virtual std::string running_for(node_id id) = 0;

protected:
    node_work() noexcept = default;
    ~node_work() = default;
};

/// A connection, and the function of `on_connection` for it, while they are attended to.
struct node_attendance : list_node<node_attendance> {
    node_attendance(node_core& in, const node_record& of) noexcept;
    node_attendance(const node_attendance&) = delete;
    node_attendance& operator=(const node_attendance&) = delete;
    RDMACORO_DECL ~node_attendance();
    node_core& at;
    const node_record& record;
};

/// The state of a node.
class node_core : public counted {
public:
    node_core(scheduler& on, node_id id, const node_options& options);
    RDMACORO_DECL ~node_core() override;

    // ---- the book

    /// Throws `errc::invalid_argument` where the card cannot be one, or is this node's own.
    void add(const node_card& card);
    /// False: it was not there.
    bool remove(node_id id);
    [[nodiscard]] counted_ptr<node_peer> find(node_id id) const noexcept;
    /// Found, or made. Throws `errc::invalid_argument` for 0 and for this node.
    [[nodiscard]] counted_ptr<node_peer> peer(node_id id);
    [[nodiscard]] std::string explain(node_id id) const;
    /// Its card is the user's, or none, from now on.
    void was_not_learned(node_peer& of) noexcept {
        if (std::exchange(of.learned, false)) --learned_cards;
    }

    // ---- connections

    /// The answer to a hello.
    [[nodiscard]] welcome judge(const node_hello& hello) const noexcept;
    /// Whether the book has another generation of that node, which is the only one that may connect.
    [[nodiscard]] bool excludes(const node_peer& of, generation born) const noexcept {
        return !options.admits_other_lives && of.listed && of.card.born != generation{} &&
               of.card.born != born;
    }
    /// The differences between the answer of the node that was reached and its known card. Empty: none.
    [[nodiscard]] static std::string lie(const node_peer& of, const node_card& found);
    /// It carries the messages of its peer from now on.
    void publish(node_record& made, node_card theirs) noexcept;
    /// Whether a former connection with it has not ended yet: messages of it may not be received.
    [[nodiscard]] bool is_closing(const node_peer& of) noexcept;
    /// Whether the messages of a node are kept that left and that the book has not: only while cards of nodes are on their way that may be
    /// faster than those, and of so many nodes.
    static constexpr std::size_t most_unlisted = 1024;
    [[nodiscard]] bool keeps_of_stranger() const noexcept;
    void keep_of_strangers() noexcept { expects_cards_ = true; }
    /// The cards are here: drops what is of others.
    void drop_of_strangers() noexcept;
    /// Its link has ended.
    void retire(node_record& ended) noexcept;
    /// What receives the messages of a connection.
    enum class receiver : std::uint8_t {
        handles,               ///< those of its peer
        handles_beside_calls,  ///< those, but for the messages of calls
        function,              ///< the function of the connection
    };
    /// Keeps it among its peer's leftovers, where it has messages that may be received; says whether it did.
    bool keep_unread(node_record& ended, receiver by);
    /// Awaits room for one more connection. Throws `errc::no_resources` when none of those that there are is idle for so long.
    [[nodiscard]] static task<> take_place(node_core* self, duration limit);
    void give_place() noexcept;
    /// The idle connection that was not used for the longest time; nullptr: none is idle.
    [[nodiscard]] node_record* longest_unused() noexcept;
    /// Closes it in good order, in the background.
    virtual void begin_close(node_record& which, leave_reason why) = 0;
    /// Begins to connect, unless that is under way.
    virtual void begin_connect(node_peer& to) = 0;
    /// Ends with a connection. Throws when there is none within the limit. For a receive that may be a former one, if its number is above
    /// `after`: it has messages.
    [[nodiscard]] static task<counted_ptr<node_record>> connected(counted_ptr<node_peer> to, bool receives,
                                                                  std::uint64_t after);
    /// The same for a call, behind what waits already. `turn` is its place among them until it begins. Errors name the method.
    [[nodiscard]] static task<counted_ptr<node_record>>
    connected_in_turn(counted_ptr<node_peer> to, std::optional<node_turn>& turn, const method_facts& of);
    /// Lets others go on while a connection does not carry calls yet. Its cancellation names the node and the method.
    [[nodiscard]] static task<> turn_before_calls(const node_record& over, const method_facts& of);
    /// Until the next attempt: twice as long each time, and a random part of that less.
    [[nodiscard]] duration pause_after(unsigned tries) noexcept;
    [[noreturn]] void throw_stopped() const;
    /// Runs it among the coroutines of the node, from the next turn of the scheduler on. Its frame is there already, so that it begins, or this
    /// throws: where this is called before any state changes, a lack of memory leaves none changed.
    void begin(task<> what);
    /// Others hear of it. Throws, and adds nothing, where the card cannot hold it.
    void add_url(const std::string& url);

    void tell(node_change what, node_id id, generation born, std::error_code why) noexcept;
    void end_waits() noexcept;
    /// The functions of connections that have not ended, and what of them runs.
    [[nodiscard]] std::string unfinished();
    /// One of its URLs is of no use any more.
    void hears_no_more(const std::string& url, const std::system_error& why);
    void check_thread(const char* what) const;
    [[nodiscard]] std::size_t open_connections() noexcept;

    scheduler& owner;
    node_options options;
    node_card self;
    bool stopped = false;
    std::uint64_t attempts = 0;
    std::uint64_t uses = 0;     // a clock of uses
    std::size_t places = 0;     // taken: connections, and attempts
    std::size_t strangers = 0;  // accepted, and no hello yet
    event stranger_gone;
    std::size_t agreeing = 0;  // accepted, and not taken yet by the other node
    event agreed;              // set when one of those is taken, or has ended
    bool leaving = false;      // in good order
    local_stop_source leaves;  // asked to stop when that begins
    intrusive_list<node_stranger>
        silent;  // those of which nothing has arrived, or that are refused, the oldest first
    event place_free;
    node_turn::list for_place;  // what waits for one
    intrusive_list<node_record> records;
    intrusive_list<node_watcher> watchers;
    intrusive_list<node_attendance> attended;
    event attended_less;  // set when one has ended
    node_work* work_names = nullptr;
    std::string deaf;  // why it accepts no more connections at some of its URLs, a line each
    std::unordered_map<node_id, node_peer*> peers;  // all that there are: each leaves it as it ends
    std::size_t learned_cards = 0;                  // in the book
    std::optional<task_group> work;                 // all its coroutines; none after it has stopped

private:
    bool expects_cards_ = false;
    void has_dropped_messages(const node_record& last) noexcept;
    /// Begins to close as many idle connections as others wait for.
    void close_idle();

    std::uint64_t random_;
    time_point next_idle_close_{};  // while others are closing
};

/// While a node waits for the functions of its connections to end: says on stderr, once, which take longer than `close_limit`.
class node_patience : timer_node {
public:
    explicit node_patience(node_core& of) noexcept;
    node_patience(const node_patience&) = delete;
    node_patience& operator=(const node_patience&) = delete;
    RDMACORO_DECL ~node_patience();

private:
    static void is_over(timer_node& at) noexcept;

    node_core& of_;
};

/// While it lives, the connection is in use.
class node_use {
public:
    explicit node_use(counted_ptr<node_record> of) noexcept : of_(std::move(of)) {
        if (of_) ++of_->uses;
    }
    node_use(node_use&& other) noexcept = default;
    node_use& operator=(node_use&& other) noexcept {
        of_.swap(other.of_);
        return *this;
    }
    ~node_use() {
        if (!of_) return;
        --of_->uses;
        of_->touch();
    }
    [[nodiscard]] node_record* get() const noexcept { return of_.get(); }

private:
    counted_ptr<node_record> of_;
};

/// For `task_group::spawn`, of a task that is there already.
[[nodiscard]] task<> as_it_is(task<> what);

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/node_core.ipp>
#endif

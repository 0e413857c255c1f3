// connection_table: all connections of a domain, from opening to the moment that the network has let go of them.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <type_traits>
#include <vector>

namespace rdmacoro::detail {

struct connection_tag;
struct leaving_tag;

/// A connection of a `connection_table`:
///  1. it is linked into the table's lists by two of its list nodes;
///  2. `place()` is the number that it was made with;
///  3. `leave_step(in_a_hurry)` goes on with closing, and is true when the connection can be destroyed; in a hurry it is;
///  4. `counts()` is a sum that `+=` adds to another, over the connection's whole life.
template <class Session>
concept tabled_session = std::derived_from<Session, list_node<connection_tag>> &&
                         std::derived_from<Session, list_node<leaving_tag>> &&
                         requires(Session& s, const Session& c, bool in_a_hurry) {
                             { c.place() } noexcept -> std::same_as<std::uint32_t>;
                             { s.leave_step(in_a_hurry) } noexcept -> std::same_as<bool>;
                             { c.counts() } noexcept;
                         };

/// Owns its connections. A place is used again when its connection is destroyed.
template <tabled_session Session>
class connection_table {
public:
    using counts_type = std::remove_cvref_t<decltype(std::declval<const Session&>().counts())>;
    static constexpr std::size_t most = 1u << 16;

    connection_table() noexcept = default;
    connection_table(const connection_table&) = delete;
    connection_table& operator=(const connection_table&) = delete;

    /// Connections in any state.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// The session that `construct(place)` makes with `new`. Nullptr: it threw, there is no memory, or there are too
    /// many.
    template <class Construct>
    [[nodiscard]] Session* make(Construct construct) noexcept {
        try {
            if (free_.empty()) {
                if (sessions_.size() == most) return nullptr;
                free_.reserve(sessions_.size() + 1);
                sessions_.push_back(nullptr);
                free_.push_back(static_cast<std::uint32_t>(sessions_.size() - 1));
            }
            const std::uint32_t place = free_.back();
            Session* made = construct(place);
            free_.pop_back();
            sessions_[place] = made;
            all_.push_back(*made);
            ++size_;
            return made;
        } catch (const std::exception&) {
            return nullptr;
        }
    }
    /// The connection with this place; nullptr: there is none.
    [[nodiscard]] Session* at(std::uint32_t place) const noexcept {
        return place < sessions_.size() ? sessions_[place] : nullptr;
    }

    [[nodiscard]] Session* first() noexcept { return all_.front(); }
    [[nodiscard]] Session* next(Session& after) noexcept { return all_.next(after); }

    // ---- closing

    /// The connection is closing: `reap` goes on with it.
    void leaves(Session& which) noexcept {
        static_cast<list_node<leaving_tag>&>(which).unlink();
        leaving_.push_back(which);
    }
    [[nodiscard]] bool any_leaving() const noexcept { return !leaving_.empty(); }
    /// Whether `busy(connection)` holds for one that is closing.
    template <class Busy>
    [[nodiscard]] bool any_leaving(Busy busy) noexcept {
        for (Session* s = leaving_.front(); s != nullptr; s = leaving_.next(*s)) {
            if (busy(*s)) return true;
        }
        return false;
    }
    /// Goes on with closing and destroys the connections that are done. True: there were some.
    bool reap() noexcept {
        bool any = false;
        for (Session* s = leaving_.front(); s != nullptr;) {
            Session* const after = leaving_.next(*s);
            if (s->leave_step(false)) {
                destroy(*s);
                any = true;
            }
            s = after;
        }
        return any;
    }
    void destroy(Session& which) noexcept {
        static_cast<void>(which.leave_step(true));
        closed_totals_ += which.counts();
        const std::uint32_t place = which.place();
        sessions_[place] = nullptr;
        free_.push_back(place);
        --size_;
        delete &which;
    }

    // ---- counts

    /// Of closed connections, and of the domain's events outside connections.
    [[nodiscard]] counts_type& closed_totals() noexcept { return closed_totals_; }
    /// The closed totals and the counts of the existing connections.
    [[nodiscard]] counts_type counts() noexcept {
        counts_type sum = closed_totals_;
        for (Session* s = all_.front(); s != nullptr; s = all_.next(*s)) sum += s->counts();
        return sum;
    }

private:
    std::vector<Session*> sessions_;   // by place
    std::vector<std::uint32_t> free_;  // places
    std::size_t size_ = 0;
    counts_type closed_totals_{};
    intrusive_list<Session, connection_tag> all_;
    intrusive_list<Session, leaving_tag> leaving_;
};

}  // namespace rdmacoro::detail

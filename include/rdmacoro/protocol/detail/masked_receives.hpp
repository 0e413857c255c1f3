// Receives with a mask that wait for a message.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/protocol/detail/chained_table.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail {

/// Posted receives with a mask. A few are one list in the order of their posting. When there are more, those of one mask are in a table of
/// their own, by the bits that they compare: a message looks once at each mask that is in use, of `most_masks` of them, and not at
/// each receive (a hundred services of one connection wait for requests with one mask). Receives of further masks stay in the list, until one
/// is added while a table is free.
class masked_receives {
public:
    static constexpr std::uint32_t most_in_list = 8;  ///< above this tables are made
    static constexpr std::size_t most_masks = 8;      ///< masks that have a table at one time

    masked_receives() noexcept = default;
    masked_receives(const masked_receives&) = delete;
    masked_receives& operator=(const masked_receives&) = delete;
    ~masked_receives();

    /// `r` has been given its sequence number, the highest so far.
    void add(receive_request& r) noexcept {
        ++count_;
        if (tables_ == nullptr && count_ <= most_in_list) [[likely]] {
            list_.push_back(r);
        } else {
            add_to_table(r);
        }
    }
    void remove(receive_request& r) noexcept {
        r.list_node<receive_request>::unlink();
        --count_;
        if (tables_ != nullptr) [[unlikely]]
            removed(r.wanted_.mask);
    }

    /// The oldest that takes the tag and is older than `other`, or `other`.
    [[nodiscard]] receive_request* older(tag_type tag, receive_request* other) noexcept {
        other = older_in(list_, tag, other);
        return tables_ == nullptr ? other : older_in_tables(tag, other);
    }

    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
    /// Memory of tables, in bytes.
    [[nodiscard]] std::size_t footprint() const noexcept;

    /// Calls `visit` for each list of receives, which may take elements out of that list.
    template <class Visit>
    void for_each_list(Visit visit) noexcept {
        visit(list_);
        for (std::size_t i = 0; tables_ != nullptr && i < most_masks; ++i) {
            if (tables_->of[i].count != 0) tables_->of[i].by_tag.for_each_list(visit);
        }
    }

private:
    struct table {
        tag_type mask = 0;
        std::uint32_t count = 0;  // 0: the mask is of no receive
        chained_table<receive_request, receive_request> by_tag;
    };
    struct tables {
        table of[most_masks];
    };

    [[nodiscard]] static receive_request* older_in(intrusive_list<receive_request>& list, tag_type tag,
                                                   receive_request* other) noexcept {
        for (receive_request* r = list.front(); r != nullptr; r = list.next(*r)) {
            if (other != nullptr && other->sequence_ < r->sequence_) break;
            if (r->wanted_.accepts(tag)) return r;
        }
        return other;
    }
    [[nodiscard]] receive_request* older_in_tables(tag_type tag, receive_request* other) noexcept;
    void add_to_table(receive_request& r) noexcept;
    void put(receive_request& r) noexcept;
    [[nodiscard]] table* table_of(tag_type mask) noexcept;
    [[nodiscard]] table* free_table() noexcept;
    void removed(tag_type mask) noexcept;

    intrusive_list<receive_request> list_;  // a mask that has a table has no receive here
    tables* tables_ = nullptr;
    std::uint32_t count_ = 0;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/masked_receives.ipp>
#endif

// Gets, puts and atomics on the memory of a peer: values that live in the frame that awaits them.
#pragma once

#include <rdmacoro/coro/detail/parked_wait.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/messaging/detail/way.hpp>
#include <rdmacoro/protocol/connection.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>
#include <utility>

namespace rdmacoro {

namespace detail {
/// The common part of gets, puts and atomics: how they are canceled and how they end.
template <class Derived, class Link, class Value>
class one_sided_base : public basic_operation<Derived, Value>, private parked_wait {
public:
    one_sided_base(one_sided_base&& other) noexcept
        : one_sided_base::basic_operation(std::move(other)),
          parked_wait(std::move(other)),
          link_(other.link_),
          via_(other.via_),
          there_(other.there_) {}

    void cancel() noexcept {
        if (!link_->capabilities().revokes_at_once) return;  // ends when the device is done with the memory
        static_cast<void>(link_->revoke(hook_));
        end(make_error_code(errc::canceled));
    }
    void finish_canceled() noexcept { fail_unbegun(errc::canceled); }
    void finish_of_nothing() noexcept { fail_unbegun(errc::invalid_argument); }
    [[nodiscard]] error_facts facts() const noexcept {
        return {.info = 0, .bytes = there_.length, .peer = noted_.peer};
    }

protected:
    template <class Connection>
    one_sided_base(way<Connection> via, const remote_region& there) noexcept
        : one_sided_base::basic_operation(via.owner()),
          link_(via.link().to()),
          via_(via.to()),
          there_(there) {}

    /// `post` is given the completion to call in the end.
    template <class Post>
    void begin(const wait_facts& facts, Post post) noexcept {
        hook_.self = this;
        hook_.done = [](completion& c, std::error_code outcome) noexcept {
            static_cast<hook&>(c).self->end(outcome);
        };
        const post_result answer = post(hook_);
        if (answer == post_result::posted) this->park(*this, facts);
        if (answer == post_result::done) end({});
        if (answer == post_result::failed) end(via_->why_failed());
        if (answer == post_result::retry) end(make_error_code(errc::no_resources));
    }
    void end(std::error_code outcome) noexcept {
        outcome_ = outcome;
        if (outcome) [[unlikely]]
            noted_.note(via_);
        this->complete();
    }
    [[gnu::cold]] void fail_unbegun(errc code) noexcept {
        outcome_ = make_error_code(code);
        noted_.forget();
    }

    Link* link_;
    const connection_base* via_;
    remote_region there_;
    noted_peer noted_;  // set when it has failed
    std::error_code outcome_{};

    [[gnu::cold]] static void more(const parked_wait& of, pending_operation& into) {
        const auto& self = static_cast<const one_sided_base&>(of);
        into.peer = self.link_->peer_name();
        into.bytes = static_cast<std::size_t>(self.there_.length);
        into.next = transfers_of(*self.link_);
    }

private:
    struct hook : completion {
        one_sided_base* self = nullptr;
        hook() noexcept = default;
        hook(hook&&) noexcept {}  // an operation moves only before it begins
    };
    hook hook_;
};
}  // namespace detail

/// A get or put. Described at `endpoint::rdma_get`.
template <class Link>
class [[nodiscard]] one_sided_operation
    : public detail::one_sided_base<one_sided_operation<Link>, Link, void> {
public:
    template <class Connection>
    one_sided_operation(detail::way<Connection> via, const remote_region& there, std::span<std::byte> here,
                        bool read) noexcept
        : one_sided_operation::one_sided_base(via, there), here_(here), read_(read) {}
    one_sided_operation(one_sided_operation&&) noexcept = default;

    void start() noexcept {
        if (this->there_.length != here_.size()) {
            this->end(make_error_code(errc::invalid_argument));
            return;
        }
        this->begin(read_ ? get_facts : put_facts, [this](completion& c) noexcept {
            return read_ ? this->link_->get(this->there_, here_, c)
                         : this->link_->put(here_, this->there_, c);
        });
    }
    result<void> outcome() noexcept { return this->outcome_; }
    [[nodiscard]] error_facts facts() const noexcept {
        error_facts about = base::facts();
        if (this->there_.length != here_.size()) about.info = here_.size();
        return about;
    }
    [[noreturn, gnu::cold]] void throw_failure() const {
        detail::throw_one_sided(this->outcome_, read_ ? "rdma_get of " : "rdma_put of ", this->noted_,
                                facts());
    }

private:
    using base = detail::one_sided_base<one_sided_operation<Link>, Link, void>;
    static constexpr detail::wait_facts get_facts{"rdma_get", "is under way", next_actor::network,
                                                  &base::more};
    static constexpr detail::wait_facts put_facts{"rdma_put", "is under way", next_actor::network,
                                                  &base::more};

    std::span<std::byte> here_;
    bool read_;
};

/// An atomic on the peer's memory. Described at `endpoint::rdma_fetch_add` and `rdma_compare_swap`.
template <class Link>
class [[nodiscard]] atomic_operation
    : public detail::one_sided_base<atomic_operation<Link>, Link, std::uint64_t> {
public:
    /// Which of the two.
    enum class kind : std::uint8_t { fetch_add, compare_swap };

    template <class Connection>
    atomic_operation(detail::way<Connection> via, const remote_region& there, kind what, std::uint64_t first,
                     std::uint64_t second) noexcept
        : atomic_operation::one_sided_base(via, there), what_(what), first_(first), second_(second) {}
    atomic_operation(atomic_operation&&) noexcept = default;

    void start() noexcept {
        this->begin(what_ == kind::fetch_add ? add_facts : swap_facts, [this](completion& c) noexcept {
            return what_ == kind::fetch_add
                       ? this->link_->fetch_add(this->there_, first_, was_, c)
                       : this->link_->compare_swap(this->there_, first_, second_, was_, c);
        });
    }
    result<std::uint64_t> outcome() noexcept {
        if (this->outcome_) return this->outcome_;
        return was_;
    }
    [[noreturn, gnu::cold]] void throw_failure() const {
        detail::throw_one_sided(this->outcome_,
                                what_ == kind::fetch_add ? "rdma_fetch_add of " : "rdma_compare_swap of ",
                                this->noted_, this->facts());
    }

private:
    using base = detail::one_sided_base<atomic_operation<Link>, Link, std::uint64_t>;
    static constexpr detail::wait_facts add_facts{"rdma_fetch_add", "is under way", next_actor::network,
                                                  &base::more};
    static constexpr detail::wait_facts swap_facts{"rdma_compare_swap", "is under way", next_actor::network,
                                                   &base::more};

    kind what_;
    std::uint64_t first_;
    std::uint64_t second_;
    std::uint64_t was_ = 0;
};

}  // namespace rdmacoro

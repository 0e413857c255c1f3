// How a link opens its tagged endpoint, for messages that the provider matches, and learns the peer's.
#pragma once

#include <rdmacoro/transport/ofi/engine.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

#include <sys/epoll.h>

namespace rdmacoro::detail::fabric {

RDMACORO_COLD int matched_side::open_queue(std::size_t entries) noexcept {
    device& d = engine_.device();
    fi_cq_attr wanted{};
    wanted.size = entries;
    wanted.format = FI_CQ_FORMAT_TAGGED;
    wanted.wait_obj = d.wait_fd() >= 0 ? FI_WAIT_FD : FI_WAIT_NONE;
    fid_cq* queue = nullptr;
    if (const int failed = ::fi_cq_open(d.domain(), &wanted, &queue, nullptr); failed != 0) return failed;
    queue_.reset(queue);
    if (d.wait_fd() < 0) return 0;
    int fd = -1;
    if (const int failed = ::fi_control(&queue->fid, FI_GETWAIT, &fd); failed != 0) return failed;
    return engine_.watching().watch(completions_, fd, EPOLLIN) ? 0 : -errno;
}

RDMACORO_COLD int matched_side::open() noexcept {
    device& d = engine_.device();
    fi_info* const info = d.tagged_info();
    if (info == nullptr) return -FI_ENODATA;
    fi_av_attr table{};
    table.type = FI_AV_TABLE;
    fid_av* addresses = nullptr;
    if (const int failed = ::fi_av_open(d.domain(), &table, &addresses, nullptr); failed != 0) return failed;
    addresses_.reset(addresses);
    if (const int failed = open_queue(info->rx_attr->size + info->tx_attr->size); failed != 0) return failed;
    fid_ep* endpoint = nullptr;
    if (const int failed = ::fi_endpoint(d.domain(), info, &endpoint, nullptr); failed != 0) return failed;
    endpoint_.reset(endpoint);
    if (const int failed = ::fi_ep_bind(endpoint, &addresses->fid, 0); failed != 0) return failed;
    if (const int failed = ::fi_ep_bind(endpoint, &queue_->fid, FI_TRANSMIT | FI_RECV); failed != 0)
        return failed;
    if (const int failed = d.counters().bind(*endpoint, true); failed != 0) return failed;
    if (const int failed = ::fi_enable(endpoint); failed != 0) return failed;
    const bool waits = d.profile().sends_may_wait;  // what is not injected: then heads of long messages are
    inject_limit_ = std::min(info->tx_attr->inject_size,
                             waits ? std::max(engine_.inject_limit(), tagged_head::long_wire_bytes)
                                   : engine_.inject_limit());
    const std::uint64_t format = info->ep_attr->mem_tag_format;
    traits_.tag_bits = format == 0 ? 64 : static_cast<unsigned>(std::bit_width(format));
    const std::size_t longest = session_.capabilities().max_message + frame_bytes;
    const std::size_t room = waits ? std::min(longest, inject_limit_) : longest;
    traits_.buffered_bytes = room > tagged_head::wire_bytes ? room - tagged_head::wire_bytes : 0;
    session_.mark_work();  // to send the address
    return 0;
}

RDMACORO_COLD matched_side::~matched_side() {
    engine_.watching().unwatch(completions_);
    endpoint_.reset();
    queue_.reset();
    for (std::size_t i = 0; i < operations_.size(); ++i) give_slot(operations_[i]);
    engine_.slots().unreserve(operations_.size());
    engine_.slots().for_each([this](slot& s) noexcept {
        if (s.now == slot::use::tagged && s.of == session_.number()) give_sent(s);
    });
}

RDMACORO_COLD bool matched_side::match(std::span<const std::byte> address) noexcept {
    if (to_ != FI_ADDR_UNSPEC || endpoint_ == nullptr) return false;
    const device& d = engine_.device();
    if (!looks_like_address(d.address_format(), address, d.measure())) return false;
    if (::fi_av_insert(addresses_.get(), address.data(), 1, &to_, 0, nullptr) != 1) return false;
    session_.mark_work();
    return to_ != FI_ADDR_NOTAVAIL;
}

RDMACORO_COLD bool matched_side::may_wait() const noexcept { return engine_.device().may_wait(*queue_); }

// ---- the session's part

RDMACORO_COLD void session::begin_matching() noexcept {
    if (matched_ != nullptr || phase_ != phase::ready) return;
    matched_.reset(new (std::nothrow) matched_side(*this));
    if (const int failed = matched_ != nullptr ? matched_->open() : -FI_ENOMEM; failed != 0) {
        engine_.note_failure("open an endpoint for tagged messages", failed);
        matched_.reset();
        return fail(errc_of_opening(failed));
    }
    capabilities_.put_before_send = false;  // puts go by another endpoint
    engine_.matches(*this);
    if (!tagged_peer_.empty() && !matched_->match(tagged_peer_)) fail(errc::protocol_violation);
}

RDMACORO_COLD matched_side* session::matched() noexcept {
    begin_matching();
    return matched_.get();
}

RDMACORO_COLD const matching_traits& session::matching() noexcept {
    static constexpr matching_traits none{};
    begin_matching();
    return matched_ != nullptr ? matched_->traits() : none;
}

/// The peer sends the address of its tagged endpoint, or reports that it has fetched a long message.
RDMACORO_COLD void session::take_tagged(frame_kind kind, std::span<const std::byte> rest) noexcept {
    if (kind == frame_kind::fetched) {
        if (matched_ == nullptr || !matched_->fetched(load_number<std::uint32_t>(rest.data())))
            fail(errc::protocol_violation);
        return;
    }
    if (matched_ != nullptr) {
        if (!matched_->match(rest)) fail(errc::protocol_violation);
        return;
    }
    try {
        if (!tagged_peer_.empty()) return fail(errc::protocol_violation);
        tagged_peer_.assign(rest.begin(), rest.end());
    } catch (const std::bad_alloc&) {
        fail(errc::no_resources);
    }
}

}  // namespace rdmacoro::detail::fabric

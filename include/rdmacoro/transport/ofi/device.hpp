// Opening a provider: fabric, domain, address vector, completion queue, and the one endpoint that all links share.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/ofi/agreement.hpp>
#include <rdmacoro/transport/ofi/counters.hpp>
#include <rdmacoro/transport/ofi/judge.hpp>
#include <rdmacoro/transport/ofi/options.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_rma.h>

namespace rdmacoro::detail::fabric {

static_assert(address_format::sockaddr_in == FI_SOCKADDR_IN &&
              address_format::sockaddr_in6 == FI_SOCKADDR_IN6 && address_format::text == FI_ADDR_STR);

/// Closes an object of libfabric.
struct close_fid {
    template <class Fid>
    void operator()(Fid* object) const noexcept {
        static_cast<void>(::fi_close(&object->fid));
    }
};
using unique_fabric = std::unique_ptr<fid_fabric, close_fid>;
using unique_domain = std::unique_ptr<fid_domain, close_fid>;
using unique_addresses = std::unique_ptr<fid_av, close_fid>;
using unique_queue = std::unique_ptr<fid_cq, close_fid>;
using unique_endpoint = std::unique_ptr<fid_ep, close_fid>;
using unique_registration = std::unique_ptr<fid_mr, close_fid>;

/// A number that only processes of this host, since it was started, have.
[[nodiscard]] std::uint64_t host_number() noexcept;

/// A provider opened for one domain.
class device {
public:
    /// Throws `errc::unsupported` when this libfabric has no such provider, with the names of those it has, or when the
    /// provider differs from its profile.
    device(const ofi_profile& profile, const ofi_options& options);
    ~device();
    device(const device&) = delete;
    device& operator=(const device&) = delete;

    [[nodiscard]] const ofi_profile& profile() const noexcept { return profile_; }
    /// The profile's scheme, for texts.
    [[nodiscard]] std::string name() const { return std::string(profile_.scheme); }
    [[nodiscard]] const fi_info& info() const noexcept { return *info_; }
    [[nodiscard]] fid_domain* domain() const noexcept { return domain_.get(); }
    [[nodiscard]] fid_ep* endpoint() const noexcept { return endpoint_.get(); }
    [[nodiscard]] fid_cq* queue() const noexcept { return queue_.get(); }

    [[nodiscard]] bool asks(std::uint64_t mr_flag) const noexcept {
        return (static_cast<unsigned>(info_->domain_attr->mr_mode) & mr_flag) != 0;
    }
    [[nodiscard]] bool atomics() const noexcept { return atomics_; }
    [[nodiscard]] bool orders_send_after_write() const noexcept;
    /// Receives that may be posted at a time.
    [[nodiscard]] std::size_t most_receives() const noexcept {
        return std::max<std::size_t>(info_->rx_attr->size, 2) - 1;
    }
    [[nodiscard]] std::size_t inject_limit() const noexcept {
        return std::min(info_->tx_attr->inject_size, options_.inject_bytes);
    }
    [[nodiscard]] std::uint64_t longest() const noexcept;

    // ---- matching

    /// The description of endpoints for which the provider matches messages. Nullptr: there are none, and `why_no_matching` is the reason.
    [[nodiscard]] fi_info* tagged_info() noexcept;
    /// "shm: its matching is used from libfabric 1.19 on, and this is 1.17". Empty: it is used.
    [[nodiscard]] std::string why_no_matching();

    /// Closed where options did not ask for them.
    [[nodiscard]] const provider_counters& counters() const noexcept { return counters_; }

    // ---- sleeping until something completes

    /// -1: it has to be polled.
    [[nodiscard]] int wait_fd() const noexcept { return wait_fd_; }
    /// Whether `wait_fd` becomes readable when something completes that did not yet.
    [[nodiscard]] bool may_wait() const noexcept { return may_wait(*queue_); }
    /// The same for another queue of the domain.
    [[nodiscard]] bool may_wait(fid_cq& queue) const noexcept {
        fid* waits = &queue.fid;
        return wait_fd_ >= 0 && ::fi_trywait(fabric_.get(), &waits, 1) == FI_SUCCESS;
    }

    // ---- addresses

    /// The endpoint's own, as peers get it.
    [[nodiscard]] const std::vector<std::byte>& own_address() const noexcept { return own_address_; }
    [[nodiscard]] std::uint32_t address_format() const noexcept { return info_->addr_format; }
    /// For people: "fi_sockaddr_in://10.0.0.1:7471".
    [[nodiscard]] std::string address_text(const void* address) const;
    [[nodiscard]] std::string own_address_text() const { return address_text(own_address_.data()); }

    /// Limits for a peer's connect_info, without the limits that the domain decides.
    [[nodiscard]] connect_limits measure() const noexcept;

    /// Drawn anew for each endpoint: tells it from a former one with the same address.
    [[nodiscard]] std::uint32_t nonce() const noexcept { return nonce_; }
    /// Inserts the peer into the address vector. Links to the same peer share one entry, which stays for a while after the last of them,
    /// because the peer may connect again. Not `welcome`: that is no address, or was another endpoint's that the provider still
    /// remembers or that still has links, or there is no room.
    [[nodiscard]] verdict insert(const std::byte* address, std::size_t bytes, std::uint32_t nonce,
                                 fi_addr_t& number) noexcept;
    void release(fi_addr_t number) noexcept;
    [[nodiscard]] std::size_t peers() const noexcept { return peers_.size(); }

    // ---- closing and reopening the endpoint

    /// Whether to `close_endpoint` while a get is under way: the provider survives it, or has a thread that would go on with an
    /// abandoned one.
    [[nodiscard]] bool closes_amid_gets() const noexcept;
    /// Afterwards no posted operation touches memory or completes.
    void close_endpoint() noexcept;
    /// The same without closing the endpoint: a provider with manual progress does nothing for a queue that is not read. The endpoint
    /// and the objects that it belongs to are leaked. 0, or libfabric's negative number, if the domain cannot go on.
    [[nodiscard]] int abandon_endpoint() noexcept;

    struct opened {
        const char* step;
        int failed;
    };
    /// Another endpoint, with another address.
    [[nodiscard]] opened open_endpoint() noexcept;

private:
    struct peer {
        std::vector<std::byte> address;
        std::uint32_t nonce = 0;
        fi_addr_t number = FI_ADDR_UNSPEC;
        std::size_t users = 0;
    };
    static constexpr std::size_t most_unused_peers = 256;
    static constexpr std::size_t most_remembered_peers = 65536;  // where the provider remembers them
    /// Where the provider takes no address, and has fewer, the address is wrong; where it has more, its table may be full: shm's has 256.
    static constexpr std::size_t least_table = 128;

    static const ofi_profile& choose(const ofi_profile& profile, const ofi_options& options);

    /// The endpoint's address on this host; empty: any.
    [[nodiscard]] std::string node() const;

    [[nodiscard]] unique_info ask() const;
    [[nodiscard]] unique_info ask_tagged() const;

    [[gnu::cold, noreturn]] void refuse_names(const fi_info& found) const;

    [[gnu::cold, noreturn]] void refuse_left_memory(const std::string& what) const;

    /// The provider exists, but does not answer to all of the hints: finds the refused one by leaving out one at a time.
    [[nodiscard]] std::string why_not(const fi_info& hints, const std::string& node) const;

    void check_delivery() const;

    void check_atomics();

    void open_counters();

    [[nodiscard]] int open_fabric() noexcept;

    [[nodiscard]] opened open_queue() noexcept;

    /// Removes one peer without a link where there are many. False: there is no room for one more.
    [[nodiscard]] bool forget_one();

    /// False: each has links, or the provider remembers them.
    [[nodiscard]] bool forget_oldest() noexcept;
    void forget(std::vector<peer>::iterator one) noexcept;

    void forget_endpoint() noexcept;

    const ofi_profile& profile_;
    const ofi_options& options_;
    unique_info info_;
    unique_info tagged_info_;  // once it was asked for
    unique_fabric fabric_;
    unique_domain domain_;
    provider_counters counters_;
    unique_addresses addresses_;
    unique_queue queue_;
    unique_endpoint endpoint_;  // goes first
    std::vector<peer> peers_;
    std::vector<std::byte> own_address_;
    std::uint32_t nonce_ = 0;
    int wait_fd_ = -1;
    bool atomics_ = false;
    bool abandoned_ = false;  // an endpoint is still open
};

}  // namespace rdmacoro::detail::fabric

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/ofi/impl/device.ipp>
#endif

// Counters of the provider itself, for a domain that asks for them.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/ofi/options.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

namespace rdmacoro::detail::fabric {

/// One counter for each kind of operation. They are the domain's, so that an endpoint that takes another's place goes on counting.
class provider_counters {
public:
    /// 0, or libfabric's negative number.
    [[nodiscard]] int open(fid_domain& of) noexcept;
    [[nodiscard]] bool opened() const noexcept { return counters_.back() != nullptr; }

    /// Called before the endpoint is enabled; does nothing where nothing is counted. An endpoint for messages alone has no gets and
    /// puts to count. 0, or libfabric's negative number.
    [[nodiscard]] int bind(fid_ep& endpoint, bool messages_alone = false) const noexcept;

    /// Precondition: `opened()`. The provider makes progress on all endpoints that are bound.
    [[nodiscard]] ofi_provider_counts read() const noexcept;
    /// Abandons the counters that are bound to an abandoned endpoint, and adds their present values to later ones. Precondition: the
    /// provider may make progress once more.
    [[nodiscard]] int abandon(fid_domain& of) noexcept;

private:
    struct close_counter {
        void operator()(fid_cntr* counter) const noexcept { static_cast<void>(::fi_close(&counter->fid)); }
    };
    using unique_counter = std::unique_ptr<fid_cntr, close_counter>;
    static constexpr std::array<std::uint64_t, 4> kinds{FI_SEND, FI_RECV, FI_READ, FI_WRITE};

    std::array<unique_counter, kinds.size()> counters_;
    ofi_provider_counts before_{};  // of abandoned counters
};

}  // namespace rdmacoro::detail::fabric

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/ofi/impl/counters.ipp>
#endif

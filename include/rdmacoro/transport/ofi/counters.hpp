// What the provider counts by itself, for a domain that asks for it.
#pragma once

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
    [[nodiscard]] int open(fid_domain& of) noexcept {
        fi_cntr_attr wanted{};
        wanted.events = FI_CNTR_EVENTS_COMP;
        wanted.wait_obj = FI_WAIT_NONE;
        for (unique_counter& one : counters_) {
            fid_cntr* made = nullptr;
            if (const int failed = ::fi_cntr_open(&of, &wanted, &made, nullptr); failed != 0) return failed;
            one.reset(made);
        }
        return 0;
    }
    [[nodiscard]] bool opened() const noexcept { return counters_.back() != nullptr; }

    /// Before the endpoint is enabled; does nothing where nothing is counted. One that is for messages alone has no gets and puts
    /// to count. 0, or libfabric's negative number.
    [[nodiscard]] int bind(fid_ep& endpoint, bool messages_alone = false) const noexcept {
        const std::size_t bound = messages_alone ? 2 : kinds.size();
        for (std::size_t i = 0; opened() && i < bound; ++i) {
            if (const int failed = ::fi_ep_bind(&endpoint, &counters_[i]->fid, kinds[i]); failed != 0)
                return failed;
        }
        return 0;
    }

    /// Precondition: `opened()`.
    [[nodiscard]] ofi_provider_counts read() const noexcept {
        ofi_provider_counts now{::fi_cntr_read(counters_[0].get()), ::fi_cntr_read(counters_[1].get()),
                                ::fi_cntr_read(counters_[2].get()), ::fi_cntr_read(counters_[3].get())};
        for (const unique_counter& one : counters_) now.errors += ::fi_cntr_readerr(one.get());
        return now;
    }

private:
    struct close_counter {
        void operator()(fid_cntr* counter) const noexcept { static_cast<void>(::fi_close(&counter->fid)); }
    };
    using unique_counter = std::unique_ptr<fid_cntr, close_counter>;
    static constexpr std::array<std::uint64_t, 4> kinds{FI_SEND, FI_RECV, FI_READ, FI_WRITE};

    std::array<unique_counter, kinds.size()> counters_;
};

}  // namespace rdmacoro::detail::fabric

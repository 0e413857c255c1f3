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

    /// Precondition: `opened()`. Has the provider go on with its work, on all endpoints that are bound.
    [[nodiscard]] ofi_provider_counts read() const noexcept {
        const auto value = [&](std::size_t i) noexcept { return ::fi_cntr_read(counters_[i].get()); };
        ofi_provider_counts now = before_;
        now.sent += value(0);
        now.received += value(1);
        now.gets += value(2);
        now.puts += value(3);
        for (const unique_counter& one : counters_) now.errors += ::fi_cntr_readerr(one.get());
        return now;
    }
    /// Never reads those again that are bound to an endpoint that is left alone; keeps what they say now. Precondition: nobody
    /// minds that the provider goes on with its work once more.
    [[nodiscard]] int abandon(fid_domain& of) noexcept {
        if (!opened()) return 0;
        before_ = read();
        for (unique_counter& one : counters_) static_cast<void>(one.release());
        return open(of);
    }

private:
    struct close_counter {
        void operator()(fid_cntr* counter) const noexcept { static_cast<void>(::fi_close(&counter->fid)); }
    };
    using unique_counter = std::unique_ptr<fid_cntr, close_counter>;
    static constexpr std::array<std::uint64_t, 4> kinds{FI_SEND, FI_RECV, FI_READ, FI_WRITE};

    std::array<unique_counter, kinds.size()> counters_;
    ofi_provider_counts before_{};  // of those that were left alone
};

}  // namespace rdmacoro::detail::fabric

// Bodies of counters.hpp.
#pragma once

#include <rdmacoro/transport/ofi/counters.hpp>

namespace rdmacoro::detail::fabric {

RDMACORO_COLD int provider_counters::open(fid_domain& of) noexcept {
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

RDMACORO_COLD int provider_counters::bind(fid_ep& endpoint, bool messages_alone) const noexcept {
    const std::size_t bound = messages_alone ? 2 : kinds.size();
    for (std::size_t i = 0; opened() && i < bound; ++i) {
        if (const int failed = ::fi_ep_bind(&endpoint, &counters_[i]->fid, kinds[i]); failed != 0)
            return failed;
    }
    return 0;
}

RDMACORO_COLD ofi_provider_counts provider_counters::read() const noexcept {
    const auto value = [&](std::size_t i) noexcept { return ::fi_cntr_read(counters_[i].get()); };
    ofi_provider_counts now = before_;
    now.sent += value(0);
    now.received += value(1);
    now.gets += value(2);
    now.puts += value(3);
    for (const unique_counter& one : counters_) now.errors += ::fi_cntr_readerr(one.get());
    return now;
}

RDMACORO_COLD int provider_counters::abandon(fid_domain& of) noexcept {
    if (!opened()) return 0;
    before_ = read();
    for (unique_counter& one : counters_) static_cast<void>(one.release());
    return open(of);
}

}  // namespace rdmacoro::detail::fabric

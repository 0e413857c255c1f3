#include <rdmacoro/messaging/messaging.hpp>

#include "conformance/ofi_transports.hpp"
#include "support/over/lists_over.hpp"

namespace rdmacoro::test {

namespace {

template <class Variant>
constexpr traits of(std::string_view name, bool puts_before_sends = false) {
    traits found = erased::traits_of<Variant>(name);
    found.real = found.counted = true;
    found.puts_before_sends = puts_before_sends && !found.delegates_matching;
    found.kind = name == "ofi_tcp";
    found.moves = in_turns::all_but_gets;
    found.fills_in_turns = !found.delegates_matching;
    found.serves_bare_links = true;
    found.lingers = true;
    found.stored_by_library = found.delegates_matching;
    // Where the provider matches, each link has an endpoint of its own, which takes 30 ms to open.
    if (found.delegates_matching) {
        found.slowness = 10;
        found.most_links = 30;  // that connect at once within a handshake's time
    }
    return found;
}

/// A stand-in allocates in this process, and is made for rules, not for speed. Its provider takes receives for few links.
template <class Variant>
constexpr traits of_stand_in(std::string_view name) {
    traits found = of<Variant>(name);
    found.counted = false;
    found.most_links = 30;
    found.slowness = 10;
    found.timing_decides = true;  // completions are drawn by lot
    return found;
}

constinit const erased::variant_of<ofi_tcp> over_ofi_tcp{of<ofi_tcp>("ofi_tcp", true)};
constinit const erased::variant_of<ofi_gni> over_ofi_gni{of_stand_in<ofi_gni>("ofi_gni")};
constexpr traits of_cxi() {
    traits found = of_stand_in<ofi_cxi>("ofi_cxi");
    if (found.delegates_matching) found.tag_bits = 48;
    return found;
}
constinit const erased::variant_of<ofi_cxi> over_ofi_cxi{of_cxi()};
constinit const erased::variant_of<ofi_efa> over_ofi_efa{of_stand_in<ofi_efa>("ofi_efa")};
#if RDMACORO_OFI_MATCHED_SUITE
// Not shm, whose matching works from libfabric 1.19 on.
constinit const variant* const all[] = {&over_ofi_tcp, &over_ofi_gni, &over_ofi_cxi, &over_ofi_efa};
#else
constinit const erased::variant_of<ofi_shm> over_ofi_shm{of<ofi_shm>("ofi_shm")};
constinit const variant* const all[] = {&over_ofi_tcp, &over_ofi_shm, &over_ofi_gni, &over_ofi_cxi,
                                        &over_ofi_efa};
#endif

}  // namespace

constinit const variants over_ofi{all};

}  // namespace rdmacoro::test

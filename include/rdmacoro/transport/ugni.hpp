// The uGNI transport: Cray's Gemini and Aries networks, by libfabric's provider gni. Needs libfabric 1.17 to 1.20.
#pragma once

#include <rdmacoro/transport/ofi.hpp>

namespace rdmacoro {

/// Short messages go eagerly, up to 16 KiB; then the receiver gets, up to 64 KiB; then the sender puts, and so it does when
/// gets are not possible for want of alignment to 4 bytes. All three limits can be set: see `tuning`.
using ugni = ofi<provider::gni>;

static_assert(ugni::static_capabilities.get_alignment == 4);

}  // namespace rdmacoro

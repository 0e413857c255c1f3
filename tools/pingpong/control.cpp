#include "control.hpp"

namespace pingpong {

control_kind kind_of(const control_bytes& raw, std::size_t bytes) {
    if (bytes != raw.size() || detail::get_word(raw, 0) != detail::magic) {
        throw run_error("the peer is no pingpong: it sent something else");
    }
    const std::uint64_t version_and_kind = detail::get_word(raw, 1);
    if (version_and_kind >> 32 != control_version) {
        throw run_error("the peer is a pingpong of another version (" +
                        std::to_string(version_and_kind >> 32) + ", this one is " +
                        std::to_string(control_version) + "); run the same build on both sides");
    }
    return static_cast<control_kind>(version_and_kind & 0xffffffff);
}

}  // namespace pingpong

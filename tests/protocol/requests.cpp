#include <rdmacoro/protocol/requests.hpp>

#include "support/catch.hpp"

#include <type_traits>

namespace test_protocol_requests {

using namespace rdmacoro;

static_assert(std::is_convertible_v<tag_type, tag_match>);
static_assert(tag_match(5).exact());
static_assert(!any_tag.exact());
static_assert(any_tag.accepts(0) && any_tag.accepts(~tag_type{0}));
static_assert(tag_match(5).accepts(5) && !tag_match(5).accepts(4));
static_assert(tag_match(0x30, 0xf0).accepts(0x3f) && !tag_match(0x30, 0xf0).accepts(0x4f));
static_assert(tag_match(0x3f, 0xf0).tag == 0x30);  // bits outside the mask do not count
static_assert(tag_match(7, ~tag_type{0}).exact());

namespace {
struct receive final : detail::receive_request {
    receive(tag_match wanted, peer_id source) noexcept
        : receive_request(nullptr, wanted, source, mutable_buffers(), nullptr) {}
};
}  // namespace

TEST_CASE("a receive wants what its tag and source say") {
    const receive one(7, 3);
    CHECK(one.wants(3, 7));
    CHECK_FALSE(one.wants(3, 8));
    CHECK_FALSE(one.wants(4, 7));
    const receive any(any_tag, any_source);
    CHECK(any.wants(0, 0));
    CHECK(any.wants(12, 99));
    const receive masked(tag_match(1, 1), any_source);
    CHECK(masked.wants(5, 3));
    CHECK_FALSE(masked.wants(5, 2));
}

}  // namespace test_protocol_requests

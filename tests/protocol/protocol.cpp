#include <rdmacoro/protocol/protocol.hpp>

#include "support/catch.hpp"

namespace test_protocol_protocol {

using namespace rdmacoro;

TEST_CASE("one header brings the whole room") {
    static_assert(protocol_list<default_protocols<void>>);
    static_assert(tag_match(5).accepts(5));
    CHECK(metrics{}.messages_sent == 0);
    CHECK(mailbox_options{}.unexpected_bytes >= 256_KiB);
    CHECK(default_protocols<void>::text() == "eager, segmented");
}

}  // namespace test_protocol_protocol

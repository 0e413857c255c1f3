#include <rdmacoro/messaging/messaging.hpp>

#include "support/catch.hpp"
#include "support/loopback.hpp"

#include <type_traits>

namespace test_messaging_messaging {

using namespace rdmacoro;

TEST_CASE("one header brings the whole room") {
    using peer = endpoint<test::loopback>;
    using peers = mailbox<test::loopback>;
    static_assert(std::is_nothrow_move_constructible_v<peer> && !std::is_copy_constructible_v<peer>);
    static_assert(std::is_nothrow_move_constructible_v<peers> && !std::is_copy_constructible_v<peers>);
    static_assert(std::is_nothrow_move_constructible_v<message> && !std::is_copy_constructible_v<message>);
    const peer none;
    CHECK_FALSE(static_cast<bool>(none));
    CHECK_FALSE(none.is_open());
}

}  // namespace test_messaging_messaging

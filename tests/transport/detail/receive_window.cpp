#include <rdmacoro/transport/detail/receive_window.hpp>

#include "support/catch.hpp"

namespace test_transport_detail_receive_window {

using namespace rdmacoro;
using detail::receive_window;

TEST_CASE("credits are spent by sending and regained up to what the peer gave") {
    receive_window w;
    CHECK(w.credits() == 0);
    w.open_sending(8);
    for (unsigned n = 0; n < 8; ++n) w.spend();
    CHECK(w.credits() == 0);
    CHECK(w.regain(3));
    CHECK(w.credits() == 3);
    CHECK_FALSE(w.regain(6));
    CHECK(w.credits() == 3);
    CHECK(w.regain(5));
    CHECK(w.credits() == 8);
    CHECK_FALSE(w.regain(1));
}

TEST_CASE("a peer sends no more frames than it was granted credits") {
    receive_window w;
    w.open_sending(8);
    w.open_receiving(2);
    CHECK(w.admit(0));
    CHECK(w.admit(0));
    CHECK_FALSE(w.admit(0));
    CHECK(w.granted() == 0);
}

TEST_CASE("a frame that returns too many credits is refused, and changes nothing") {
    receive_window w;
    w.open_sending(8);
    w.open_receiving(2);
    w.spend();
    CHECK_FALSE(w.admit(2));
    CHECK(w.granted() == 2);
    CHECK(w.credits() == 7);
    CHECK(w.admit(1));
    CHECK(w.granted() == 1);
    CHECK(w.credits() == 8);
}

TEST_CASE("consumed frames are owed to the peer, which may send again when a frame has returned them") {
    receive_window w;
    w.open_receiving(4);
    for (int n = 0; n < 4; ++n) REQUIRE(w.admit(0));
    w.owe();
    CHECK(w.owed() == 1);
    CHECK_FALSE(w.return_due());
    w.owe();
    CHECK(w.return_due());
    CHECK(w.granted() == 0);
    w.returned();
    CHECK(w.granted() == 2);
    CHECK(w.owed() == 0);
    CHECK_FALSE(w.return_due());
}

TEST_CASE("a peer that may lack credits for a control frame is short where it is owed any but the frame that "
          "returns them") {
    receive_window w;
    w.open_receiving(64);
    for (int n = 0; n < 60; ++n) REQUIRE(w.admit(0));  // messages that wait for their receiver
    CHECK_FALSE(w.peer_is_short());
    for (int n = 0; n < 3; ++n) {
        CHECK_FALSE(w.peer_is_short());
        REQUIRE(w.admit(0));
        w.owe();
    }
    CHECK(w.granted() == 1);
    CHECK(w.peer_is_short());
    CHECK_FALSE(w.return_due());
    w.returned();
    CHECK(w.granted() == 4);
    CHECK_FALSE(w.peer_is_short());
}

TEST_CASE("a freed slot is owed only when the device has it again") {
    receive_window w;
    w.open_receiving(4);
    w.owe_after(7);
    w.owe_after(7);
    w.settle(7);
    CHECK(w.owed() == 0);
    CHECK_FALSE(w.return_due());
    CHECK(w.return_due_soon());
    w.owe_after(8);  // the two of epoch 7 are with the device by now
    CHECK(w.owed() == 2);
    CHECK(w.return_due());
    w.settle(8);
    CHECK(w.owed() == 2);
    w.settle(9);
    CHECK(w.owed() == 3);
}

}  // namespace test_transport_detail_receive_window

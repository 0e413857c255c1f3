#include <rdmacoro/protocol/detail/owed_messages.hpp>

#include "support/catch.hpp"
#include "support/engine_context.hpp"

#include <string>
#include <utility>
#include <vector>

namespace test_protocol_detail_owed_messages {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Sends "<stream>:<bit> " while there is room.
class side final : public detail::owed_messages {
public:
    explicit side(engine_context& context)
        : owed_messages(context.connection(), detail::slot_type_of<detail::owing_slot>) {
        REQUIRE(slots_.reach(999));
    }
    using owed_messages::forget_owed;
    using owed_messages::owe;

    unsigned room = 0;
    unsigned calls = 0;
    std::string sent;
    std::vector<std::pair<std::uint32_t, std::uint8_t>> then;  // owed when the next message was sent
    bool forgets = false;                                      // when the next message was sent

private:
    post_result send_owed(std::uint32_t id, std::uint8_t message) noexcept override {
        ++calls;
        if (room == 0) return post_result::retry;
        --room;
        sent += std::to_string(id) + ":" + std::to_string(message) + " ";
        return post_result::done;
    }
    void owed_sent(std::uint32_t, std::uint8_t) noexcept override {
        const auto more = std::exchange(then, {});
        for (const auto& [id, message] : more) owe(id, message);
        if (std::exchange(forgets, false)) forget_owed();
    }
};

}  // namespace

TEST_CASE("what is owed is sent at once where there is room, lower bits first") {
    engine_context context;
    side self(context);
    self.room = 10;
    self.owe(2, 4);
    self.owe(1, 1 | 8 | 2);
    CHECK(self.sent == "2:4 1:1 1:2 1:8 ");
    CHECK(context.under_way_now() == 0);
    self.send_remembered();
    CHECK(self.sent == "2:4 1:1 1:2 1:8 ");
}

TEST_CASE(
    "what finds no room is sent later, the longest owed stream first, and holds a goodbye back until then") {
    engine_context context;
    side self(context);
    self.owe(3, 2);
    self.owe(0, 1);
    self.owe(3, 1);
    CHECK(context.under_way_now() == 2);  // streams
    self.send_remembered();
    CHECK(context.under_way_now() == 2);
    self.room = 1;
    self.send_remembered();
    CHECK(self.sent == "3:1 ");
    CHECK(context.under_way_now() == 2);
    self.room = 5;
    self.send_remembered();
    CHECK(self.sent == "3:1 3:2 0:1 ");
    CHECK(context.under_way_now() == 0);
}

TEST_CASE("while there is no room one message alone is tried, however many are owed") {
    engine_context context;
    side self(context);
    for (std::uint32_t id = 0; id < 1000; ++id) self.owe(id, 1);
    self.calls = 0;
    self.send_remembered();
    CHECK(self.calls == 1);
    self.room = 2;
    self.send_remembered();
    CHECK(self.sent == "0:1 1:1 ");
    CHECK(self.calls == 4);
    CHECK(context.under_way_now() == 998);
    self.room = 1000;
    self.send_remembered();
    CHECK(self.calls == 4 + 998);
    CHECK(context.under_way_now() == 0);
}

TEST_CASE("a stream may owe again while what it owed is sent") {
    engine_context context;
    side self(context);
    self.owe(1, 1);
    self.room = 2;
    self.then = {{1, 2}, {2, 1}};
    self.send_remembered();
    CHECK(self.sent == "1:1 1:2 ");
    CHECK(context.under_way_now() == 1);
    self.room = 5;
    self.send_remembered();
    CHECK(self.sent == "1:1 1:2 2:1 ");
    CHECK(context.under_way_now() == 0);
}

TEST_CASE("what is forgotten is not sent any more") {
    engine_context context;
    side self(context);
    self.owe(1, 1);
    self.owe(2, 1);
    self.forget_owed();
    self.room = 5;
    self.send_remembered();
    CHECK(self.sent.empty());
    self.owe(1, 2);
    CHECK(self.sent == "1:2 ");
}

TEST_CASE("what is forgotten while other messages are sent is not sent") {
    engine_context context;
    side self(context);
    self.owe(0, 1);
    self.owe(1, 1 | 2);
    self.owe(2, 1);
    self.room = 5;
    self.forgets = true;
    self.send_remembered();
    CHECK(self.sent == "0:1 ");
}

}  // namespace test_protocol_detail_owed_messages

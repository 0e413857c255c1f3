#include <rdmacoro/transport/tcp/link.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

namespace test_transport_tcp_link {

using namespace rdmacoro;
using namespace rdmacoro::test;

static_assert(one_sided_link<recorded_link> && in_place_link<recorded_link>);

TEST_CASE("a link hands what comes to its sink, and any memory may be sent in place") {
    tcp_world w;
    tcp_listener listener = w.listen();
    auto made = w.connect(listener);
    tcp_end a;
    tcp_end b;
    a.link = std::make_unique<recorded_link>(std::move(made.client), a.sink);
    b.link = std::make_unique<recorded_link>(std::move(made.server), b.sink);
    const auto data = pattern(5000);
    CHECK(a.link->prepare_in_place(data));
    CHECK(a.link->in_place(data));
    CHECK(a.link->capabilities().max_message == detail::tcp_capabilities.max_message);
    CHECK(&a.link->owner() == &w.on);
    recording_completion c;
    const post_result answer =
        a.link->post_in_place(header_of(1), const_buffers(std::span<const std::byte>(data)), c);
    w.until([&] { return b.sink.count == 1; });
    CHECK((answer == post_result::done || answer == post_result::posted));
    CHECK(b.sink.messages[0].payload == data);
    // A copied message is done, whether it went out at once or waits for the end of the turn.
    CHECK(a.link->post_copied(header_of(2), {}) == post_result::done);
    CHECK(a.link->post_copied(header_of(3), {}) == post_result::done);
    w.until([&] { return b.sink.count == 3; });
    a.link->close(make_error_code(errc::closed));
    CHECK(a.sink.downs == 1);
    CHECK(a.link->post_copied(header_of(4), {}) == post_result::failed);
}

}  // namespace test_transport_tcp_link

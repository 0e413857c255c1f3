#include <rdmacoro/transport/concepts.hpp>

#include "support/catch.hpp"
#include "support/loopback.hpp"
#include "support/matching_loopback.hpp"

#include <rdmacoro/transport/shm.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

namespace test_transport_concepts {

using namespace rdmacoro;

static_assert(transport<shm>);
static_assert(one_sided_link<shm::link<detail::sink_archetype>>);
static_assert(transport<test::loopback>);
static_assert(transport<test::matching_loopback>);
static_assert(matching_link<test::matching_loopback::link<detail::sink_archetype>>);
static_assert(!matching_link<test::loopback::link<detail::sink_archetype>>);
static_assert(!matching_link<shm::link<detail::sink_archetype>>);
static_assert(!transport<int>);
static_assert(!transport<detail::sink_archetype>);
static_assert(!message_sink<int>);
static_assert(sizeof(message_header) == message_header_bytes);

namespace {

/// What a transport says of itself holds together.
template <class T>
constexpr bool consistent() {
    constexpr const capabilities& c = T::static_capabilities;
    return c.max_message >= c.eager_bytes && c.segment_bytes > 0 && c.inline_bytes <= c.max_message &&
           c.get_alignment > 0 && (c.one_sided || !c.one_sided_offloaded);
}
static_assert(consistent<shm>() && consistent<test::loopback>());
#if RDMACORO_WITH_TCP
static_assert(transport<tcp> && consistent<tcp>());
#endif

// A sink must promise not to throw: each function is taken away, or made to throw, in turn.
struct throws_in_deliver : detail::sink_archetype {
    delivery deliver(const message_header&, std::span<const std::byte>) { return delivery::taken; }
};
struct answers_nothing : detail::sink_archetype {
    void deliver(const message_header&, std::span<const std::byte>) noexcept {}
};
struct has_no_space : detail::sink_archetype {
    void payload_space() noexcept {}
};
struct is_never_told {
    delivery deliver(const message_header&, std::span<const std::byte>) noexcept { return delivery::taken; }
    delivery begin_payload(const message_header&, std::size_t) noexcept { return delivery::taken; }
    std::span<std::byte> payload_space() noexcept { return {}; }
    void payload_arrived(std::size_t) noexcept {}
    void writable() noexcept {}
};
static_assert(!message_sink<throws_in_deliver>);
static_assert(!message_sink<answers_nothing>);
static_assert(!message_sink<has_no_space>);
static_assert(!message_sink<is_never_told>);

}  // namespace

TEST_CASE("a completion is told its outcome each time") {
    struct counting : completion {
        int told = 0;
    };
    counting c;
    c.done = [](completion& self, std::error_code outcome) noexcept {
        static_cast<counting&>(self).told += outcome ? 100 : 1;
    };
    c.done(c, {});
    c.done(c, make_error_code(errc::closed));
    CHECK(c.told == 101);
}

}  // namespace test_transport_concepts

// The least that models `message_sink`, and a link of each transport that hands up to it.
#include <rdmacoro/transport/shm.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

namespace {

struct sink {
    rdmacoro::delivery deliver(const rdmacoro::message_header&, std::span<const std::byte>) noexcept {
        return rdmacoro::delivery::taken;
    }
    rdmacoro::delivery begin_payload(const rdmacoro::message_header&, std::size_t) noexcept {
        return rdmacoro::delivery::taken;
    }
    std::span<std::byte> payload_space() noexcept { return {}; }
    void payload_arrived(std::size_t) noexcept {}
    void writable() noexcept {}
    void link_down(std::error_code) noexcept {}

    sink() = default;
    sink(const sink&) = delete;
    sink& operator=(const sink&) = delete;
};

}  // namespace

static_assert(rdmacoro::message_sink<sink>);
static_assert(rdmacoro::one_sided_link<rdmacoro::shm::link<sink>>);
#if RDMACORO_WITH_TCP
static_assert(rdmacoro::one_sided_link<rdmacoro::tcp::link<sink>>);
#endif

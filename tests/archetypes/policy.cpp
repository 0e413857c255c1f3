// The least that models `protocol_policy`: a policy that admits nothing. A list with it is instantiated down to an
// endpoint, so that the list asks for nothing else.
#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/protocol/engines.hpp>
#include <rdmacoro/transport/shm.hpp>

namespace {

using namespace rdmacoro;

struct least {
    static constexpr std::string_view name = "least";
    static constexpr std::string_view description = "carries nothing";
    static constexpr std::uint8_t kinds = 1;
    [[nodiscard]] static constexpr std::size_t longest(const capabilities&) noexcept { return 0; }
    [[nodiscard]] static constexpr bool admits(const message_facts&, const capabilities&) noexcept {
        return false;
    }
    [[nodiscard]] static constexpr std::uint64_t parameter() noexcept { return 0; }

    template <class Context>
    class engine {
    public:
        explicit engine(Context& context) noexcept : context_(context) {}
        start_result start(engines::send_request&) noexcept { return start_result::wait_room; }
        void transmitted(engines::send_request& r, engines::status outcome) noexcept {
            context_.finish_send(r, outcome);
        }
        void cancel_send(engines::send_request& r) noexcept { context_.finish_send(r, errc::canceled); }
        delivery arrived(unsigned, const engines::wire_header&, std::span<const std::byte>) noexcept {
            return context_.violation();
        }
        delivery begin_payload(unsigned, const engines::wire_header&, std::size_t) noexcept {
            return context_.violation();
        }
        std::span<std::byte> payload_space() noexcept { return {}; }
        void payload_arrived(std::size_t) noexcept {}
        void matched(engines::unexpected_message& m, engines::receive_request& r) noexcept {
            context_.hand_over(m, r);
        }
        bool forget_receive(engines::receive_request&) noexcept { return true; }
        void writable() noexcept {}
        void fail(engines::status) noexcept {}

    private:
        Context& context_;
    };
};

using list = protocols<eager<>, least, segmented<>>;

}  // namespace

static_assert(protocol_policy<least>);
static_assert(protocol_list<list>);
static_assert(list::choose({100, false}, shm::static_capabilities) == 0);
static_assert(list::choose({1u << 20, false}, shm::static_capabilities) == 2);
template class rdmacoro::endpoint<rdmacoro::shm, list>;

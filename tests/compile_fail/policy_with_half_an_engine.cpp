// A policy whose engine can only begin sends: the message names the concept and a function that is missing.
// expect: policy_engine
// expect: transmitted
#include <rdmacoro/rdmacoro.hpp>

struct half {
    static constexpr std::string_view name = "half";
    static constexpr std::string_view description = "sends, and receives nothing";
    static constexpr std::uint8_t kinds = 1;
    static constexpr std::size_t longest(const rdmacoro::capabilities&) noexcept { return 100; }
    static constexpr bool admits(const rdmacoro::message_facts&, const rdmacoro::capabilities&) noexcept {
        return true;
    }
    static constexpr std::uint64_t parameter() noexcept { return 0; }

    template <class Context>
    struct engine {
        explicit engine(Context&) noexcept {}
        rdmacoro::start_result start(rdmacoro::engines::send_request&) noexcept {
            return rdmacoro::start_result::wait_room;
        }
    };
};

int main() {
    // wrong
    rdmacoro::protocols<half> list;
    // end
}

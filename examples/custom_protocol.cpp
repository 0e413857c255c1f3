// custom_protocol: a protocol of your own in a list with others. See checked_eager.hpp for the protocol.
#include "checked_eager.hpp"
#include "loopback.hpp"

#include <array>
#include <functional>
#include <iostream>
#include <utility>
#include <vector>

/// Turns a bit of a message on its way, when told to.
struct noisy : loopback {
    static constexpr std::string_view name = "noisy";
    static constexpr std::string_view description = "loopback, not quite reliable";

    template <class Sink>
    class link : public loopback::link<Sink> {
    public:
        using loopback::link<Sink>::link;

        [[nodiscard]] rc::post_result post(const rc::message_header& header, const rc::const_buffers& payload,
                                           rc::completion& c) noexcept {
            if (!std::exchange(next_is_damaged, false)) return loopback::link<Sink>::post(header, payload, c);
            std::array<std::byte, static_capabilities.max_message> copy;
            const std::span<std::byte> bytes = std::span(copy).first(payload.size());
            rc::engines::copy_out(payload, 0, bytes.data(), bytes.size());
            bytes[0] ^= std::byte{1};
            return loopback::link<Sink>::post(header, std::span<const std::byte>(bytes), c);
        }
    };
    static inline bool next_is_damaged = false;
};

using namespace std::literals;
using how = rc::protocols<checked_eager<>, rc::segmented<>>;

rc::task<> serve(loopback::domain& domain) {
    auto listener = co_await rc::listen<noisy, how>(domain, "here");
    auto peer = co_await listener.accept();
    std::vector<std::byte> text(100'000);
    for (;;) {
        auto got = co_await rc::as_result(peer.recv(text));
        if (!got) {
            std::cout << "ended: " << got.error().message() << '\n';
            break;
        }
        std::cout << "got " << got->bytes << " bytes";
        if (got->bytes < 100)
            std::cout << ": " << std::string_view(reinterpret_cast<char*>(text.data()), got->bytes);
        std::cout << '\n';
    }
}

rc::task<> ask() {
    loopback::domain domain(*rc::scheduler::current());
    rc::task_group others;
    others.spawn(serve, std::ref(domain));
    co_await rc::yield();  // lets it listen

    auto peer = co_await rc::connect<noisy, how>(domain, "here");
    std::cout << peer.explain();
    co_await peer.send("one"sv);
    co_await peer.send(std::vector<std::byte>(100'000));  // longer than checked_eager carries
    co_await peer.send("two"sv);
    noisy::next_is_damaged = true;
    co_await peer.send("three"sv);
    co_await peer.close();
    co_await others.join();
}

int main() { rc::scheduler{}.run(ask()); }

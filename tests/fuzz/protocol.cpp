// Everything that a peer can say to the protocol layer: hello, control messages, eager and segmented ones, whole or with a
// payload that comes in parts, between what a user does meanwhile. The input is a script. Nothing may crash, leak, wait for
// ever, or keep more than the budget; the sanitizers see the rest.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/endpoint.hpp>

#include "fuzz/script.hpp"
#include "fuzz/user.hpp"
#include "support/scripted_peer.hpp"

#include <cstddef>
#include <cstdint>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

task<> play(scheduler& on, script& input) {
    mailbox_options least;
    least.unexpected_bytes = 1;
    least.lent_bytes = 100000;
    scripted_peer peer(on, least);
    fuzz_user user(peer.self(), 100'000);
    std::uint32_t announced = 0;
    if (input.byte() % 8 != 0) peer.send_hello();
    for (int step = 0; step < 400 && !input.over(); ++step) {
        const std::uint8_t what = input.byte();
        switch (what % 16) {
            case 0:
            case 1:
            case 2:
            case 3: {  // a message of any kind
                const auto payload = input.bytes();
                peer.send_raw(input.byte(), input.number(), payload,
                              static_cast<std::uint16_t>(input.number()), input.byte());
                break;
            }
            case 4: {
                auto stream = static_cast<std::uint32_t>(input.number());
                if (stream < 192)
                    stream %= announced + 1;  // mostly one that may be named: used before, or the next
                if (stream == announced) ++announced;
                const std::uint32_t flags = input.byte() % 3;
                const std::uint64_t total = input.number();
                peer.say(wire_kind::announce, input.byte() % 4, announcement(stream, flags, total));
                break;
            }
            case 5: {
                const auto payload = input.bytes();
                peer.say(wire_kind::piece, input.number(), payload);
                break;
            }
            case 6: peer.say(static_cast<wire_kind>(8 + input.byte() % 6), input.number()); break;
            case 7: {
                const auto payload = input.bytes();
                peer.say(wire_kind::eager, input.byte() % 4, payload);
                break;
            }
            case 8: peer.from_peer().announces_above = input.number(); break;
            case 9: peer.from_peer().piece = 1 + input.number() % 5000; break;
            case 10: {
                peer.to_peer().room = input.byte() % 4 == 0 ? input.byte() : loopback_lane::unlimited;
                peer.to_peer().held = input.byte() % 4 == 0;
                peer.to_peer().defers = input.byte() % 2 == 0;
                peer.from_peer().lends = input.byte() % 2 == 0;
                break;
            }
            case 11:
            case 12: user.begin(input); break;
            case 13: user.stop_one(input); break;
            case 14: {
                if (input.byte() % 8 == 0) peer.self().abort();
                break;
            }
            default:
                for (int n = input.byte() % 8; n >= 0; --n) co_await yield();
        }
        // Unmatched messages are bounded by the budget, whatever the peer sends.
        const std::size_t budget = detail::least_budget * detail::credit_bytes;
        const std::size_t lent = user.operations() * 2 * least.lent_bytes;
        demand(peer.self().connection().mailbox().store().footprint() <=
               4 * budget + (std::size_t{8} << 20) + lent);
    }
    peer.self().abort();
    co_await user.all_ended();
    demand(peer.self().connection().mailbox().matching().posted() == 0);
    user.check();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    virtual_time world;
    script input(data, size);
    world.run(play(world.on, input));
    return 0;
}

// Everything that a peer can say to the protocol layer: hello, control messages, eager and segmented ones, whole or with a
// payload that comes in parts, between what a user does meanwhile. The input is a script. Nothing may crash, leak, wait for
// ever, or keep more than the budget; the sanitizers see the rest.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/endpoint.hpp>

#include "fuzz/script.hpp"
#include "support/scripted_peer.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <optional>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// An operation, with a token of its own, and the memory it borrows.
struct pending {
    local_stop_source stop;
    std::vector<std::byte> memory;
    task_group group;
};

task<> end_quietly_receive(endpoint<loopback>& at, pending& self, tag_match wanted) {
    static_cast<void>(co_await as_result(with_stop(at.recv(self.memory, wanted), self.stop.get_token())));
}
task<> end_quietly_lent(endpoint<loopback>& at, pending& self, tag_match wanted) {
    static_cast<void>(co_await as_result(with_stop(at.recv_lent(wanted), self.stop.get_token())));
}
task<> end_quietly_probe(endpoint<loopback>& at, pending& self, tag_match wanted) {
    static_cast<void>(co_await as_result(with_stop(at.probe(wanted), self.stop.get_token())));
}
task<> end_quietly_send(endpoint<loopback>& at, pending& self, tag_type tag) {
    static_cast<void>(co_await as_result(with_stop(at.send(self.memory, tag), self.stop.get_token())));
}
task<> end_quietly_ssend(endpoint<loopback>& at, pending& self, tag_type tag) {
    static_cast<void>(co_await as_result(with_stop(at.ssend(self.memory, tag), self.stop.get_token())));
}

task<> play(scheduler& on, script& input) {
    mailbox_options least;
    least.unexpected_bytes = 1;
    least.lent_bytes = 100000;
    scripted_peer peer(on, least);
    std::deque<pending> operations;
    if (input.byte() % 8 != 0) peer.say_hello();
    for (int step = 0; step < 400 && !input.over(); ++step) {
        const std::uint8_t what = input.byte();
        switch (what % 16) {
            case 0:
            case 1:
            case 2:
            case 3: {  // a message of any kind
                const auto payload = input.bytes();
                peer.say_raw(input.byte(), input.number(), payload,
                             static_cast<std::uint16_t>(input.number()), input.byte());
                break;
            }
            case 4: {
                const auto stream = static_cast<std::uint32_t>(input.number());
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
            case 12: {
                pending& p = operations.emplace_back();
                p.memory.resize(input.number() % 100000);
                const tag_type tag = input.byte() % 4;
                const tag_match wanted = input.byte() % 3 == 0 ? tag_match(any_tag) : tag_match(tag);
                switch (input.byte() % 5) {
                    case 0:
                        p.group.spawn(end_quietly_receive, std::ref(peer.self()), std::ref(p), wanted);
                        break;
                    case 1:
                        p.group.spawn(end_quietly_lent, std::ref(peer.self()), std::ref(p), wanted);
                        break;
                    case 2:
                        p.group.spawn(end_quietly_probe, std::ref(peer.self()), std::ref(p), wanted);
                        break;
                    case 3: p.group.spawn(end_quietly_send, std::ref(peer.self()), std::ref(p), tag); break;
                    default: p.group.spawn(end_quietly_ssend, std::ref(peer.self()), std::ref(p), tag); break;
                }
                break;
            }
            case 13:
                if (!operations.empty()) operations[input.byte() % operations.size()].stop.request_stop();
                break;
            case 14: {
                if (input.byte() % 8 == 0) peer.self().abort();
                break;
            }
            default:
                for (int n = input.byte() % 8; n >= 0; --n) co_await yield();
        }
        // What is kept for nobody is bounded by the budget, whatever the peer says.
        const std::size_t budget = detail::least_budget * detail::credit_bytes;
        const std::size_t lent = operations.size() * 2 * least.lent_bytes;
        if (peer.self().connection().box().store().footprint() > 4 * budget + (std::size_t{8} << 20) + lent)
            std::abort();
    }
    peer.self().abort();
    for (pending& p : operations) co_await p.group.join();
    if (peer.self().connection().box().matching().posted() != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    virtual_time world;
    script input(data, size);
    world.run(play(world.on, input));
    return 0;
}

// next_actor: the party that must act next for a pending operation to go on.
#pragma once

#include <cstdint>

namespace rdmacoro {

/// The party that must act next for a pending operation to go on. See `scheduler::describe`.
enum class next_actor : std::uint8_t {
    this_program,  ///< a coroutine or thread of this process: must set, release, send, receive or close something
    outside,       ///< something outside of the program, such as a signal
    this_scheduler,  ///< this scheduler, at one of its next turns: if it does not, a coroutine keeps its thread
    time,            ///< no party: it ends when its time has come
    peer_connect,    ///< a peer must connect
    peer_accept,     ///< the listener's scheduler must run, or the network must reach it
    peer_send,       ///< the peer must send a message that matches
    peer_receive,    ///< the peer must receive this message
    credit,  ///< this side's credit is used up: the peer must run, and receive this message or those that it stores
    peer_poll,  ///< the peer's scheduler must run: what it needs was sent to it
    device,     ///< the network adapter of this side
    network,    ///< the network, or the kernel's part of it
};

/// Its text for people, such as "the peer must receive this message".
[[nodiscard]] constexpr const char* text_of(next_actor who) noexcept {
    switch (who) {
        case next_actor::this_program: return "this program must act";
        case next_actor::outside: return "something outside this program must act";
        case next_actor::this_scheduler: return "this scheduler's next turns do the rest";
        case next_actor::time: return "ends by itself";
        case next_actor::peer_connect: return "a peer must connect";
        case next_actor::peer_accept: return "the listener's scheduler must run, and the network reach it";
        case next_actor::peer_send: return "the peer must send a message that matches";
        case next_actor::peer_receive: return "the peer must receive this message";
        case next_actor::credit:
            return "this side's credit is used up: the peer must run, and receive this message or those "
                   "that it stores";
        case next_actor::peer_poll: return "the peer's scheduler must run";
        case next_actor::device: return "this side's adapter must finish";
        case next_actor::network: return "the network must move it";
    }
    return "";
}

}  // namespace rdmacoro

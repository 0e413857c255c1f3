// The protocol lists that --protocol can name, for one transport.
#pragma once

#include "session.hpp"
#include "transports.hpp"

#include <rdmacoro/protocol/protocols.hpp>

#include <array>

namespace pingpong {

template <class Transport, class List>
[[nodiscard]] constexpr protocol_entry entry_of(std::string_view name, std::string_view description) {
    return {name, description, &connect_side<Transport, List>, &listen_side<Transport, List>,
            &explain_side<Transport, List>};
}

/// A list added here can be measured; nothing else names them.
template <class Transport>
inline constexpr std::array<protocol_entry, 3> lists_over{
    entry_of<Transport, rdmacoro::default_protocols<Transport>>("default", "the library's own choice"),
    entry_of<Transport, rdmacoro::protocols<rdmacoro::eager<>>>("eager", "only messages that fit one piece"),
    entry_of<Transport, rdmacoro::protocols<rdmacoro::segmented<>>>("segmented",
                                                                    "every message announced and in pieces"),
};

}  // namespace pingpong

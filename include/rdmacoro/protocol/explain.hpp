// explain<Transport, Protocols>(): which policy carries which message, as a table.
#pragma once

#include <rdmacoro/protocol/protocols.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace rdmacoro {

/// One line of the table: messages from `first` to `last` bytes go by the policy of this index and name.
struct protocol_range {
    std::size_t first = 0;     ///< from this length, in bytes
    std::size_t last = 0;      ///< to this length, included
    bool synchronous = false;  ///< of `ssend`, not of `send`
    std::size_t policy = 0;    ///< its index in the list; `protocols::none`: no policy admits these
    std::string name;          ///< the policy's name
    std::string description;   ///< how it carries a message
};

/// The ranges of sizes and their policies, for a link with these capabilities; first the ranges of plain sends, then of
/// synchronous ones.
template <protocol_list Protocols>
[[nodiscard]] std::vector<protocol_range> protocol_ranges(const capabilities& link) {
    std::vector<protocol_range> ranges;
    for (const bool synchronous : {false, true}) {
        std::size_t first = 0;
        for (;;) {
            const std::size_t policy = Protocols::choose({first, synchronous}, link);
            std::size_t last = static_cast<std::size_t>(-1);
            for (std::size_t i = 0; i < Protocols::count; ++i) {
                const std::size_t limit = Protocols::longest_of(i, link);
                if (limit >= first && limit < last &&
                    Protocols::choose({limit + 1, synchronous}, link) != policy)
                    last = limit;
                const std::size_t from = Protocols::shortest_of(i, link);
                if (from > first && from - 1 < last && Protocols::choose({from, synchronous}, link) != policy)
                    last = from - 1;
            }
            ranges.push_back({first, last, synchronous, policy, std::string(Protocols::name_of(policy)),
                              std::string(Protocols::description_of(policy))});
            if (last == static_cast<std::size_t>(-1)) break;
            first = last + 1;
        }
    }
    return ranges;
}

/// The table of a transport's protocols for people. `link`: the capabilities of a connected link, or the transport's
/// static ones.
template <class Transport, protocol_list Protocols = default_protocols<Transport>>
[[nodiscard]] std::string explain(const capabilities& link = Transport::static_capabilities) {
    const auto text_of = [](std::size_t bytes) {
        if (bytes == static_cast<std::size_t>(-1)) return std::string("any");
        return std::to_string(bytes);
    };
    std::string table = std::string(Transport::name) + " (" + std::string(Transport::description) +
                        "), protocols: " + Protocols::text() + "\n";
    table += "  from        to          send   policy      how\n";
    for (const protocol_range& range : protocol_ranges<Protocols>(link)) {
        const auto column = [](std::string text, std::size_t width) {
            text.resize(std::max(width, text.size() + 1), ' ');
            return text;
        };
        table += "  " + column(text_of(range.first), 12) + column(text_of(range.last), 12) +
                 column(range.synchronous ? "ssend" : "send", 7) + column(range.name, 12) +
                 range.description + "\n";
    }
    table += "  get/put: ";
    if (!link.one_sided) {
        table += "not on this transport\n";
    } else if (link.one_sided_offloaded) {
        table += "without the peer's scheduler\n";
    } else {
        table += "served by the peer's scheduler\n";
    }
    return table;
}

}  // namespace rdmacoro

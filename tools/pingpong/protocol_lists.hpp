// The protocol lists that --protocol can name, for one transport.
#pragma once

#include "list_names.hpp"
#include "peer_over.hpp"
#include "transports.hpp"

#include <vector>

namespace pingpong {

template <class Transport>
[[nodiscard]] std::vector<protocol_entry> lists_over() {
    std::vector<protocol_entry> lists;
    const auto add = [&]<class List>(list_name named) {
        lists.push_back({named.name, named.description, &connect_over<Transport, List>,
                         &listen_over<Transport, List>, [] { return rdmacoro::explain<Transport, List>(); }});
    };
    for_each_list<Transport>(add);
    // To look at one policy alone.
    using rdmacoro::protocols;
    add.template operator()<protocols<rdmacoro::eager<>>>({"eager-only", "only messages that fit one piece"});
    add.template operator()<protocols<rdmacoro::segmented<>>>(
        {"segmented", "every message announced and in pieces"});
    return lists;
}

}  // namespace pingpong

// The protocol lists that --protocol can name, as types.
#pragma once

#include <rdmacoro/protocol/cooperative_rendezvous.hpp>
#include <rdmacoro/protocol/get_rendezvous.hpp>
#include <rdmacoro/protocol/protocols.hpp>
#include <rdmacoro/protocol/put_rendezvous.hpp>
#include <rdmacoro/protocol/reuse_aware_eager.hpp>
#include <rdmacoro/protocol/speculative.hpp>
#include <rdmacoro/protocol/staged_get.hpp>

#include <string_view>

namespace pingpong {

/// A list's name and what it is, for people.
struct list_name {
    std::string_view name;
    std::string_view description;
};

/// Calls `visit.template operator()<List>(name)` for each list over `Transport`, in the order in which they are shown. A
/// list added here can be measured by every program; nothing else names them.
template <class Transport, class Visit>
constexpr void for_each_list(Visit&& visit) {
    using namespace rdmacoro;
    visit.template operator()<default_protocols<Transport>>(list_name{"auto", "the library's own choice"});
    visit.template operator()<protocols<eager<>, segmented<>>>(
        list_name{"eager", "copied when short, announced and in pieces when long"});
    visit.template operator()<protocols<eager<>, get_rendezvous<>, segmented<>>>(
        list_name{"get", "the receiver gets long messages"});
    visit.template operator()<protocols<eager<>, staged_get<>, get_rendezvous<>, segmented<>>>(
        list_name{"staged", "the receiver gets medium messages from the sender's pool, and long ones"});
    visit.template operator()<protocols<eager<>, put_rendezvous<>, segmented<>>>(
        list_name{"put", "the sender puts long messages where the receiver says"});
    visit.template operator()<protocols<eager<>, speculative<get_rendezvous<>>, segmented<>>>(list_name{
        "speculative", "the sender puts long messages where the receiver said before it was asked"});
    visit.template operator()<protocols<eager<>, cooperative_rendezvous<>, segmented<>>>(
        list_name{"cooperative", "both sides copy long messages together"});
    visit.template operator()<protocols<reuse_aware_eager<>, segmented<>>>(
        list_name{"reuse", "short messages from where they lie when sent from there often"});
}

}  // namespace pingpong

// node_discovery: nodes find each other's cards by datagrams to a list of hosts.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/service/detail/node_core.hpp>
#include <rdmacoro/service/node.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace rdmacoro {

/// How a node asks others for their cards.
struct discovery_options {
    /// The time between two questions to a host of the list that has not been found; a millisecond at least.
    duration interval = std::chrono::milliseconds(500);
    /// Only nodes of the same group find each other.
    std::uint64_t group = 0;
    /// Cards of it that the book has at a time, at most; `node::remove` makes room.
    std::size_t most_nodes = 4096;
    /// Questions that it answers in an interval, at most.
    std::size_t most_answers = 4096;
    /// Whether the card in a question is added to the book, too. Without it only answers from the hosts of the list are.
    bool learns_from_questions = true;
};

namespace detail {
class discovery_state;
}

/// Asks the hosts of a list, by UDP, for the cards of the nodes there, adds those to the address book of a node, and answers the questions of
/// others. A host that has answered is not asked again, until the connection to its node is lost or cannot be made: then it is back in
/// the list. Cards that the user adds, before or after, are not changed.
///
/// Datagrams are neither secret nor signed: in a network with strangers give the cards by `node::add` instead. Each is checked byte
/// for byte, an answer is only taken for a question that was asked, and an answer is at most twice as long as its question.
///
/// Destroyed before its node. For the scheduler's thread of the node.
class node_discovery {
public:
    /// Listens at `at`, such as "0.0.0.0:7470": an address in numbers; port 0 for any. Throws `errc::address_invalid`,
    /// `errc::address_in_use`, `errc::no_resources`.
    template <transport... Ts>
    node_discovery(node<Ts...>& of, std::string_view at, const discovery_options& options = {})
        : node_discovery(core_of(of), at, options) {}
    node_discovery(const node_discovery&) = delete;
    node_discovery& operator=(const node_discovery&) = delete;
    ~node_discovery();

    /// "127.0.0.1:7470": the address where it listens.
    [[nodiscard]] std::string address() const;
    /// Asks this host, too: "alpha:7470". May name this node itself. Of a name each address is asked in turn, and the name is looked up again
    /// while none answers. A host that is in the list already is asked again. Throws
    /// `errc::address_invalid` for what is no host and port.
    void add_host(std::string_view where);
    /// Takes it out of the list; a card that it has given stays in the book. False: it was not there.
    bool remove_host(std::string_view where);
    /// Hosts of the list that are being asked: not found yet, or lost.
    [[nodiscard]] std::size_t missing() const noexcept;
    /// Datagrams that were not of a node of this group and version, or did not answer a question.
    [[nodiscard]] std::uint64_t refused() const noexcept;

private:
    template <transport... Ts>
    [[nodiscard]] static detail::node_core& core_of(node<Ts...>& of) noexcept {
        return *of.state_;
    }
    node_discovery(detail::node_core& of, std::string_view at, const discovery_options& options);

    std::unique_ptr<detail::discovery_state> state_;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/node_discovery.ipp>
#endif

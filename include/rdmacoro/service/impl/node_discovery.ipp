// Bodies of node_discovery.hpp.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/udp_socket.hpp>
#include <rdmacoro/service/node_discovery.hpp>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <unordered_set>
#include <vector>

namespace rdmacoro::detail {

inline constexpr std::uint32_t discovery_mark = 0x6b736165;
inline constexpr std::uint16_t discovery_version = 1;
inline constexpr decode_limits discovery_limits{.bytes = 64 * udp_socket::most_bytes, .depth = 5};

struct discovery_message {
    std::uint32_t mark = discovery_mark;
    std::uint16_t version = discovery_version;
    bool answers = false;
    std::uint64_t group = 0;
    std::uint64_t token = 0;  // of the question
    node_card from{};
};

class discovery_state {
public:
    struct host {
        std::string where;
        inet_address address;
        std::optional<inet_endpoint> to{};  // resolved
        std::uint64_t token = 0;            // of its questions; an answer has to know it
        node_id found = 0;
    };

    discovery_state(node_core& of, std::string_view at, const discovery_options& given)
        : core(&of),
          options(given),
          socket(of.owner, at, &discovery_state::arrived, this),
          changes(of, 1024) {
        working.on_error([](std::exception_ptr) {});  // ends with the node, or for lack of memory
        working.spawn(ask, this);
        working.spawn(watch, this);
    }

    static task<> ask(discovery_state* self) {
        for (;;) {
            self->answered = 0;
            // The list may change while a name is looked up.
            for (std::size_t n = 0; n < self->hosts.size(); ++n) {
                if (self->hosts[n].found != 0) continue;
                if (!self->hosts[n].to) {
                    const std::uint64_t token = self->hosts[n].token;
                    const auto found = co_await as_result(inet_resolve(self->hosts[n].address, 0));
                    if (!found || found->endpoints.empty()) continue;  // in the next round, perhaps
                    if (n >= self->hosts.size() || self->hosts[n].token != token) continue;
                    self->hosts[n].to = found->endpoints.front();
                }
                self->say(false, self->hosts[n].token, *self->hosts[n].to);
            }
            const result<void> waited =
                co_await as_result(timeout(self->hurry.wait(), self->options.interval));
            if (!waited && waited.error() != errc::timed_out) throw error(waited.error());
            self->hurry.reset();
        }
    }
    static task<> watch(discovery_state* self) {
        for (;;) {
            const node_event change = co_await self->changes.next();
            if (change.what == node_change::left || change.what == node_change::failed) self->lost(change.id);
        }
    }
    void lost(node_id id) noexcept {
        for (host& one : hosts) {
            if (one.found != id) continue;
            one.found = 0;
            one.to.reset();  // a name may lead elsewhere now
            // Late answers to former questions are of the life that is over.
            one.token = one.token * 6364136223846793005u + 1442695040888963407u;
        }
        if (!learned.contains(id)) return;
        // Until it is found again: in whichever generation it is there.
        if (const counted_ptr<node_peer> of = core->find(id)) of->card.born = {};
    }

    void say(bool answers, std::uint64_t token, const inet_endpoint& to) {
        if (core->self.urls.empty() && answers) return;
        discovery_message out;
        out.answers = answers;
        out.group = options.group;
        out.token = token;
        out.from = core->self;
        socket.send(encode(out), to);
    }

    static void arrived(void* of, std::span<const std::byte> bytes, const inet_endpoint& from) noexcept {
        auto* const self = static_cast<discovery_state*>(of);
        try {
            if (!self->take(bytes, from)) ++self->refused;
        } catch (const std::exception&) {
            ++self->refused;  // no memory: it will be asked again
        }
    }
    bool take(std::span<const std::byte> bytes, const inet_endpoint& from) {
        const auto in = decode<discovery_message>(bytes, discovery_limits);
        if (!in || in->mark != discovery_mark || in->version != discovery_version ||
            in->group != options.group)
            return false;
        const node_card& card = in->from;
        if (card.fault() != nullptr || card.born == generation{}) return false;
        if (in->answers) {
            const auto asked = std::find_if(hosts.begin(), hosts.end(), [&](const host& one) {
                return one.token == in->token && one.found == 0;
            });
            if (asked == hosts.end()) return false;
            if (card.id != core->self.id && !learn(card)) return false;
            asked->found = card.id;
            return true;
        }
        if (card.id == core->self.id && card.born != core->self.born)
            return false;  // another one with this id
        if (card.id != core->self.id && options.learns_from_questions && !card.urls.empty())
            static_cast<void>(learn(card));
        if (answered < options.most_answers) {
            ++answered;
            say(true, in->token, from);
        }
        return true;
    }
    /// False: there is no room for it.
    bool learn(const node_card& card) {
        const counted_ptr<node_peer> known = core->find(card.id);
        const bool ours = learned.contains(card.id);
        if (known && known->listed && !ours) return true;  // the user's
        if (known && known->listed && known->card == card) return true;
        // A connection says more about its node than a datagram.
        if (known && known->open() != nullptr && known->open()->born != card.born) return true;
        if (!ours && learned.size() >= options.most_nodes) return false;
        core->add(card);
        learned.insert(card.id);
        return true;
    }

    counted_ptr<node_core> core;
    discovery_options options;
    udp_socket socket;
    node_watch changes;
    std::vector<host> hosts;
    std::unordered_set<node_id> learned;
    std::size_t answered = 0;  // in this interval
    std::uint64_t refused = 0;
    event hurry;
    task_group working;
};

}  // namespace rdmacoro::detail

namespace rdmacoro {

RDMACORO_COLD node_discovery::node_discovery(detail::node_core& of, std::string_view at,
                                             const discovery_options& options)
    : state_(std::make_unique<detail::discovery_state>(of, at, options)) {}
RDMACORO_COLD node_discovery::~node_discovery() = default;

RDMACORO_COLD std::string node_discovery::address() const { return state_->socket.address(); }

RDMACORO_COLD void node_discovery::add_host(std::string_view where) {
    detail::inet_address address = detail::inet_address::parse("udp", where, ", such as alpha:7470");
    static_cast<void>(remove_host(where));
    state_->hosts.push_back({.where = std::string(where),
                             .address = std::move(address),
                             .token = static_cast<std::uint64_t>(new_generation())});
    state_->hurry.set();
}
RDMACORO_COLD bool node_discovery::remove_host(std::string_view where) {
    return std::erase_if(state_->hosts,
                         [&](const detail::discovery_state::host& one) { return one.where == where; }) != 0;
}
RDMACORO_COLD std::size_t node_discovery::missing() const noexcept {
    return static_cast<std::size_t>(
        std::count_if(state_->hosts.begin(), state_->hosts.end(),
                      [](const detail::discovery_state::host& one) { return one.found == 0; }));
}
RDMACORO_COLD std::uint64_t node_discovery::refused() const noexcept { return state_->refused; }

}  // namespace rdmacoro

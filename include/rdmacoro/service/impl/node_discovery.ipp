// Bodies of node_discovery.hpp.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/semaphore.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/udp_socket.hpp>
#include <rdmacoro/service/node_discovery.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <list>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

inline constexpr std::uint32_t discovery_mark = 0x6b736165;
inline constexpr std::uint16_t discovery_version = 2;
inline constexpr decode_limits discovery_limits{.bytes = 64 * udp_socket::most_bytes, .depth = 5};

struct discovery_message {
    std::uint32_t mark = discovery_mark;
    std::uint16_t version = discovery_version;
    bool answers = false;
    std::uint64_t group = 0;
    std::uint64_t token = 0;  // of the question
    node_card from{};
    std::string
        room{};  // of a question: its answer is not much longer, lest strangers have much sent to the address that they name
};
/// An answer is at most so many times as long as its question.
inline constexpr std::size_t answer_to_question = 2;
/// In bytes. The answer to it may be as long as one with the longest card; neither is cut in pieces on its way.
inline constexpr std::size_t shortest_question = 544;
/// So many questions to the addresses of a name, one to each at least: then the name is looked up again.
inline constexpr std::size_t questions_to_addresses = 8;

class discovery_state {
public:
    struct host {
        std::string where;
        inet_address address;
        bool by_name = false;             // and not in numbers
        std::vector<inet_endpoint> at{};  // resolved; asked in turn
        std::size_t turn = 0;             // of them
        std::size_t unanswered = 0;       // questions since it was looked up
        bool looked_up = false;           // at the moment
        std::uint64_t token = 0;          // of its questions; an answer has to know it
        node_id found = 0;
    };
    using host_list = std::list<host>;

    discovery_state(node_core& of, std::string_view at, const discovery_options& given)
        : core(&of),
          options(given),
          socket(of.owner, at, &discovery_state::arrived, this),
          changes(of, 1024) {
        options.interval = std::max<duration>(options.interval, std::chrono::milliseconds(1));
        working.on_error([](std::exception_ptr) {});  // ends with the node, or for lack of memory
        begin(ask(this));
        begin(watch(this));
    }
    /// Its frame is there already: where there is no memory this throws, and nothing has begun.
    void begin(task<> what) { working.spawn(as_it_is, std::move(what)); }

    // The list.

    void add(std::string_view where) {
        inet_address address = inet_address::parse("udp", where, ", such as alpha:7470");
        const std::optional<inet_endpoint> numbers = udp_socket::in_numbers(address);
        static_cast<void>(remove(where));
        host_list one;
        host& made = one.emplace_back();
        made.where = where;
        made.address = std::move(address);
        made.by_name = !numbers;
        if (numbers) made.at.push_back(*numbers);
        made.token = static_cast<std::uint64_t>(new_generation());
        by_token.emplace(made.token, one.begin());
        try {
            by_name.emplace(made.where, one.begin());
        } catch (...) {
            by_token.erase(made.token);
            throw;
        }
        missing.splice(missing.end(), one);
        question(made);
    }
    bool remove(std::string_view where) noexcept {
        const auto at = by_name.find(where);
        if (at == by_name.end()) return false;
        const host_list::iterator one = at->second;
        by_name.erase(at);
        by_token.erase(one->token);
        if (one->found == 0) {
            pass(one);
            missing.erase(one);
        } else {
            forget_node(one);
            found.erase(one);
        }
        return true;
    }
    /// The round that is under way does not come to it.
    void pass(host_list::iterator one) noexcept {
        if (turn == one) ++turn;
    }
    void forget_node(host_list::iterator one) noexcept {
        for (auto [at, end] = by_node.equal_range(one->found); at != end; ++at) {
            if (at->second != one) continue;
            by_node.erase(at);
            return;
        }
    }
    void has_answered(host_list::iterator one, node_id id) {
        by_node.emplace(id, one);
        one->found = id;
        pass(one);
        found.splice(found.end(), missing, one);
    }
    void is_lost(host_list::iterator one) noexcept {
        forget_node(one);
        one->found = 0;
        // Its name may lead elsewhere now.
        one->unanswered = std::max(one->at.size(), questions_to_addresses);
        one->looked_up = false;
        // Late answers to former questions are of the life that is over.
        auto known = by_token.extract(one->token);
        one->token = one->token * 6364136223846793005u + 1442695040888963407u;
        known.key() = one->token;
        by_token.insert(std::move(known));
        missing.splice(missing.end(), found, one);
    }

    // The questions.

    static task<> ask(discovery_state* self) {
        constexpr unsigned most_at_once = 8;  // some 50 microseconds
        for (;;) {
            self->answered = 0;
            unsigned asked = 0;
            for (self->turn = self->missing.begin(); self->turn != self->missing.end();) {
                self->question(*self->turn++);
                if (++asked % most_at_once == 0) co_await yield();
            }
            const auto slept = co_await as_result(sleep_for(self->options.interval));
            if (!slept && slept.error() != errc::no_resources) throw error(slept.error());
            co_await yield();
        }
    }
    /// Asks it at the next of its addresses; of a name also for those, again and again while none answers.
    void question(host& one) noexcept {
        const bool stale =
            one.at.empty() || one.unanswered >= std::max(one.at.size(), questions_to_addresses);
        try {
            if (one.by_name && stale && !one.looked_up) {
                begin(look_up(this, one.token, one.address));
                one.looked_up = true;
            }
            if (one.at.empty()) return;
            const std::vector<std::byte> bytes = question_of(one.token);
            // A host that this socket cannot reach at one of them, as of another family, is asked at the next.
            for (std::size_t tries = 0; tries < one.at.size(); ++tries) {
                if (socket.send(bytes, one.at[one.turn++ % one.at.size()])) break;
            }
            ++one.unanswered;
        } catch (const std::exception&) {}  // no memory: in the next round
    }
    /// Beside the questions: the system may take many seconds for a name.
    static task<> look_up(discovery_state* self, std::uint64_t token, inet_address address) {
        co_await self->look_ups.acquire();
        std::optional<result<inet_resolved>> answer;
        try {
            answer.emplace(co_await as_result(inet_resolve(std::move(address), 0)));
        } catch (const std::bad_alloc&) {}
        self->look_ups.release();
        const auto at = self->by_token.find(token);
        if (at == self->by_token.end()) co_return;  // no longer in the list
        host& one = *at->second;
        one.looked_up = false;
        if (!answer || !*answer || (*answer)->endpoints.empty()) co_return;  // in the next round, perhaps
        one.at = std::move((*answer)->endpoints);
        one.turn = one.unanswered = 0;
        if (one.found == 0) self->question(one);
    }
    static task<> watch(discovery_state* self) {
        for (;;) {
            node_event change;
            bool told = true;
            try {
                change = co_await self->changes.next();
            } catch (const std::bad_alloc&) {
                told = false;  // it stays in the queue
            }
            if (!told) {
                co_await yield();
                continue;
            }
            if (change.missed != 0) self->look_for_lost();
            if (change.what == node_change::left || change.what == node_change::failed) self->lost(change.id);
        }
    }
    void lost(node_id id) noexcept {
        for (auto at = by_node.find(id); at != by_node.end(); at = by_node.find(id)) is_lost(at->second);
        if (const counted_ptr<node_peer> of = core->find(id)) any_life(*of);
    }
    /// Until it is found again: in whichever generation it is there.
    static void any_life(node_peer& of) noexcept {
        if (of.learned) of.card.born = {};
    }
    /// Changes were missed: all nodes that no connection leads to are looked for again.
    void look_for_lost() noexcept {
        for (auto one = found.begin(); one != found.end();) {
            const auto each = one++;
            const counted_ptr<node_peer> of = core->find(each->found);
            if (each->found != core->self.id && (!of || of->open() == nullptr)) is_lost(each);
        }
        for (auto& [id, of] : core->peers) {
            if (of->open() == nullptr) any_life(*of);
        }
    }

    [[nodiscard]] discovery_message message_of(std::uint64_t token) const {
        discovery_message out;
        out.group = options.group;
        out.token = token;
        out.from = core->self;
        return out;
    }
    [[nodiscard]] std::vector<std::byte> question_of(std::uint64_t token) const {
        discovery_message out = message_of(token);
        const std::size_t without = encode(out).size();
        if (without < shortest_question) out.room.resize(shortest_question - without);
        return encode(out);
    }
    void send_answer(std::uint64_t token, const inet_endpoint& to, std::size_t question) {
        if (core->self.urls.empty()) return;
        discovery_message out = message_of(token);
        out.answers = true;
        const auto bytes = encode(out);
        if (bytes.size() <= answer_to_question * question) socket.send(bytes, to);
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
            const auto asked = by_token.find(in->token);
            if (asked == by_token.end() || asked->second->found != 0) return false;
            if (card.id != core->self.id && !learn(card)) return false;
            has_answered(asked->second, card.id);
            return true;
        }
        if (card.id == core->self.id && card.born != core->self.born)
            return false;  // another one with this id
        if (card.id != core->self.id && options.learns_from_questions && !card.urls.empty())
            static_cast<void>(learn(card));
        if (answered < options.most_answers) {
            ++answered;
            send_answer(in->token, from, bytes.size());
        }
        return true;
    }
    /// False: there is no room for it.
    bool learn(const node_card& card) {
        const counted_ptr<node_peer> known = core->find(card.id);
        const bool ours = known && known->learned;
        if (known && known->listed && !ours) return true;  // the user's
        if (ours && known->card == card) return true;
        // A connection says more about its node than a datagram.
        if (known && known->open() != nullptr && known->open()->born != card.born) return true;
        if (!ours && core->learned_cards >= options.most_nodes) return false;
        core->add(card);
        core->find(card.id)->learned = true;
        ++core->learned_cards;
        return true;
    }

    counted_ptr<node_core> core;
    discovery_options options;
    udp_socket socket;
    node_watch changes;
    host_list missing;                         // that are asked
    host_list found;                           // that have answered
    host_list::iterator turn = missing.end();  // of the round of questions: the next one
    std::unordered_map<std::string_view, host_list::iterator> by_name;
    std::unordered_map<std::uint64_t, host_list::iterator> by_token;
    std::unordered_multimap<node_id, host_list::iterator> by_node;  // those that have answered
    std::size_t answered = 0;                                       // in this interval
    std::uint64_t refused = 0;
    semaphore look_ups{8};  // each takes a thread
    task_group working;
};

}  // namespace rdmacoro::detail

namespace rdmacoro {

RDMACORO_COLD node_discovery::node_discovery(detail::node_core& of, std::string_view at,
                                             const discovery_options& options)
    : state_(std::make_unique<detail::discovery_state>(of, at, options)) {}
RDMACORO_COLD node_discovery::~node_discovery() = default;

RDMACORO_COLD std::string node_discovery::address() const { return state_->socket.address(); }

RDMACORO_COLD void node_discovery::add_host(std::string_view where) { state_->add(where); }
RDMACORO_COLD bool node_discovery::remove_host(std::string_view where) { return state_->remove(where); }
RDMACORO_COLD std::size_t node_discovery::missing() const noexcept { return state_->missing.size(); }
RDMACORO_COLD std::uint64_t node_discovery::refused() const noexcept { return state_->refused; }

}  // namespace rdmacoro

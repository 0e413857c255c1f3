// Everything that a peer can say to the rendezvous policies and to `speculative`, and do with the memory that they open to
// him, between what a user does meanwhile over a link that changes its ways. The input is a script: its first bytes choose
// the protocol list and the kind of link, the others what happens. The peer names memory of its own, so that gets and puts
// succeed, as often as memory that is not its own; and now and then any number is wrong. Nothing may crash, wait for ever, keep
// more than the budget, touch what is not named, or touch a buffer when its operation has ended.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/endpoint.hpp>

#include "fuzz/script.hpp"
#include "fuzz/user.hpp"
#include "support/scripted_peer.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::detail;

namespace {

constexpr std::size_t longest = 5000;        // bytes of a message
constexpr std::size_t short_message = 64;    // bytes of the longest eager one
constexpr std::size_t most_remembered = 24;  // of each that the endpoint said

/// The other end: says what the script wants, and knows enough of what it heard to be believed.
template <protocol_list List>
class hostile_peer {
public:
    hostile_peer(scheduler& on, script& input, const mailbox_options& least)
        : input_(input), peer_(on, least) {
        const std::uint8_t link = input_.byte();
        capabilities& offered = peer_.wire().offered;
        offered.revokes_at_once = link % 4 != 0;
        offered.get_alignment = (link & 4) != 0 ? 8 : 1;
        offered.eager_bytes = short_message;
        add_memory(8 * longest, access_rights::all);
    }

    [[nodiscard]] auto& self() noexcept { return peer_.self(); }
    [[nodiscard]] basic_scripted_peer<List>& wire() noexcept { return peer_; }
    void send_hello() { peer_.send_hello(1u << 20); }

    /// Says or does one thing.
    void act() {
        listen();
        switch (input_.byte() % 16) {
            case 0:
            case 1:
            case 2: ask(); break;
            case 3:
            case 4:
            case 5: answer_request(); break;
            case 6:
            case 7: answer_ready(); break;
            case 8: answer_control(); break;
            case 9: send_anything(); break;
            case 10: touch(); break;
            case 11: change_memory(); break;
            case 12: send_short(); break;
            case 13: announce(); break;
            case 14: claim(); break;
            default: finish(); break;
        }
    }

    /// The link changes its ways, in both directions.
    void change_weather() {
        constexpr std::size_t any = loopback_lane::unlimited;
        loopback_lane& theirs = peer_.to_peer();
        loopback_lane& ours = peer_.from_peer();
        const std::uint8_t how = input_.byte();
        const std::uint8_t much = input_.byte();
        theirs.held = how % 8 == 1;
        theirs.room = how % 8 == 2 ? much % 4 : any;
        theirs.one_sided_room = how % 8 == 3 ? much % 4 : any;
        theirs.one_sided_steps = how % 8 == 4 ? much % 4 : any;
        theirs.exposures = how % 8 == 5 ? much % 4 : any;
        theirs.defers_one_sided = (how & 8) != 0;
        theirs.helps = (how & 16) == 0;
        theirs.claims = (how & 32) == 0 ? 4 : 0;
        ours.held = how % 8 == 6;
        // Where the end of a region stops nothing, a buffer is safe from a peer that lies about the end of its puts only
        // if they are over at once.
        ours.defers_one_sided = (how & 64) != 0 && peer_.wire().offered.revokes_at_once;
        ours.helps = (how & 128) == 0;
    }
    void calm() {
        constexpr std::size_t any = loopback_lane::unlimited;
        for (loopback_lane* lane : {&peer_.to_peer(), &peer_.from_peer()}) {
            lane->held = false;
            lane->room = lane->one_sided_room = lane->one_sided_steps = lane->exposures = any;
            lane->helps = true;
        }
    }

    /// The endpoint's messages since it was last asked for them.
    void listen() {
        for (const heard_message& m : peer_.heard()) note(m);
        peer_.heard().clear();
    }

    /// None of the endpoint's memory for which `is_over(address)` is open to us.
    template <class IsOver>
    void check_exposed(IsOver is_over) {
        const auto& regions = peer_.wire().domains[1]->regions();
        for (const remote_region& r : exposed_) {
            const bool open = regions.check(r.key, r.address, r.length, access_rights::none) == errc::ok;
            demand(!open || !is_over(r.address));
        }
    }

    /// The regions that are left in the domain of both are ours, and around ours nothing was touched, nor in what we have
    /// taken back.
    void check() {
        std::size_t open = 0;
        for (owned& o : owned_) {
            demand(o.memory.guards_intact());
            if (o.readable_only || (o.taken_back && peer_.wire().offered.revokes_at_once))
                demand(o.memory.filled(mark));
            if (o.open) ++open;
        }
        demand(peer_.wire().domains[1]->regions().registered() == open);
    }

private:
    static constexpr std::byte mark{0xc3};  // in our memory, before anything is put to it
    static constexpr auto first = static_cast<std::uint8_t>(first_policy_kind + eager<>::kinds);
    static constexpr unsigned behind = rendezvous_kinds;  // of `speculative`: its own kinds
    static constexpr bool speculates = List::speculates;
    static constexpr unsigned kinds = speculates || List::count > 2 ? behind + speculation_kinds : behind;

    struct owned {
        owned(std::size_t bytes, bool read_only) : memory(bytes), readable_only(read_only) {
            memory.fill(mark);
        }
        guarded_memory memory;
        bool readable_only;
        bool taken_back = false;
        region open{};
        std::uint64_t key = 0;
    };
    /// A message of ours, by its stream.
    struct mine {
        bool busy = false;
        std::uint8_t turn = 0;
        std::uint64_t length = 0;
        shared_copy_id copy = no_shared_copy;
    };
    /// A message of the endpoint's.
    struct request {
        std::uint32_t stream;
        std::uint8_t turn;
        bool answered = false;
        std::uint64_t put = 0;  // bytes that were asked for so far
        rendezvous_request_body body;
    };
    /// Where the endpoint wants something put.
    struct place {
        std::uint32_t stream;
        std::uint8_t flags;
        tag_type tag = 0;
        std::uint64_t offset = 0;
        remote_pieces there;
    };

    // ---- what the endpoint says

    void note(const heard_message& m) {
        const auto id = static_cast<std::uint32_t>(m.header.tag);
        if (m.header.kind == static_cast<std::uint8_t>(wire_kind::eager)) ++seen_;
        if (m.header.kind < first) return;
        switch (m.header.kind - first) {
            case rendezvous_request: {
                ++seen_;
                request r{};
                demand(r.body.load(m.payload));  // it speaks the protocol, whatever it hears
                r.stream = r.body.stream;
                r.turn = m.header.flags;
                remember(r.body.source);
                remember(requests_, r);
                break;
            }
            case rendezvous_ready: {
                rendezvous_ready_body body;
                demand(body.load(m.payload));
                remember(body.destination);
                remember(ready_, place{id, m.header.flags, 0, body.offset, body.destination});
                break;
            }
            case rendezvous_received:
            case rendezvous_gone: over(id); break;
            case rendezvous_sent:
                for (request& r : requests_) {
                    if (r.stream == id) r.answered = false;
                }
                std::erase_if(requests_, [&](const request& r) {
                    return r.stream == id && (m.header.flags != 0 || r.put >= r.body.length);
                });
                break;
            case behind + speculation_announce: {
                if constexpr (!speculates) return;
                announcement_body body;
                demand(body.load(m.payload));
                remember(body.destination);
                remember(announced_, place{body.number, 0, m.header.tag, 0, body.destination});
                break;
            }
            case behind + speculation_claim: ++seen_; break;
            case behind + speculation_finish:
            case behind + speculation_withdrawn: free_numbers_.push_back(id); break;
            default: remember(said_, m.header); break;
        }
    }
    template <class T>
    static void remember(std::deque<T>& list, const T& what) {
        list.push_back(what);
        if (list.size() > most_remembered) list.pop_front();
    }
    void remember(const remote_pieces& pieces) {
        for (std::uint32_t i = 0; i < pieces.count; ++i)
            remember(exposed_, remote_region{pieces.at[i].address, pieces.at[i].length, pieces.at[i].key});
    }
    /// The newest more often than others; nullptr: there is none.
    template <class T>
    T* some(std::deque<T>& list) {
        if (list.empty()) return nullptr;
        const std::uint8_t drawn = input_.byte();
        return &list[list.size() - 1 - (drawn < 160 ? 0 : drawn % list.size())];
    }
    void over(std::uint32_t stream) {
        mine& m = mine_[stream];
        if (!m.busy) return;
        m.busy = false;
        m.turn ^= 1;
        if (m.copy != no_shared_copy) peer_.link().close_shared_copy(std::exchange(m.copy, no_shared_copy));
    }

    // ---- what we say

    /// Mostly the truth.
    template <class Number>
    Number lie(Number truth) {
        const std::uint8_t drawn = input_.byte();
        if (drawn == 255) return static_cast<Number>(input_.number());
        if (drawn >= 252) return static_cast<Number>(truth + (drawn == 254 ? 1u : static_cast<Number>(-1)));
        return truth;
    }
    void say(unsigned kind, std::uint64_t tag, std::span<const std::byte> payload = {},
             std::uint8_t flags = 0) {
        peer_.send_raw(static_cast<std::uint8_t>(first + kind), tag, payload, 0, flags);
    }

    /// Pieces of our memory, `bytes` long together.
    remote_pieces pieces(std::uint64_t bytes) {
        remote_pieces made;
        std::size_t wanted = 1;
        const std::uint8_t drawn = input_.byte();
        if (drawn >= 128) wanted += drawn % remote_pieces::most;
        while (made.count < wanted) {
            const bool last = made.count + 1 == wanted;
            owned& o = owned_[wanted == 1 && drawn < 100 ? 0 : input_.byte() % owned_.size()];
            const std::span<std::byte> all = o.memory.first();
            const std::size_t skip = drawn % 2 == 0 ? 0 : drawn % (all.size() + 1);
            const std::uint64_t now =
                last ? bytes : std::min<std::uint64_t>({all.size() - skip, bytes, bytes / wanted + 1});
            made.add({reinterpret_cast<std::uint64_t>(all.data()) + skip, now, o.key});
            bytes -= now;
        }
        if (input_.byte() >= 250) {
            auto& spoiled = made.at[input_.byte() % made.count];
            spoiled.length = lie(spoiled.length + input_.number());
            spoiled.address += input_.number();
            spoiled.key ^= input_.byte() % 2;
        }
        return made;
    }

    void ask() {
        std::uint32_t stream = 0;
        while (mine_[stream].busy && stream + 1 < most_streams) ++stream;
        stream = lie(stream);
        mine& m = mine_[stream % most_streams];
        rendezvous_request_body body;
        const std::uint8_t how = input_.byte();
        body.stream = stream;
        body.length = lie<std::uint64_t>(input_.length() % longest);
        if (how % 4 != 0) body.source = pieces(body.length);
        if (how % 8 >= 4 && body.length < 2 * longest && m.copy == no_shared_copy) {
            m.copy = peer_.link().open_shared_copy(static_cast<std::size_t>(body.length));
            body.copy = lie(m.copy);
        }
        m.busy = true;
        m.length = body.length;
        std::array<std::byte, rendezvous_request_body::most_bytes> raw;
        say(rendezvous_request, input_.byte() % 4, body.store(raw), lie(m.turn));
    }

    void answer_request() {
        request* r = some(requests_);
        if (r == nullptr) return;
        const std::uint8_t how = input_.byte() % 16;
        const std::uint64_t stream = lie(r->stream);
        const std::uint64_t left = r->body.length - r->put;
        if (how < 6 && !r->answered) {
            rendezvous_ready_body body;
            const std::uint64_t now = lie(how < 3 || left < 2 ? left : 1 + left / 3);
            body.offset = lie(r->put);
            body.destination = pieces(now);
            r->put += now;
            r->answered = true;
            std::array<std::byte, rendezvous_ready_body::most_bytes> raw;
            say(rendezvous_ready, stream, body.store(raw));
        } else if (how < 9 && r->body.copy != no_shared_copy) {
            rendezvous_ready_body body;
            body.destination = pieces(r->body.length);
            std::array<std::byte, rendezvous_ready_body::most_bytes> raw;
            if (how != 8) say(rendezvous_ready, stream, body.store(raw), 1);
            copy_together(true, r->body.copy, r->body.source.at[0], r->body.length);
        } else if (how < 11) {
            const std::uint8_t tail = input_.byte();
            for (std::uint32_t i = 0; tail % 4 != 0 && i < r->body.source.count; ++i)
                reach(true, r->body.source.at[i]);
        } else if (how < 14) {
            say(rendezvous_received, stream);
            std::erase_if(requests_, [&](const request& o) { return o.stream == stream; });
        } else if (how < 15) {
            say(rendezvous_withdraw, stream, {}, lie(r->turn));
        } else {
            say(rendezvous_gone, stream);
        }
    }

    void answer_ready() {
        place* p = some(ready_);
        if (p == nullptr) return;
        const std::uint8_t how = input_.byte() % 8;
        mine& m = mine_[p->stream];
        const std::uint64_t stream = lie(p->stream);
        if (p->flags != 0) {
            copy_together(false, lie(m.copy), p->there.at[0], m.length);
        } else if (how < 5) {
            for (std::uint32_t i = 0; i < p->there.count; ++i) reach(false, p->there.at[i]);
            if (how == 0) return;
            say(rendezvous_sent, stream, {}, lie(std::uint8_t{0}));
            if (p->offset + p->there.bytes() >= m.length) over(p->stream);
            p->there.count = 0;
        } else if (how < 7) {
            say(rendezvous_abandon, stream);
        } else {
            say(rendezvous_sent, stream, {}, 1);
            over(p->stream);
        }
    }

    /// The answer that the rules give to the oldest word that wants one.
    void answer_control() {
        if (said_.empty()) return;
        const wire_header h = said_.front();
        said_.pop_front();
        const std::uint64_t tag = lie(h.tag);
        switch (h.kind - first) {
            case rendezvous_abandon: say(rendezvous_gone, tag); break;
            case rendezvous_withdraw:
                say(rendezvous_sent, tag, {}, 1);
                over(static_cast<std::uint32_t>(h.tag));
                break;
            case behind + speculation_withdraw: say(behind + speculation_withdrawn, tag); break;
            case behind + speculation_revoke:
                say(behind + speculation_finish, tag, {}, lie(std::uint8_t{1}));
                break;
            default: break;
        }
    }

    void send_anything() {
        const std::uint8_t how = input_.byte();
        if (how % 4 == 0) {
            const auto payload = input_.bytes();
            peer_.send_raw(input_.byte(), input_.number(), payload,
                           static_cast<std::uint16_t>(input_.number()), input_.byte());
        } else if (how % 4 == 1) {
            peer_.say(wire_kind::credit, 0, {}, static_cast<std::uint16_t>(input_.byte() % 4));
        } else if (how % 4 == 2) {
            say(rendezvous_abandon, input_.byte() % 3);
        } else {
            say(input_.byte() % kinds, input_.byte() % 3, {}, input_.byte() % 3 == 2 ? 1 : 0);
        }
    }
    void send_short() {
        std::vector<std::byte> payload(input_.byte() % (short_message + 1));
        peer_.send_raw(static_cast<std::uint8_t>(wire_kind::eager), input_.byte() % 4, payload);
    }

    // ---- announcements, both ways; other lists don't know the words, and hear them seldom

    [[nodiscard]] bool has_words() { return speculates || input_.byte() >= 250; }

    void announce() {
        if (!has_words()) return;
        announcement_body body;
        if (free_numbers_.empty()) {
            if (next_number_ < most_announcements) free_numbers_.push_back(next_number_++);
        }
        body.number = lie(free_numbers_.empty() ? 0 : free_numbers_.back());
        if (!free_numbers_.empty()) free_numbers_.pop_back();
        body.ahead = input_.byte() % 4 == 3 ? 1 : 0;
        body.seen = lie(seen_);
        body.destination = pieces(lie<std::uint64_t>(1 + input_.length() % longest));
        std::array<std::byte, announcement_body::most_bytes> raw;
        say(behind + speculation_announce, input_.byte() % 4, body.store(raw));
    }
    void claim() {
        place* p = some(announced_);
        if (p == nullptr) {
            if (!has_words()) return;
            say(behind + speculation_withdraw, input_.byte() % 4);
            return;
        }
        std::array<std::byte, 8> raw;
        const std::uint64_t capacity = p->there.bytes();
        store_number(raw.data(), lie(input_.byte() % 2 == 0 ? capacity : 1 + input_.number() % capacity));
        say(behind + speculation_claim, lie(p->stream), raw);
        remember(claimed_, *p);
        std::erase_if(announced_, [&](const place& o) { return &o == p; });
    }
    void finish() {
        place* p = some(claimed_);
        if (p == nullptr) {
            if (!has_words()) return;
            say(behind + speculation_revoke, input_.byte() % 4);
            return;
        }
        const std::uint8_t how = input_.byte() % 8;
        for (std::uint32_t i = 0; how < 6 && i < p->there.count; ++i) reach(false, p->there.at[i]);
        if (how == 0) return;
        say(behind + speculation_finish, lie(p->stream), {}, how == 7 ? 2 : lie(std::uint8_t{0}));
        std::erase_if(claimed_, [&](const place& o) { return &o == p; });
    }

    // ---- what we do with memory

    /// A get or put of ours, of a part or of more than there is.
    void reach(bool read, const remote_pieces::piece& p) {
        const std::uint64_t length = std::min<std::uint64_t>(p.length, scratch_.size());
        const remote_region there{p.address, length, p.key};
        const auto here = std::span(scratch_).first(static_cast<std::size_t>(length));
        static_cast<void>(read ? peer_.link().get(there, here, next())
                               : peer_.link().put(here, there, next()));
    }
    void touch() {
        const remote_region* r = some(exposed_);
        if (r == nullptr) return;
        const std::uint8_t how = input_.byte();
        remote_pieces::piece p{r->address, r->length, r->key};
        if (how % 4 == 0) {
            const std::uint64_t skip = input_.number() % (p.length + 1);
            p.address += skip;
            p.length -= skip;
        }
        if (how % 16 == 1) p.length += 1 + input_.byte();
        reach(how >= 192, p);
    }
    void copy_together(bool front, shared_copy_id id, const remote_pieces::piece& p, std::uint64_t bytes) {
        if (bytes > scratch_.size()) return;
        const remote_region there{p.address, bytes, p.key};
        const auto here = std::span(scratch_).first(static_cast<std::size_t>(bytes));
        static_cast<void>(front ? peer_.link().copy_from_front(id, there, here, next())
                                : peer_.link().copy_from_back(id, here, there, next()));
    }
    completion& next() {
        completion& c = completions_.emplace_back();
        c.done = [](completion&, std::error_code) noexcept {};
        return c;
    }

    void change_memory() {
        const std::uint8_t how = input_.byte();
        if (how % 2 == 0 && owned_.size() < 16) {
            constexpr access_rights some[] = {access_rights::all, access_rights::remote_read,
                                              access_rights::remote_write, access_rights::none};
            add_memory(input_.length() % longest, some[how / 2 % 4]);
            return;
        }
        owned& o = owned_[input_.byte() % owned_.size()];
        if (!o.open) return;
        o.taken_back = true;
        o.open = {};
        o.memory.fill(mark);
    }
    void add_memory(std::size_t bytes, access_rights rights) {
        owned& o = owned_.emplace_back(bytes, !allows(rights, access_rights::remote_write));
        o.open = peer_.wire().domains[1]->register_memory(o.memory.first(), rights);
        o.key = o.open.remote().key;
    }

    script& input_;
    // Outlives the link, which may be using it.
    std::vector<std::byte> scratch_ = std::vector<std::byte>(2 * longest, std::byte{0x77});
    std::deque<completion> completions_;
    basic_scripted_peer<List> peer_;
    std::deque<owned> owned_;
    std::map<std::uint32_t, mine> mine_;
    std::deque<request> requests_;
    std::deque<place> ready_;
    std::deque<place> announced_;
    std::deque<place> claimed_;
    std::deque<wire_header> said_;
    std::deque<remote_region> exposed_;
    std::vector<std::uint32_t> free_numbers_;
    std::uint32_t next_number_ = 0;
    std::uint64_t seen_ = 0;  // messages of the endpoint
};

template <protocol_list List>
task<> play(virtual_time& world, script& input) {
    mailbox_options least;
    least.unexpected_bytes = 1;
    least.lent_bytes = longest;
    hostile_peer<List> peer(world.on, input, least);
    fuzz_user user(peer.self(), longest);
    const std::uint8_t ending = input.byte();
    peer.send_hello();
    for (int n = 0; n < 3; ++n) co_await yield();
    for (int step = 0; step < 400 && !input.over() && !peer.self().connection().is_down(); ++step) {
        const std::uint8_t what = input.byte() % 16;
        if (what < 7) {
            peer.act();
        } else if (what < 10) {
            user.begin(input);
        } else if (what == 10) {
            user.stop_one(input);
        } else if (what == 11) {
            peer.change_weather();
        } else if (what == 12) {
            world.time.advance(std::chrono::milliseconds(input.byte() * 8));
        } else {
            for (int n = input.byte() % 4; n >= 0; --n) co_await yield();
        }
        peer.check_exposed([&](std::uint64_t address) { return user.is_over(address); });
        // Unmatched messages are bounded by the budget, whatever the peer sends.
        const std::size_t budget = least_budget * credit_bytes;
        const std::size_t lent = user.operations() * 2 * least.lent_bytes;
        demand(peer.self().connection().mailbox().store().footprint() <=
               4 * budget + (std::size_t{8} << 20) + lent);
    }
    peer.listen();
    co_await yield();  // what was begun last has begun
    switch (ending % 5) {
        case 1:
            peer.calm();
            peer.wire().link().close(make_error_code(errc::closed));
            break;
        case 2: peer.wire().destroy_self(); break;
        case 3: user.stop_all(); [[fallthrough]];
        case 4:
            peer.calm();
            for (int n = 0; n < 30; ++n) co_await yield();
            [[fallthrough]];
        default: peer.self().abort(); break;
    }
    co_await user.all_ended();
    if (ending % 5 != 2) demand(peer.self().connection().mailbox().matching().posted() == 0);
    user.check();
    peer.check();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    virtual_time world;
    script input(data, size);
    switch (input.byte() % 3) {
        case 0: world.run(play<protocols<eager<>, speculative<get_rendezvous<>>>>(world, input)); break;
        case 1: world.run(play<protocols<eager<>, put_rendezvous<>>>(world, input)); break;
        default:
            world.run(play<protocols<eager<>, cooperative_rendezvous<>, segmented<>>>(world, input));
            break;
    }
    return 0;
}

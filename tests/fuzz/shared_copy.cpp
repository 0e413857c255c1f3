// Blocks that both ends of a shared-memory link copy, where the other end writes to the claim words what it likes: what an
// honest peer would claim, and anything else; takes its memory back; and serves gets with lies. The input is a script.
// Nothing may be touched but what was named, nothing of it when the copy has ended, and an undisturbed copy is exact.

#include <rdmacoro/transport/shm/shared_copy.hpp>

#include "fuzz/script.hpp"
#include "fuzz/user.hpp"

#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

using namespace rdmacoro;
using namespace rdmacoro::detail::shm;
using rdmacoro::test::demand;
using rdmacoro::test::guarded_memory;
using rdmacoro::test::script;

namespace {

constexpr geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};
constexpr std::size_t most_pieces = 20;
constexpr std::byte there_byte{0x3c};
constexpr std::byte here_byte{0x5a};
constexpr std::byte after_byte{0xa5};

/// Costs system calls to make, and keeps nothing of a run.
struct surroundings {
    scheduler on;
    shm_options options = [] {
        shm_options few;
        few.max_regions = 256;
        return few;
    }();
    domain_base domain{on, options};
};
surroundings& around() {
    static auto* const made = new surroundings;
    return *made;
}

class machine {
public:
    explicit machine(script& input) : input_(input), link_(*new detail::shm::channel) {
        const unique_fd file = segment::create(shape);
        link_.attach(file.get(), shape, true);
        link_.domain = &around().domain;
        link_.peer.map_table(around().domain.table_file(), around().options.max_regions,
                             around().domain.regions().salt());
        const unique_fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
        link_.peer.reach_through(peer_process(self.get(), ::getpid()));
        theirs_.attach(link_.shared, 0);
        if (input_.byte() % 4 == 0) link_.peer.forbid_process_vm();
    }
    ~machine() {
        copies_.fail_all(make_error_code(errc::closed));
        one_sided_.fail_all(make_error_code(errc::closed));
        for (const copy& c : copies_begun_) {
            demand(c.over && c.memory.guards_intact() && c.memory.filled(c.front ? after_byte : here_byte));
            demand(c.there.guards_intact());
            if (c.front) demand(c.there.filled(there_byte));
        }
        link_.release();
    }

    void play() {
        for (int step = 0; step < 200 && !input_.over() && !copies_.violated(); ++step) {
            switch (input_.byte() % 10) {
                case 0: begin(); break;
                case 1: take_back(); break;
                case 2: scribble(); break;
                case 3: lose_memory(); break;
                case 4:
                    if (input_.byte() % 16 == 0) link_.peer.forbid_process_vm();
                    break;
                case 5:
                case 6: claim(); break;
                case 7:
                    if (!serve()) return;  // a link would end
                    break;
                default:
                    if (input_.byte() % 4 != 0) around().domain.copies().renew();
                    copies_.advance();
                    one_sided_.advance();
            }
        }
    }

private:
    struct copy : completion {
        copy(bool fronts, std::size_t bytes) : front(fronts), memory(bytes), there(bytes) {}
        bool front;
        bool over = false;
        bool disturbed = false;  // the peer wrote to the words
        guarded_memory memory;
        guarded_memory there;
        region open{};
        shared_copy_id id = 0;

        void end(std::error_code outcome) {
            demand(!over && memory.guards_intact());
            if (!outcome && !disturbed)
                demand(front ? memory.filled(there_byte) : there.filled(here_byte) || there.size() == 0);
            over = true;
            if (front) memory.fill(after_byte);
        }
    };

    void begin() {
        if (copies_begun_.size() == 8) return;
        const std::uint8_t how = input_.byte();
        const std::size_t bytes =
            input_.byte() % most_pieces * shared_pieces::piece + input_.number() % shared_pieces::piece;
        copy& c = copies_begun_.emplace_back(how % 2 == 0, bytes);
        c.memory.fill(here_byte);
        c.there.fill(there_byte);
        const access_rights rights = (how & 2) != 0 ? access_rights::all
                                     : c.front      ? access_rights::remote_read
                                                    : access_rights::remote_write;
        c.open = around().domain.register_memory(c.there.first(), rights);
        remote_region named = c.open.remote();
        if (how >= 248) named.key ^= 1u << 20;
        if (how >= 240 && how < 248) named.address += input_.number();
        c.done = [](completion& self, std::error_code outcome) noexcept {
            static_cast<copy&>(self).end(outcome);
        };
        if (c.front) {
            c.id = next_front_++;
            c.disturbed = how >= 240;
            std::uint32_t id = c.id;
            if (how >= 232 && how < 236) id = static_cast<std::uint32_t>(input_.number());
            if (id != c.id) c.disturbed = true;
            began(c, copies_.begin_front(id, named, c.memory.first().data(), c));
        } else {
            c.id = copies_.open(bytes);
            demand(c.id != no_shared_copy);
            c.disturbed = true;  // where the front is too quick, or we can't reach it, it copies nothing
            began(c, copies_.begin_back(c.id, c.memory.first().data(), named, c));
        }
    }
    static void began(copy& c, post_result answer) {
        if (answer == post_result::done) c.end({});
        demand(answer == post_result::done || answer == post_result::posted);
    }

    copy* some() {
        return copies_begun_.empty() ? nullptr : &copies_begun_[input_.byte() % copies_begun_.size()];
    }
    shared_copy_words& words(const copy& c) {
        return (c.front ? link_.in_copies : link_.out_copies)[c.id % shared_copies_open];
    }
    void take_back() {
        copy* c = some();
        if (c == nullptr || c->over) return;
        c->disturbed = true;
        if (!copies_.revoke(*c)) one_sided_.revoke(*c);
        c->end({});
        if (!c->front) copies_.close(c->id);
    }
    void lose_memory() {
        if (copy* c = some()) {
            c->disturbed = true;
            c->open = {};
        }
    }
    void scribble() {
        copy* c = some();
        if (c == nullptr) return;
        c->disturbed = true;
        std::uint64_t word = input_.number();
        if (input_.byte() % 2 == 0) word = word << 32 | input_.byte();
        (input_.byte() % 2 == 0 ? words(*c).claimed : words(*c).finished).store(word);
    }
    /// As an honest peer does: some pieces from its end; as the back, some of them are reported to be in place.
    void claim() {
        copy* c = some();
        if (c == nullptr) return;
        c->disturbed = true;
        shared_copy_words& w = words(*c);
        shared_claims seen = shared_claims::load(w.claimed.load());
        const std::uint64_t all = shared_pieces(c->there.size()).count;
        const std::uint8_t how = input_.byte();
        const auto more =
            seen.both() < all ? static_cast<std::uint32_t>(1 + how % 8 % (all - seen.both())) : 0u;
        (c->front ? seen.back : seen.front) += more;
        w.claimed.store(seen.store());
        if (!c->front) return;
        std::uint64_t finished = (how & 8) != 0 ? seen.back : w.finished.load() & 0xffffffff;
        if ((how & 0xf0) == 0) finished |= std::uint64_t{1} << 32;
        w.finished.store(finished);
    }
    /// The peer answers a get of ours, mostly with what was asked for.
    bool serve() {
        record asked;
        if (theirs_.peek(asked) != ring_consumer::found::record) return true;
        std::uint64_t fields[3]{};
        if (asked.payload.size() >= sizeof fields) std::memcpy(fields, asked.payload.data(), sizeof fields);
        theirs_.advance(asked, false);
        const std::uint8_t how = input_.byte();
        std::vector<std::byte> payload(static_cast<std::size_t>(fields[2]), there_byte);
        message_header header{};
        if (how >= 240) payload.resize(input_.number() % 4096);
        if (how >= 232) {
            header[0] = static_cast<std::byte>(input_.byte());
            if (how < 240) payload.clear();
            for (copy& c : copies_begun_) c.disturbed = true;
        }
        record answer;
        answer.type = how == 255 ? record_type::put_reply : record_type::get_reply;
        answer.header = &header;
        answer.payload = payload;
        return one_sided_.serve(answer) == errc::ok;
    }

    script& input_;
    detail::shm::channel& link_;
    ring_consumer theirs_;
    std::deque<copy> copies_begun_;
    one_sided_engine one_sided_{link_};
    shared_copy_engine copies_{link_, one_sided_};
    shared_copy_id next_front_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    script input(data, size);
    machine(input).play();
    return 0;
}

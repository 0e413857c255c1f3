// Everything that a peer can send on a tcp link after its greeting, cut anywhere: frames that are nearly right, and raw
// bytes, while this side gets, puts, registers, takes memory back and refuses messages. The input is a script. Nothing may
// crash, and nothing be touched that is not open to the peer; the sanitizers see the rest.

#include <rdmacoro/transport/tcp/receiver.hpp>

#include "fuzz/script.hpp"

#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::detail;
using rdmacoro::test::demand;
using rdmacoro::test::script;

namespace {

class sink final : public tcp_upper {
public:
    sink(script& input, tcp_receiver& from) : input_(input), from_(from) {}

    delivery deliver(const message_header&, std::span<const std::byte> payload) noexcept override {
        demand(left_ == 0 && payload.size() <= tcp_most_message);
        const std::uint8_t mood = input_.byte();
        if (mood % 16 == 0) return delivery::defer;
        if (mood % 16 == 1) kept_.push_back(from_.keep());
        if (mood % 16 == 2) kept_.clear();
        if (mood == 255) from_.stop();
        for (const std::byte b : payload) sum_ += static_cast<unsigned>(b);
        return delivery::taken;
    }
    delivery begin_payload(const message_header&, std::size_t bytes) noexcept override {
        demand(left_ == 0 && bytes <= tcp_most_message && bytes > tcp_receiver::whole_limit);
        const std::uint8_t mood = input_.byte();
        if (mood % 16 == 0) return delivery::defer;
        if (mood == 255) from_.stop();
        left_ = bytes;
        memory_.resize(mood % 4 == 1 ? 0 : bytes);
        filled_ = 0;
        return delivery::taken;
    }
    std::span<std::byte> payload_space() noexcept override {
        demand(left_ != 0);
        if (memory_.empty()) return {};
        const std::size_t most = 1 + input_.number() % left_;
        return std::span(memory_).subspan(filled_, most);
    }
    void payload_arrived(std::size_t bytes) noexcept override {
        demand(bytes <= left_);
        left_ -= bytes;
        filled_ += bytes;
        if (input_.byte() == 255) from_.stop();
    }
    void writable() noexcept override {}
    void link_down(std::error_code) noexcept override {}

private:
    script& input_;
    tcp_receiver& from_;
    std::vector<lent_buffer> kept_;
    std::vector<std::byte> memory_;
    std::size_t left_ = 0;
    std::size_t filled_ = 0;
    unsigned sum_ = 0;
};

/// A get or put of this side. Its memory goes when it is over or taken back, so that a late access is seen.
struct transfer : completion {
    std::optional<std::vector<std::byte>> memory;
    bool over = false;
};

struct open_region {
    std::vector<std::byte> memory;
    remote_region known;
    bool registered = true;
};

class machine {
public:
    explicit machine(script& input) : input_(input) {}
    ~machine() {
        up_.reset();
        queue_.clear([&](tcp_send_item& item) noexcept { sent(item); });
        operations_.fail(make_error_code(errc::closed));
        for (const transfer& t : transfers_) demand(t.over);
        receiver_.stop();
        chunks_.abandon();
    }

    void play() {
        for (int step = 0; step < 500 && !input_.over(); ++step) {
            switch (input_.byte() % 8) {
                case 0: send_raw(); break;
                case 1: begin_transfer(); break;
                case 2: take_back(); break;
                case 3: change_regions(); break;
                case 4: send(); break;
                default: send_frame(); break;
            }
            if (!receive()) return;
        }
    }

private:
    void send_raw() {
        for (std::size_t n = input_.byte() % 64; n > 0; --n)
            wire_.push_back(static_cast<std::byte>(input_.byte()));
    }

    void send_frame() {
        const auto kind = static_cast<tcp_frame>(1 + input_.byte() % 5);
        std::size_t bytes = input_.number() % 70'000;
        std::byte head[tcp_longest_head]{};
        const remote_region known =
            regions_.empty() ? remote_region{} : regions_[input_.byte() % regions_.size()].known;
        const std::uint64_t key = input_.byte() == 0 ? input_.number() : known.key;
        const std::uint64_t address = known.address + input_.number();
        const auto operation = static_cast<std::uint32_t>(input_.number());
        switch (kind) {
            case tcp_frame::message:
                for (std::size_t i = 0; i < message_header_bytes; ++i)
                    head[tcp_word_bytes + i] = static_cast<std::byte>(input_.byte());
                break;
            case tcp_frame::get_request:
                get_request{key, address, input_.number(), operation}.store(head + tcp_word_bytes);
                bytes = input_.byte() == 0 ? bytes : 0;
                break;
            case tcp_frame::get_data: get_data{operation}.store(head + tcp_word_bytes); break;
            case tcp_frame::put_data: {
                // Often what continues the last one.
                if (put_.remaining == 0 || input_.byte() % 8 == 0) {
                    put_ = {key, address, bytes + input_.number() % 3 * 1000, operation};
                }
                bytes = input_.byte() == 0 ? bytes : std::min<std::size_t>(bytes, put_.remaining);
                put_.store(head + tcp_word_bytes);
                put_.address += bytes;
                put_.remaining -= std::min<std::uint64_t>(put_.remaining, bytes);
                break;
            }
            case tcp_frame::one_sided_status:
                store_number(head + tcp_word_bytes, operation);
                store_number(head + tcp_word_bytes + 4, std::uint32_t{input_.byte()});
                bytes = input_.byte() == 0 ? bytes : 0;
                break;
        }
        const tcp_word word{kind, static_cast<std::uint32_t>(bytes)};
        word.store(head);
        const std::size_t head_bytes = word.head_bytes() != 0 ? word.head_bytes() : tcp_longest_head;
        wire_.insert(wire_.end(), head, head + head_bytes);
        wire_.insert(wire_.end(), bytes, std::byte{0x5a});
    }

    void begin_transfer() {
        transfer& t = transfers_.emplace_back();
        t.memory.emplace(input_.number() % 600'000);
        t.done = [](completion& c, std::error_code) noexcept {
            auto& self = static_cast<transfer&>(c);
            demand(!self.over);
            self.over = true;
            self.memory.reset();
        };
        const remote_region there{input_.number(), t.memory->size(), input_.number(), access_rights::all};
        const bool begun = input_.byte() % 2 == 0 ? operations_.get(there, *t.memory, t)
                                                  : operations_.put(*t.memory, there, t);
        demand(begun);
    }

    void take_back() {
        if (transfers_.empty()) return;
        transfer& t = transfers_[input_.byte() % transfers_.size()];
        if (t.over) return;
        operations_.revoke(t, queue_);
        t.over = true;
        t.memory.reset();
    }

    void change_regions() {
        if (regions_.size() < 8) {
            open_region& r = regions_.emplace_back();
            r.memory.resize(1 + input_.number() % 300'000);
            r.known = table_.add(r.memory, static_cast<access_rights>(input_.byte() % 4));
            return;
        }
        open_region& r = regions_[input_.byte() % regions_.size()];
        if (!r.registered) return;
        table_.remove(r.known.key);
        r.registered = false;
        r.memory = {};
    }

    /// As a link does: what waits goes to the queue, and some of that to the network.
    void send() {
        while (queue_.one_sided_bytes() < tcp_operations::most_ahead && server_.send_next(queue_)) {}
        while (queue_.one_sided_bytes() < tcp_operations::most_ahead && operations_.send_next(queue_)) {}
        iovec pieces[16];
        std::size_t bytes = 0;
        const unsigned count = queue_.gather(pieces, 1 + input_.byte() % 16, bytes);
        for (unsigned i = 0; i < count; ++i) {
            const auto* read = static_cast<const volatile std::byte*>(pieces[i].iov_base);
            static_cast<void>(read[0]);
            static_cast<void>(read[pieces[i].iov_len - 1]);
        }
        if (bytes == 0) return;
        const std::size_t taken = input_.byte() % 2 == 0 ? bytes : input_.number() % (bytes + 1);
        queue_.consumed(taken, [&](tcp_send_item& item) noexcept { sent(item); });
    }
    void sent(tcp_send_item& item) noexcept {
        if (item.from == tcp_send_item::source::put_data) {
            operations_.part_sent(item);
        } else {
            server_.part_sent(item);
        }
    }

    /// A part of the bytes sent arrives, and is parsed. False: the link is over.
    bool receive() {
        std::size_t now = input_.byte() % 2 == 0 ? wire_.size() : input_.number() % (wire_.size() + 1);
        for (;;) {
            unsigned budget = 1 + input_.byte() % 64;
            switch (receiver_.parse(*up_, budget)) {
                case tcp_receiver::state::hungry: break;
                case tcp_receiver::state::blocked: return true;
                case tcp_receiver::state::unfinished: continue;
                case tcp_receiver::state::violation:
                case tcp_receiver::state::stopped: return false;
            }
            if (now == 0) {
                receiver_.release_if_empty();
                return true;
            }
            iovec pieces[2];
            const unsigned count = receiver_.space(*up_, pieces);
            if (count == 0) return false;
            std::size_t filled = 0;
            for (unsigned i = 0; i < count && now != 0; ++i) {
                const std::size_t part = std::min(now, pieces[i].iov_len);
                for (std::size_t b = 0; b < part; ++b) {
                    static_cast<std::byte*>(pieces[i].iov_base)[b] = wire_.front();
                    wire_.pop_front();
                }
                filled += part;
                now -= part;
            }
            receiver_.arrived(*up_, filled);
        }
    }

    script& input_;
    std::vector<region_entry> entries_{64};
    region_table table_{entries_};
    std::deque<open_region> regions_;
    std::deque<transfer> transfers_;
    put_data put_{};
    std::deque<std::byte> wire_;
    tcp_chunk_pool& chunks_ = *new tcp_chunk_pool;
    tcp_item_pool items_;
    tcp_send_queue queue_{chunks_, items_, table_};
    tcp_operations operations_;
    tcp_server server_{table_};
    tcp_receiver receiver_{chunks_, operations_, server_};
    std::optional<sink> up_{std::in_place, input_, receiver_};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    script input(data, size);
    machine(input).play();
    return 0;
}

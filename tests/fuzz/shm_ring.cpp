// A ring and blocks whose other end writes what it likes: both ends of a direction, with a scribbler on the segment between
// them. The input is a script. Whatever is handed up must lie in the segment, and nothing else be touched.

#include <rdmacoro/transport/shm/ring.hpp>

#include "fuzz/script.hpp"

#include <cstdint>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::detail::shm;
using rdmacoro::test::demand;
using rdmacoro::test::script;

namespace {

constexpr geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};

class machine {
public:
    explicit machine(script& input) : input_(input) {
        const unique_fd file = segment::create(shape);
        shared_.map(file.get(), shape);
        out_.attach(shared_, 0);
        in_.attach(shared_, 0);
    }

    void play() {
        for (int step = 0; step < 400 && !input_.over(); ++step) {
            switch (input_.byte() % 8) {
                case 0: scribble_word(); break;
                case 1: scribble_counts(); break;
                case 2: plausible_cell(); break;
                case 3: {
                    const auto payload = input_.bytes();
                    if (payload.size() <= out_.max_message())
                        static_cast<void>(out_.put(static_cast<record_type>(input_.byte() % 6), {},
                                                   const_buffers(std::span<const std::byte>(payload))));
                    break;
                }
                case 4:
                    if (!kept_.empty()) {
                        in_.unshare_block(kept_.back(), shape.block_bytes);
                        in_.free_block(kept_.back());
                        kept_.pop_back();
                    }
                    break;
                case 5: static_cast<void>(out_.has_room()); break;
                default:
                    if (!consume()) return;
            }
            if (out_.violated()) return;
        }
    }

private:
    void scribble_word() {
        auto* words = reinterpret_cast<std::uint32_t*>(shared_.ring(0));
        words[input_.number() % (shape.ring_bytes() / 4)] = static_cast<std::uint32_t>(input_.number());
    }
    void scribble_counts() {
        direction_words& words = shared_.words(0);
        words.cells_freed.store(static_cast<std::uint32_t>(input_.number()));
        words.blocks_freed.store(static_cast<std::uint32_t>(input_.number()));
        words.freed_blocks[input_.byte() % geometry::most_blocks].store(
            static_cast<std::uint16_t>(input_.number()));
    }
    /// A frame word that could be right, for all cells: wherever the head is.
    void plausible_cell() {
        const std::uint32_t word =
            frame_word::make(1 + input_.byte() % 3, static_cast<record_type>(input_.byte() % 7),
                             input_.number() & frame_word::length_mask);
        for (std::uint32_t cell = 0; cell < shape.cells; ++cell)
            *reinterpret_cast<std::uint32_t*>(shared_.ring(0) + cell * cell_bytes) = word;
    }

    /// False: the peer broke the rules, and a link would end.
    bool consume() {
        ring_consumer::small m;
        if (in_.small_message(m)) {
            read(m.payload);
            in_.advance_small();
            return true;
        }
        record r;
        switch (in_.peek(r)) {
            case ring_consumer::found::nothing: return true;
            case ring_consumer::found::violation: return false;
            case ring_consumer::found::record: break;
        }
        read(r.payload);
        const bool keep = r.block >= 0 && in_.may_keep() && input_.byte() % 2 == 0;
        if (r.block >= 0 && !keep)
            in_.unshare_block(static_cast<std::uint32_t>(r.block), r.bytes_to_unshare());
        in_.advance(r, keep);
        if (keep) kept_.push_back(static_cast<std::uint32_t>(r.block));
        return true;
    }
    void read(std::span<const std::byte> payload) {
        // The segment shows each ring twice in a row; the blocks follow.
        const std::byte* first = shared_.ring(0);
        const std::byte* blocks = shared_.blocks(0);
        const bool in_ring =
            payload.data() >= first && payload.data() + payload.size() <= first + 2 * shape.ring_bytes();
        const bool in_block =
            payload.data() >= blocks && payload.data() + payload.size() <= blocks + shape.block_area_bytes();
        demand(in_ring || in_block);
        unsigned sum = 0;
        for (const std::byte b : payload) sum += static_cast<unsigned>(b);
        *const_cast<volatile unsigned*>(&sum_) = sum;
    }

    script& input_;
    segment shared_;
    ring_producer out_;
    ring_consumer in_;
    std::vector<std::uint32_t> kept_;
    unsigned sum_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    script input(data, size);
    machine(input).play();
    return 0;
}

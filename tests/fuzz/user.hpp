#pragma once

// The user of an endpoint, as fuzz targets play him: begins and cancels operations as a script says, and sees to it that
// nothing but what an operation was given is touched, and nothing of it once the operation has ended.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/endpoint.hpp>

#include "fuzz/script.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

namespace rdmacoro::test {

/// `count` pieces of `bytes` bytes, guard bytes before, between and behind them.
class guarded_memory {
public:
    explicit guarded_memory(std::size_t bytes, std::size_t count = 1, std::size_t guard = 24)
        : bytes_(bytes), guard_(guard), all_(count * (guard + bytes) + guard, guard_byte) {
        for (std::size_t n = 0; n < count; ++n) {
            pieces_.push_back(std::span(all_).subspan(guard + n * (guard + bytes), bytes));
            const_pieces_.push_back(pieces_.back());
        }
    }
    guarded_memory(const guarded_memory&) = delete;
    guarded_memory& operator=(const guarded_memory&) = delete;

    [[nodiscard]] std::span<std::byte> first() const noexcept { return pieces_.front(); }
    [[nodiscard]] std::size_t size() const noexcept { return bytes_ * pieces_.size(); }
    [[nodiscard]] mutable_buffers into() const {
        return mutable_buffers(std::span<const std::span<std::byte>>(pieces_));
    }
    [[nodiscard]] const_buffers from() const {
        return const_buffers(std::span<const std::span<const std::byte>>(const_pieces_));
    }

    [[nodiscard]] bool reaches_over(std::uint64_t address) const noexcept {
        return address - reinterpret_cast<std::uint64_t>(all_.data()) < all_.size();
    }

    void fill(std::byte with) noexcept {
        for (const auto piece : pieces_) std::fill(piece.begin(), piece.end(), with);
    }
    [[nodiscard]] bool filled(std::byte with) const noexcept {
        return std::all_of(pieces_.begin(), pieces_.end(), [&](auto p) { return is(p, with); });
    }
    [[nodiscard]] bool guards_intact() const noexcept {
        for (std::size_t at = 0; at < all_.size(); at += guard_ + bytes_) {
            if (!is(std::span(all_).subspan(at, guard_), guard_byte)) return false;
        }
        return true;
    }

private:
    static constexpr std::byte guard_byte{0xee};

    static bool is(std::span<const std::byte> bytes, std::byte value) noexcept {
        return bytes.empty() ||
               (bytes[0] == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
    }

    std::size_t bytes_;
    std::size_t guard_;
    std::vector<std::byte> all_;
    std::vector<std::span<std::byte>> pieces_;
    std::vector<std::span<const std::byte>> const_pieces_;
};

template <class Endpoint>
class fuzz_user {
public:
    /// Operations take up to `longest` bytes. `at` may go before this does.
    fuzz_user(Endpoint& at, std::size_t longest) : at_(at), longest_(longest) {}

    /// Begins an operation.
    void begin(script& input) {
        operation& made = operations_.emplace_back();
        made.tag = input.byte() % 4;
        const std::uint8_t how = input.byte();
        made.wanted = how % 4 == 3 ? tag_match(any_tag) : tag_match(made.tag);
        made.frees = how % 8 >= 4;
        const std::uint8_t what = input.byte() % 16;
        const std::size_t pieces = (what & 1) != 0 && how >= 128 ? 1 + input.byte() % 40 : 1;
        made.memory.emplace(input.length() % longest_ / pieces, pieces, 24 + how % 4);
        made.memory->fill(sent);
        switch (what) {
            case 0:
            case 1:
            case 2:
            case 3:
            case 4:
            case 5: spawn(made, receive); break;
            case 6:
            case 8: spawn(made, receive_lent); break;
            case 10: spawn(made, probe); break;
            case 7:
            case 9:
            case 12: spawn(made, ssend); break;
            case 14:
                if (!std::exchange(closes_, true) && how % 8 == 0) {
                    spawn(made, close);
                    break;
                }
                [[fallthrough]];
            default: spawn(made, send); break;
        }
    }

    /// Asks one of them to stop.
    void stop_one(script& input) {
        if (operations_.empty()) return;
        operations_[operations_.size() - 1 - input.byte() % operations_.size()].stop.request_stop();
    }
    void stop_all() {
        for (operation& o : operations_) o.stop.request_stop();
    }

    /// Whether this memory belongs to an operation that has ended.
    [[nodiscard]] bool is_over(std::uint64_t address) const noexcept {
        return std::any_of(operations_.begin(), operations_.end(), [=](const operation& o) {
            return o.over && o.memory && o.memory->reaches_over(address);
        });
    }
    [[nodiscard]] std::size_t operations() const noexcept { return operations_.size(); }
    [[nodiscard]] task_group::join_operation all_ended() noexcept { return running_.join(); }

    /// Aborts the process unless all is as it has to be.
    void check() const {
        for (const operation& o : operations_) {
            if (!o.memory) continue;
            demand(o.memory->guards_intact());
            if (o.over) demand(o.memory->filled(left));
            demand(std::equal(o.held_bytes.begin(), o.held_bytes.end(), o.held.bytes().begin(),
                              o.held.bytes().end()));
        }
    }

private:
    static constexpr std::byte sent{0x5a};
    static constexpr std::byte left{0xa5};  // in memory whose operation has ended

    struct operation {
        local_stop_source stop;
        tag_type tag = 0;
        tag_match wanted{any_tag};
        bool frees = false;  // its memory, as soon as it has ended
        bool over = false;
        std::optional<guarded_memory> memory;
        message held;
        std::vector<std::byte> held_bytes;

        [[nodiscard]] local_stop_token token() { return stop.get_token(); }

        void end(std::error_code outcome) {
            // The memory that a peer names, and its handling by the device, do not concern the user.
            demand(outcome != errc::bad_key && outcome != errc::out_of_bounds &&
                   outcome != errc::access_denied && outcome != errc::unsupported);
            demand(memory->guards_intact());
            over = true;
            memory->fill(left);
            if (frees) memory.reset();
        }
        template <class T>
        void end(const result<T>& outcome) {
            end(outcome ? std::error_code{} : std::error_code(outcome.error()));
        }
    };

    template <class Work>
    void spawn(operation& o, Work work) {
        running_.spawn(work, std::ref(at_), std::ref(o));
    }

    static task<> receive(Endpoint& at, operation& o) {
        const auto ended = co_await as_result(with_stop(at.recv(o.memory->into(), o.wanted), o.token()));
        if (ended) demand(ended->bytes <= o.memory->size() && o.wanted.accepts(ended->tag));
        o.end(ended);
    }
    static task<> receive_lent(Endpoint& at, operation& o) {
        auto ended = co_await as_result(with_stop(at.recv_lent(o.wanted), o.token()));
        if (ended) {
            demand(o.wanted.accepts(ended->tag()));
            if (!o.frees) {
                o.held = *std::move(ended);
                o.held_bytes.assign(o.held.bytes().begin(), o.held.bytes().end());
            }
        }
        o.end(ended);
    }
    static task<> probe(Endpoint& at, operation& o) {
        const auto ended = co_await as_result(with_stop(at.probe(o.wanted), o.token()));
        if (ended) demand(o.wanted.accepts(ended->tag));
        o.end(ended);
    }
    static task<> send(Endpoint& at, operation& o) {
        const auto ended = co_await as_result(with_stop(at.send(o.memory->from(), o.tag), o.token()));
        demand(o.memory->filled(sent));
        o.end(ended);
    }
    static task<> ssend(Endpoint& at, operation& o) {
        const auto ended = co_await as_result(with_stop(at.ssend(o.memory->from(), o.tag), o.token()));
        demand(o.memory->filled(sent));
        o.end(ended);
    }
    static task<> close(Endpoint& at, operation& o) {
        o.end(co_await as_result(with_stop(at.close(), o.token())));
    }

    Endpoint& at_;
    std::size_t longest_;
    bool closes_ = false;
    std::deque<operation> operations_;
    task_group running_;
};

}  // namespace rdmacoro::test

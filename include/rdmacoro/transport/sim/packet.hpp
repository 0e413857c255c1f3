// Packets, gets and puts under way in a simulated network.
#pragma once

#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/sim/event.hpp>
#include <rdmacoro/transport/sim/local_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rdmacoro::detail::sim {

class link_base;
struct transfer;

/// A message under way, or the notice that the other end has closed.
struct packet {
    packet* next = nullptr;
    message_header header{};
    std::size_t bytes = 0;
    std::size_t visible = 0;  ///< bytes that have come
    bool hang_up = false;
    bool announced = false;       ///< comes in pieces
    transfer* borrows = nullptr;  ///< while set, the payload is still at `payload`
    const_buffers payload{};
    std::vector<std::byte> data;
    std::uint64_t number = 0;  ///< in its lane
    time_point ready{};        ///< when it has come, or, announced, its first byte

    [[nodiscard]] bool complete() const noexcept { return visible == bytes; }
};

/// A post with a pending completion: a message sent from the caller's memory, a get or a put.
struct transfer : event, list_node<transfer> {
    transfer* next_free = nullptr;
    link_base* by = nullptr;
    completion* waiting = nullptr;
    packet* sent = nullptr;  ///< of a message, until it has come
    remote_region there{};
    std::span<std::byte> here{};
    std::uint64_t after = 0;  ///< messages of its lane posted before it
    bool moved = false;
    std::error_code outcome{};
    local_cache::lease registration{};  ///< of `here`, where the node caches
};

/// Recycles objects: owns returned ones, and makes one when there is none.
template <class T, T* T::* Next>
class recycled {
public:
    recycled() noexcept = default;
    recycled(const recycled&) = delete;
    recycled& operator=(const recycled&) = delete;
    ~recycled() {
        while (free_ != nullptr) delete std::exchange(free_, free_->*Next);
    }
    [[nodiscard]] T& take() {
        if (free_ == nullptr) return *new T;
        T& taken = *std::exchange(free_, free_->*Next);
        taken.*Next = nullptr;
        return taken;
    }
    void give_back(T& used) noexcept {
        used.*Next = free_;
        free_ = &used;
    }

private:
    T* free_ = nullptr;
};

/// A queue of packets.
class packet_queue {
public:
    [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
    [[nodiscard]] packet* front() const noexcept { return head_; }
    void push_back(packet& p) noexcept {
        p.next = nullptr;
        *tail_ = &p;
        tail_ = &p.next;
    }
    void push_front(packet& p) noexcept {
        p.next = head_;
        if (head_ == nullptr) tail_ = &p.next;
        head_ = &p;
    }
    packet* pop_front() noexcept {
        packet* first = head_;
        if (first == nullptr) return nullptr;
        head_ = first->next;
        if (head_ == nullptr) tail_ = &head_;
        return first;
    }

    packet_queue() noexcept = default;
    packet_queue(const packet_queue&) = delete;
    packet_queue& operator=(const packet_queue&) = delete;

private:
    packet* head_ = nullptr;
    packet** tail_ = &head_;
};

}  // namespace rdmacoro::detail::sim

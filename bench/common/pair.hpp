// Two processes on two CPUs that exchange messages, and their control messages.
#pragma once

#include "settings.hpp"

#include "../../tools/pingpong/listening_process.hpp"
#include "../../tools/pingpong/watch.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <type_traits>

namespace bench {

using pingpong::watch;

inline constexpr rc::tag_type data_tag = 1;
inline constexpr rc::tag_type go_tag = 2;
inline constexpr rc::tag_type command_tag = 3;

/// Calls `listen` in a child process and `connect` in this one, with what the child reports, each on its CPU; returns when both
/// are done. Throws `run_error`, which `where` begins, when either failed. Precondition: no scheduler and no other thread exists.
void run_processes(const settings& asked, const std::string& where,
                   const pingpong::listening_process::body& listen,
                   const std::function<void(const std::string& address)>& connect);

/// Likewise over one link: the child is the other side, this process the measuring one.
void run_pair(const settings& asked, const link_entry& link, const side& measuring, const side& other);

// Both sides are one program on one machine: control messages are plain values.

template <class Value>
rc::task<> send_value(peer& to, Value value, rc::tag_type tag) {
    static_assert(std::is_trivially_copyable_v<Value>);
    std::array<std::byte, sizeof(Value)> raw;
    std::memcpy(raw.data(), &value, sizeof value);
    pending sending = pending::send(to, raw, tag);
    co_await sending;
}

template <class Value>
rc::task<Value> receive_value(peer& from, rc::tag_type tag) {
    static_assert(std::is_trivially_copyable_v<Value>);
    std::array<std::byte, sizeof(Value)> raw{};
    pending receiving = pending::recv(from, raw, tag);
    const rc::received got = co_await receiving;
    if (got.bytes != raw.size()) throw run_error("the two sides misunderstand each other");
    Value value;
    std::memcpy(&value, raw.data(), sizeof value);
    co_return value;
}

inline rc::task<> send_go(peer& to) { return send_value<std::uint64_t>(to, 0, go_tag); }
rc::task<> receive_go(peer& from);

/// The same, begun but not awaited: `co_await message.sent` later.
struct go_message {
    explicit go_message(peer& to) : sent(pending::send(to, word, go_tag)) {}
    std::array<std::byte, 8> word{};
    pending sent;
};

/// Throws `run_error` when a message has another length than expected.
void check_length(const rc::received& got, std::size_t bytes);

/// Throws `run_error` when the list carries no such message.
void check_size(peer& other, const link_entry& link, std::size_t bytes);

}  // namespace bench

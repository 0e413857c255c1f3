// core_link: what links have in common whose core is a connection of slots and credits: verbs, libfabric.
#pragma once

#include <rdmacoro/transport/concepts.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>

namespace rdmacoro::detail {

/// Who listens to a core.
class core_listener {
public:
    virtual delivery deliver(const message_header& header, std::span<const std::byte> payload) noexcept = 0;
    virtual void writable() noexcept = 0;
    virtual void link_down(std::error_code reason) noexcept = 0;

protected:
    ~core_listener() = default;
};

/// The end of a core that its user sees, and the sink that the core's news go to. Each call is the core's own. `Core::atomics`
/// names the atomics.
template <class Core, class Sink>
class core_link : private core_listener {
public:
    core_link(const core_link&) = delete;
    core_link& operator=(const core_link&) = delete;

    post_result post(const message_header& header, const const_buffers& payload, completion&) noexcept {
        return core_.post(header, payload);  // always copied: by the library, or into a slot
    }
    post_result post_copied(const message_header& header, const const_buffers& payload) noexcept {
        return core_.post(header, payload);
    }
    post_result get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept {
        return core_.get(there, into, c);
    }
    post_result put(std::span<const std::byte> from, const remote_region& there, completion& c) noexcept {
        return core_.put(from, there, c);
    }
    /// Adds `value` to the peer's number at `there`: 8 bytes, aligned to 8, of a region with all rights. What it was before is
    /// in `result`, in this machine's byte order, once `c` is called; it stays borrowed until then. Answers like `get`.
    /// `errc::unsupported` where `capabilities().atomics` is false.
    post_result fetch_add(const remote_region& there, std::uint64_t value, std::uint64_t& result,
                          completion& c) noexcept {
        return core_.atomic(Core::atomics::fetch_add, there, value, 0, result, c);
    }
    /// Sets the peer's number at `there` to `desired` if it is `expected`. As `fetch_add` otherwise.
    post_result compare_swap(const remote_region& there, std::uint64_t expected, std::uint64_t desired,
                             std::uint64_t& result, completion& c) noexcept {
        return core_.atomic(Core::atomics::compare_swap, there, expected, desired, result, c);
    }
    unsigned poll(unsigned budget) noexcept { return core_.poll(budget); }
    lent_buffer keep() noexcept { return core_.keep(); }
    void close(std::error_code reason) noexcept { core_.close(reason); }

    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept { return core_.capabilities(); }
    [[nodiscard]] scheduler& owner() const noexcept { return core_.of().owner(); }
    /// The peer's address, with the transport's scheme before it.
    [[nodiscard]] std::string peer_name() const { return core_.peer_name(); }

    /// What this link did so far.
    [[nodiscard]] const auto& counts() const noexcept { return core_.counts(); }
    /// Messages that may be sent before the peer says that it has consumed earlier ones.
    [[nodiscard]] std::uint32_t credits() const noexcept { return core_.credits(); }

protected:
    core_link(Core& core, Sink& sink) noexcept : core_(core), sink_(sink) { core_.attach(*this); }
    ~core_link() {
        static_assert(message_sink<Sink>);
        core_.abandon();
    }

    Core& core_;

private:
    delivery deliver(const message_header& header, std::span<const std::byte> payload) noexcept override {
        return sink_.deliver(header, payload);
    }
    void writable() noexcept override { sink_.writable(); }
    void link_down(std::error_code reason) noexcept override { sink_.link_down(reason); }

    Sink& sink_;
};

}  // namespace rdmacoro::detail

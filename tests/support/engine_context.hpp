#pragma once

// A context for parts of engines that are tested without a link: it posts nothing, and counts.

#include <rdmacoro/protocol/detail/rendezvous_context.hpp>

#include "support/rendezvous.hpp"

#include <deque>
#include <vector>

namespace rdmacoro::test {

/// A connection whose link is not used.
struct engine_context_parts {
    virtual_time world;
    endpoint_pair<protocols<eager<>>> pair{world.on};
};

class engine_context final : private engine_context_parts, public rdmacoro::detail::rendezvous_context {
public:
    engine_context() noexcept : rendezvous_context(pair.a.connection()) {}
    using engine_context_parts::world;

    struct posted {
        remote_region there;
        completion* c;
    };
    std::deque<posted> posts;                  ///< gets and puts that are under way
    post_result answer = post_result::posted;  ///< to gets and puts
    /// The number of messages that hold the connection's goodbye back.
    [[nodiscard]] std::uint32_t under_way_now() noexcept { return connection().*&counted::active_sends_; }
    std::error_code closed_with{};
    capabilities link{};

    /// Ends the get or put that was posted first.
    void finish(std::error_code outcome = {}) {
        completion& c = *posts.front().c;
        posts.pop_front();
        c.done(c, outcome);
    }

    post_result get(const remote_region& there, std::span<std::byte>, completion& c) noexcept override {
        if (answer == post_result::posted) posts.push_back({there, &c});
        return answer;
    }
    post_result put(std::span<const std::byte>, const remote_region& there, completion& c) noexcept override {
        if (answer == post_result::posted) posts.push_back({there, &c});
        return answer;
    }
    void revoke(completion& c) noexcept override {
        std::erase_if(posts, [&](const posted& p) { return p.c == &c; });
    }
    post_result post_copied(unsigned, std::uint8_t, tag_type, std::span<const std::byte>) noexcept override {
        return post_result::done;
    }
    rdmacoro::detail::unexpected_message* store(tag_type, std::size_t, std::uint32_t) noexcept override {
        return nullptr;
    }
    rdmacoro::detail::receive_request* match(tag_type) noexcept override { return nullptr; }
    void announce(rdmacoro::detail::unexpected_message&) noexcept override {}
    bool pass(std::uint32_t) noexcept override { return true; }
    region expose(std::span<std::byte>, access_rights) noexcept override { return {}; }
    bool touches_closed_memory() noexcept override { return false; }
    [[nodiscard]] const capabilities& link_capabilities() const noexcept override { return link; }
    void under_way() noexcept override { connection().under_way(); }
    void settled() noexcept override { connection().settled(); }
    void sent_at_once(rdmacoro::detail::send_request&) noexcept override {}
    void finish_send(rdmacoro::detail::send_request&, std::error_code) noexcept override {}
    void room_for_sends() noexcept override {}
    void close(std::error_code why) noexcept override { closed_with = why; }
    shared_copy_id open_shared_copy(std::size_t) noexcept override { return no_shared_copy; }
    void close_shared_copy(shared_copy_id) noexcept override {}
    post_result copy_from_front(shared_copy_id, const remote_region&, std::span<std::byte>,
                                completion&) noexcept override {
        return post_result::retry;
    }
    post_result copy_from_back(shared_copy_id, std::span<const std::byte>, const remote_region&,
                               completion&) noexcept override {
        return post_result::retry;
    }

private:
    struct counted : rdmacoro::detail::connection_base {
        using connection_base::active_sends_;
    };
};

}  // namespace rdmacoro::test

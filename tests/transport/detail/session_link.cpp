#include <rdmacoro/transport/detail/session_link.hpp>

#include "support/catch.hpp"
#include "support/recording_sink.hpp"

#include <string>

namespace test_transport_detail_session_link {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// A session that records the calls of its link.
struct recorded_session {
    enum class atomics { none, fetch_add, compare_swap };
    struct counts_type {
        int posts = 0;
    };
    struct engine {
        scheduler* on;
        [[nodiscard]] scheduler& owner() const noexcept { return *on; }
    };

    explicit recorded_session(scheduler& on) noexcept : engine_{&on} {}

    post_result post(const message_header& header, const const_buffers& payload) noexcept {
        ++counts_.posts;
        posted = number_of(header);
        bytes = payload.size();
        return answer;
    }
    post_result get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept {
        got = {there.key, into.size(), &c};
        return post_result::posted;
    }
    post_result put(std::span<const std::byte> from, const remote_region& there, completion& c) noexcept {
        put_ = {there.key, from.size(), &c};
        return post_result::posted;
    }
    post_result atomic(atomics what, const remote_region& there, std::uint64_t first, std::uint64_t second,
                       std::uint64_t& result, completion&) noexcept {
        done = what;
        result = there.key + first * 10 + second * 100;
        return post_result::posted;
    }
    unsigned poll(unsigned budget) noexcept { return budget - 1; }
    lent_buffer keep() noexcept {
        ++keeps;
        return {};
    }
    void attach(detail::session_listener& by) noexcept { listener = &by; }
    void close(std::error_code why) noexcept { closed = why; }
    void abandon() noexcept { ++abandoned; }
    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept { return capabilities_; }
    [[nodiscard]] const counts_type& counts() const noexcept { return counts_; }
    [[nodiscard]] std::string peer_name() const { return "test://peer"; }
    [[nodiscard]] std::uint32_t credits() const noexcept { return 7; }
    [[nodiscard]] const engine& of() const noexcept { return engine_; }

    struct transfer {
        std::uint64_t key = 0;
        std::size_t bytes = 0;
        completion* c = nullptr;
    };
    engine engine_;
    rdmacoro::capabilities capabilities_{};
    counts_type counts_;
    post_result answer = post_result::done;
    std::uint64_t posted = 0;
    std::size_t bytes = 0;
    transfer got;
    transfer put_;
    atomics done = atomics::none;
    int keeps = 0;
    int abandoned = 0;
    std::error_code closed;
    detail::session_listener* listener = nullptr;
};

class linked : public detail::session_link<recorded_session, recording_sink> {
public:
    linked(recorded_session& of, recording_sink& sink) noexcept : session_link(of, sink) {}
};

}  // namespace

TEST_CASE("a link hands its user's calls to the session") {
    scheduler on;
    recorded_session of(on);
    recording_sink sink;
    {
        linked l(of, sink);
        recording_completion c;
        std::vector<std::byte> memory(10);
        CHECK(l.post(header_of(3), const_buffers(std::span<const std::byte>(memory)), c) ==
              post_result::done);
        CHECK(of.posted == 3);
        CHECK(of.bytes == 10);
        of.answer = post_result::retry;
        CHECK(l.post_copied(header_of(4), {}) == post_result::retry);
        CHECK(of.posted == 4);
        CHECK(l.counts().posts == 2);
        const remote_region there{0, 8, 42, access_rights::all};
        CHECK(l.get(there, memory, c) == post_result::posted);
        CHECK((of.got.key == 42 && of.got.bytes == 10 && of.got.c == &c));
        CHECK(l.put(std::span(memory).first(4), there, c) == post_result::posted);
        CHECK((of.put_.key == 42 && of.put_.bytes == 4 && of.put_.c == &c));
        std::uint64_t result = 0;
        CHECK(l.fetch_add(there, 5, result, c) == post_result::posted);
        CHECK(of.done == recorded_session::atomics::fetch_add);
        CHECK(result == 92);
        CHECK(l.compare_swap(there, 1, 2, result, c) == post_result::posted);
        CHECK(of.done == recorded_session::atomics::compare_swap);
        CHECK(result == 252);
        CHECK(l.poll(5) == 4);
        static_cast<void>(l.keep());
        CHECK(of.keeps == 1);
        CHECK(l.credits() == 7);
        CHECK(l.peer_name() == "test://peer");
        CHECK(&l.owner() == &on);
        CHECK(&l.capabilities() == &of.capabilities_);
        l.close(make_error_code(errc::canceled));
        CHECK(of.closed == errc::canceled);
        CHECK(of.abandoned == 0);
    }
    CHECK(of.abandoned == 1);
}

TEST_CASE("a session's messages and events reach the link's sink") {
    scheduler on;
    recorded_session of(on);
    recording_sink sink;
    const linked l(of, sink);
    REQUIRE(of.listener != nullptr);
    const auto payload = pattern(5);
    CHECK(of.listener->deliver(header_of(9), payload) == delivery::taken);
    REQUIRE(sink.messages.size() == 1);
    CHECK(sink.messages.front().number == 9);
    CHECK(sink.messages.front().payload == payload);
    sink.refuse = 1;
    CHECK(of.listener->deliver(header_of(10), payload) == delivery::defer);
    of.listener->writable();
    CHECK(sink.writables == 1);
    of.listener->link_down(make_error_code(errc::peer_lost));
    CHECK(sink.downs == 1);
    CHECK(sink.reason == errc::peer_lost);
}

}  // namespace test_transport_detail_session_link

#include <rdmacoro/protocol/mailbox_base.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <chrono>
#include <cstddef>
#include <vector>

namespace test_protocol_mailbox_base {

using namespace rdmacoro;
using namespace rdmacoro::test;
using detail::mailbox_base;
using detail::unexpected_message;

namespace {

mailbox_options storing(std::size_t bytes) {
    mailbox_options o;
    o.unexpected_bytes = bytes;
    return o;
}

struct receive final : detail::receive_request {
    explicit receive(tag_type tag)
        : receive_request(nullptr, tag_match(tag), any_source, mutable_buffers(), nullptr) {}
};

/// A complete message of a peer that is gone.
void store(mailbox_base& box, tag_type tag) {
    unexpected_message* const m = box.store().make(10);
    REQUIRE(m != nullptr);
    m->from = nullptr;
    m->source = 7;
    m->tag = tag;
    m->bytes = m->stored = 10;
    m->complete = true;
    box.matching().add(*m);
}

}  // namespace

TEST_CASE("a budget is what may be stored for a peer, within its limits") {
    virtual_time world;
    CHECK(mailbox_base(world.on, storing(1), false).budget() == detail::least_budget);
    CHECK(mailbox_base(world.on, storing(8u << 20), false).budget() == (8u << 20) / detail::credit_bytes);
    CHECK(mailbox_base(world.on, storing(~std::size_t{0}), false).budget() == 0x7fffffff);
}

TEST_CASE("messages that are discarded are the ones that match, and they are gone") {
    virtual_time world;
    mailbox_base box(world.on, {}, true);
    store(box, 1);
    store(box, 2);
    store(box, 1);
    CHECK(box.discard(any_source, 1) == 2);
    CHECK(box.matching().unexpected() == 1);
    CHECK(box.discard(any_source, 1) == 0);
    CHECK(box.discard(any_source, any_tag) == 1);
    CHECK(box.matching().unexpected() == 0);
}

TEST_CASE("half of many messages are discarded by a mask in about the time of looking at all of them") {
    virtual_time world;
    mailbox_base box(world.on, {}, true);
    constexpr tag_type each = 8000;
    for (tag_type n = 0; n < each; ++n) store(box, 2 * n);
    for (tag_type n = 0; n < each; ++n) store(box, 2 * n + 1);
    const auto now = [] { return std::chrono::steady_clock::now(); };
    const tag_match none(tag_type{1} << 40, tag_type{1} << 40);
    std::size_t found = 0;
    const auto began = now();
    for (int n = 0; n < 500; ++n) found += box.matching().find(any_source, none) != nullptr ? 1 : 0;
    const auto looked = now();
    CHECK(box.discard(any_source, tag_match(1, 1)) == each);
    const auto took = now() - looked;
    CHECK(found == 0);
    CAPTURE(took.count(), (looked - began).count());
    // From the beginning for each message, it would look at all of them 4,000 times.
    CHECK(took < looked - began);
    CHECK(box.matching().unexpected() == each);
    CHECK(box.matching().find(any_source, tag_match(1, 1)) == nullptr);
    CHECK(box.discard(any_source, any_tag) == each);
    CHECK(box.store().live() == 0);
}

TEST_CASE("a receive that leaves is out of the matcher, or its message is dropped when it comes") {
    virtual_time world;
    mailbox_base box(world.on, {}, true);
    receive left(1);
    box.matching().post(left);
    box.leave(left);
    CHECK(box.matching().posted() == 0);
    receive dropping(1);
    dropping.discards_ = true;
    box.matching().post(dropping);
    box.leave(dropping);
    CHECK(box.matching().posted() == 1);
    CHECK(box.discarding().posted() == 1);
}

TEST_CASE("messages that a function chooses are discarded, and it is asked for each once") {
    virtual_time world;
    mailbox_base box(world.on, {}, true);
    constexpr tag_type each = 1000;
    for (tag_type n = 0; n < each; ++n) store(box, (n % 3) << 60 | n);
    std::size_t asked = 0;
    box.discard_if(any_source, [&asked](tag_type tag) noexcept {
        ++asked;
        return (tag & 1) != 0;
    });
    CHECK(asked == each);
    CHECK(box.matching().unexpected() == each / 2);
    CHECK(box.matching().find(any_source, tag_match(1, 1)) == nullptr);
    CHECK(box.discard(any_source, any_tag) == each / 2);
    CHECK(box.store().live() == 0);
}

}  // namespace test_protocol_mailbox_base

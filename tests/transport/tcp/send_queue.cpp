#include <rdmacoro/transport/tcp/send_queue.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/recording_sink.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace test_transport_tcp_send_queue {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

struct queue_alone {
    std::vector<region_entry> entries{4};
    region_table regions{std::span<region_entry>(entries)};
    tcp_chunk_pool* chunks = new tcp_chunk_pool;
    tcp_item_pool items;
    tcp_send_queue queue{*chunks, items, regions};

    ~queue_alone() {
        queue.clear([](tcp_send_item&) noexcept {});
        chunks->abandon();
    }
    void copy(std::span<const std::byte> bytes) {
        std::byte* to = queue.reserve(bytes.size());
        REQUIRE(to != nullptr);
        std::memcpy(to, bytes.data(), bytes.size());
        queue.commit(bytes.size());
    }
    tcp_send_item& gather(std::span<const std::byte> bytes, tcp_send_item::source from) {
        tcp_send_item* item = queue.new_item();
        REQUIRE(item != nullptr);
        item->from = from;
        item->owner = nullptr;
        item->data = const_buffers(bytes);
        queue.append(*item);
        return *item;
    }
    /// The whole stream as it would be sent, `step` bytes a time.
    std::vector<std::byte> drain(std::size_t step, unsigned& sent) {
        std::vector<std::byte> stream;
        while (!queue.empty()) {
            iovec pieces[4];
            std::size_t described = 0;
            const unsigned count = queue.gather(pieces, 4, described);
            REQUIRE(count > 0);
            std::size_t left = std::min(step, described);
            const std::size_t now = left;
            for (unsigned n = 0; n < count && left > 0; ++n) {
                const auto* from = static_cast<const std::byte*>(pieces[n].iov_base);
                const std::size_t part = std::min(left, pieces[n].iov_len);
                stream.insert(stream.end(), from, from + part);
                left -= part;
            }
            queue.consumed(now, [&](tcp_send_item&) noexcept { ++sent; });
        }
        return stream;
    }
};

}  // namespace

TEST_CASE("copied and gathered bytes leave in the order in which they came, however the kernel takes them") {
    const std::size_t step = GENERATE(1u, 7u, 100u, 100'000u);
    queue_alone q;
    const auto data = test::pattern(5000);
    q.copy(std::span(data).first(10));
    q.gather(std::span(data).subspan(10, 3000), tcp_send_item::source::message);
    q.copy(std::span(data).subspan(3010, 90));
    q.gather(std::span(data).subspan(3100, 1900), tcp_send_item::source::put_data);
    CHECK(q.queue.has_items());
    CHECK(q.queue.copied_bytes() == 100);
    CHECK(q.queue.one_sided_bytes() == 1900);
    unsigned sent = 0;
    CHECK(q.drain(step, sent) == data);
    CHECK(sent == 2);
    CHECK(q.queue.one_sided_bytes() == 0);
    CHECK(q.chunks->in_use() == 0);
}

TEST_CASE("memory that is taken over is sent from a copy") {
    queue_alone q;
    auto data = test::pattern(3000);
    const auto content = data;
    tcp_send_item& item = q.gather(data, tcp_send_item::source::message);
    CHECK(q.queue.take_over(item));
    std::fill(data.begin(), data.end(), std::byte{0});
    unsigned sent = 0;
    CHECK(q.drain(1000, sent) == content);
    CHECK(sent == 1);
}

TEST_CASE("of a region that has gone zeros are sent") {
    queue_alone q;
    const auto data = test::pattern(100);
    tcp_send_item& item = q.gather(data, tcp_send_item::source::get_data);
    item.key = 12345;  // no region's
    unsigned sent = 0;
    CHECK(q.drain(1000, sent) == std::vector<std::byte>(100));
    CHECK(sent == 1);
}

TEST_CASE("items that find no memory are none, whichever part of it is missing, and later ones are whole") {
    if (!test::counts_allocations) SKIP_TEST("needs allocations that fail");
    constexpr std::size_t many = 64 * sizeof(tcp_send_item);
    const bool large_missing = GENERATE(false, true);
    tcp_item_pool items;
    {
        const test::failing_allocations none(large_missing ? many : 1, large_missing ? 2 * many : many - 1);
        CHECK(items.take() == nullptr);
    }
    const std::size_t before = test::allocations();
    tcp_send_item* const first = items.take();
    REQUIRE(first != nullptr);
    CHECK(test::allocations() > before);  // what was taken for the failed one was given back
    std::vector<tcp_send_item*> taken{first};
    for (int n = 0; n < 200; ++n) taken.push_back(items.take());
    std::sort(taken.begin(), taken.end());
    CHECK(taken.front() != nullptr);
    CHECK(std::adjacent_find(taken.begin(), taken.end()) == taken.end());
}

TEST_CASE("a full chunk gives no room until something was sent") {
    queue_alone q;
    const auto data = test::pattern(tcp_chunk::capacity);
    q.copy(data);
    CHECK(q.queue.reserve(1) == nullptr);
    q.queue.consumed(tcp_chunk::capacity / 2, [](tcp_send_item&) noexcept {});
    CHECK(q.queue.reserve(1) != nullptr);
    unsigned sent = 0;
    const auto rest = std::span(data).subspan(tcp_chunk::capacity / 2);
    CHECK(q.drain(100'000, sent) == std::vector<std::byte>(rest.begin(), rest.end()));
}

}  // namespace test_transport_tcp_send_queue

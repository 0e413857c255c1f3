#include <rdmacoro/protocol/engines.hpp>

#include "conformance/transports.hpp"

#include "support/catch.hpp"

namespace test_protocol_engines {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// eager, but it counts what it sends, and takes messages up to 100 bytes only.
struct counted {
    static constexpr std::string_view name = "counted";
    static constexpr std::string_view description = "eager, counted";
    static constexpr std::uint8_t kinds = 1;
    static constexpr std::size_t longest(const capabilities&) noexcept { return 100; }
    static constexpr bool admits(const message_facts& m, const capabilities& link) noexcept {
        return !m.synchronous && m.bytes <= longest(link);
    }
    static constexpr std::uint64_t parameter() noexcept { return 0; }
    static inline std::uint64_t sent = 0;

    template <class Context>
    class engine : public engines::eager_engine<Context, counted> {
        using base = engines::eager_engine<Context, counted>;

    public:
        using base::base;

        start_result start(engines::send_request& r) noexcept {
            const std::uint32_t cost = engines::message_cost(r.from_.size());
            if (!this->context_.credits().take(cost)) return start_result::wait_credit;
            const post_result answer = this->context_.template post<counted>(0, 0, r.tag_, r.from_, r);
            return this->began(answer, r, cost, sent);
        }
    };
};

using how = protocols<counted, segmented<>>;

task<> carried_by_both(world<loopback>& w) {
    auto listening = co_await listen<loopback, how>(w.there(), w.address());
    auto accepting = start(listening.accept());
    endpoint<loopback, how> a = co_await connect<loopback, how>(w.here(), listening.address());
    endpoint<loopback, how> b = co_await accepting;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{101}, std::size_t{9000}}) {
        CAPTURE(bytes);
        const auto data = pattern(bytes, bytes);
        std::vector<std::byte> into(bytes);
        auto receiving = start(b.recv(into, 1));
        co_await a.send(data, 1);
        const received got = co_await receiving;
        CHECK(got.bytes == bytes);
        CHECK(same_bytes(into, data));
    }
    CHECK(counted::sent == 2);
    CHECK(a.counts().segmented_sent == 2);
}

}  // namespace

TEST_CASE("an engine built from the public parts carries messages beside the library's own") {
    conform<in_memory>(carried_by_both);
}

}  // namespace test_protocol_engines

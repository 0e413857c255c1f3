#include <rdmacoro/service/detail/node_record_over.hpp>

#include "support/catch.hpp"
#include "support/nodes.hpp"
#include "support/run.hpp"

#include <cstddef>
#include <utility>

namespace test_service_detail_node_record_over {

using namespace rdmacoro;
using namespace rdmacoro::test;
using detail::counted_ptr;
using detail::last_word_tag;
using detail::leave_reason;
using detail::node_record_over;
using detail::node_use;

TEST_CASE("the word that a node leaves is not for the user's receives, whichever were posted") {
    scheduler on{impatient{}};
    on.run([]() -> task<> {
        auto listening = co_await listen<shm>(fresh_url<shm>());
        auto other = co_await connect<shm>(listening.address());
        const counted_ptr<rdmacoro::detail::node_peer> of(new rdmacoro::detail::node_peer(9, nullptr));
        endpoint<shm> made = co_await listening.accept();
        const counted_ptr<node_record_over<shm>> record(new node_record_over<shm>(
            *of, 0, generation{1}, 0, std::move(made), scheduler::current()->service<shm::domain>()));
        CHECK(record->link->is_open());
        auto users = start(record->end.recv_lent(any_tag));
        const std::byte word{static_cast<std::uint8_t>(leave_reason::idle)};
        co_await other.send(std::span<const std::byte>(&word, 1), last_word_tag);
        const received got = co_await *record->word;
        CHECK(got.bytes == 1);
        CHECK(record->said == word);
        CHECK(!users.done());
        CHECK(record->unread() == 0);
        co_await other.send(std::span<const std::byte>(&word, 1), 5);
        const message for_user = co_await users;
        CHECK(for_user.tag() == 5);
        CHECK(record->traffic() == 2);
        record->abort();
        CHECK(!record->link->is_open());
    }());
}

TEST_CASE("a use counts while it lives") {
    scheduler on{impatient{}};
    on.run([]() -> task<> {
        auto listening = co_await listen<shm>(fresh_url<shm>());
        auto other = co_await connect<shm>(listening.address());
        const counted_ptr<rdmacoro::detail::node_peer> of(new rdmacoro::detail::node_peer(9, nullptr));
        endpoint<shm> made = co_await listening.accept();
        const counted_ptr<node_record_over<shm>> record(new node_record_over<shm>(
            *of, 0, generation{1}, 0, std::move(made), scheduler::current()->service<shm::domain>()));
        {
            node_use first{counted_ptr<rdmacoro::detail::node_record>(record.get())};
            node_use second(std::move(first));
            CHECK(record->uses == 1);
            first = node_use(counted_ptr<rdmacoro::detail::node_record>(record.get()));
            CHECK(record->uses == 2);
            first = node_use(counted_ptr<rdmacoro::detail::node_record>());
            CHECK(record->uses == 1);
        }
        CHECK(record->uses == 0);
        record->abort();
        const auto ended = co_await as_result(*record->word);
        CHECK(!ended);
    }());
}

}  // namespace test_service_detail_node_record_over

#include <rdmacoro/transport/ofi/slots.hpp>

#include "ofi/pair.hpp"

#include <string>

namespace test_transport_ofi_slots {

using namespace rdmacoro;
using namespace rdmacoro::test;
namespace fabric = rdmacoro::detail::fabric;

TEST_CASE("slots have the descriptor that posts need, where the provider wants local memory registered") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "gni");
    CAPTURE(provider);
    const ofi_options options = ofi_here(provider);
    fabric::device device(*provider::find(provider), options);
    fabric::memory_access memory(device);
    CHECK(memory.needs_local() == (provider == "gni"));
    fabric::slot_pool pool(memory, 8001);
    CHECK(pool.slot_bytes() == 8064);  // cache lines
    CHECK(pool.take() == nullptr);
    REQUIRE(pool.reserve(1) == 0);
    fabric::slot* const first = pool.take();
    REQUIRE(first != nullptr);
    CHECK(first->what == fabric::operation::kind::slot);
    CHECK(first->now == fabric::slot::use::idle);
    CHECK((first->descriptor != nullptr) == memory.needs_local());
    first->data[0] = first->data[8063] = std::byte{1};
    first->now = fabric::slot::use::sending;
    pool.give(*first);
    CHECK(first->now == fabric::slot::use::idle);
    CHECK(pool.take() == first);
    pool.unregister();
    CHECK(pool.register_again() == 0);
    CHECK((first->descriptor != nullptr) == memory.needs_local());
    pool.give(*first);
}

}  // namespace test_transport_ofi_slots

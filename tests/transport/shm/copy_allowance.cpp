#include <rdmacoro/transport/shm/copy_allowance.hpp>

#include "support/catch.hpp"

namespace test_transport_shm_copy_allowance {

using rdmacoro::detail::shm::copy_allowance;

TEST_CASE(
    "an account of copies gives pieces until it is used up, none too short to be worth it, and none more") {
    copy_allowance account;
    std::size_t all = 0;
    for (std::size_t piece = account.piece(); piece != 0; piece = account.piece()) {
        CHECK(piece >= copy_allowance::least_piece);
        CHECK(piece <= copy_allowance::in_a_poll);
        const std::size_t used = std::min<std::size_t>(piece, 100'000);
        account.copied(used);
        all += used;
    }
    CHECK(account.used_up());
    CHECK(all >= copy_allowance::in_a_poll);
    CHECK(all < copy_allowance::in_a_poll + copy_allowance::least_piece);
    account.copied(1u << 20);  // what was copied in spite of it
    CHECK(account.used_up());
    account.renew();
    CHECK(account.piece() == copy_allowance::in_a_poll);
}

TEST_CASE("gets and puts of few bytes use an account up by their number, and a few more are made at once") {
    copy_allowance account;
    std::size_t made = 0;
    for (; account.piece_of(8) != 0 && made < 1000; ++made) {
        if (made == 64) CHECK(account.used_up());
        account.copied_piece(8);
    }
    CHECK(made == 64 + copy_allowance::most_short);
    account.copied_piece(0);  // what checks a key counts nothing more
    CHECK(account.piece_of(8) == 0);
    account.renew();
    account.copied(copy_allowance::in_a_poll);
    CHECK(account.piece_of(copy_allowance::always) == copy_allowance::always);
    CHECK(account.piece_of(copy_allowance::always + 1) == 0);
}

}  // namespace test_transport_shm_copy_allowance

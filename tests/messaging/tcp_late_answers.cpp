// Late answers over tcp: see late_answers.cpp.
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/tcp.hpp>

#include "support/late_answers.hpp"
#include "support/over/tcp_variants.hpp"

namespace test_messaging_tcp_late_answers {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("late answers over tcp, by the hundred and by the thousand, leave the link as it was") {
    using world = late_answers<tcp_as_it_comes>;
    scheduler on{impatient{}};
    on.run([](scheduler& here) -> task<> {
        world w(here);
        co_await w.open();
        co_await many_late_answers(w, 150, 900'000);
        co_await many_late_answers(w, 2000, 100);
        co_await keeps_its_place(w, 300'000);
        co_await drops_what_waits(w, 300'000, 10);
    }(on));
}

}  // namespace test_messaging_tcp_late_answers

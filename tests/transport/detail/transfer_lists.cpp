#include <rdmacoro/transport/detail/transfer_lists.hpp>

#include "support/catch.hpp"

#include <vector>

namespace test_transport_detail_transfer_lists {

using namespace rdmacoro;

namespace {

struct transfer : detail::transfer_base, detail::list_node<transfer> {
    bool put = false;
    [[nodiscard]] bool is_put() const noexcept { return put; }
};
static_assert(detail::listed_transfer<transfer>);

/// Gives transfers back to their lists.
struct session {
    detail::transfer_lists<transfer> lists;
    int given_back = 0;
    void give_back(transfer& t) noexcept {
        ++given_back;
        lists.recycle(t);
    }
};

struct recorded : completion {
    recorded() noexcept {
        done = [](completion& c, std::error_code with) noexcept {
            auto& self = static_cast<recorded&>(c);
            ++self.calls;
            self.outcome = with;
        };
    }
    int calls = 0;
    std::error_code outcome;
};

transfer& begin(session& of, recorded& r, bool put) {
    transfer* t = of.lists.take();
    REQUIRE(t != nullptr);
    t->done = &r;
    t->put = put;
    t->code = {};
    of.lists.moves(*t);
    of.lists.begin_partial(*t);
    return *t;
}

}  // namespace

TEST_CASE("transfers that are partly posted are counted, puts apart, until all is posted") {
    session of;
    recorded r;
    transfer& get = begin(of, r, false);
    transfer& put = begin(of, r, true);
    CHECK(of.lists.partial() == 2);
    CHECK(of.lists.partial_puts() == 1);
    of.lists.end_partial(put);
    of.lists.end_partial(put);
    CHECK(of.lists.partial() == 1);
    CHECK(of.lists.partial_puts() == 0);
    of.lists.finish(get);
    CHECK(of.lists.partial() == 0);
}

TEST_CASE("a finished transfer's completion is called once, after the transfer is given back") {
    session of;
    recorded r;
    transfer& t = begin(of, r, false);
    CHECK_FALSE(of.lists.any_finished());
    of.lists.finish(t);
    CHECK(of.lists.any_finished());
    CHECK(of.lists.moving().empty());
    CHECK(r.calls == 0);
    CHECK(of.lists.complete_finished(of) == 1);
    CHECK(r.calls == 1);
    CHECK_FALSE(r.outcome);
    CHECK(of.given_back == 1);
    CHECK(of.lists.complete_finished(of) == 0);
    CHECK(of.lists.take() == &t);
}

TEST_CASE("an aborted transfer ends with the reason, but for a failure of its own") {
    for (const bool link_failed : {false, true}) {
        session of;
        recorded whole;
        recorded refused;
        transfer& a = begin(of, whole, false);
        transfer& b = begin(of, refused, true);
        b.code = errc::access_denied;
        of.lists.abort(a, make_error_code(errc::closed), link_failed);
        of.lists.abort(b, make_error_code(errc::closed), link_failed);
        CHECK(of.lists.partial() == 0);
        CHECK(of.lists.complete_finished(of) == 2);
        CHECK(whole.outcome == errc::closed);
        CHECK(refused.outcome == (link_failed ? errc::closed : errc::access_denied));
    }
}

}  // namespace test_transport_detail_transfer_lists

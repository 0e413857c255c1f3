#include <rdmacoro/transport/shm/one_sided.hpp>

#include "support/catch.hpp"
#include "support/shm_pair.hpp"

#include <memory>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

shm_options served() {
    shm_options options;
    options.use_process_vm = false;
    return options;
}

/// True once an operation that was answered so is over.
bool over(shm_pair& p, post_result answer, const recording_completion& c) {
    return answer == post_result::done ||
           (answer == post_result::posted && p.until([&] { return c.calls == 1; }));
}

}  // namespace

TEST_CASE("gets and puts of any length move exactly their bytes, directly and served by the peer") {
    const bool directly = GENERATE(true, false);
    shm_pair p(directly ? shm_options{} : served());
    if (p.to_far->capabilities().one_sided_offloaded != directly)
        return;  // a kernel that forbids process_vm_readv
    const std::size_t bytes =
        GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{40'000}, std::size_t{3'000'000});
    const std::vector<std::byte> content = pattern(bytes + 2);
    std::vector<std::byte> there = content;
    const region open = p.far.register_memory(there, access_rights::all);
    std::vector<std::byte> here(bytes);
    recording_completion got;
    REQUIRE(over(p, p.to_far->get(open.remote().part(1, bytes), here, got), got));
    CHECK_FALSE(got.outcome);
    CHECK(std::equal(here.begin(), here.end(), content.begin() + 1));
    const std::vector<std::byte> other = pattern(bytes, 2);
    recording_completion put;
    REQUIRE(over(p, p.to_far->put(other, open.remote().part(1, bytes), put), put));
    CHECK_FALSE(put.outcome);
    CHECK(std::equal(other.begin(), other.end(), there.begin() + 1));
    CHECK(there.front() == content.front());
    CHECK(there.back() == content.back());
}

TEST_CASE("what is not allowed ends the operation with its code and leaves the link usable") {
    shm_pair p(GENERATE(true, false) ? shm_options{} : served());
    std::vector<std::byte> memory(100);
    region open = p.far.register_memory(memory, access_rights::remote_read);
    std::vector<std::byte> here(101);
    recording_completion denied;
    REQUIRE(p.to_far->put(std::span(here).first(100), open.remote(), denied) == post_result::posted);
    remote_region long_one = open.remote();
    long_one.length = 101;
    recording_completion beyond;
    REQUIRE(p.to_far->get(long_one, here, beyond) == post_result::posted);
    const remote_region old = open.remote();
    open.reset();
    recording_completion gone;
    REQUIRE(p.to_far->get(old, std::span(here).first(100), gone) == post_result::posted);
    REQUIRE(p.until([&] { return denied.calls == 1 && beyond.calls == 1 && gone.calls == 1; }));
    CHECK(denied.outcome == errc::access_denied);
    CHECK(beyond.outcome == errc::out_of_bounds);
    CHECK(gone.outcome == errc::bad_key);
    CHECK(p.at_near.downs == 0);
    CHECK(memory == std::vector<std::byte>(100));
}

TEST_CASE("more served operations than may be open at a time all end, and a revoked one is never called") {
    shm_pair p(served());
    std::vector<std::byte> memory = pattern(1000);
    const region open = p.far.register_memory(memory, access_rights::remote_read);
    std::vector<std::vector<std::byte>> here(100, std::vector<std::byte>(1000));
    std::vector<std::unique_ptr<recording_completion>> completions;
    for (auto& into : here) {
        completions.push_back(std::make_unique<recording_completion>());
        REQUIRE(p.to_far->get(open.remote(), into, *completions.back()) == post_result::posted);
    }
    static_cast<void>(p.to_far->revoke(*completions[50]));
    REQUIRE(p.until([&] { return completions.back()->calls == 1; }));
    for (std::size_t n = 0; n < 100; ++n) {
        CHECK(completions[n]->calls == (n == 50 ? 0u : 1u));
        if (n != 50) CHECK(here[n] == memory);
    }
    CHECK(here[50] == std::vector<std::byte>(1000));
}

TEST_CASE("what is under way when the link goes ends with its reason") {
    shm_pair p(served());
    std::vector<std::byte> memory(1'000'000);
    const region open = p.far.register_memory(memory, access_rights::remote_read);
    std::vector<std::byte> here(memory.size());
    recording_completion getting;
    REQUIRE(p.to_far->get(open.remote(), here, getting) == post_result::posted);
    p.to_far->close(make_error_code(errc::closed));
    CHECK(getting.calls == 1);
    CHECK(getting.outcome == errc::closed);
}

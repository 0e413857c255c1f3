#include <rdmacoro/transport/shm/one_sided.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/shm_links.hpp"
#include "support/shm_pair.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test_transport_shm_one_sided {

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

/// The pages of private memory that `work` writes: the kernel copies each, as a child has it, too.
template <class Work>
long pages_written(Work work) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) ::pause();
    }
    if (child < 0) throw std::runtime_error("fork");
    const auto faults = [] {
        rusage used{};
        ::getrusage(RUSAGE_THREAD, &used);
        return used.ru_minflt;
    };
    const long before = faults();
    work();
    const long written = faults() - before;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return written;
}

}  // namespace

TEST_CASE("gets and puts of any length move exactly their bytes, directly and served by the peer") {
    const bool directly = GENERATE(true, false);
    shm_pair p(directly ? shm_options{} : served());
    if (p.to_far->capabilities().one_sided_offloaded != directly)
        SKIP_TEST("this kernel forbids process_vm_readv");
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

TEST_CASE("a get that found no memory is tried again") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    shm_pair p(served());
    std::vector<std::byte> there(1'000'000);
    std::vector<std::byte> here(there.size());
    const region open = p.far.register_memory(there, access_rights::all);
    recording_completion got;
    fail_next_allocations(1);
    REQUIRE(p.to_far->get(open.remote(), here, got) == post_result::retry);
    CHECK(p.until([&] { return p.at_near.writables == 1; }));
    REQUIRE(over(p, p.to_far->get(open.remote(), here, got), got));
    CHECK_FALSE(got.outcome);
    CHECK(p.at_near.writables == 1);
}

TEST_CASE(
    "a side without memory for an answer that finds no room ends the link for that, and as no violation") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    shm_pair p(served());
    p.at_near.refuse_all = true;
    while (p.to_near->post_copied(header_of(1), {}) == post_result::done) {}
    std::vector<std::byte> memory(100);
    const region open = p.far.register_memory(memory, access_rights::all);
    std::vector<std::byte> here(memory.size());
    recording_completion got;
    REQUIRE(p.to_far->get(open.remote(), here, got) == post_result::posted);
    for (int n = 0; n < 10; ++n) p.near.poll();
    REQUIRE(p.at_far.downs == 0);
    fail_next_allocations(1);
    p.far.poll();
    fail_next_allocations(0);
    CHECK(p.at_far.downs == 1);
    CHECK(p.at_far.reason == errc::no_resources);
    p.at_near.refuse_all = false;
    REQUIRE(p.until([&] { return p.at_near.downs == 1; }));
    CHECK(p.at_near.reason == errc::peer_lost);
    CHECK(got.outcome == errc::peer_lost);
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

TEST_CASE("a link that is quiet for a while keeps no memory of gets and puts that are over, however many "
          "they were") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    constexpr std::size_t count = 1500;  // more than are freed at a time
    shm_pair p(served());
    std::vector<std::byte> memory = pattern(1000);
    const region open = p.far.register_memory(memory);
    std::vector<std::byte> here(memory.size());
    std::vector<std::unique_ptr<recording_completion>> completions;
    const auto allocated_by_all = [&] {
        completions.clear();
        for (std::size_t n = 0; n < count; ++n)
            completions.push_back(std::make_unique<recording_completion>());
        const std::size_t before = allocations();
        bool posted = true;
        for (auto& completion : completions)
            posted &= p.to_far->get(open.remote(), here, *completion) == post_result::posted;
        const std::size_t allocated = allocations() - before;
        REQUIRE(posted);
        REQUIRE(p.until([&] {
            return std::all_of(completions.begin(), completions.end(),
                               [](const auto& completion) { return completion->calls == 1; });
        }));
        return allocated;
    };
    CHECK(allocated_by_all() >= count);
    CHECK(allocated_by_all() < count);
    CHECK(p.to_far->holds_memory());
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (p.to_far->holds_memory() && std::chrono::steady_clock::now() < limit) p.on.turn();
    CHECK(allocated_by_all() >= count);
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

TEST_CASE("a short get or put that the peer serves waits for a few pieces of the long one before it") {
    const bool read = GENERATE(true, false);
    CAPTURE(read);
    constexpr std::size_t bytes = std::size_t{64} << 20;
    recording_completion long_end;  // the link ends before what it is to call
    recording_completion short_end;
    std::vector<std::byte> source(bytes, std::byte{7});
    std::vector<std::byte> target(bytes);
    std::vector<std::byte> short_target(8);
    shm_pair p(served());
    auto& over = *p.to_far;
    const region open = p.far.register_memory(read ? source : target, access_rights::all);
    const region short_open =
        p.far.register_memory(read ? std::span(source).first(8) : std::span(short_target));
    std::size_t so_far = 0;
    const auto moved = [&] {
        while (so_far < bytes && target[so_far] != std::byte{0}) ++so_far;
        return so_far;
    };
    // The peer is slow: all requests that this side may have open are.
    const auto polls = [&] {
        for (unsigned n = 0; n < 8; ++n) p.near.poll();
        p.far.poll();
    };
    REQUIRE((read ? over.get(open.remote(), target, long_end) : over.put(source, open.remote(), long_end)) ==
            post_result::posted);
    for (unsigned n = 0; n < 100 && moved() == 0; ++n) polls();
    const std::size_t before = moved();
    REQUIRE(before != 0);
    REQUIRE((read ? over.get(short_open.remote(), short_target, short_end)
                  : over.put(std::span(source).first(8), short_open.remote(), short_end)) ==
            post_result::posted);
    for (unsigned n = 0; n < 10'000 && short_end.calls == 0; ++n) polls();
    CHECK(short_end.calls == 1);
    CHECK_FALSE(short_end.outcome);
    CHECK(moved() - before < std::size_t{2} << 20);
    CHECK(long_end.calls == 0);
    REQUIRE(p.until([&] { return long_end.calls == 1; }));
    CHECK_FALSE(long_end.outcome);
    CHECK(target == source);
    CHECK(std::equal(short_target.begin(), short_target.end(), source.begin()));
}

TEST_CASE("gets that the peer serves move alike") {
    constexpr std::size_t count = 40;  // more than may ask at a time
    constexpr std::size_t bytes = std::size_t{1} << 20;
    std::vector<std::unique_ptr<recording_completion>> ends;
    std::vector<std::byte> source(bytes, std::byte{7});
    std::vector<std::vector<std::byte>> targets(count, std::vector<std::byte>(bytes));
    shm_pair p(served());
    const region open = p.far.register_memory(source, access_rights::remote_read);
    for (auto& target : targets) {
        ends.push_back(std::make_unique<recording_completion>());
        REQUIRE(p.to_far->get(open.remote(), target, *ends.back()) == post_result::posted);
    }
    const std::size_t piece = p.to_far->capabilities().max_message;
    std::vector<std::size_t> moved(count);
    std::size_t most_ahead = 0;
    REQUIRE(p.until([&] {
        for (std::size_t n = 0; n < count; ++n)
            while (moved[n] < bytes && targets[n][moved[n]] != std::byte{0}) ++moved[n];
        const auto [least, most] = std::minmax_element(moved.begin(), moved.end());
        most_ahead = std::max(most_ahead, *most - *least);
        return *least == bytes;
    }));
    CHECK(most_ahead <= 2 * piece);
    REQUIRE(
        p.until([&] { return std::ranges::all_of(ends, [](const auto& end) { return end->calls == 1; }); }));
}

TEST_CASE("a poll looks at no gets and puts that cannot go on yet") {
    if (!counts_allocations) SKIP_TEST("a sanitizer writes for each access");
    const bool directly = GENERATE(true, false);
    const bool read = GENERATE(true, false);
    CAPTURE(directly, read);
    constexpr std::size_t count = 50'000;
    constexpr std::size_t bytes = std::size_t{1} << 20;
    std::vector<std::unique_ptr<recording_completion>> ends;
    std::vector<std::byte> there(bytes);
    std::vector<std::byte> here(bytes);
    shm_pair p(directly ? shm_options{} : served());
    if (p.to_far->capabilities().one_sided_offloaded != directly)
        SKIP_TEST("this kernel forbids process_vm_readv");
    const region open = p.far.register_memory(there);
    for (std::size_t n = 0; n < count; ++n) {
        ends.push_back(std::make_unique<recording_completion>());
        REQUIRE((read ? p.to_far->get(open.remote(), here, *ends.back())
                      : p.to_far->put(here, open.remote(), *ends.back())) == post_result::posted);
    }
    for (unsigned n = 0; n < 10; ++n) p.near.poll();
    std::vector<std::byte> known(bytes);
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const auto pages = static_cast<long>(bytes / page);
    if (pages_written([&] {
            for (std::size_t at = 0; at < bytes; at += page) known[at] = std::byte{1};
        }) < pages)
        SKIP_TEST("this kernel does not count the pages that are copied");
    // One that is looked at is put into another place of a list.
    constexpr std::size_t least_of_one = 64;
    const auto pages_of_all = static_cast<long>(count * least_of_one / page);
    CHECK(pages_written([&] { p.near.poll(); }) < pages_of_all / 4);
    p.to_far->close(make_error_code(errc::closed));
    CHECK(std::ranges::all_of(ends, [](const auto& end) { return end->calls == 1; }));
}

TEST_CASE("a short get is not held up by many long ones before it") {
    using detail::shm::copy_allowance;
    constexpr std::size_t count = 1000;
    constexpr std::size_t bytes = 3 * copy_allowance::in_a_poll;
    std::vector<std::unique_ptr<recording_completion>> ends;
    std::vector<std::unique_ptr<recording_completion>> short_ends;
    std::vector<std::byte> there(bytes, std::byte{7});
    std::vector<std::byte> here(bytes);
    shm_pair p;
    if (!p.to_far->capabilities().one_sided_offloaded) SKIP_TEST("this kernel forbids process_vm_readv");
    const region open = p.far.register_memory(there);
    for (std::size_t n = 0; n < count; ++n) {
        ends.push_back(std::make_unique<recording_completion>());
        REQUIRE(p.to_far->get(open.remote(), here, *ends.back()) == post_result::posted);
    }
    for (std::size_t n = 0; n < 3 * copy_allowance::most_short; ++n) {
        short_ends.push_back(std::make_unique<recording_completion>());
        static_cast<void>(
            p.to_far->get(open.remote().part(0, 8), std::span(here).first(8), *short_ends.back()));
    }
    for (unsigned n = 0; n < 8; ++n) p.near.poll();
    CHECK(short_ends.back()->calls == 1);
    CHECK(ends.back()->calls == 0);
    p.to_far->close(make_error_code(errc::closed));
}

TEST_CASE("one poll copies no more for gets and puts that the peer serves than for others, on either side, "
          "and each "
          "link has its turn") {
    using detail::shm::copy_allowance;
    constexpr std::size_t links = 4;
    constexpr std::size_t each = 2;
    const bool read = GENERATE(true, false);
    const bool at_server = GENERATE(true, false);
    CAPTURE(read, at_server);
    shm_links l(links, served());
    const std::size_t block = l.links[0]->to_far->capabilities().max_message;
    const std::size_t bytes = 32 * (block - 24);  // no piece is short: those do not wait
    std::vector<std::byte> source(bytes, std::byte{7});
    std::vector<std::vector<std::byte>> targets(links * each, std::vector<std::byte>(bytes));
    std::vector<region> open;
    std::vector<std::unique_ptr<recording_completion>> ends;
    if (read) open.push_back(l.far.register_memory(source, access_rights::remote_read));
    for (std::size_t n = 0; n < targets.size(); ++n) {
        auto& over = *l.links[n % links]->to_far;
        ends.push_back(std::make_unique<recording_completion>());
        if (read) {
            REQUIRE(over.get(open[0].remote(), targets[n], *ends[n]) == post_result::posted);
        } else {
            open.push_back(l.far.register_memory(targets[n], access_rights::remote_write));
            REQUIRE(over.put(source, open.back().remote(), *ends[n]) == post_result::posted);
        }
    }
    std::vector<std::size_t> moved(targets.size());
    const auto all_moved = [&] {
        std::size_t sum = 0;
        for (std::size_t n = 0; n < targets.size(); ++n) {
            while (moved[n] < bytes && targets[n][moved[n]] != std::byte{0}) ++moved[n];
            sum += moved[n];
        }
        return sum;
    };
    shm::domain& measured = at_server ? l.far : l.near;
    shm::domain& other = at_server ? l.near : l.far;
    std::size_t before = 0;
    std::size_t most = 0;
    std::size_t full = 0;
    std::size_t rounds = 0;
    std::size_t until_all_began = 0;
    for (; rounds < 1000 && before < targets.size() * bytes; ++rounds) {
        measured.poll();
        // The other side takes all that there is for it, so that what moves is what one poll of this side lets move.
        for (unsigned n = 0; n < 50; ++n) other.poll();
        const std::size_t now = all_moved();
        most = std::max(most, now - before);
        if (now - before >= copy_allowance::in_a_poll - block) ++full;
        before = now;
        std::size_t begun = 0;
        while (begun < links && moved[begun] != 0) ++begun;
        if (begun != links) until_all_began = rounds + 1;
    }
    CHECK(before == targets.size() * bytes);
    CHECK(full >= 20);  // there was more to copy than one poll may
    CHECK(most <= copy_allowance::in_a_poll + block);
    CHECK(until_all_began <= 2 * links + 2);
    CHECK(rounds <= 4 * targets.size() * bytes / copy_allowance::in_a_poll);
    for (int n = 0; n < 10; ++n) {
        l.near.poll();
        l.far.poll();
    }
    for (const auto& end : ends) {
        CHECK(end->calls == 1);
        CHECK_FALSE(end->outcome);
    }
    CHECK(std::count(targets.begin(), targets.end(), source) == static_cast<std::ptrdiff_t>(targets.size()));
}

TEST_CASE("a side that goes to sleep while served puts and gets wait for the next poll finds them at once") {
    using detail::shm::copy_allowance;
    constexpr std::size_t links = 4;
    const bool read = GENERATE(true, false);
    CAPTURE(read);
    shm_links l(links, served());
    const std::size_t bytes = 4 * copy_allowance::in_a_poll - 4096;  // one link's may be asked for at once
    std::vector<std::byte> source(bytes, std::byte{7});
    std::vector<std::vector<std::byte>> targets(links, std::vector<std::byte>(bytes));
    std::vector<region> open;
    std::vector<std::unique_ptr<recording_completion>> ends;
    for (std::size_t n = 0; n < links; ++n) {
        ends.push_back(std::make_unique<recording_completion>());
        auto& over = *l.links[n]->to_far;
        open.push_back(l.far.register_memory(read ? source : targets[n]));
        REQUIRE((read ? over.get(open.back().remote(), targets[n], *ends[n])
                      : over.put(source, open.back().remote(), *ends[n])) == post_result::posted);
    }
    for (unsigned n = 0; n < 100; ++n) l.near.poll();
    const auto moved = [&] {
        if (read) {
            for (unsigned n = 0; n < 100; ++n) l.near.poll();
        }
        std::size_t sum = 0;
        for (const auto& target : targets)
            sum += static_cast<std::size_t>(std::count(target.begin(), target.end(), std::byte{7}));
        return sum;
    };
    // Each poll is one that a scheduler makes before it sleeps: it sleeps when that finds nothing.
    std::size_t polls = 0;
    for (bool awake = true; awake && polls < 1000; ++polls) {
        l.far.arm();
        awake = l.far.poll();
        l.far.disarm();
        if (polls == 0) CHECK(moved() < links * bytes / 2);
    }
    CHECK(polls < 1000);
    CHECK(moved() == links * bytes);
    for (unsigned n = 0; n < 100; ++n) l.near.poll();
    for (const auto& end : ends) CHECK(end->calls == 1);
}

TEST_CASE("memory of a rendezvous is served to the peer that was told of it alone, other memory to each that "
          "has the key") {
    shm_links l(2, served());
    std::vector<std::byte> memory = pattern(100);
    const std::vector<std::byte> content = memory;
    const std::vector<std::byte> other = pattern(100, 2);
    std::vector<std::byte> into(100);
    const region told = l.links[0]->to_near->expose(memory, access_rights::all);
    REQUIRE(told);
    for (const std::size_t link : {std::size_t{1}, std::size_t{0}}) {
        CAPTURE(link);
        recording_completion put;
        REQUIRE(l.links[link]->to_far->put(other, told.remote(), put) == post_result::posted);
        REQUIRE(l.until([&] { return put.calls == 1; }));
        recording_completion get;
        REQUIRE(l.links[link]->to_far->get(told.remote(), into, get) == post_result::posted);
        REQUIRE(l.until([&] { return get.calls == 1; }));
        if (link == 0) {
            CHECK_FALSE(put.outcome);
            CHECK_FALSE(get.outcome);
            CHECK(memory == other);
            CHECK(into == other);
        } else {
            CHECK(put.outcome == errc::bad_key);
            CHECK(get.outcome == errc::bad_key);
            CHECK(memory == content);
            CHECK(into == std::vector<std::byte>(100));
        }
    }
    const region any = l.far.register_memory(memory, access_rights::all);
    for (const auto& each : l.links) {
        recording_completion get;
        std::vector<std::byte> here(100);
        REQUIRE(each->to_far->get(any.remote(), here, get) == post_result::posted);
        REQUIRE(l.until([&] { return get.calls == 1; }));
        CHECK_FALSE(get.outcome);
        CHECK(here == memory);
        CHECK(each->at_near.downs + each->at_far.downs == 0);
    }
}

TEST_CASE(
    "one poll copies no more for many transfers than for one, and each of them and each link has its turn") {
    using detail::shm::copy_allowance;
    constexpr std::size_t links = 4;
    constexpr std::size_t each = 25;
    constexpr std::size_t bytes = 3 * copy_allowance::in_a_poll;
    constexpr std::size_t page = 4096;
    const bool read = GENERATE(true, false);
    shm_links l(links, {});
    if (!l.links[0]->to_far->capabilities().one_sided_offloaded)
        SKIP_TEST("this kernel forbids process_vm_readv");
    std::vector<std::byte> source(bytes, std::byte{7});
    std::vector<std::vector<std::byte>> targets(links * each, std::vector<std::byte>(bytes));
    std::vector<region> open;
    std::vector<std::unique_ptr<recording_completion>> ends;
    if (read) open.push_back(l.far.register_memory(source, access_rights::remote_read));
    const auto moved = [&](std::size_t n) {
        std::size_t pages = 0;
        while (pages < bytes / page && targets[n][pages * page] != std::byte{0}) ++pages;
        return pages * page;
    };
    const auto all_moved = [&] {
        std::size_t sum = 0;
        for (std::size_t n = 0; n < targets.size(); ++n) sum += moved(n);
        return sum;
    };
    for (std::size_t n = 0; n < targets.size(); ++n) {
        auto& over = *l.links[n / each]->to_far;
        ends.push_back(std::make_unique<recording_completion>());
        if (read) {
            REQUIRE(over.get(open[0].remote(), targets[n], *ends[n]) == post_result::posted);
        } else {
            open.push_back(l.far.register_memory(targets[n], access_rights::remote_write));
            REQUIRE(over.put(source, open.back().remote(), *ends[n]) == post_result::posted);
        }
    }
    // Also where they begin: in one turn of a message's receiver.
    std::size_t before = all_moved();
    CHECK(before <= copy_allowance::in_a_poll + copy_allowance::least_piece);
    std::size_t polls = 0;
    std::size_t most = 0;
    bool all_begun = false;
    for (; polls < 1000 && before < targets.size() * bytes; ++polls) {
        l.near.poll();
        const std::size_t now = all_moved();
        most = std::max(most, now - before);
        before = now;
        if (all_begun) continue;
        std::size_t begun = 0;
        std::size_t far_ahead = 0;
        for (std::size_t n = 0; n < targets.size(); ++n) {
            if (moved(n) != 0) ++begun;
            if (moved(n) > 2 * copy_allowance::in_a_poll) ++far_ahead;
        }
        all_begun = begun == targets.size();
        // None has a second turn before all have had the first; the first of them had a piece when it began.
        if (!all_begun) CHECK(far_ahead == 0);
    }
    CHECK(before == targets.size() * bytes);
    CHECK(all_begun);
    CHECK(most <= copy_allowance::in_a_poll + copy_allowance::least_piece);
    CHECK(polls < 3 * targets.size() + 40);  // each poll copies what it may
    for (int n = 0; n < 10; ++n) l.near.poll();
    for (const auto& end : ends) {
        CHECK(end->calls == 1);
        CHECK_FALSE(end->outcome);
    }
}

TEST_CASE("puts of a side go on while peers put to it without end over several links") {
    constexpr std::size_t links = 2;
    constexpr std::size_t bytes = std::size_t{4} << 20;
    constexpr std::size_t piece = std::size_t{256} << 10;
    // The links end before what they are to call.
    std::vector<std::unique_ptr<recording_completion>> own;
    std::vector<std::vector<std::unique_ptr<recording_completion>>> stream(links);
    std::vector<std::byte> source(bytes, std::byte{7});
    std::vector<std::byte> there(links * bytes);
    std::vector<std::byte> here(links * piece);
    shm_links l(links, served());
    const region far_memory = l.far.register_memory(there, access_rights::remote_write);
    const region near_memory = l.near.register_memory(here, access_rights::remote_write);
    for (std::size_t n = 0; n < links; ++n) {
        own.push_back(std::make_unique<recording_completion>());
        REQUIRE(l.links[n]->to_far->put(source, far_memory.remote().part(n * bytes, bytes), *own[n]) ==
                post_result::posted);
    }
    const auto all_over = [&] {
        return std::ranges::all_of(own, [](const auto& one) { return one->calls != 0; });
    };
    std::size_t polls = 0;
    std::size_t dry = 0;
    for (; polls < 2000 && !all_over(); ++polls) {
        for (std::size_t n = 0; n < links; ++n) {
            auto& mine = stream[n];
            auto under_way =
                std::count_if(mine.begin(), mine.end(), [](const auto& one) { return one->calls == 0; });
            if (polls != 0 && under_way == 0) ++dry;
            for (; under_way < 4; ++under_way) {
                // They move alike: of different lengths, so that they do not all end together.
                const std::size_t length = piece / 4 * (1 + mine.size() % 4);
                mine.push_back(std::make_unique<recording_completion>());
                REQUIRE(l.links[n]->to_near->put(std::span(source).first(length),
                                                 near_memory.remote().part(n * piece, length),
                                                 *mine.back()) == post_result::posted);
            }
        }
        l.near.poll();
        // Those have each a scheduler of their own, most often.
        for (int n = 0; n < 4; ++n) l.far.poll();
    }
    CHECK(all_over());
    CHECK(dry == 0);
    for (const auto& mine : stream) CHECK(mine.size() > 8);
    for (const auto& one : own) CHECK_FALSE(one->outcome);
}

}  // namespace test_transport_shm_one_sided

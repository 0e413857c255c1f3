#include "conformance.hpp"

#include <algorithm>
#include <deque>
#include <set>

namespace test_conformance_one_sided {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// That messages still go both ways.
task<> still_talks(two_domains::pair& p) {
    std::uint64_t got = 0;
    const std::uint64_t said = 77;
    co_await p.a.send(bytes_of(said), 1000);
    co_await p.b.recv(room_for(got), 1000);
    CHECK(got == 77);
    co_await p.b.send(bytes_of(said), 1001);
    co_await p.a.recv(room_for(got), 1001);
}

/// Whether the link can get these bytes to there.
bool may_get(const capabilities& link, const remote_region& from, std::span<const std::byte> into) {
    return ((from.address | from.length | reinterpret_cast<std::uintptr_t>(into.data())) %
            link.get_alignment) == 0;
}

task<> all_sizes(two_domains& w) {
    auto p = co_await w.connected();
    const capabilities& link = p.a.link_capabilities();
    const std::size_t most = (std::size_t{3} << 20) + 5;
    std::vector<std::byte> memory = pattern(most + 64, 1);
    const region open = w.there().register_memory(memory, access_rights::all);
    CHECK(open.remote().length == memory.size());
    std::vector<std::size_t> sizes{0, 1, 7, 8, 4096, most};
    for (const std::size_t limit : {link.max_message, link.segment_bytes}) {
        for (const std::size_t near : {limit - 33, limit - 1, limit, limit + 1}) sizes.push_back(near);
    }
    for (const std::size_t bytes : sizes) {
        for (const std::size_t offset : {std::size_t{0}, std::size_t{33}}) {
            std::vector<std::byte> here(bytes);
            if (may_get(link, open.remote().part(offset, bytes), here)) {
                co_await p.a.rdma_get(open.remote().part(offset, bytes), here);
                CHECK(same_bytes(here, std::span(memory).subspan(offset, bytes)));
            }
            const auto data = pattern(bytes, bytes + offset);
            const std::vector<std::byte> before = memory;
            co_await p.a.rdma_put(data, open.remote().part(offset, bytes));
            CHECK(is_pattern(std::span(memory).subspan(offset, bytes), bytes + offset));
            const auto behind = offset + bytes;
            CHECK(same_bytes(std::span(memory).first(offset), std::span(before).first(offset)));
            CHECK(same_bytes(std::span(memory).subspan(behind), std::span(before).subspan(behind)));
        }
    }
}
CONFORMANCE_CASE("get and put move all sizes and touch nothing else", every_transport) {
    conform(over, all_sizes);
}

/// Where a refusal ends the link: that it does, at both ends, that nothing was moved, and that others can connect.
task<> refusals_that_end(two_domains& w) {
    const std::vector<std::byte> original = pattern(100000, 1);
    std::vector<std::byte> memory = original;
    region both = w.there().register_memory(memory, access_rights::all);
    const region read_only = w.there().register_memory(memory, access_rights::remote_read);
    const region closed_region = w.there().register_memory(memory, access_rights::none);
    const remote_region good = both.remote().part(100, 5000);
    remote_region wrong_key = good;
    wrong_key.key ^= 1u << 20;  // the one next to it may be a region's, where devices number them
    remote_region boasting = read_only.remote().part(0, 100);
    boasting.rights = access_rights::all;
    const std::uint64_t end = both.remote().address + both.remote().length;
    struct refusal {
        remote_region there;
        bool get;
        bool put;
    };
    const refusal cases[] = {
        {wrong_key, true, true},
        {{end - 99, 100, good.key}, true, true},
        {{both.remote().address - 1, 10, good.key}, true, true},
        {{~std::uint64_t{0} - 5, 10, good.key}, true, true},
        {boasting, false, true},
        // (One software device lets peers read whatever is registered.)
        {closed_region.remote().part(0, 100), false, true},
    };
    const std::byte untouched{0x5a};
    const auto is_refusal = [](std::error_code code) {
        return code == errc::bad_key || code == errc::out_of_bounds || code == errc::access_denied ||
               code == errc::peer_lost;  // it hung up, and did not say why
    };
    const auto try_it = [&](const remote_region& there, bool get) -> task<> {
        auto p = co_await w.connected();
        std::vector<std::byte> here(there.length, untouched);
        auto listening = start(p.b.recv({}));
        if (get) {
            const auto got = co_await as_result(p.a.rdma_get(there, here));
            CHECK(is_refusal(got.error()));
            CHECK(all_are(untouched, here));
        } else {
            const auto put = co_await as_result(p.a.rdma_put(here, there));
            CHECK(is_refusal(put.error()));
        }
        CHECK(same_bytes(memory, original));
        const auto next = co_await as_result(p.a.recv({}));
        CHECK(is_refusal(next.error()));
        const auto other = co_await as_result(listening);
        CHECK(other.error() == errc::peer_lost);
    };
    for (const refusal& r : cases) {
        CAPTURE(&r - cases);
        if (r.get) co_await try_it(r.there, true);
        if (r.put) co_await try_it(r.there, false);
    }
    auto p = co_await w.connected();
    std::vector<std::byte> here(good.length);
    co_await p.a.rdma_get(good, here);
    CHECK(std::equal(here.begin(), here.end(), original.begin() + 100));
    both.reset();
    co_await try_it(good, true);
    co_await try_it(good, false);
    co_await still_talks(p);
}

task<> refusals(two_domains& w) {
    auto p = co_await w.connected();
    if (p.a.link_capabilities().ends_on_refusal) {
        co_await refusals_that_end(w);
        co_return;
    }
    const std::vector<std::byte> original = pattern(100000, 1);
    std::vector<std::byte> memory = original;
    region both = w.there().register_memory(memory, access_rights::all);
    const region read_only = w.there().register_memory(memory, access_rights::remote_read);
    const region write_only = w.there().register_memory(memory, access_rights::remote_write);
    const region closed_region = w.there().register_memory(memory, access_rights::none);
    const std::byte untouched{0x5a};
    struct refusal {
        remote_region there;
        errc get;
        errc put;
    };
    const remote_region good = both.remote().part(100, 5000);
    const auto with_key = [&](std::uint64_t key) {
        remote_region wrong = good;
        wrong.key = key;
        return wrong;
    };
    const std::uint64_t end = both.remote().address + both.remote().length;
    remote_region boasting = read_only.remote().part(0, 100);
    boasting.rights = access_rights::all;  // rights in a peer's description are not trusted
    const refusal cases[] = {
        {with_key(0), errc::bad_key, errc::bad_key},
        {with_key(good.key ^ (std::uint64_t{1} << 20)), errc::bad_key, errc::bad_key},
        {with_key(good.key ^ 1), errc::bad_key, errc::bad_key},
        {with_key(good.key | 0xffff), errc::bad_key, errc::bad_key},
        {with_key(~std::uint64_t{0}), errc::bad_key, errc::bad_key},
        {{end - 99, 100, good.key}, errc::out_of_bounds, errc::out_of_bounds},
        {{end + 1, 0, good.key}, errc::out_of_bounds, errc::out_of_bounds},
        {{both.remote().address - 1, 10, good.key}, errc::out_of_bounds, errc::out_of_bounds},
        {{0, 10, good.key}, errc::out_of_bounds, errc::out_of_bounds},
        {{~std::uint64_t{0} - 5, 10, good.key}, errc::out_of_bounds, errc::out_of_bounds},
        {{both.remote().address, 100001, good.key}, errc::out_of_bounds, errc::out_of_bounds},
        {read_only.remote().part(0, 100), errc::ok, errc::access_denied},
        {boasting, errc::ok, errc::access_denied},
        {write_only.remote().part(0, 100), errc::access_denied, errc::ok},
        {closed_region.remote().part(0, 100), errc::access_denied, errc::access_denied},
    };
    for (const refusal& r : cases) {
        CAPTURE(&r - cases);
        std::vector<std::byte> here(r.there.length, untouched);
        if (may_get(p.a.link_capabilities(), r.there, here)) {
            const auto got = co_await as_result(p.a.rdma_get(r.there, here));
            CHECK(got.error() == r.get);
        }
        if (r.get != errc::ok) {
            CHECK(all_are(untouched, here));
        }
        const auto put = co_await as_result(p.a.rdma_put(std::span(original).first(here.size()), r.there));
        CHECK(put.error() == r.put);
        CHECK(same_bytes(memory, original));
    }
    // Lengths that differ.
    std::vector<std::byte> here(10);
    const auto longer = co_await as_result(p.a.rdma_get(good, here));
    CHECK(longer.error() == errc::invalid_argument);
    const auto shorter = co_await as_result(p.a.rdma_put(here, good));
    CHECK(shorter.error() == errc::invalid_argument);
    // Deregistered.
    both.reset();
    here.assign(good.length, untouched);
    const auto late_get = co_await as_result(p.a.rdma_get(good, here));
    CHECK(late_get.error() == errc::bad_key);
    const auto late_put = co_await as_result(p.a.rdma_put(here, good));
    CHECK(late_put.error() == errc::bad_key);
    CHECK(same_bytes(memory, original));
    // The place in the table is used again, under another key.
    const region again = w.there().register_memory(memory, access_rights::all);
    CHECK(again.remote().key != good.key);
    const auto stale = co_await as_result(p.a.rdma_get(good, here));
    CHECK(stale.error() == errc::bad_key);
    co_await p.a.rdma_get(again.remote().part(0, here.size()), here);
    CHECK(std::equal(here.begin(), here.end(), original.begin()));
    co_await still_talks(p);
}
CONFORMANCE_CASE("a get or put without key, range or right is refused and the link goes on, or ends "
                 "where the transport says so",
                 every_transport) {
    conform(over, refusals);
}

task<> no_bytes_are_checked(two_domains& w) {
    auto p = co_await w.connected();
    std::vector<std::byte> memory(100);
    region open = w.there().register_memory(memory, access_rights::remote_read);
    const remote_region none = open.remote().part(100, 0);
    co_await p.a.rdma_get(none, {});
    if (p.a.link_capabilities().ends_on_refusal) {  // the device checks, and of no bytes need not
        co_await still_talks(p);
        co_return;
    }
    const auto put = co_await as_result(p.a.rdma_put({}, none));
    CHECK(put.error() == errc::access_denied);
    open.reset();
    const auto get = co_await as_result(p.a.rdma_get(none, {}));
    CHECK(get.error() == errc::bad_key);
}
CONFORMANCE_CASE("a get or put of no bytes checks the key and the right all the same, unless a device checks",
                 every_transport) {
    conform(over, no_bytes_are_checked);
}

task<> many_at_once(two_domains& w) {
    auto p = co_await w.connected();
    constexpr std::size_t count = 200;
    constexpr std::size_t bytes = 20000;
    std::vector<std::byte> source = pattern(count * bytes, 5);
    std::vector<std::byte> target(count * bytes);
    const region from = w.there().register_memory(source, access_rights::remote_read);
    const region to = w.here().register_memory(target, access_rights::remote_write);
    using get_type = decltype(start(p.a.rdma_get(from.remote(), source)));
    std::deque<get_type> gets;
    std::deque<get_type> puts;
    std::vector<std::vector<std::byte>> here(count, std::vector<std::byte>(bytes));
    for (std::size_t i = 0; i < count; ++i) {
        gets.emplace_back(p.a.rdma_get(from.remote().part(i * bytes, bytes), here[i]));
        puts.emplace_back(
            p.b.rdma_put(std::span(source).subspan(i * bytes, bytes), to.remote().part(i * bytes, bytes)));
    }
    const std::uint64_t said = 4;
    co_await p.a.send(bytes_of(said));
    std::uint64_t heard = 0;
    co_await p.b.recv(room_for(heard));
    for (auto& g : gets) co_await g;
    for (auto& s : puts) co_await s;
    for (std::size_t i = 0; i < count; ++i) {
        CHECK(std::equal(here[i].begin(), here[i].end(),
                         source.begin() + static_cast<std::ptrdiff_t>(i * bytes)));
    }
    CHECK(target == source);
}
CONFORMANCE_CASE("hundreds of gets and puts run at once, both ways, beside messages", every_transport) {
    conform(over, many_at_once);
}

task<> put_then_send(two_domains& w) {
    auto p = co_await w.connected();
    const bool ordered = p.a.link_capabilities().put_before_send;
    CHECK(ordered == w.is().puts_before_sends);
    std::vector<std::byte> memory(300000);
    const region open = w.there().register_memory(memory, access_rights::all);
    for (std::uint64_t round = 1; round <= 50; ++round) {
        const auto data = pattern(memory.size(), round);
        auto putting = start(p.a.rdma_put(data, open.remote()));
        auto sending = start(p.a.send(bytes_of(round)));
        std::uint64_t told = 0;
        co_await p.b.recv(room_for(told));
        CHECK(told == round);
        if (!ordered) co_await putting;
        CHECK(is_pattern(memory, round));
        if (ordered) co_await putting;
        co_await sending;
    }
}
CONFORMANCE_CASE("a message sent after a put comes after the put's data, where the transport says so",
                 every_transport) {
    conform(over, put_then_send);
}

task<> take_tickets(peer& from, remote_region counter, int count, std::vector<std::uint64_t>& taken) {
    for (int n = 0; n < count; ++n) {
        const std::uint64_t ticket = co_await from.rdma_fetch_add(counter, 1);
        taken.push_back(ticket);
    }
}

task<> atomics(two_domains& w) {
    auto p = co_await w.connected();
    if (!w.is().has_atomics) {  // nor the functions for them
        CHECK_FALSE(p.a.link_capabilities().atomics);
        co_return;
    }
    auto q = co_await w.connected();
    alignas(8) std::uint64_t numbers[3] = {100, 7, 0};
    const region open =
        w.there().register_memory(std::as_writable_bytes(std::span(numbers)), access_rights::all);
    const remote_region first = open.remote().part(0, 8);
    if (!p.a.link_capabilities().atomics) {
        const auto added = co_await as_result(p.a.rdma_fetch_add(first, 5));
        CHECK(added.error() == errc::unsupported);
        const auto swapped = co_await as_result(p.a.rdma_compare_swap(first, 100, 5));
        CHECK(swapped.error() == errc::unsupported);
        CHECK(numbers[0] == 100);
        co_await still_talks(p);
        co_return;
    }
    const std::uint64_t before = co_await p.a.rdma_fetch_add(first, 5);
    CHECK(before == 100);
    CHECK(numbers[0] == 105);
    const std::uint64_t found = co_await p.a.rdma_compare_swap(first, 105, 9);
    CHECK(found == 105);
    CHECK(numbers[0] == 9);
    const std::uint64_t other = co_await p.a.rdma_compare_swap(first, 105, 10);
    CHECK(other == 9);
    CHECK(numbers[0] == 9);
    CHECK(numbers[1] == 7);
    const auto odd = co_await as_result(p.a.rdma_fetch_add(open.remote().part(4, 8), 1));
    CHECK(odd.error() == errc::invalid_argument);

    const remote_region counter = open.remote().part(16, 8);
    std::vector<std::uint64_t> here;
    std::vector<std::uint64_t> there;
    co_await when_all(take_tickets(p.a, counter, 50, here), take_tickets(q.a, counter, 50, there));
    CHECK(numbers[2] == 100);
    here.insert(here.end(), there.begin(), there.end());
    std::sort(here.begin(), here.end());
    for (std::size_t n = 0; n < here.size(); ++n) CHECK(here[n] == n);
    co_await still_talks(p);
}
CONFORMANCE_CASE("atomics of several peers all count and tell what was before, or say that there are none",
                 every_transport) {
    conform(over, atomics);
}

task<> regions_come_and_go(two_domains& w) {
    auto p = co_await w.connected();
    std::vector<std::byte> memory = pattern(64, 2);
    std::vector<std::byte> here(64);
    std::vector<remote_region> old;
    for (int round = 0; round < 2000; ++round) {
        region open = w.there().register_memory(memory, access_rights::remote_read);
        co_await p.a.rdma_get(open.remote(), here);
        old.push_back(open.remote());
    }
    CHECK(here == memory);
    if (!p.a.link_capabilities().ends_on_refusal) {  // a device makes its keys by itself
        std::set<std::uint64_t> keys;
        for (const remote_region& one : old) keys.insert(one.key);
        CHECK(keys.size() == old.size());
    }
    for (std::size_t i = 0; i < old.size(); i += 97) {
        const auto stale = co_await as_result(p.a.rdma_get(old[i], here));
        if (p.a.link_capabilities().ends_on_refusal) {
            CHECK(stale.error());
            break;
        }
        CHECK(stale.error() == errc::bad_key);
    }
}
CONFORMANCE_CASE("thousands of registrations reuse their places and never a key", every_transport) {
    conform(over, regions_come_and_go);
}

}  // namespace

}  // namespace test_conformance_one_sided

// Everything that a peer can write about calls: heads of requests, of answers, of items and notes, true ones, changed ones and any bytes,
// between the calls and streams of this side. The input is a script. Nothing may crash, leak or wait for ever; the sanitizers see
// the rest.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/calls.hpp>

#include "fuzz/script.hpp"
#include "support/scripted_peer.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

struct point {
    float x, y, z;
};
struct kv {
    static constexpr method<"kv.add", std::uint64_t(std::uint64_t, std::uint64_t)> add{};
    static constexpr method<"kv.later", std::uint64_t(std::uint64_t)> later{};
    static constexpr method<"kv.text", std::string(std::string, std::optional<std::string>)> text{};
    static constexpr method<"kv.sum", double(std::span<const point>)> sum{};
    static constexpr method<"kv.note", one_way(std::map<std::string, bool>)> note{};
    static constexpr method<"kv.scan", stream<std::string>(std::uint16_t)> scan{};
    static constexpr method<"kv.load", std::uint64_t(stream<std::string>)> load{};
    static constexpr method<"kv.both", stream<point>(std::uint16_t, stream<point>)> both{};
    static constexpr method<"kv.none", void(stream<std::tuple<>>)> none{};
};

void offer(service& all) {
    all.on(kv::add, [](call_context&, std::uint64_t a, std::uint64_t b) { return a + b; });
    all.on(kv::later, [](call_context&, std::uint64_t n) -> task<std::uint64_t> {
        for (std::uint64_t i = n % 8; i != 0; --i) co_await yield();
        co_return n;
    });
    all.on(kv::text, [](call_context&, std::string a, std::optional<std::string> b) {
        if (b == "wrong") throw std::runtime_error("wrong");
        return a + b.value_or("none");
    });
    all.on(kv::sum, [](call_context&, std::span<const point> all_of_them) {
        double sum = 0;
        for (const point& one : all_of_them) sum += static_cast<double>(one.x);
        return sum;
    });
    all.on(kv::note, [](call_context&, const std::map<std::string, bool>&) {});
    all.on(kv::scan, [](call_context&, std::uint16_t n, stream_writer<std::string>& out) -> task<> {
        for (std::uint16_t i = 0; i < n % 1000; ++i) co_await out.write(std::string(i * 7U % 3000, 'x'));
    });
    all.on(kv::load, [](call_context&, stream_reader<std::string>& in) -> task<std::uint64_t> {
        std::uint64_t sum = 0;
        while (const auto one = co_await in.next()) sum += one->size();
        co_return sum;
    });
    all.on(kv::both,
           [](call_context&, std::uint16_t, stream_reader<point>& in, stream_writer<point>& out) -> task<> {
               while (const auto one = co_await in.next()) co_await out.write(*one);
           });
    all.on(kv::none, [](call_context&, stream_reader<std::tuple<>>& in) -> task<> {
        while (co_await in.next()) {}
    });
}

using link_type = scripted_peer::endpoint_type;
using calls_type = calls<loopback, link_type::protocols_type>;

/// A call of this side, of any kind; it ends as it may.
task<> call(calls_type& over, std::uint8_t kind, std::uint64_t number) {
    const auto ends = [](auto op) -> task<> { static_cast<void>(co_await as_result(std::move(op))); };
    switch (kind % 7) {
        case 0: co_await ends(over.call(kv::add, number, 1U)); break;
        case 1: co_await ends(over.call(kv::text, "a", std::optional<std::string>("b"))); break;
        case 2: {
            std::map<std::string, bool> flags;
            flags["a"] = true;
            co_await ends(over.cast(kv::note, flags));
            break;
        }
        case 3: {
            auto items = co_await over.open(kv::scan, static_cast<std::uint16_t>(number));
            while (co_await items.next()) {}
            break;
        }
        case 4: {
            auto items = co_await over.open(kv::load);
            for (std::uint64_t n = number % 300; n != 0; --n) co_await items.write(std::string(n * 11, 'y'));
            co_await items.finish();
            break;
        }
        case 5: {
            auto both = co_await over.open(kv::both, static_cast<std::uint16_t>(1));
            for (std::uint64_t n = number % 40; n != 0; --n) {
                co_await both.write(1.0F, 2.0F, 3.0F);
                co_await both.next();
            }
            break;
        }
        default: {
            const std::vector<point> row(number % 1000);
            co_await ends(timeout(over.call(kv::sum, row), std::chrono::milliseconds(number % 5)));
            break;
        }
    }
}
task<> call_and_end(calls_type& over, std::uint8_t kind, std::uint64_t number, local_stop_token stop) {
    static_cast<void>(co_await as_result(with_stop(call(over, kind, number), stop)));
}

const detail::method_facts* const methods[] = {&kv::add.facts,  &kv::later.facts, &kv::text.facts,
                                               &kv::sum.facts,  &kv::note.facts,  &kv::scan.facts,
                                               &kv::load.facts, &kv::both.facts,  &kv::none.facts};

template <class Head>
std::vector<std::byte> with_head(const Head& head, const std::vector<std::byte>& rest) {
    std::vector<std::byte> all(sizeof head);
    std::memcpy(all.data(), &head, sizeof head);
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
}

/// Of calls that this side has made, of which its requests tell.
struct asked_calls {
    std::vector<std::uint64_t> numbers;
    void look(std::deque<heard_message>& heard) {
        for (; !heard.empty(); heard.pop_front()) {
            const tag_type tag = heard.front().header.tag;
            if ((tag & detail::calls_bit) != 0 && static_cast<unsigned>(detail::kind_of_call(tag)) < 3)
                numbers.push_back(detail::call_number(tag));
        }
        if (numbers.size() > 200) numbers.erase(numbers.begin(), numbers.end() - 100);
    }
    std::uint64_t one(script& input) const {
        const std::uint8_t which = input.byte();
        if (which % 4 == 0 || numbers.empty())
            return which | (which % 8 == 0 ? detail::caller_writes_bit : std::uint64_t{0});
        return numbers[numbers.size() - 1 - which % numbers.size()];
    }
};

void say_something(scripted_peer& peer, script& input, asked_calls& asked) {
    using detail::call_kind;
    asked.look(peer.heard());
    const auto kind = static_cast<call_kind>(input.byte() % 8);
    const std::uint64_t number = asked.one(input);
    tag_type tag = detail::call_tag(kind, number);
    std::vector<std::byte> payload = input.bytes();
    const std::uint8_t how = input.byte();
    if (static_cast<unsigned>(kind) < 3) {
        const detail::method_facts& of = *methods[how % std::size(methods)];
        tag |= tag_type{of.service} << detail::call_number_bits;
        if (how % 2 == 0) tag |= detail::first_call_bit;
        if (how < 200)
            payload = with_head(detail::request_head{of.number, of.signature, input.byte()}, payload);
    } else if (kind == call_kind::note) {
        const detail::note_head head{how % 8U, static_cast<std::uint32_t>(input.number()), input.number()};
        if (how < 200) payload = with_head(head, payload);
    } else {
        const detail::answer_head head{how % 8U, static_cast<std::int32_t>(input.number())};
        if (how < 200) payload = with_head(head, payload);
    }
    peer.say(wire_kind::eager, tag, payload);
}

task<> play(scheduler& on, script& input) {
    mailbox_options least;
    least.unexpected_bytes = 1;
    least.lent_bytes = 100'000;
    scripted_peer peer(on, least);
    co_await peer.open();
    service offered({.running = 1U + input.byte() % 4U, .bytes = 30'000});
    offer(offered);
    {
        calls_type over(peer.self(), offered);
        task_group mine;
        local_stop_source stops[4];
        asked_calls asked;
        for (int step = 0; step < 300 && !input.over(); ++step) {
            const std::uint8_t what = input.byte();
            switch (what % 8) {
                case 0: {
                    const std::uint8_t kind = input.byte();
                    mine.spawn(call_and_end, std::ref(over), kind, input.number(),
                               stops[what / 8 % std::size(stops)].get_token());
                    break;
                }
                case 1: stops[what / 8 % std::size(stops)].request_stop(); break;
                case 2: peer.say(wire_kind::credit, 0, {}, 1000); break;
                case 3:
                    for (int n = input.byte() % 8; n >= 0; --n) co_await yield();
                    break;
                default: say_something(peer, input, asked);
            }
        }
        peer.self().abort();
        co_await mine.join();
    }
    demand(offered.running() == 0);
    demand(offered.bytes() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    virtual_time world;
    script input(data, size);
    world.run(play(world.on, input));
    return 0;
}

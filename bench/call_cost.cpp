// call_cost KIND N: makes N calls of 8 bytes with a result of 8 bytes over shared memory, both ends in one thread, or what they are
// compared with.
//
// For counting: `bench/instructions` runs it under callgrind with two values of N; the difference is the cost of one, both ends together,
// without the set-up and without a second core.
#include "common/even_clock.hpp"

#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/calls.hpp>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include <unistd.h>

namespace rc = rdmacoro;

namespace {

struct plus {
    static constexpr rc::method<"plus.one", std::uint64_t(std::uint64_t)> one{};
    static constexpr rc::method<"plus.by_task", std::uint64_t(std::uint64_t)> by_task{};
    static constexpr rc::method<"plus.length", std::uint64_t(std::string)> length{};
    static constexpr rc::method<"plus.items", rc::stream<std::uint64_t>(std::uint64_t)> items{};
    static constexpr rc::method<"plus.sum", std::uint64_t(rc::stream<std::uint64_t>)> sum{};
};
constexpr rc::tag_type first_tag = 100;
constexpr std::uint64_t window = 64;

using peer = rc::endpoint<rc::shm>;

rc::task<> answer(peer& of, rc::tag_type tag) {
    std::uint64_t number = 0;
    while (co_await rc::as_result(of.recv(rc::bytes_of(number), tag))) {
        ++number;
        co_await of.send(rc::bytes_of(number), tag);
    }
}
rc::task<> exchange(peer& with, rc::tag_type tag, std::uint64_t& left) {
    while (left != 0) {
        std::uint64_t number = left--;
        const std::uint64_t expected = number + 1;
        co_await with.send(rc::bytes_of(number), tag);
        co_await with.recv(rc::bytes_of(number), tag);
        if (number != expected) throw rc::error(rc::errc::protocol_violation, "call_cost: a wrong answer");
    }
}
template <class Method>
rc::task<> call(rc::calls<rc::shm>& over, const Method& what, std::uint64_t& left) {
    while (left != 0) {
        const std::uint64_t number = left--;
        const std::uint64_t got = co_await over.call(what, number);
        if (got != number + 1) throw rc::error(rc::errc::protocol_violation, "call_cost: a wrong answer");
    }
}

rc::task<> run(std::string_view kind, std::uint64_t count) {
    auto listener = co_await rc::listen<rc::shm>("shm://call-cost-" + std::to_string(::getpid()));
    peer near = co_await rc::connect<rc::shm>(listener.address());
    peer far = co_await listener.accept();
    const bool many = kind.starts_with("many-");
    const std::string_view what = many ? kind.substr(5) : kind;
    rc::service adding;
    adding.on(plus::one, [](rc::call_context&, std::uint64_t n) { return n + 1; });
    adding.on(plus::by_task,
              [](rc::call_context&, std::uint64_t n) -> rc::task<std::uint64_t> { co_return n + 1; });
    adding.on(plus::length,
              [](rc::call_context&, const std::string& text) -> std::uint64_t { return text.size(); });
    adding.on(plus::items,
              [](rc::call_context&, std::uint64_t n, rc::stream_writer<std::uint64_t>& out) -> rc::task<> {
                  for (std::uint64_t i = 0; i < n; ++i) co_await out.write(i);
              });
    adding.on(plus::sum,
              [](rc::call_context&, rc::stream_reader<std::uint64_t>& in) -> rc::task<std::uint64_t> {
                  std::uint64_t sum = 0;
                  while (const auto one = co_await in.next()) sum += *one;
                  co_return sum;
              });
    rc::calls<rc::shm> calling(near);
    rc::calls<rc::shm> served(far, adding);
    rc::task_group answers;
    rc::task_group asking;
    std::uint64_t left = count;
    const std::uint64_t at_once = many ? window : 1;
    for (std::uint64_t n = 0; n < at_once; ++n) {
        if (what == "messages") {
            answers.spawn(answer, std::ref(far), first_tag + n);
            asking.spawn(exchange, std::ref(near), first_tag + n, std::ref(left));
        } else if (what == "call") {
            asking.spawn([&] { return call(calling, plus::one, left); });
        } else if (what == "task") {
            asking.spawn([&] { return call(calling, plus::by_task, left); });
        } else if (what == "text") {
            asking.spawn([&]() -> rc::task<> {
                const std::string text = "a key of twenty bytes";
                for (; left != 0; --left) co_await calling.call(plus::length, text);
            });
        } else if (what == "items") {
            asking.spawn([&]() -> rc::task<> {
                auto items = co_await calling.open(plus::items, left);
                while (co_await items.next()) --left;
            });
        } else if (what == "written") {
            asking.spawn([&]() -> rc::task<> {
                auto items = co_await calling.open(plus::sum);
                for (; left != 0; --left) co_await items.write(left);
                co_await items.finish();
            });
        } else {
            throw rc::error(rc::errc::invalid_argument, "call_cost: no such kind");
        }
    }
    co_await asking.join();
    answers.request_stop();
    static_cast<void>(co_await rc::as_result(answers.join()));
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view text = argc == 3 ? argv[2] : "";
    std::uint64_t count = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), count);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size()) {
        std::fprintf(
            stderr, "usage: call_cost [many-]messages|[many-]call|[many-]task|[many-]text|items|written N\n");
        return 2;
    }
    try {
        bench::even_clock time;
        rc::scheduler(rc::idle::spin{}, time).run(run(argv[1], count));
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "call_cost: %s\n", failure.what());
        return 1;
    }
}

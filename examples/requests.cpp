// requests: a server that ends in good order when it is told to; clients that wait no longer than they want to.
//
//     requests serve URL &  requests ask URL "put colour red"  requests ask URL "get colour"  kill %1
#include "by_url.hpp"

#include <chrono>
#include <csignal>
#include <map>

namespace rc = rdmacoro;
using namespace std::chrono_literals;

struct store {
    std::map<std::string, std::string> values{};
    rc::duration takes{};  ///< each request, as if the values were on a disk

    /// `put KEY VALUE` or `get KEY`; a value goes to the end of the request.
    std::string answer(std::string_view request) {
        const auto word = [&] {
            const auto first = request.substr(0, request.find(' '));
            request.remove_prefix(std::min(request.size(), first.size() + 1));
            return first;
        };
        const std::string_view what = word();
        const std::string key(word());
        if (what == "put") return values[key] = request, "done";
        if (what != "get") return "put KEY VALUE, or get KEY?";
        return values.contains(key) ? values[key] : "there is no " + key;
    }
};

/// One request, from its arrival to its answer. The tag is the client's number for it.
template <rc::transport T>
rc::task<> answer(rc::endpoint<T>& peer, rc::message request, store& data) {
    const std::string_view text(reinterpret_cast<const char*>(request.bytes().data()), request.size());
    std::clog << text.substr(0, 40) << std::endl;
    co_await rc::sleep_for(data.takes);
    co_await peer.send(data.answer(text), request.tag());
}

/// A client, until it closes or the server stops. A stop request cancels the receive; a request that has begun is finished.
template <rc::transport T>
rc::task<> serve_client(rc::endpoint<T> peer, store& data) {
    while (auto request = co_await rc::as_result(peer.recv_lent())) {
        co_await rc::without_stop(answer(peer, *std::move(request), data), 5s);
    }
    co_await rc::without_stop(peer.close(), 2s);  // the answers are there, or the client does not take them
}

template <rc::transport T>
rc::task<> serve(std::string_view url, rc::duration takes) {
    const rc::signals quit(
        {SIGINT, SIGTERM});  // first: other libraries' threads are to inherit that these are blocked
    auto listener = co_await rc::listen<T>(url);
    std::cout << "listening at " << listener.address() << std::endl;
    store data{.takes = takes};
    rc::task_group clients;
    clients.on_error(print_error);
    while (auto peer = co_await rc::as_result(rc::with_stop(listener.accept(), quit.token()))) {
        clients.spawn(serve_client<T>, *std::move(peer), std::ref(data));
    }
    clients.request_stop();
    co_await clients.join();
    std::cout << "stopped with " << data.values.size() << " values\n";
}

/// Asks some times in a hurry, then once with patience. An answer that is late is dropped when it comes.
template <rc::transport T>
rc::task<> ask(std::string_view url, std::string request, rc::tag_type hurried, rc::duration hurry) {
    auto peer = co_await rc::connect<T>(url, {.retry_for = 5s});
    std::string answer(1 << 20, ' ');
    rc::tag_type late = 0;
    for (rc::tag_type number = 0; number <= hurried; ++number) {
        co_await peer.send(request, number);
        auto receive = peer.recv(answer, number, rc::discard_if_canceled);
        auto got = co_await rc::as_result(rc::timeout(std::move(receive), number < hurried ? hurry : 10s));
        if (number < hurried && got.error() == rc::errc::timed_out) {
            ++late;
        } else {
            std::cout << std::string_view(answer).substr(0, got.value().bytes) << '\n';
        }
    }
    if (late > 0) std::cout << late << " answers were late\n";
    co_await peer.close();
}

int main(int argc, char** argv) {
    const std::string_view role = argc > 2 ? argv[1] : "";
    const auto number = [&](int i, unsigned otherwise) { return argc > i ? std::stoul(argv[i]) : otherwise; };
    if (role == "serve") {
        return run_by_url(argv[2], [&]<class T>() { return serve<T>(argv[2], number(3, 0) * 1ms); });
    }
    if (role == "ask" && argc > 3) {
        return run_by_url(
            argv[2], [&]<class T>() { return ask<T>(argv[2], argv[3], number(4, 0), number(5, 0) * 1ms); });
    }
    std::cerr << "usage: requests serve URL [MS_EACH] | requests ask URL REQUEST [TIMES_IN_A_HURRY [MS]]\n";
    return 2;
}

// calls: a service and its client: methods by name, with types; streams in both directions; a deadline.
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/calls.hpp>

#include <chrono>
#include <iostream>
#include <map>

namespace rc = rdmacoro;
using namespace std::chrono_literals;

struct entry {
    std::string key;
    std::string value;
};

/// What can be called: both programs include it.
struct kv {
    static constexpr rc::method<"kv.put", void(std::string, std::string)> put{};
    static constexpr rc::method<"kv.get", std::string(std::string)> get{};
    static constexpr rc::method<"kv.scan", rc::stream<entry>(std::string)> scan{};
    static constexpr rc::method<"kv.load", std::uint64_t(rc::stream<entry>)> load{};
    static constexpr rc::method<"kv.wait", void()> wait{};
};

rc::task<> serve(rc::endpoint<rc::shm> peer) {
    std::map<std::string, std::string> values;
    rc::service store({.running = 64});
    store.on(kv::put, [&](rc::call_context&, const std::string& key, std::string value) {
        values[key] = std::move(value);
    });
    store.on(kv::get, [&](rc::call_context&, std::string key) -> rc::task<std::string> {
        if (!values.contains(key)) throw std::out_of_range("there is no " + key);
        co_return values[key];
    });
    store.on(kv::scan, [&](rc::call_context&, std::string from, rc::stream_writer<entry>& out) -> rc::task<> {
        for (auto at = values.lower_bound(from); at != values.end(); ++at)
            co_await out.write(at->first, at->second);
    });
    store.on(kv::load, [&](rc::call_context&, rc::stream_reader<entry>& in) -> rc::task<std::uint64_t> {
        while (auto one = co_await in.next()) values[one->key] = one->value;
        co_return values.size();
    });
    store.on(kv::wait, [](rc::call_context&) -> rc::task<> { co_await rc::sleep_for(1h); });
    rc::calls served(peer, store);
    static_cast<void>(
        co_await rc::as_result(peer.recv_lent(rc::tag_match(0, 1ULL << 63))));  // until the client closes
    co_await served.drain();
}

// Whatever the transport.
rc::task<> use(rc::any_calls& peer) {
    co_await peer.call(kv::put, "red", "#ff0000");
    co_await peer.call(kv::put, "green", "#00ff00");
    std::cout << "red is " << co_await peer.call(kv::get, "red") << '\n';
    auto rows = co_await peer.open(kv::scan, "c");
    while (auto row = co_await rows.next()) std::cout << row->key << ' ';
    std::cout << "are there\n";
    auto more = co_await peer.open(kv::load);
    for (const char* name : {"blue", "cyan"}) co_await more.write(name, "a colour");
    std::cout << co_await more.finish() << " after two more\n";
    try {
        co_await peer.call(kv::get, "shape");
    } catch (const rc::error& failed) {
        std::cout << failed.what() << '\n';
    }
    // The handler is told the time that is left, and asked to stop when it is over.
    auto waited = co_await rc::as_result(rc::timeout(peer.call(kv::wait), 20ms));
    std::cout << "the wait ended: " << waited.error().message() << '\n';
}

rc::task<> both() {
    auto listener = co_await rc::listen<rc::shm>("shm://calls");
    rc::task_group server;
    auto accepting = rc::start(listener.accept());
    auto client = co_await rc::connect<rc::shm>(listener.address());
    server.spawn(serve, co_await accepting);
    {
        rc::calls peer(client);
        co_await use(peer);
    }
    co_await client.close();
    co_await server.join();
}

int main() { rc::scheduler{}.run(both()); }

// node_calls: a key-value service that is called by its node's id. It is restarted, and its callers need not care.
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/node_calls.hpp>

#include <chrono>
#include <iostream>
#include <map>

namespace rc = rdmacoro;
using namespace std::chrono_literals;

struct kv {
    static constexpr rc::method<"kv.put", void(std::string, std::string)> put{};
    static constexpr rc::method<"kv.get", std::string(std::string)> get{};
    static constexpr rc::method<"kv.load", std::uint64_t(rc::remote_region)> load{};
};
using store_node = rc::node<rc::shm>;  // rc::node<rc::shm, rc::tcp>: TCP between hosts

/// One life of the service. The values are elsewhere, as if on a disk.
rc::task<> serve(std::map<std::string, std::string>& values, rc::event& quit) {
    rc::service store;
    store.on(kv::put, [&](rc::call_context&, std::string key, std::string value) -> rc::task<> {
        values[key] = std::move(value);
        co_return;
    });
    store.on(kv::get,
             [&](rc::call_context&, std::string key) -> rc::task<std::string> { co_return values[key]; });
    store.on(kv::load, [&](rc::call_context& c, rc::remote_region from) -> rc::task<std::uint64_t> {
        std::string bulk(from.length, ' ');
        co_await c.get(from, std::as_writable_bytes(std::span(bulk)));  // from the caller's memory
        values["bulk"] = std::move(bulk);
        co_return values["bulk"].size();
    });
    store_node nine(9);
    rc::node_calls served(nine);
    served.serve(store);
    co_await nine.listen("shm://store");
    co_await quit.wait();
    co_await nine.close();
}

rc::task<> use() {
    std::map<std::string, std::string> values;
    rc::event quit;
    rc::task_group services;
    services.spawn(serve, std::ref(values), std::ref(quit));

    rc::node<rc::shm> here(1);
    rc::node_calls peers(here);
    here.add({.id = 9, .urls = {"shm://store"}});
    co_await peers.call(9, kv::put, "red", "#ff0000");

    quit.set();
    co_await services.join();
    quit.reset();
    services.spawn(serve, std::ref(values), std::ref(quit));
    const std::string red = co_await rc::timeout(peers.call(9, kv::get, "red"), 10s);
    std::cout << "after a restart red is " << red << '\n';

    rc::shm::domain& memory = rc::scheduler::current()->service<rc::shm::domain>();
    std::vector<std::byte> bulk(1 << 20);
    const rc::region open = memory.register_memory(bulk, rc::access_rights::remote_read);
    const std::uint64_t loaded = co_await peers.call(9, kv::load, open.remote());
    std::cout << loaded << " bytes were loaded\n";

    quit.set();
    co_await services.join();
    co_await here.close();
}

int main() { rc::scheduler{}.run(use()); }

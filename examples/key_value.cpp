// key_value: a service over calls, with bulk transfers and a stream; its clients go on when it is restarted.
//     key_value serve URL &  printf 'put red #ff0000\nget red\nload big FILE\nscan a\n' | key_value use URL
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/node_calls.hpp>
#include <rdmacoro/transport/tcp.hpp>

#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <sstream>

namespace rc = rdmacoro;
using namespace std::chrono_literals;
using node = rc::node<rc::shm, rc::tcp>;              // over the best that both have; others join the list
using entry = std::pair<std::string, std::uint64_t>;  // a key, and how long its value is

struct kv {  // what can be called
    static constexpr rc::method<"kv.put", void(std::string, std::string)> put{};
    static constexpr rc::method<"kv.get", std::string(std::string)> get{};
    static constexpr rc::method<"kv.load", void(std::string, rc::remote_region)> load{};
    static constexpr rc::method<"kv.scan", rc::stream<entry>(std::string)> scan{};
};
constexpr rc::node_id server = 9;

rc::task<> serve(std::string url) {
    rc::signals quit({SIGINT, SIGTERM});
    std::map<std::string, std::string> values;
    rc::service store({.running = 64});  // beyond that callers wait
    store.on(kv::put, [&](auto&, std::string key, std::string value) { values[key] = std::move(value); });
    store.on(kv::get, [&](auto&, std::string key) { return values.at(key); });
    store.on(kv::load, [&](rc::call_context& c, std::string key, rc::remote_region from) -> rc::task<> {
        if (from.length > 1 << 30) throw std::length_error("1 GiB at most");
        std::string bulk(from.length, ' ');
        co_await c.get(from, std::as_writable_bytes(std::span(bulk)));  // from the caller's memory
        values[key] = std::move(bulk);
    });
    store.on(kv::scan, [&](auto&, std::string from, rc::stream_writer<entry>& out) -> rc::task<> {
        for (auto at = values.lower_bound(from); at != values.end(); ++at)
            co_await out.write(at->first, at->second.size());
    });
    node here(server);
    rc::node_calls served(here, store);
    std::cout << "listening at " << co_await here.listen(url) << std::endl;
    co_await quit.next();
    co_await here.close();
}

rc::task<> request(node& here, auto& peers, std::istringstream words) {
    std::string what, key, more;
    words >> what >> key >> more;
    if (what == "put") co_await rc::timeout(peers.call(server, kv::put, key, more), 20s);
    if (what == "get") std::cout << co_await rc::timeout(peers.call(server, kv::get, key), 20s) << std::endl;
    if (what == "load") {
        std::ifstream file(more, std::ios::binary);
        if (!file) throw std::runtime_error("cannot open " + more);
        std::string bulk(std::istreambuf_iterator<char>(file), {});
        auto open =
            co_await here.peer(server).register_memory(rc::bytes_of(bulk), rc::access_rights::remote_read);
        co_await rc::timeout(peers.call(server, kv::load, key, open.remote()), 20s);
    }
    if (what == "scan") {
        auto rows = co_await rc::timeout(peers.open(server, kv::scan, key), 20s);
        while (auto row = co_await rows.next()) std::cout << row->first << ' ' << row->second << std::endl;
    }
    std::cout << what << " done" << std::endl;
}

rc::task<> use(std::string url) {
    node here(std::random_device{}() | 16, {.connect_limit = 20s});
    rc::node_calls peers(here);
    here.add({.id = server, .urls = {url}});
    for (std::string line; std::getline(std::cin, line);) {
        try {  // each may be done twice
            co_await peers.repeat_if_lost([&] { return request(here, peers, std::istringstream(line)); });
        } catch (const std::exception& failed) {
            std::cerr << failed.what() << std::endl;
        }
    }
    co_await here.close();
}

int main(int argc, char** argv) try {
    const std::string role = argc == 3 ? argv[1] : "";
    if (role != "serve" && role != "use") throw std::invalid_argument("usage: key_value serve|use URL");
    rc::scheduler().run(role == "serve" ? serve(argv[2]) : use(argv[2]));
} catch (const std::exception& failed) {
    return std::cerr << failed.what() << std::endl, 1;
}

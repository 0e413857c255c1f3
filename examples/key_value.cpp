// key_value: a service over calls, with bulk transfers and a stream; its clients go on when it is restarted.
//
//     key_value serve URL &  printf 'put red #ff0000\nget red\nload big FILE\nscan a\n' | key_value use URL
#include "by_url.hpp"
#include <rdmacoro/service/node_calls.hpp>

#include <fstream>
#include <map>
#include <random>
#include <sstream>

namespace rc = rdmacoro;
using namespace std::chrono_literals;
using entry = std::pair<std::string, std::uint64_t>;  // a key, and how long its value is

struct kv {  // what can be called
    static constexpr rc::method<"kv.put", void(std::string, std::string)> put{};
    static constexpr rc::method<"kv.get", std::string(std::string)> get{};
    static constexpr rc::method<"kv.load", void(std::string, rc::remote_region)> load{};
    static constexpr rc::method<"kv.scan", rc::stream<entry>(std::string)> scan{};
};
constexpr rc::node_id server = 9;

template <rc::transport T>
rc::task<> serve(std::string url) {
    rc::signals quit({SIGINT, SIGTERM});
    std::map<std::string, std::string> values;
    rc::service store({.running = 64});  // beyond that callers wait
    store.on(kv::put, [&](rc::call_context&, std::string key, std::string value) -> rc::task<> {
        values[key] = std::move(value);
        co_return;
    });
    store.on(kv::get, [&](rc::call_context&, std::string key) -> rc::task<std::string> {
        if (!values.contains(key)) throw std::out_of_range("there is no " + key);
        co_return values[key];
    });
    store.on(kv::load, [&](rc::call_context& c, std::string key, rc::remote_region from) -> rc::task<> {
        if (from.length > 1 << 30) throw std::length_error("1 GiB at most");
        std::string bulk(from.length, ' ');
        co_await c.get(from, std::as_writable_bytes(std::span(bulk)));  // from the caller's memory
        values[key] = std::move(bulk);
    });
    store.on(kv::scan, [&](rc::call_context&, std::string from, rc::stream_writer<entry>& out) -> rc::task<> {
        for (auto at = values.lower_bound(from); at != values.end(); ++at)
            co_await out.write(at->first, at->second.size());
    });
    rc::node<T> here(server);
    rc::node_calls served(here);
    served.serve(store);
    std::cout << "listening at " << co_await here.listen(url) << std::endl;
    co_await quit.next();
    co_await here.close();
}

/// One request: put KEY VALUE, get KEY, load KEY FILE, scan FROM.
template <rc::transport T>
rc::task<> request(rc::node_calls<T>& peers, typename T::domain& memory, std::istringstream words) {
    std::string what, key, more;
    words >> what >> key >> more;
    if (what == "put") {
        co_await rc::timeout(peers.call(server, kv::put, key, more), 20s);
    } else if (what == "get") {
        std::cout << co_await rc::timeout(peers.call(server, kv::get, key), 20s) << std::endl;
    } else if (what == "load") {
        std::string bulk(std::istreambuf_iterator<char>(std::ifstream(more).rdbuf()), {});
        const rc::region open = memory.register_memory(rc::bytes_of(bulk), rc::access_rights::remote_read);
        co_await rc::timeout(peers.call(server, kv::load, key, open.remote()), 20s);
    } else if (what == "scan") {
        auto rows = co_await rc::timeout(peers.open(server, kv::scan, key), 20s);
        while (auto row = co_await rows.next()) std::cout << row->first << ' ' << row->second << std::endl;
    }
    std::cout << what << " done" << std::endl;
}

template <rc::transport T>
rc::task<> use(std::string url) {
    typename T::domain memory(*rc::scheduler::current());
    rc::node<T> here(std::random_device{}() | 16, {.connect_limit = 20s}, memory);
    rc::node_calls peers(here);
    here.add({.id = server, .urls = {url}});
    std::string line;
    for (bool again = false; again || std::getline(std::cin, line);) {
        try {
            again = false;
            co_await request<T>(peers, memory, std::istringstream(line));
        } catch (const rc::error& failed) {
            again = failed.code() == rc::errc::peer_lost || failed.code() == rc::errc::closed;
            std::cerr << failed.what() << (again ? ": again\n" : "\n");  // done or not: it may be done twice
        }
    }
    co_await here.close();
}

int main(int argc, char** argv) {
    const std::string role = argc == 3 ? argv[1] : "";
    if (role == "serve") return run_by_url(argv[2], [&]<class T>() { return serve<T>(argv[2]); });
    if (role == "use") return run_by_url(argv[2], [&]<class T>() { return use<T>(argv[2]); });
    return std::cerr << "usage: key_value serve URL | key_value use URL\n", 2;
}

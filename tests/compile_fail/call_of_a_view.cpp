// The message that the result would refer to is gone when the caller gets it. As an argument a view is fine.
// expect: is, or has, a std::string_view
// expect: use std::string
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/calls.hpp>

#include <string>
#include <string_view>
#include <utility>

struct kv {
    static constexpr rdmacoro::method<"kv.put", void(std::string_view, std::string_view)> put{};
    static constexpr rdmacoro::method<"kv.get", std::pair<int, std::string_view>(std::string_view)> get{};
};

rdmacoro::task<> use(rdmacoro::calls<rdmacoro::shm>& peer) {
    co_await peer.call(kv::put, "colour", "red");
    // wrong
    auto got = co_await peer.call(kv::get, "colour");
    // end
}

int main() {}

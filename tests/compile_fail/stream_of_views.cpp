// An item is read when its message is gone already.
// expect: is, or has, a std::string_view
// expect: use std::string
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/calls.hpp>

#include <string_view>
#include <vector>

struct kv {
    static constexpr rdmacoro::method<"kv.keys", rdmacoro::stream<std::vector<std::string_view>>()> keys{};
};

rdmacoro::task<> use(rdmacoro::calls<rdmacoro::shm>& peer) {
    static_cast<void>(peer);
    // wrong
    auto all = co_await peer.open(kv::keys);
    // end
    co_return;
}

int main() {}

// A callable's temporaries are gone when the child awaits what it returned.
// expect: this operation was made from a temporary
#include <rdmacoro/rdmacoro.hpp>

#include <vector>

void use(rdmacoro::task_group& group, rdmacoro::endpoint<rdmacoro::shm>& peer) {
    const std::vector<std::byte> kept(100);
    group.spawn([&] { return peer.send(kept); });
    // wrong
    group.spawn([&] { return peer.send(std::vector<std::byte>(100)); });
    // end
}

int main() {}

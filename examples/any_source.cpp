// any_source: one mailbox, many peers. Work goes to whichever worker asks for it next.
#include <rdmacoro/rdmacoro.hpp>

#include <iostream>

namespace rc = rdmacoro;

enum tag : rc::tag_type { ready, job, answer, stop };

rc::task<> worker() {
    auto office = co_await rc::connect<rc::shm>("shm://any_source");
    for (;;) {
        co_await office.send(rc::const_buffers(), tag::ready);  // a message of no bytes: only its tag
        std::uint64_t number = 0;
        auto got = co_await office.recv(rc::bytes_of(number));
        if (got.tag == tag::stop) break;
        number *= number;
        co_await office.send(rc::bytes_of(number), tag::answer);
    }
    co_await office.close();
}

rc::task<> office() {
    constexpr std::uint64_t workers = 3, jobs = 100;
    auto listener = co_await rc::listen<rc::shm>("shm://any_source");
    rc::task_group others;
    rc::mailbox<rc::shm> peers;
    for (std::uint64_t i = 0; i < workers; ++i) {
        others.spawn(worker);
        peers.attach(co_await listener.accept());
    }

    std::uint64_t next = 1, sum = 0, number = 0;
    for (std::uint64_t stopped = 0; stopped < workers;) {
        auto got = co_await peers.recv(rc::bytes_of(number));  // any tag, any source
        if (got.tag == tag::answer) {
            sum += number;
        } else if (next <= jobs) {
            number = next++;
            co_await peers.send(got.source, rc::bytes_of(number), tag::job);
        } else {
            co_await peers.send(got.source, rc::const_buffers(), tag::stop);
            ++stopped;
        }
    }
    // Each worker closes now. The same tells of one that died.
    while (peers.size() > 0) {
        const auto [worker, why] = co_await peers.gone();
        peers.remove(worker);
    }
    std::cout << "the squares of 1 to " << jobs << " add up to " << sum << '\n';
    co_await peers.close();
    co_await others.join();
}

int main() { rc::scheduler{}.run(office()); }

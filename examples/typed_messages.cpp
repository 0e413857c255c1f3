// typed_messages: values of the program's own types as messages. A long row of numbers goes to the network from where it is.
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/codec.hpp>

#include <iostream>

namespace rc = rdmacoro;

struct sample {
    std::uint32_t sensor = 0;
    float value = 0;
};
struct report {
    std::string station;
    std::optional<std::string> remark;
    std::vector<sample> samples;
};

constexpr auto reports =
    rc::signature_of<report>();  // both sides compare it: it changes with the type's members

rc::task<> station() {
    auto peer = co_await rc::connect<rc::shm>("shm://reports");
    co_await peer.send(rc::bytes_of(reports));
    const report made{"north", "windy", std::vector<sample>(10000, {7, 0.5F})};
    rc::encoder message;
    message.write(made);
    co_await peer.send(rc::const_buffers(message.pieces()));
    std::cout << "sent " << message.size() << " bytes, " << message.copied() << " of them copied\n";
    co_await peer.close();
}

rc::task<> collect() {
    auto listener = co_await rc::listen<rc::shm>("shm://reports");
    rc::task_group others;
    others.spawn(station);
    auto peer = co_await listener.accept();
    std::uint64_t theirs = 0;
    co_await peer.recv(rc::bytes_of(theirs));
    if (theirs != reports)
        throw rc::error(rc::errc::version_mismatch, "the station's reports are of another type");
    const auto message = co_await peer.recv_lent();
    if (auto got = rc::decode<report>(message.bytes())) {
        std::cout << got->station << ": " << got->samples.size() << " samples, " << got->remark.value_or("")
                  << '\n';
    } else {
        std::cout << "not a report: " << got.error().message() << '\n';
    }
    co_await others.join();
}

int main() { rc::scheduler{}.run(collect()); }

// gather: a message from several pieces of memory, into several pieces, or read where it lies, all without copying it
// together first.
#include <rdmacoro/rdmacoro.hpp>

#include <algorithm>
#include <array>
#include <iostream>
#include <numeric>
#include <vector>

namespace rc = rdmacoro;

struct header {
    std::uint32_t rows;
    std::uint32_t columns;
};

rc::task<> send_matrix() {
    auto peer = co_await rc::connect<rc::shm>("shm://gather");
    const std::array head{header{3, 4}};
    std::vector<double> cells(12);
    std::iota(cells.begin(), cells.end(), 1.0);
    const auto message = rc::gather(head, cells);
    for (const rc::tag_type tag : {1u, 2u, 3u}) co_await peer.send(message, tag);
    co_await peer.close();
}

double sum_of(std::span<const std::byte> raw) {
    std::vector<double> cells(raw.size() / sizeof(double));
    std::copy(raw.begin(), raw.end(), std::as_writable_bytes(std::span(cells)).begin());
    return std::accumulate(cells.begin(), cells.end(), 0.0);
}

rc::task<> receive_matrices() {
    auto listener = co_await rc::listen<rc::shm>("shm://gather");
    rc::task_group others;
    others.spawn(send_matrix);
    auto peer = co_await listener.accept();

    // Into several pieces, filled in order.
    std::array<header, 1> head;
    std::vector<double> cells(12);
    auto got = co_await peer.recv(rc::scatter(head, cells), 1);
    std::cout << "scattered: " << head[0].rows << " x " << head[0].columns << ", " << got.bytes
              << " bytes, sum " << std::accumulate(cells.begin(), cells.end(), 0.0) << '\n';

    // Where it lies: the memory is the toolkit's until the message goes.
    rc::message lent = co_await peer.recv_lent(2);
    std::cout << "lent: " << lent.size() << " bytes, sum " << sum_of(lent.bytes().subspan(sizeof(header)))
              << '\n';
    lent.release();

    // Of a length that is not known before.
    auto what = co_await peer.probe(3);
    std::vector<std::byte> buffer(what.bytes);
    co_await peer.recv(buffer, what.tag);
    std::cout << "probed: " << buffer.size() << " bytes, sum "
              << sum_of(std::span(buffer).subspan(sizeof(header))) << '\n';
    co_await others.join();
}

int main() { rc::scheduler{}.run(receive_matrices()); }

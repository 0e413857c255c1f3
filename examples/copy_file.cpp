// copy_file: sends a file of any size to another process, which keeps it only if both sides' checksums agree.
//
//     copy_file receive URL DESTINATION & copy_file send URL SOURCE
#include "by_url.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <unistd.h>
#include <vector>

namespace rc = rdmacoro;

constexpr std::size_t piece_bytes = 1 << 20;
enum tag : rc::tag_type { length, piece, checksum };

/// What both sides do with each piece: add it to the checksum (FNV-1a), and show on a terminal how far they are.
struct tally {
    std::uint64_t total = 0, done = 0, sum = 0xcbf29ce484222325, theirs = 0;

    void add(std::span<const std::byte> bytes) {
        for (const std::byte b : bytes) sum = (sum ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3;
        done += bytes.size();
        if (::isatty(STDERR_FILENO) == 1) std::cerr << '\r' << done * 100 / total << " % " << std::flush;
    }
    void report() const {
        if (sum != theirs) throw std::runtime_error("the checksums differ: the copy is damaged");
        std::cout << total << " bytes, checksum " << std::hex << sum << " on both sides\n";
    }
};

template <rc::transport T>
rc::task<> send(std::string_view url, std::string source) {
    tally own{.total = std::filesystem::file_size(source)};
    std::ifstream file(source, std::ios::binary);
    auto peer = co_await rc::connect<T>(url);
    co_await peer.send(rc::bytes_of(own.total), tag::length);
    for (std::vector<char> buffer(piece_bytes); own.done < own.total;) {
        file.read(buffer.data(), static_cast<std::streamsize>(std::min(piece_bytes, own.total - own.done)));
        if (!file) throw std::runtime_error(source + ": cannot be read to its end");
        const auto bytes = std::as_bytes(std::span(buffer)).first(static_cast<std::size_t>(file.gcount()));
        own.add(bytes);
        co_await peer.send(bytes, tag::piece);  // waits while the receiver is behind
    }
    co_await peer.send(rc::bytes_of(own.sum), tag::checksum);
    co_await peer.recv(rc::bytes_of(own.theirs), tag::checksum);
    co_await peer.close();
    own.report();
}

template <rc::transport T>
rc::task<> receive(std::string_view url, std::string destination) {
    auto peer = co_await accept_one<T>(url);
    tally own;
    co_await peer.recv(rc::bytes_of(own.total), tag::length);
    std::ofstream file(destination + ".part", std::ios::binary);
    for (std::vector<char> buffer(piece_bytes); own.done < own.total && file;) {
        auto got = co_await peer.recv(buffer, tag::piece);
        file.write(buffer.data(), static_cast<std::streamsize>(got.bytes));
        own.add(std::as_bytes(std::span(buffer)).first(got.bytes));
    }
    file.close();
    if (!file) throw std::runtime_error(destination + ".part: cannot be written");
    co_await peer.recv(rc::bytes_of(own.theirs), tag::checksum);
    if (own.sum == own.theirs) std::filesystem::rename(destination + ".part", destination);
    co_await peer.send(rc::bytes_of(own.sum), tag::checksum);
    co_await peer.close();
    own.report();
}

int main(int argc, char** argv) {
    const std::string_view role = argc == 4 ? argv[1] : "";
    if (role == "send") return run_by_url(argv[2], [=]<class T>() { return send<T>(argv[2], argv[3]); });
    if (role == "receive")
        return run_by_url(argv[2], [=]<class T>() { return receive<T>(argv[2], argv[3]); });
    std::cerr << "usage: copy_file receive URL DESTINATION | copy_file send URL SOURCE\n";
    return 2;
}

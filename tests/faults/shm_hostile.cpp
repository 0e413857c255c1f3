#include <rdmacoro/transport/detail/close_elsewhere.hpp>
#include <rdmacoro/transport/detail/host_arrivals.hpp>
#include <rdmacoro/transport/shm.hpp>
#include <rdmacoro/transport/shm/handshake.hpp>
#include <rdmacoro/transport/shm/listener.hpp>

#include "conformance/transports.hpp"

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/lingering_socket.hpp"
#include "support/pattern.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

namespace test_faults_shm_hostile {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;
namespace inner = rdmacoro::detail::shm;

namespace {

/// A process of its own as far as the handshake is concerned: says what a test wants on the bare socket.
class stranger {
public:
    explicit stranger(std::string_view address) : name_(address) {
        socket_ = inner::unique_fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        REQUIRE(::connect(socket_.get(), name_.raw(), name_.length()) == 0);
    }
    [[nodiscard]] int socket() const noexcept { return socket_.get(); }

    /// The listener's answer, as an error code; zero when it accepts.
    task<std::error_code> answer() { return read_answer(socket_.get()); }

private:
    static task<std::error_code> read_answer(int from) {
        for (;;) {
            char first = 0;
            const ssize_t there = ::recv(from, &first, 1, MSG_PEEK | MSG_DONTWAIT);
            if (there >= 0) break;
            co_await yield();
        }
        try {
            const inner::received_hello got = inner::receive_hello(from);
            static_cast<void>(got);
        } catch (const std::system_error& refused) {
            co_return refused.code();
        }
        co_return std::error_code{};
    }

    inner::socket_name name_;
    inner::unique_fd socket_;
};

/// A good hello, to be spoiled.
struct offer {
    inner::unique_fd segment;
    inner::own_hello own;
    offer(shm::domain& domain, const inner::geometry& shape) : segment(inner::segment::create(shape)) {
        own = inner::introduce(domain, shape, segment.get());
    }
    void send(int to, std::size_t descriptors = 3) const {
        inner::send_hello(to, own.contents, own.descriptors, descriptors);
    }
};

inner::unique_fd unsealed(std::size_t bytes) {
    inner::unique_fd fd(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
    return fd;
}

template <class Body>
void on_two_domains(Body body) {
    scheduler on{impatient{}};
    shm::domain here(on);
    shm::domain there(on);
    on.run([](shm::domain& a, shm::domain& b, Body run) -> task<> {
        co_await timeout(run(a, b), case_limit);
    }(here, there, body));
}

/// Bytes of address space that this process uses.
std::uint64_t address_space() {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// That good clients are served still.
task<> still_serves(listener<shm>& listening, shm::domain& from) {
    auto accepting = start(listening.accept());
    auto a = co_await connect<shm>(from, listening.address());
    auto b = co_await accepting;
    co_await a.send({}, 1);
    co_await b.recv({}, 1);
}

}  // namespace

TEST_CASE("hellos that make no sense are refused and the listener goes on") {
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        const inner::geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};
        {
            stranger s(listening.address());
            REQUIRE(::send(s.socket(), "hello", 5, MSG_NOSIGNAL) == 5);
            const std::error_code refused = co_await s.answer();
            CHECK(refused == errc::protocol_violation);
        }
        {
            stranger s(listening.address());
            std::vector<std::byte> long_one(2 * sizeof(inner::hello));
            REQUIRE(::send(s.socket(), long_one.data(), long_one.size(), MSG_NOSIGNAL) > 0);
            const std::error_code refused = co_await s.answer();
            CHECK(refused == errc::protocol_violation);
        }
        {
            stranger s(listening.address());
            offer o(here, shape);
            o.own.contents.magic ^= 1;
            o.send(s.socket());
            const std::error_code refused = co_await s.answer();
            CHECK(refused == errc::protocol_violation);
        }
        {
            stranger s(listening.address());
            offer o(here, shape);
            o.own.contents.version = 99;
            o.send(s.socket());
            const std::error_code refused = co_await s.answer();
            CHECK(refused == errc::version_mismatch);
        }
        for (std::size_t descriptors = 0; descriptors < 3; ++descriptors) {
            stranger s(listening.address());
            const offer o(here, shape);
            o.send(s.socket(), descriptors);
            const std::error_code refused = co_await s.answer();
            CHECK(refused == errc::protocol_violation);
        }
        co_await still_serves(listening, here);
    });
}

TEST_CASE("geometries out of bounds are refused") {
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        const inner::geometry good{.cells = 64, .blocks = 4, .block_bytes = 4096};
        const inner::geometry wrong[] = {
            {.cells = 0, .blocks = 4, .block_bytes = 4096},
            {.cells = 63, .blocks = 4, .block_bytes = 4096},
            {.cells = 32, .blocks = 4, .block_bytes = 4096},
            {.cells = 96, .blocks = 4, .block_bytes = 4096},
            {.cells = 1u << 21, .blocks = 4, .block_bytes = 4096},
            {.cells = ~0u, .blocks = 4, .block_bytes = 4096},
            {.cells = 64, .blocks = 0, .block_bytes = 4096},
            {.cells = 64, .blocks = 257, .block_bytes = 4096},
            {.cells = 64, .blocks = 4, .block_bytes = 0},
            {.cells = 64, .blocks = 4, .block_bytes = 4097},
            {.cells = 64, .blocks = 4, .block_bytes = 1u << 20},
            {.cells = 64, .blocks = 4, .block_bytes = ~0u},
            // Acceptable, and larger than the file.
            {.cells = 128, .blocks = 4, .block_bytes = 4096},
            {.cells = 64, .blocks = 8, .block_bytes = 4096},
        };
        for (const inner::geometry& shape : wrong) {
            CAPTURE(shape.cells, shape.blocks, shape.block_bytes);
            stranger s(listening.address());
            offer o(here, good);
            o.own.contents.shape = shape;
            o.send(s.socket());
            const std::error_code refused = co_await s.answer();
            CHECK(refused == errc::protocol_violation);
        }
        co_await still_serves(listening, here);
    });
}

TEST_CASE("files that can be taken away, or are none, are refused") {
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        const inner::geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};
        const inner::unique_fd loose = unsealed(std::size_t{2} << 30);
        const inner::unique_fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
        for (std::size_t which = 0; which < 3; ++which) {  // table, arena, segment
            for (const int file : {loose.get(), null.get()}) {
                CAPTURE(which);
                stranger s(listening.address());
                offer o(here, shape);
                o.own.descriptors[which] = file;
                o.send(s.socket());
                const std::error_code refused = co_await s.answer();
                CHECK(refused == errc::protocol_violation);
            }
        }
        for (const std::uint64_t entries : {std::uint64_t{0}, std::uint64_t{65537}, ~std::uint64_t{0}}) {
            stranger s(listening.address());
            offer o(here, shape);
            o.own.contents.region_entries = entries;
            o.send(s.socket());
            const std::error_code refused = co_await s.answer();
            CHECK(refused == errc::protocol_violation);
        }
        for (const std::uint64_t bytes :
             {std::uint64_t{0}, (std::uint64_t{1} << 46) + 1, std::uint64_t{1} << 40}) {
            stranger s(listening.address());
            offer o(here, shape);
            o.own.contents.arena_bytes = bytes;
            o.send(s.socket());
            const std::error_code refused = co_await s.answer();
            CHECK(refused == errc::protocol_violation);
        }
        co_await still_serves(listening, here);
    });
}

TEST_CASE("peers with arenas of all the address space leave room for the arena of the next one") {
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        const auto has_room = [] {
            void* const room = ::mmap(nullptr, std::size_t{1} << 45, PROT_NONE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            return room != MAP_FAILED && ::munmap(room, std::size_t{1} << 45) == 0;
        };
        const bool room_before = has_room();
        auto listening = co_await listen<shm>(there, fresh_name());
        const inner::geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};
        std::vector<std::unique_ptr<stranger>> greedy;
        for (const unsigned shift : {46u, 40u}) {
            const std::uint64_t bytes = std::uint64_t{1} << shift;
            const inner::unique_fd vast = unsealed(bytes + inner::notice_board_bytes);
            REQUIRE(::fcntl(vast.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
            for (int n = 0; n < 40; ++n) {
                greedy.push_back(std::make_unique<stranger>(listening.address()));
                offer o(here, shape);
                o.own.descriptors[1] = vast.get();
                o.own.contents.arena_bytes = bytes;
                o.send(greedy.back()->socket());
                const std::error_code refused = co_await greedy.back()->answer();
                CHECK(!refused);
            }
        }
        auto accepting = start(listening.accept());
        auto honest = co_await connect<shm>(here, listening.address());
        auto served = co_await accepting;
        shared_memory lent = here.allocate_shared(100'000);
        write_pattern(lent.bytes(), 0, 3);
        const region open = here.register_memory(lent.bytes(), access_rights::remote_read);
        std::vector<std::byte> into(lent.bytes().size());
        const std::uint64_t mapped_before = address_space();
        co_await served.rdma_get(open.remote(), into);
        CHECK(is_pattern(into, 3));
        CHECK(address_space() >=
              mapped_before + here.shared_arena().bytes() / 2);  // not by way of the kernel
        CHECK(has_room() == room_before);  // ThreadSanitizer leaves a program too little for this to tell
    });
}

TEST_CASE("a peer that withholds the page faults of its memory holds up neither a listener nor a short get") {
    const inner::unique_fd faults(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC)));
    uffdio_api asked{UFFD_API, 0, 0};
    if (!faults || ::ioctl(faults.get(), UFFDIO_API, &asked) != 0)
        SKIP_TEST("needs userfaultfd for kernel faults");
    void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(page != MAP_FAILED);
    uffdio_register range{{reinterpret_cast<std::uint64_t>(page), 4096}, UFFDIO_REGISTER_MODE_MISSING, 0};
    REQUIRE(::ioctl(faults.get(), UFFDIO_REGISTER, &range) == 0);
    ::alarm(60);  // what waits for such a page waits in the kernel
    on_two_domains([page](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        // Each address that a hello names.
        stranger s(listening.address());
        offer o(here, {.cells = 64, .blocks = 4, .block_bytes = 4096});
        o.own.contents.arena_base = reinterpret_cast<std::uint64_t>(page);
        o.send(s.socket());
        const std::error_code refused = co_await s.answer();
        CHECK(!refused);
        co_await still_serves(listening, here);
        // Each that a get names.
        auto accepting = start(listening.accept());
        auto client = co_await connect<shm>(here, listening.address());
        auto served = co_await accepting;
        const std::span<std::byte> withheld(static_cast<std::byte*>(page), 4096);
        const region open = here.register_memory(withheld, access_rights::remote_read);
        std::vector<std::byte> into(withheld.size());
        const auto got = co_await as_result(served.rdma_get(open.remote(), into));
        CHECK(got.error() == errc::out_of_bounds);
        co_await still_serves(listening, here);
    });
    ::alarm(0);
    ::munmap(page, 4096);
}

TEST_CASE("a client that hangs up at once, or says nothing, disturbs no other client") {
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        std::vector<std::unique_ptr<stranger>> silent;
        for (int n = 0; n < 20; ++n) {
            const stranger gone(listening.address());
            silent.push_back(std::make_unique<stranger>(listening.address()));
        }
        co_await still_serves(listening, here);
    });
}

TEST_CASE(
    "more silent clients than a listener has places for keep no client out for as long as they may stay") {
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        constexpr std::size_t places = 256;
        auto listening = co_await listen<shm>(there, fresh_name());
        std::vector<std::unique_ptr<stranger>> silent;
        while (silent.size() < places + 44) {
            silent.push_back(std::make_unique<stranger>(listening.address()));
            co_await yield();
        }
        const time_point begin = scheduler::current()->now();
        co_await still_serves(listening, here);
        CHECK(scheduler::current()->now() - begin < there.options().handshake_limit / 2);
        std::size_t dropped = 0;
        for (const auto& each : silent) {
            char nothing = 0;
            if (::recv(each->socket(), &nothing, 1, MSG_DONTWAIT) == 0) ++dropped;
        }
        CHECK(dropped >= 45);  // one for each beyond the places, and one for the client
        CHECK(dropped < silent.size());
        co_await still_serves(listening, here);
    });
}

namespace {

/// A listener that is no friend: takes one client and answers what it is told to.
template <class Answer>
task<std::error_code> connects_to_stranger(shm::domain& from, Answer answer) {
    const inner::socket_name name(fresh_name());
    const inner::unique_fd listening(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(listening.get(), name.raw(), name.length()) == 0);
    REQUIRE(::listen(listening.get(), 1) == 0);
    auto connecting = start(as_result(connect<shm>(from, name.text())));
    inner::unique_fd client(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    while (!client) {
        co_await yield();
        client = inner::unique_fd(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    answer(client.get());
    const auto ended = co_await connecting;
    co_return ended.error();
}

}  // namespace

TEST_CASE("connecting to a listener that answers nonsense ends with an error") {
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        const auto text =
            co_await connects_to_stranger(here, [](int to) { ::send(to, "hello", 5, MSG_NOSIGNAL); });
        CHECK(text == errc::protocol_violation);
        const auto nothing = co_await connects_to_stranger(here, [](int to) { ::shutdown(to, SHUT_RDWR); });
        CHECK(nothing == errc::peer_lost);
        const auto version = co_await connects_to_stranger(here, [](int to) {
            inner::hello sent;
            sent.version = 7;
            inner::send_hello(to, sent, nullptr, 0);
        });
        CHECK(version == errc::version_mismatch);
        const auto refusal = co_await connects_to_stranger(here, [](int to) {
            inner::hello sent;
            sent.status = static_cast<std::uint32_t>(errc::permission_denied);
            inner::send_hello(to, sent, nullptr, 0);
        });
        CHECK(refusal == errc::permission_denied);
        const auto bare = co_await connects_to_stranger(
            here, [](int to) { inner::send_hello(to, inner::hello{}, nullptr, 0); });
        CHECK(bare == errc::protocol_violation);
        // A refusal that is no code of ours must not become one.
        const auto odd = co_await connects_to_stranger(here, [](int to) {
            inner::hello sent;
            sent.status = 0x7fffffff;
            inner::send_hello(to, sent, nullptr, 0);
        });
        CHECK(odd);
        static_cast<void>(there);
    });
}

namespace {

/// A connection whose segment the test can scribble on.
struct open_segment {
    endpoint<shm> end;
    std::unique_ptr<inner::segment> view = std::make_unique<inner::segment>();
    std::unique_ptr<stranger> socket;
};

task<open_segment> scribbled(listener<shm>& listening, shm::domain& from, const inner::geometry& shape) {
    open_segment made;
    made.socket = std::make_unique<stranger>(listening.address());
    const offer o(from, shape);
    made.view->map(o.segment.get(), shape);
    o.send(made.socket->socket());
    // The hello of the protocol, so that the link opens.
    inner::ring_producer out;
    out.attach(*made.view, 0);
    rdmacoro::detail::wire_hello hello;
    hello.budget = rdmacoro::detail::least_budget;
    hello.fingerprint = default_protocols<shm>::fingerprint;
    const auto raw = hello.store();
    const rdmacoro::detail::wire_header header{1, 0, 0, 0};
    REQUIRE(out.put(inner::record_type::message, header.store(), const_buffers(raw)));
    made.end = co_await listening.accept();
    co_return made;
}

}  // namespace

TEST_CASE("random words in a shared ring end that link, and another of the same domain goes on") {
    const std::uint32_t seed = rdmacoro::test::seed() + 1;
    CAPTURE(seed);
    on_two_domains([seed](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        const inner::geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};
        auto accepting = start(listening.accept());
        auto good = co_await connect<shm>(here, listening.address());
        auto good_end = co_await accepting;
        std::mt19937 random(seed);
        int violations = 0;
        for (int round = 0; round < 60; ++round) {
            CAPTURE(round);
            open_segment victim = co_await scribbled(listening, here, shape);
            std::byte into[8];
            auto receiving = start(victim.end.recv(into, 4711));
            // Whatever was there is overwritten, the peer's free cells included. A word of the turn that is expected next
            // comes soon or never; without one the link stays as it is, and is aborted.
            auto* words = reinterpret_cast<std::uint32_t*>(victim.view->ring(0));
            for (std::size_t i = 0; i < shape.ring_bytes() / 4; ++i) {
                words[i] = round % 2 == 0
                               ? static_cast<std::uint32_t>(random())
                               : inner::frame_word::make(1, static_cast<inner::record_type>(random() % 16),
                                                         random() % (1u << 20));
            }
            victim.view->words(1).cells_freed.store(static_cast<std::uint32_t>(random()));
            victim.view->words(1).blocks_freed.store(static_cast<std::uint32_t>(random()));
            for (int n = 0; n < 600 && !receiving.done(); ++n) co_await yield();
            const bool ended = receiving.done();
            if (!ended) victim.end.abort();
            const auto got = co_await as_result(receiving);
            if (ended && !got) {
                CHECK(got.error() == errc::protocol_violation);
                ++violations;
            }
            co_await good.send({}, 1);
            co_await good_end.recv({}, 1);
        }
        CHECK(violations >= 30);  // every other round has words of the turn that is expected
    });
}

TEST_CASE("a peer that says for ever that it touches our memory holds nothing up: its link ends") {
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        const inner::geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};
        std::vector<std::byte> memory(100);
        {
            open_segment liar = co_await scribbled(listening, here, shape);
            region open = there.register_memory(memory);
            liar.view->words(0).region_in_use.store(open.remote().key);
            open.reset();
            const auto got = co_await as_result(liar.end.recv({}, 1));
            CHECK(got.error() == errc::protocol_violation);
        }
        {
            open_segment liar = co_await scribbled(listening, here, shape);
            liar.view->words(0).region_in_use.store(1);
            liar.end.abort();
            const auto got = co_await as_result(liar.end.recv({}, 1));
            CHECK(got.error() == errc::closed);
        }
        {
            // A mark on another region is ignored.
            open_segment liar = co_await scribbled(listening, here, shape);
            region open = there.register_memory(memory);
            liar.view->words(0).region_in_use.store(open.remote().key + 1);
            open.reset();
            co_await timeout(still_serves(listening, here), case_limit);
            liar.view->words(0).region_in_use.store(0);
            CHECK(liar.end.is_open());
        }
        co_await still_serves(listening, here);
    });
}

namespace {
std::size_t open_descriptors() {
    std::size_t count = 0;
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd"))
        count += each.exists() ? 1 : 0;
    return count;
}
}  // namespace

TEST_CASE("peers that end with their marks on memory that goes on leave nothing open") {
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        const inner::geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};
        shared_memory piece = there.allocate_shared(100'000);
        const region open = there.register_memory(piece.bytes());
        co_await still_serves(listening, here);
        const std::size_t before = open_descriptors();
        for (int n = 0; n < 20; ++n) {
            open_segment dead = co_await scribbled(listening, here, shape);
            dead.view->words(0).region_in_use.store(open.remote().key);
            dead.socket.reset();
            const auto got = co_await as_result(dead.end.recv({}, 1));
            CHECK(got.error() == errc::peer_lost);
        }
        CHECK(open_descriptors() <= before + 4);
    });
}

TEST_CASE(
    "a thousand peers that leave their marks standing hold a region's end up no longer than one of them") {
    rlimit descriptors{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &descriptors) == 0);
    if (descriptors.rlim_max < 6000) SKIP_TEST("needs more descriptors");
    descriptors.rlim_cur = descriptors.rlim_max;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &descriptors) == 0);
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        const inner::geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};
        std::vector<std::byte> memory(100);
        region open = there.register_memory(memory);
        std::vector<open_segment> liars;
        while (liars.size() < 1000) {
            liars.push_back(co_await scribbled(listening, here, shape));
            liars.back().view->words(0).region_in_use.store(open.remote().key);
        }
        const auto began = std::chrono::steady_clock::now();
        open.reset();
        const auto took = std::chrono::steady_clock::now() - began;
        CHECK(took >= inner::mark_patience::most / 2);
        CHECK(took < 2 * inner::mark_patience::most);
        std::size_t ended = 0;
        for (open_segment& liar : liars) {
            const auto got = co_await as_result(liar.end.recv({}, 1));
            if (got.error() == errc::protocol_violation) ++ended;
        }
        CHECK(ended == liars.size());
        liars.clear();
        co_await still_serves(listening, here);
    });
}

TEST_CASE("a peer that announces touches without end costs the end of a region one look, and is waited for "
          "as long as one that touches") {
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        const inner::geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};
        std::vector<std::byte> memory(100);
        std::vector<open_segment> peers;
        while (peers.size() < 20) peers.push_back(co_await scribbled(listening, here, shape));
        region first = there.register_memory(memory);
        first.reset();
        inner::notice_board& board = *there.shared_arena().touch_board();
        // Every link, and links that there are not.
        for (std::uint32_t link = 0; link < inner::notice_board::most_links; link += 3) board.mark(link);
        region open = there.register_memory(memory);
        peers[6].view->words(0).region_in_use.store(open.remote().key);
        const auto began = std::chrono::steady_clock::now();
        open.reset();
        CHECK(std::chrono::steady_clock::now() - began < 2 * inner::mark_patience::most);
        const auto got = co_await as_result(peers[6].end.recv({}, 1));
        CHECK(got.error() == errc::protocol_violation);
        for (std::size_t n = 0; n < peers.size(); ++n) CHECK((n == 6 || peers[n].end.is_open()));
        co_await still_serves(listening, here);
    });
}

TEST_CASE(
    "arena memory that a stopped peer may be writing to is given to nothing else until it goes on or ends") {
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        const inner::geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};
        for (const bool link_ends_first : {false, true}) {
            for (const bool dies : {false, true}) {
                CAPTURE(link_ends_first, dies);
                open_segment stopped = co_await scribbled(listening, here, shape);
                shared_memory piece = there.allocate_shared(100'000);
                const std::byte* const where = piece.bytes().data();
                region open = there.register_memory(piece.bytes());
                stopped.view->words(0).region_in_use.store(open.remote().key);
                if (link_ends_first) {
                    stopped.end.abort();
                    open.reset();
                } else {
                    open.reset();
                    const auto got = co_await as_result(stopped.end.recv({}, 1));
                    CHECK(got.error() == errc::protocol_violation);
                }
                piece.reset();
                {
                    const shared_memory next = there.allocate_shared(100'000);
                    CHECK(next.bytes().data() != where);
                    const shared_memory small = there.allocate_shared(1);
                    CHECK(small.bytes().data() != where);
                }
                if (dies) {
                    stopped.socket.reset();
                } else {
                    stopped.view->words(0).region_in_use.store(0);
                }
                const shared_memory again = there.allocate_shared(100'000);
                CHECK(again.bytes().data() == where);
            }
        }
        co_await still_serves(listening, here);
    });
}

TEST_CASE("what a peer writes after our end was closed is not delivered") {
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        const inner::geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};
        open_segment victim = co_await scribbled(listening, here, shape);
        victim.end.abort();
        inner::ring_producer out;
        out.attach(*victim.view, 0);
        const rdmacoro::detail::wire_header eager{8, 0, 0, 0};
        // The first cell holds the hello.
        REQUIRE(out.put(inner::record_type::message, eager.store(), {}));
        REQUIRE(out.put(inner::record_type::message, eager.store(), {}));
        CHECK(victim.end.connection().link().poll(64) == 0);
        CHECK(victim.end.connection().mailbox().matching().unexpected() == 0);
    });
}

TEST_CASE("memory of huge pages, which may not be there when it is touched, is refused") {
    const inner::unique_fd huge(::memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
    if (!huge) SKIP_TEST("this kernel makes no file of huge pages");
    REQUIRE(::ftruncate(huge.get(), 2 << 20) == 0);
    REQUIRE(::fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK_THROWS_AS(inner::segment::check_file(huge.get(), 4096, "a file"), error);
}

TEST_CASE("a peer that rings without end, and hears no ring, holds nothing up") {
    on_two_domains([](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        const inner::geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};
        open_segment victim = co_await scribbled(listening, here, shape);
        victim.view->words(1).notice.store(inner::notice_board::most_links + 1);  // wants to be rung
        for (int n = 0; n < 20; ++n) {
            const char ring[200] = {};
            while (::send(victim.socket->socket(), ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {}
            co_await victim.end.send({}, 1);
            co_await yield();
        }
        CHECK(victim.end.is_open());
        co_await still_serves(listening, here);
    });
}

TEST_CASE("another user's process is refused, on both sides") {
    if (::geteuid() != 0) SKIP_TEST("needs root, to become another user");
    child_process child([](const std::string& address) {
        if (::setgid(65534) != 0 || ::setuid(65534) != 0) throw std::runtime_error("setuid");
        scheduler on{idle::yield{}};
        shm::domain domain(on);
        on.run([](shm::domain& in, const std::string& where) -> task<> {
            bool refused = false;
            try {
                co_await timeout(connect<shm>(in, where), 20s);
            } catch (const error& e) {
                const std::string text = e.what();
                refused = e.code() == errc::permission_denied && text.find("65534") != std::string::npos &&
                          text.find(where) != std::string::npos;
            }
            if (!refused) throw std::runtime_error("was not refused by its own side");
            // One that does not look first is refused by the listener.
            const inner::socket_name name(where);
            const inner::unique_fd socket(
                ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
            if (::connect(socket.get(), name.raw(), name.length()) != 0) throw std::runtime_error("connect");
            inner::readable_operation reply(in, socket.get(), 20s);
            co_await reply;
            try {
                const inner::received_hello got = inner::receive_hello(socket.get());
                static_cast<void>(got);
            } catch (const error& e) {
                if (e.code() == errc::permission_denied) co_return;
            }
            throw std::runtime_error("was not refused by the listener");
        }(domain, address));
    });
    on_two_domains([&child](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        child.tell(listening.address());
        int status = 0;
        while (!child.ended(status)) co_await yield();
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0);
        co_await still_serves(listening, here);
    });
}

namespace {

/// Clients of a listener, each of which sends such a socket, whose last owner the message is then.
void send_lingering_sockets(int type, const sockaddr* name, socklen_t length, unsigned count,
                            const std::function<void()>& sent) {
    std::vector<inner::unique_fd> kept;
    for (unsigned n = 0; n < count; ++n) {
        const inner::unique_fd slow = lingering_socket(kept);
        inner::unique_fd client(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
        if (::connect(client.get(), name, length) != 0) throw std::runtime_error("connect");
        const int one = slow.get();
        inner::send_hello(client.get(), {}, &one, 1);
        kept.push_back(std::move(client));
    }
    sent();
    ::sleep(2 * linger_seconds + 1);  // they linger for as long as the other ends are kept
}
void send_lingering_sockets(const std::string& address, unsigned count, const std::function<void()>& sent) {
    const inner::socket_name name(address);
    send_lingering_sockets(SOCK_SEQPACKET, name.raw(), name.length(), count, sent);
}
void become_another_user() {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) throw std::runtime_error("setuid");
}

}  // namespace

TEST_CASE("sockets that another user sends and that take seconds to close hold nothing up") {
    if (::geteuid() != 0) SKIP_TEST("needs root, to become another user");
    child_process child([](const std::string& address) {
        become_another_user();
        send_lingering_sockets(address, 40, [] {});
    });
    on_two_domains([&child](shm::domain& here, shm::domain& there) -> task<> {
        auto listening = co_await listen<shm>(there, fresh_name());
        child.tell(listening.address());
        duration longest{};
        std::size_t most = 0;
        int status = 0;
        for (auto last = std::chrono::steady_clock::now(); !child.ended(status);) {
            co_await sleep_for(2ms);
            const auto now = std::chrono::steady_clock::now();
            longest = std::max<duration>(longest, now - last);
            last = now;
            most = std::max(most, detail::closing_elsewhere());
        }
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0);
        CHECK(longest < 1s);
        // They did take long, and no more threads than these wait for them.
        CHECK(most == detail::most_closing);
        co_await still_serves(listening, here);
        while (detail::closing_elsewhere() != 0) co_await sleep_for(2ms);
    });
}

TEST_CASE("a listener that ends before it has taken such sockets of another user ends at once") {
    if (::geteuid() != 0) SKIP_TEST("needs root, to become another user");
    const unsigned count = GENERATE(3u, 40u);
    int sent[2];
    REQUIRE(::pipe(sent) == 0);
    child_process child([&](const std::string& address) {
        ::close(sent[0]);
        become_another_user();
        send_lingering_sockets(address, count, [&] { ::close(sent[1]); });
    });
    ::close(sent[1]);
    on_two_domains([&](shm::domain&, shm::domain& there) -> task<> {
        std::optional listening(co_await listen<shm>(there, fresh_name()));
        child.tell(listening->address());
        char told = 0;
        CHECK(::read(sent[0], &told, 1) == 0);  // nothing is accepted meanwhile
        const auto began = std::chrono::steady_clock::now();
        const std::string address(listening->address());
        listening.reset();
        // Of many, the rest is closed with the listener's own socket; its name can be used again all the same.
        CHECK(detail::closing_elsewhere() == std::min<std::size_t>(count, detail::most_closing + 1));
        listening.emplace(co_await listen<shm>(there, address));
        CHECK(std::chrono::steady_clock::now() - began < 1s);
        while (detail::closing_elsewhere() != 0) co_await sleep_for(2ms);
        CHECK(std::chrono::steady_clock::now() - began > 1s);
    });
    ::close(sent[0]);
}

TEST_CASE("such sockets that another user sends to a rank's mark hold that rank up neither while it looks "
          "nor as it ends") {
    if (::geteuid() != 0) SKIP_TEST("needs root, to become another user");
    const std::string job = "hostile-" + std::to_string(::getpid());
    std::vector<std::uint32_t> ranks(64);
    std::iota(ranks.begin(), ranks.end(), 0u);
    int sent[2];
    REQUIRE(::pipe(sent) == 0);
    child_process child([&](const std::string&) {
        ::close(sent[0]);
        // As every user reads it in /proc/net/unix.
        const std::string name =
            "rdmacoro-" + std::to_string(::getuid()) + "-0-" + std::to_string(job.size()) + '-' + job;
        sockaddr_un mark{};
        mark.sun_family = AF_UNIX;
        std::copy(name.begin(), name.end(), mark.sun_path + 1);
        const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
        become_another_user();
        send_lingering_sockets(SOCK_STREAM, reinterpret_cast<const sockaddr*>(&mark), length, 40,
                               [&] { ::close(sent[1]); });
    });
    ::close(sent[1]);
    std::optional<detail::host_arrivals> arrivals(std::in_place, job, 0, ranks);
    child.tell("go");
    char told = 0;
    CHECK(::read(sent[0], &told, 1) == 0);
    ::close(sent[0]);
    const auto began = std::chrono::steady_clock::now();
    CHECK(arrivals->unseen().size() == ranks.size() - 1);
    CHECK(std::chrono::steady_clock::now() - began < 1s);
    CHECK(detail::closing_elsewhere() == detail::most_closing);
    arrivals.reset();
    CHECK(std::chrono::steady_clock::now() - began < 1s);
    CHECK(detail::closing_elsewhere() == detail::most_closing + 1);
    const auto limit = began + case_limit;
    while (detail::closing_elsewhere() != 0 && std::chrono::steady_clock::now() < limit) ::usleep(2000);
    CHECK(detail::closing_elsewhere() == 0);
    CHECK(std::chrono::steady_clock::now() - began > 1s);
}

}  // namespace test_faults_shm_hostile

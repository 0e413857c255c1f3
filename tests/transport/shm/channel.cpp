#include <rdmacoro/transport/shm/channel.hpp>

#include <rdmacoro/transport/shm/domain.hpp>

#include "support/catch.hpp"

#include <vector>

#include <sys/socket.h>
#include <unistd.h>

namespace test_transport_shm_channel {

using namespace rdmacoro;
using namespace rdmacoro::detail::shm;

namespace {

constexpr geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};

bool rung(const unique_fd& socket) {
    char nothing = 0;
    return ::recv(socket.get(), &nothing, 1, MSG_DONTWAIT) == 1;
}

}  // namespace

TEST_CASE("two ends of a channel write opposite directions of one segment") {
    const unique_fd file = segment::create(shape);
    const channel_ref connecting(new channel);
    const channel_ref accepting(new channel);
    connecting->attach(file.get(), shape, true);
    accepting->attach(file.get(), shape, false);
    ring_consumer::small got{};
    const std::byte payload[] = {std::byte{1}, std::byte{2}};
    REQUIRE(connecting->out.put(record_type::message, {}, const_buffers(std::span(payload))));
    REQUIRE(accepting->in.small_message(got));
    CHECK(got.payload.size() == 2);
    CHECK(connecting->in.nothing_new());
    REQUIRE(accepting->out.put(record_type::message, {}, const_buffers(std::span(payload))));
    CHECK(connecting->in.small_message(got));
    connecting->out_copies[0].claimed = 3;
    CHECK(accepting->in_copies[0].claimed == 3);
}

TEST_CASE("the peer is rung only when it asks for notice") {
    const unique_fd file = segment::create(shape);
    const channel_ref one(new channel);
    const channel_ref other(new channel);
    one->attach(file.get(), shape, true);
    other->attach(file.get(), shape, false);
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    one->socket = unique_fd(ends[0]);
    const unique_fd doorbell(ends[1]);
    one->ring_doorbell();
    CHECK_FALSE(rung(doorbell));
    other->in.want_notice(notice_board::most_links + 1);
    one->ring_doorbell();
    CHECK(rung(doorbell));
    other->in.want_notice(0);
    one->ring_doorbell();
    CHECK_FALSE(rung(doorbell));
}

TEST_CASE("a peer that takes no ring blocks the side that rings neither when the socket is full nor when it "
          "is made to block") {
    const unique_fd file = segment::create(shape);
    const channel_ref one(new channel);
    const channel_ref other(new channel);
    one->attach(file.get(), shape, true);
    other->attach(file.get(), shape, false);
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);  // blocking
    one->socket = unique_fd(ends[0]);
    const unique_fd peers(ends[1]);
    other->in.want_notice(notice_board::most_links + 1);
    ::alarm(60);
    for (int n = 0; n < 10'000; ++n) one->ring_doorbell();
    ::alarm(0);
    int heard = 0;
    while (rung(peers)) ++heard;
    CHECK(heard > 0);
    CHECK(heard < 10'000);
}

TEST_CASE("memory is touched only with a good key and an open peer, and marked meanwhile") {
    scheduler on;
    domain_base domain(on, {});
    const unique_fd file = segment::create(shape);
    const channel_ref here(new channel);
    const channel_ref there(new channel);
    here->attach(file.get(), shape, true);
    there->attach(file.get(), shape, false);
    here->peer.map_table(domain.table_file(), domain.options().max_regions, domain.regions().salt());
    std::vector<std::byte> memory(16);
    const region open = domain.register_memory(memory, access_rights::remote_read);

    unsigned copies = 0;
    const auto copy = [&] {
        ++copies;
        CHECK(there->in.region_in_use() == open.remote().key);
        return errc::ok;
    };
    CHECK(here->touch(open.remote(), access_rights::remote_read, copy) == errc::ok);
    CHECK(copies == 1);
    CHECK(there->in.region_in_use() == 0);
    CHECK(here->touch(open.remote(), access_rights::remote_write, copy) == errc::access_denied);
    there->in.set_closed();
    CHECK(here->touch(open.remote(), access_rights::remote_read, copy) == errc::peer_lost);
    CHECK(copies == 1);
    CHECK(there->in.region_in_use() == 0);
}

TEST_CASE("a channel lives as long as it has a use") {
    channel_ref one(new channel);
    channel* const made = one.get();
    ++made->users;
    channel_ref other(made);
    channel_ref moved(std::move(one));
    CHECK_FALSE(one);
    CHECK(moved.detach() == made);
    CHECK_FALSE(moved);
    made->release();
    CHECK(other->users == 1);
}

}  // namespace test_transport_shm_channel

// The stand-ins for providers that need their own hardware: what their rules allow works end to end, by libfabric's own
// calls, and each violation fails and is recorded.

#include "support/gni_provider/bare_pair.hpp"

#include "support/catch.hpp"
#include "support/pattern.hpp"
#include "support/with_variable.hpp"

#include <algorithm>
#include <array>
#include <set>

#include <sys/mman.h>

namespace test_ofi_stand_in {

using namespace rdmacoro::test;

namespace {

const std::vector<std::string> stand_ins{"gni", "cxi", "efa"};

/// Where FI_PROVIDER_PATH is set, it must name a folder with all three stand-ins.
bool asked_for() { return std::getenv("FI_PROVIDER_PATH") != nullptr; }
const std::string not_asked = "FI_PROVIDER_PATH names no directory with the stand-ins";

std::vector<std::byte> numbered(std::size_t bytes, unsigned first = 1) {
    std::vector<std::byte> all(bytes);
    for (std::size_t i = 0; i != bytes; ++i) all[i] = static_cast<std::byte>(first + i * 7 + i / 251);
    return all;
}

/// One message there, by whatever `post` calls.
void send_one(bare_pair& pair, std::size_t bytes) {
    std::vector<std::byte> out = numbered(bytes), in(bytes + 8);
    int sent = 0, got = 0;
    const std::size_t before_here = pair.done_here.size(), before_there = pair.done_there.size();
    REQUIRE(pair.posted([&] {
        return fi_recv(pair.there.endpoint.get(), in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &got);
    }) == 0);
    REQUIRE(pair.posted([&] {
        return fi_send(pair.here.endpoint.get(), out.data(), out.size(), nullptr, pair.to_there, &sent);
    }) == 0);
    pair.until([&] { return pair.done_here.size() > before_here && pair.done_there.size() > before_there; });
    CHECK(pair.done_here.back().op_context == &sent);
    CHECK(pair.done_there.back().op_context == &got);
    CHECK(pair.done_there.back().len == bytes);
    in.resize(bytes);
    CHECK(in == out);
}

}  // namespace

TEST_CASE("what a stand-in says of itself is the hardware's") {
    if (!asked_for()) SKIP_TEST(not_asked);
    owned_info info;
    REQUIRE(ask(*hints_for("gni"), &info) == 0);
    CHECK(std::string(info->fabric_attr->prov_name) == "gni");
    CHECK(std::string(info->domain_attr->name) == "/sys/class/gni/kgni0");
    CHECK(info->tx_attr->inject_size == 64);
    CHECK(info->tx_attr->size == 500);
    CHECK(info->tx_attr->iov_limit == 8);
    CHECK(info->tx_attr->rma_iov_limit == 1);
    CHECK(info->tx_attr->msg_order == FI_ORDER_SAS);
    CHECK(info->tx_attr->comp_order == 0);
    CHECK(info->ep_attr->max_msg_size == 0xffffffff);
    CHECK(info->domain_attr->mr_key_size == 8);
    CHECK(info->domain_attr->mr_mode == (FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY));
    CHECK(info->domain_attr->cq_data_size == 8);
    REQUIRE(ask(*hints_for("cxi"), &info) == 0);
    CHECK(info->tx_attr->inject_size == 192);
    CHECK(info->domain_attr->mr_mode == (FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY));
    CHECK(info->ep_attr->mem_tag_format < (std::uint64_t{1} << 48));
    REQUIRE(ask(*hints_for("efa"), &info) == 0);
    CHECK(info->domain_attr->mr_key_size == 4);
    CHECK(info->domain_attr->cq_data_size == 4);
}

TEST_CASE("a request for more than the hardware has finds no stand-in") {
    if (!asked_for()) SKIP_TEST(not_asked);
    const std::vector<std::function<void(fi_info&)>> too_much{
        [](fi_info& hints) { hints.tx_attr->inject_size = 65; },
        [](fi_info& hints) { hints.tx_attr->size = 501; },
        [](fi_info& hints) { hints.tx_attr->rma_iov_limit = 2; },
        [](fi_info& hints) { hints.tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW; },
        [](fi_info& hints) { hints.rx_attr->msg_order = FI_ORDER_STRICT; },
        [](fi_info& hints) { hints.tx_attr->comp_order = FI_ORDER_STRICT; },
        [](fi_info& hints) { hints.ep_attr->type = FI_EP_MSG; },
        [](fi_info& hints) { hints.ep_attr->max_msg_size = std::size_t{1} << 32; },
        [](fi_info& hints) { hints.domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED; },
        [](fi_info& hints) { hints.domain_attr->mr_key_size = 16; },
        [](fi_info& hints) { hints.domain_attr->name = ::strdup("eth0"); },
        [](fi_info& hints) { hints.caps |= FI_COLLECTIVE; },
    };
    for (std::size_t i = 0; i != too_much.size(); ++i) {
        CAPTURE(i);
        owned_info hints = hints_for("gni"), answer;
        too_much[i](*hints);
        CHECK(ask(*hints, &answer) == -FI_ENODATA);
    }
}

TEST_CASE("messages go through a stand-in whole") {
    if (!asked_for()) SKIP_TEST(not_asked);
    for (const std::string& name : stand_ins) {
        CAPTURE(name);
        violation_log log;
        bare_pair pair(name);
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{5000},
                                        std::size_t{16384}, std::size_t{1} << 20})
            send_one(pair, bytes);
        CHECK(pair.errors.empty());
        CHECK(log.take() == "");
    }
}

TEST_CASE("reads and writes go through a stand-in whole") {
    if (!asked_for()) SKIP_TEST(not_asked);
    for (const std::string& name : stand_ins) {
        CAPTURE(name);
        violation_log log;
        bare_pair pair(name);
        std::vector<std::byte> local = numbered(100'000), remote(120'000);
        const owned<fid_mr> exposed = pair.there.expose(remote);
        const std::uint64_t key = fi_mr_key(exposed.get());
        const std::uint64_t at = pair.there.address_of(remote.data() + 4096, remote);
        REQUIRE(pair.posted([&] {
            return fi_write(pair.here.endpoint.get(), local.data(), local.size(), nullptr, pair.to_there, at,
                            key, &local);
        }) == 0);
        pair.until([&] { return !pair.done_here.empty() || !pair.errors.empty(); });
        REQUIRE(pair.errors.empty());
        CHECK(pair.done_here.back().op_context == &local);
        pair.until([&] { return std::equal(local.begin(), local.end(), remote.begin() + 4096); });

        std::vector<std::byte> back(local.size());
        REQUIRE(pair.posted([&] {
            return fi_read(pair.here.endpoint.get(), back.data(), back.size(), nullptr, pair.to_there, at,
                           key, &back);
        }) == 0);
        pair.until([&] { return pair.done_here.size() == 2 || !pair.errors.empty(); });
        REQUIRE(pair.errors.empty());
        CHECK(back == local);
        CHECK(log.take() == "");
    }
}

TEST_CASE("a read that is not aligned fails where the hardware can't") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    for (const std::string& name : stand_ins) {
        CAPTURE(name);
        bare_pair pair(name);
        std::vector<std::byte> remote = numbered(4096), local(4096);
        const owned<fid_mr> exposed = pair.there.expose(remote);
        const std::uint64_t key = fi_mr_key(exposed.get());
        struct shift {
            std::size_t there, here, bytes;
        };
        for (const shift& by :
             {shift{0, 0, 64}, shift{1, 0, 64}, shift{2, 0, 64}, shift{0, 1, 64}, shift{0, 0, 63}}) {
            const bool aligned = (by.there | by.here | by.bytes) % 4 == 0;
            const std::size_t before = pair.done_here.size();
            const ssize_t result = pair.posted([&] {
                return fi_read(pair.here.endpoint.get(), local.data() + by.here, by.bytes, nullptr,
                               pair.to_there, pair.there.address_of(remote.data() + by.there, remote), key,
                               nullptr);
            });
            if (name == "gni" && !aligned) {
                CHECK(result == -FI_EINVAL);
                CHECK(log.take() == "get_alignment");
                continue;
            }
            REQUIRE(result == 0);
            pair.until([&] { return pair.done_here.size() > before; });
            CHECK(std::equal(local.begin() + static_cast<std::ptrdiff_t>(by.here),
                             local.begin() + static_cast<std::ptrdiff_t>(by.here + by.bytes),
                             remote.begin() + static_cast<std::ptrdiff_t>(by.there)));
        }
    }
    CHECK(log.take() == "");
}

TEST_CASE("an injected message is bounded and its memory may be overwritten at once") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    for (const std::string& name : stand_ins) {
        CAPTURE(name);
        bare_pair pair(name);
        const std::size_t most = pair.here.info->tx_attr->inject_size;
        std::vector<std::byte> out = numbered(most + 1), in(most), remote(most);
        const std::vector<std::byte> expected(out.begin(), out.end() - 1);
        REQUIRE(pair.posted([&] {
            return fi_recv(pair.there.endpoint.get(), in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr);
        }) == 0);
        const auto inject = [&](std::size_t bytes) {
            return pair.posted(
                [&] { return fi_inject(pair.here.endpoint.get(), out.data(), bytes, pair.to_there); });
        };
        CHECK(inject(most + 1) == (name == "cxi" ? -FI_EMSGSIZE : -FI_EINVAL));
        CHECK(log.take() == "inject_size");
        REQUIRE(inject(most) == 0);
        std::fill(out.begin(), out.end(), std::byte{0});
        pair.until([&] { return pair.done_there.size() == 1; });
        CHECK(in == expected);

        const owned<fid_mr> exposed = pair.there.expose(remote);
        out = expected;
        REQUIRE(pair.posted([&] {
            return fi_inject_write(pair.here.endpoint.get(), out.data(), out.size(), pair.to_there,
                                   pair.there.address_of(remote.data(), remote), fi_mr_key(exposed.get()));
        }) == 0);
        std::fill(out.begin(), out.end(), std::byte{0});
        pair.until([&] { return remote == expected; });
        CHECK(pair.done_here.empty());
    }
    CHECK(log.take() == "");
}

TEST_CASE("pieces and lengths are bounded") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    bare_pair pair("gni");
    std::vector<std::byte> out = numbered(72), in(72);
    std::array<iovec, 9> pieces{};
    for (std::size_t i = 0; i != pieces.size(); ++i) pieces[i] = {out.data() + i * 8, 8};
    REQUIRE(pair.posted([&] {
        return fi_recv(pair.there.endpoint.get(), in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr);
    }) == 0);
    const auto send = [&](std::size_t count) {
        return pair.posted([&] {
            return fi_sendv(pair.here.endpoint.get(), pieces.data(), nullptr, count, pair.to_there, nullptr);
        });
    };
    CHECK(send(9) == -FI_EINVAL);
    CHECK(log.take() == "iov_limit");
    REQUIRE(send(8) == 0);
    pair.until([&] { return pair.done_there.size() == 1; });
    CHECK(std::equal(in.begin(), in.begin() + 64, out.begin()));

    // Received in pieces.
    std::fill(in.begin(), in.end(), std::byte{0});
    for (std::size_t i = 0; i != 8; ++i) pieces[i] = {in.data() + (7 - i) * 8, 8};
    REQUIRE(fi_recvv(pair.there.endpoint.get(), pieces.data(), nullptr, 9, FI_ADDR_UNSPEC, nullptr) ==
            -FI_EINVAL);
    CHECK(log.take() == "iov_limit");
    REQUIRE(fi_recvv(pair.there.endpoint.get(), pieces.data(), nullptr, 8, FI_ADDR_UNSPEC, nullptr) == 0);
    REQUIRE(pair.posted([&] {
        return fi_send(pair.here.endpoint.get(), out.data(), 60, nullptr, pair.to_there, nullptr);
    }) == 0);
    pair.until([&] { return pair.done_there.size() == 2; });
    CHECK(std::equal(in.begin() + 56, in.begin() + 64, out.begin()));
    CHECK(std::equal(in.begin(), in.begin() + 4, out.begin() + 56));
    CHECK(in[4] == std::byte{0});

    CHECK(fi_send(pair.here.endpoint.get(), out.data(), std::size_t{1} << 32, nullptr, pair.to_there,
                  nullptr) == -FI_EMSGSIZE);
    CHECK(log.take() == "max_msg_size");
    CHECK(fi_readv(pair.here.endpoint.get(), pieces.data(), nullptr, 2, pair.to_there, 0, 0, nullptr) ==
          -FI_EINVAL);
    CHECK(log.take() == "iov_limit");
    const std::array<fi_rma_iov, 2> remote{fi_rma_iov{0, 4, 0}, fi_rma_iov{4, 4, 0}};
    const fi_msg_rma message{pieces.data(), nullptr, 1, pair.to_there, remote.data(), 2, nullptr, 0};
    CHECK(fi_writemsg(pair.here.endpoint.get(), &message, 0) == -FI_EINVAL);
    CHECK(log.take() == "rma_iov_limit");
}

TEST_CASE("registrations obey the mode") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    const with_variable limit("RDMACORO_STAND_IN_MR_CNT", "2");
    bare_endpoint end("gni");
    std::vector<std::byte> memory(8192);
    fid_mr* made = nullptr;
    const auto reg = [&](const void* begin, std::size_t bytes, std::uint64_t access, std::uint64_t flags) {
        return fi_mr_reg(end.domain.get(), begin, bytes, access, 0, 0, flags, &made, nullptr);
    };
    CHECK(reg(memory.data(), memory.size(), FI_REMOTE_READ, FI_RMA_EVENT) == -FI_EBADFLAGS);
    CHECK(log.take() == "mr_flags");
    CHECK(reg(nullptr, 64, FI_REMOTE_READ, 0) == -FI_EINVAL);
    CHECK(log.take() == "mr_address");
    CHECK(reg(memory.data(), 64, 0, 0) == -FI_EINVAL);
    CHECK(log.take() == "mr_access");
    const std::array<iovec, 2> pieces{iovec{memory.data(), 64}, iovec{memory.data() + 128, 64}};
    CHECK(fi_mr_regv(end.domain.get(), pieces.data(), 2, FI_READ, 0, 0, 0, &made, nullptr) == -FI_EOPNOTSUPP);
    CHECK(log.take() == "mr_iov_limit");

    constexpr std::size_t bytes = 1 << 16;
    void* const pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    REQUIRE(::munmap(static_cast<char*>(pages) + bytes / 2, bytes / 2) == 0);
    CHECK(reg(pages, bytes, FI_READ, 0) == -FI_EINVAL);
    CHECK(log.take() == "mr_allocated");
    REQUIRE(reg(pages, bytes / 2, FI_READ, 0) == 0);
    const owned<fid_mr> first(made);
    REQUIRE(reg(memory.data(), memory.size(), FI_READ, 0) == 0);
    owned<fid_mr> second(made);
    CHECK(log.take() == "");
    CHECK(reg(memory.data(), 64, FI_READ, 0) == -FI_ENOSPC);
    CHECK(log.take() == "mr_cnt");
    second.reset();
    REQUIRE(reg(memory.data(), 64, FI_READ, 0) == 0);
    second.reset(made);
    ::munmap(pages, bytes / 2);
}

TEST_CASE("where local registration was agreed every operation must name one that fits") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    for (const std::string name : {"gni", "efa"}) {
        CAPTURE(name);
        bare_endpoint::choices local;
        local.change_hints = [](fi_info& hints) { hints.domain_attr->mr_mode |= FI_MR_LOCAL; };
        bare_pair pair(name, local);
        CHECK((pair.here.info->domain_attr->mr_mode & FI_MR_LOCAL) != 0);
        std::vector<std::byte> out = numbered(256), in(256);
        const owned<fid_mr> source = pair.here.expose(out), sink = pair.there.expose(in);
        const auto send = [&](std::size_t bytes, void* descriptor) {
            return pair.posted([&] {
                return fi_send(pair.here.endpoint.get(), out.data(), bytes, descriptor, pair.to_there,
                               nullptr);
            });
        };
        CHECK(send(200, nullptr) == -FI_EINVAL);
        CHECK(log.take() == "mr_local");
        CHECK(send(257, fi_mr_desc(source.get())) == -FI_EINVAL);
        CHECK(log.take() == "mr_local");
        CHECK(send(200, fi_mr_desc(sink.get())) == -FI_EINVAL);  // the other domain's
        CHECK(log.take() == "mr_local");
        fid_mr* made = nullptr;
        REQUIRE(fi_mr_reg(pair.here.domain.get(), out.data(), out.size(), FI_RECV, 0, 0, 0, &made, nullptr) ==
                0);
        owned<fid_mr> for_receives(made);
        CHECK(send(200, fi_mr_desc(made)) == -FI_EACCES);
        CHECK(log.take() == "mr_local");
        void* const stale = fi_mr_desc(made);
        for_receives.reset();
        CHECK(send(200, stale) == -FI_EINVAL);
        CHECK(log.take() == "mr_local");
        CHECK(fi_recv(pair.there.endpoint.get(), in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr) ==
              -FI_EINVAL);
        CHECK(log.take() == "mr_local");

        REQUIRE(fi_recv(pair.there.endpoint.get(), in.data(), in.size(), fi_mr_desc(sink.get()),
                        FI_ADDR_UNSPEC, nullptr) == 0);
        REQUIRE(send(256, fi_mr_desc(source.get())) == 0);
        pair.until([&] { return pair.done_there.size() == 1; });
        CHECK(in == out);
        CHECK(log.take() == "");
    }
}

TEST_CASE("a registration that belongs to an endpoint has no key until it is bound and enabled") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    bare_pair pair("cxi");
    std::vector<std::byte> remote = numbered(512), local(512);
    fid_mr* made = nullptr;
    REQUIRE(fi_mr_reg(pair.there.domain.get(), remote.data(), remote.size(), FI_REMOTE_READ, 0, 0, 0, &made,
                      nullptr) == 0);
    owned<fid_mr> exposed(made);
    CHECK(fi_mr_key(made) == FI_KEY_NOTAVAIL);
    CHECK(fi_mr_enable(made) == -FI_EINVAL);
    CHECK(log.take() == "mr_enable");
    REQUIRE(fi_mr_bind(made, &pair.there.endpoint->fid, 0) == 0);
    CHECK(fi_mr_key(made) == FI_KEY_NOTAVAIL);
    CHECK(fi_close(&pair.there.endpoint->fid) == -FI_EBUSY);
    CHECK(log.take() == "ep_close");
    REQUIRE(fi_mr_enable(made) == 0);
    CHECK(fi_mr_key(made) != FI_KEY_NOTAVAIL);
    REQUIRE(pair.posted([&] {
        return fi_read(pair.here.endpoint.get(), local.data(), 500, nullptr, pair.to_there, 12,
                       fi_mr_key(made), nullptr);
    }) == 0);
    pair.until([&] { return pair.done_here.size() == 1; });
    CHECK(std::equal(local.begin(), local.begin() + 500, remote.begin() + 12));
    CHECK(log.take() == "");

    // Elsewhere there is nothing to bind.
    bare_endpoint other("gni");
    const owned<fid_mr> plain = other.expose(remote);
    CHECK(fi_mr_bind(plain.get(), &other.endpoint->fid, 0) == -FI_EINVAL);
    CHECK(log.take() == "mr_bind");
}

TEST_CASE("a refused key ends its operation with an error") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    for (const std::string& name : stand_ins) {
        for (const bool writes : {false, true}) {
            CAPTURE(name, writes);
            bare_pair pair(name);
            std::vector<std::byte> remote = numbered(512), local(512);
            const owned<fid_mr> exposed = pair.there.expose(remote);
            const std::uint64_t at = pair.there.address_of(remote.data(), remote);
            const std::uint64_t key = fi_mr_key(exposed.get()) ^ 77;
            fid_ep* const ep = pair.here.endpoint.get();
            int mine = 0;
            REQUIRE(pair.posted([&] {
                return writes ? fi_write(ep, local.data(), 512, nullptr, pair.to_there, at, key, &mine)
                              : fi_read(ep, local.data(), 512, nullptr, pair.to_there, at, key, &mine);
            }) == 0);
            pair.until([&] { return !pair.errors.empty() || !pair.done_here.empty(); });
            REQUIRE(pair.done_here.empty());
            CHECK(pair.errors.front().op_context == &mine);
            CHECK(pair.errors.front().err != 0);
            CHECK(remote == numbered(512));
        }
    }
    CHECK(log.take() == "");
}

TEST_CASE("wait objects are the hardware's") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    const auto open = [](bare_endpoint& in, fi_wait_obj object) {
        fi_cq_attr attributes{};
        attributes.format = FI_CQ_FORMAT_DATA;
        attributes.wait_obj = object;
        fid_cq* opened = nullptr;
        const int result = fi_cq_open(in.domain.get(), &attributes, &opened, nullptr);
        return std::pair(result, owned<fid_cq>(opened));
    };
    {
        bare_endpoint end("gni");
        CHECK(open(end, FI_WAIT_FD).first == -FI_EINVAL);
        CHECK(log.take() == "wait_obj");
        CHECK(open(end, FI_WAIT_MUTEX_COND).first == -FI_EINVAL);
        CHECK(log.take() == "wait_obj");
        const auto [result, queue] = open(end, FI_WAIT_UNSPEC);
        REQUIRE(result == 0);
        int descriptor = -1;
        CHECK(fi_control(&queue->fid, FI_GETWAIT, &descriptor) == -FI_ENOSYS);
        CHECK(log.take() == "wait_obj");
        fid* waiting[] = {&queue->fid};
        CHECK(fi_trywait(end.fabric.get(), waiting, 1) == -FI_ENOSYS);
        CHECK(log.take() == "trywait");
    }
    {
        bare_endpoint end("efa");
        CHECK(open(end, FI_WAIT_FD).first == -FI_ENOSYS);
        CHECK(open(end, FI_WAIT_UNSPEC).first == -FI_ENOSYS);
        CHECK(log.take() == "wait_obj wait_obj");
    }
    {
        bare_endpoint end("cxi");
        const auto [result, queue] = open(end, FI_WAIT_FD);
        REQUIRE(result == 0);
        int descriptor = -1;
        CHECK(fi_control(&queue->fid, FI_GETWAIT, &descriptor) == 0);
        CHECK(descriptor >= 0);
        CHECK(open(end, FI_WAIT_MUTEX_COND).first == -FI_ENOSYS);
        CHECK(log.take() == "wait_obj");
    }
}

TEST_CASE("a program that waits for a descriptor misses no completion") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    bare_endpoint::choices waiting;
    waiting.wait = FI_WAIT_FD;
    bare_pair pair("cxi", waiting);
    std::array<std::byte, 64> in{};
    for (int i = 0; i != 8; ++i)
        REQUIRE(fi_recv(pair.there.endpoint.get(), in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr) ==
                0);
    for (int i = 0; i != 8; ++i)
        REQUIRE(pair.posted([&] {
            return fi_send(pair.here.endpoint.get(), in.data(), 32, nullptr, pair.to_there, nullptr);
        }) == 0);
    // With one entry read at a time, fi_trywait succeeds only when nothing is left.
    fid* objects[] = {&pair.there.queue->fid};
    pair.until([&] {
        fi_cq_data_entry entry{};
        if (fi_cq_read(pair.there.queue.get(), &entry, 1) == 1) pair.done_there.push_back(entry);
        const bool may_wait = fi_trywait(pair.there.fabric.get(), objects, 1) == 0;
        if (may_wait) CHECK(fi_cq_read(pair.there.queue.get(), &entry, 0) <= 0);
        return pair.done_there.size() == 8;
    });
    CHECK(log.take() == "");
}

TEST_CASE("queues have the hardware's depth") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    for (const std::string& name : stand_ins) {
        CAPTURE(name);
        bare_pair pair(name);
        std::array<std::byte, 8> memory{};
        const auto receive = [&] {
            return fi_recv(pair.there.endpoint.get(), memory.data(), memory.size(), nullptr, FI_ADDR_UNSPEC,
                           nullptr);
        };
        if (name != "efa") {  // the queue of efa is longer than the one below
            for (std::size_t i = 0; i != pair.there.info->rx_attr->size; ++i) REQUIRE(receive() == 0);
            CHECK(receive() == -FI_EAGAIN);
        } else {
            for (int i = 0; i != 1100; ++i) REQUIRE(receive() == 0);
        }
        const auto send = [&] {
            return fi_send(pair.here.endpoint.get(), memory.data(), memory.size(), nullptr, pair.to_there,
                           nullptr);
        };
        REQUIRE(pair.posted(send) == 0);
        pair.until([&] { return pair.done_here.size() == 1; });
        std::size_t posted = 0;
        while (send() == 0) ++posted;
        CHECK(posted <= pair.here.info->tx_attr->size);
        CHECK(posted > 0);
        pair.until([&] {
            return pair.done_here.size() == posted + 1 &&
                   pair.done_there.size() >= std::min<std::size_t>(posted, 400);
        });
        CHECK(send() == 0);
    }
    CHECK(log.take() == "");
}

TEST_CASE(
    "an address is used between its insertion and its removal, and removed when nothing is under way to it") {
    if (!asked_for()) SKIP_TEST(not_asked);
    for (const std::string& name : stand_ins) {
        CAPTURE(name);
        violation_log log;
        bare_pair pair(name);
        send_one(pair, 40);
        fid_ep* const ep = pair.here.endpoint.get();
        fid_av* const addresses = pair.here.addresses.get();
        const std::vector<std::byte> out = numbered(40);
        int sent = 0;
        const std::size_t before = pair.done_here.size();
        const auto send = [&] { return fi_send(ep, out.data(), out.size(), nullptr, pair.to_there, &sent); };
        REQUIRE(pair.posted(send) == 0);
        CHECK(fi_av_remove(addresses, &pair.to_there, 1, 0) == -FI_EBUSY);
        CHECK(log.take() == "av_remove");
        pair.until([&] { return pair.done_here.size() > before; });
        CHECK(fi_av_remove(addresses, &pair.to_there, 1, 0) == 0);
        CHECK(log.take() == "");
        CHECK(send() == -FI_EINVAL);
        CHECK(log.take() == "fi_addr");
        CHECK(fi_av_remove(addresses, &pair.to_there, 1, 0) == -FI_EINVAL);
        CHECK(log.take() == "av_remove");
        CHECK(fi_close(&addresses->fid) == -FI_EBUSY);
        CHECK(log.take() == "av_close");
    }
}

TEST_CASE("the rules that no other test here breaks are recorded, too") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    bare_pair pair("efa");
    std::vector<std::byte> memory(64);
    const owned<fid_mr> exposed = pair.there.expose(memory);
    const std::uint64_t at = pair.there.address_of(memory.data(), memory), key = fi_mr_key(exposed.get());
    fid_ep* const ep = pair.here.endpoint.get();

    const iovec piece{memory.data(), 8};
    const fi_rma_iov longer{at, 9, key};
    const fi_msg_rma message{&piece, nullptr, 1, pair.to_there, &longer, 1, nullptr, 0};
    CHECK(fi_writemsg(ep, &message, 0) == -FI_EINVAL);
    CHECK(log.take() == "rma_length");
    CHECK(fi_write(ep, memory.data(), 8, nullptr, pair.to_there, at, std::uint64_t{1} << 32, nullptr) ==
          -FI_EINVAL);
    CHECK(log.take() == "mr_key_size");

    fi_mr_attr asked{};
    asked.mr_iov = &piece;
    asked.iov_count = 1;
    asked.access = FI_READ;
    asked.offset = 1;
    fid_mr* registered = nullptr;
    CHECK(fi_mr_regattr(pair.here.domain.get(), &asked, 0, &registered) == -FI_EINVAL);
    CHECK(log.take() == "mr_offset");

    fid_ep* opened = nullptr;
    REQUIRE(fi_endpoint(pair.here.domain.get(), pair.here.info.get(), &opened, nullptr) == 0);
    const owned<fid_ep> unbound(opened);
    CHECK(fi_enable(opened) == -FI_ENOCQ);
    CHECK(log.take() == "ep_enable");
    // ofi_rxm crashes when it closes an endpoint that was never enabled.
    REQUIRE(fi_ep_bind(opened, &pair.here.addresses->fid, 0) == 0);
    REQUIRE(fi_ep_bind(opened, &pair.here.queue->fid, FI_TRANSMIT | FI_RECV) == 0);
    REQUIRE(fi_enable(opened) == 0);
    pair.here.info->tx_attr->inject_size += 1;
    CHECK(fi_endpoint(pair.here.domain.get(), pair.here.info.get(), &opened, nullptr) == -FI_EINVAL);
    CHECK(log.take() == "ep_attr");
}

}  // namespace test_ofi_stand_in

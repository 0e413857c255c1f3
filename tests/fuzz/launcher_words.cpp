// What a launcher, the rendezvous of a job, or a rank of it can say. PMI of both versions is spoken over a descriptor with whatever the input has
// for answers, most of them nearly right; messages of a rendezvous and announcements of ranks are read from blocks of exactly their bytes. A
// conversation ends with what it asked for or by an `error`, soon; announcements that are accepted encode to the same bytes again.

#include <rdmacoro/service/detail/job_blob.hpp>
#include <rdmacoro/service/detail/meeting_wire.hpp>
#include <rdmacoro/service/detail/pmi_launcher.hpp>

#include "fuzz/script.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

using namespace rdmacoro;
using namespace rdmacoro::detail;
using rdmacoro::test::demand;
using rdmacoro::test::script;

namespace {

/// What a launcher answers, one after the other, where all is well: in version 1, and in version 2, where the first is in the way of version 1.
constexpr std::array<std::array<std::string_view, 8>, 2> right{
    {{"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
      "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024", "cmd=my_kvsname kvsname=kvs_fuzz",
      "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))", "cmd=put_result rc=0 msg=success",
      "cmd=barrier_out", "cmd=get_result rc=0 msg=success value=1:00ff", "cmd=finalize_ack"},
     {"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0", "cmd=fullinit-response;rc=0;rank=0;size=2;",
      "cmd=job-getid-response;rc=0;jobid=kvs_fuzz;",
      "cmd=info-getjobattr-response;found=TRUE;value=(vector,(0,1,2));rc=0;", "cmd=kvs-put-response;rc=0;",
      "cmd=kvs-fence-response;rc=0;", "cmd=kvs-get-response;found=TRUE;value=1:00ff;rc=0;",
      "cmd=finalize-response;rc=0;"}}};

/// An answer with what the input does to it, in the way of a version.
std::string answer(script& input, std::string_view nearly, bool line) {
    std::string text(nearly);
    switch (input.byte() % 16) {
        case 0: text.resize(input.byte() % (text.size() + 1)); break;
        case 1: text.insert(input.byte() % (text.size() + 1), std::to_string(input.number())); break;
        case 2:
            for (char& c : text)
                if (input.byte() % 16 == 0) c = static_cast<char>(input.byte());
            break;
        case 3: text.append(input.number() % 70'000, 'f'); break;
        default: break;
    }
    if (line) return text + (input.byte() % 32 == 1 ? "" : "\n");
    std::string head = std::to_string(input.byte() % 32 == 1 ? input.number() : text.size());
    head.resize(6, ' ');
    return head + text;
}

void speak_pmi(script& input) {
    std::array<int, 2> ends{};
    demand(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
    const bool second = input.byte() % 2 == 1;
    std::string all;
    for (std::size_t n = 0; n < right[0].size(); ++n) {
        const std::uint8_t order = input.byte();
        if (order % 32 == 1) continue;
        const std::size_t which = order % 32 == 2 ? order / 32 : n;
        all += answer(input, right[second ? 1 : 0][which], !second || n == 0);
        if (order % 32 == 3) --n;
        if (input.over() && order % 32 == 3) break;
    }
    // Less than a socket takes, and the end behind it.
    for (std::string_view rest = all; !rest.empty();) {
        const ssize_t sent = ::send(ends[1], rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0) break;
        rest.remove_prefix(static_cast<std::size_t>(sent));
    }
    ::shutdown(ends[1], SHUT_WR);
    std::map<std::string, std::string, std::less<>> around{
        {"PMI_FD", std::to_string(ends[0])}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMI_JOBID", "fuzz"}};
    if (second) around["SLURM_STEP_ID"] = "0";
    bool left = false;  // which closes the descriptor
    try {
        pmi_launcher of{launch_environment(std::move(around))};
        // It sees the end of the words: waiting for this is what libFuzzer's own limit finds.
        const patience limit(std::chrono::steady_clock::now() + std::chrono::minutes(1));
        of.open(limit);
        demand(of.size() >= 1 && of.size() <= launcher::most_ranks && of.rank() < of.size());
        const std::vector<std::byte> mine(input.byte());
        demand(of.exchange(mine, limit).size() == of.size());
        of.leave(limit);
        left = true;
    } catch (const error& failed) {
        demand(failed.code() != std::error_code() && failed.what()[0] != 0);
    }
    ::close(ends[1]);
    if (!left) ::close(ends[0]);
}

void meet(std::span<const std::byte> bytes) {
    try {
        while (const auto frame = next_meeting_frame(bytes, longest_meeting_message)) {
            demand(frame->bytes() <= bytes.size());
            switch (frame->kind) {
                case meeting_kind::greeting: static_cast<void>(frame->as<meeting_greeting>()); break;
                case meeting_kind::hello: static_cast<void>(frame->as<meeting_hello>()); break;
                case meeting_kind::welcome: static_cast<void>(frame->as<meeting_welcome>()); break;
                case meeting_kind::put: static_cast<void>(frame->as<meeting_put>()); break;
                case meeting_kind::missing: static_cast<void>(frame->as<meeting_missing>()); break;
                case meeting_kind::all: static_cast<void>(frame->as<meeting_all>()); break;
                case meeting_kind::refusal:
                case meeting_kind::lost: static_cast<void>(frame->as<std::string>()); break;
                case meeting_kind::bye: static_cast<void>(frame->as<meeting_end>()); break;
                case meeting_kind::ask: break;
            }
            bytes = bytes.subspan(frame->bytes());
        }
    } catch (const error& failed) {
        demand(failed.code() == errc::protocol_violation);
    }
}

void announce(std::span<const std::byte> bytes) {
    const result<job_blob> read = decode_job_blob(bytes);
    if (!read) return;
    demand(read->cards.size() <= job_blob::most_cards &&
           read->launched_on.size() <= job_blob::most_host_bytes);
    const std::vector<std::byte> again = encode_job_blob(*read);
    demand(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
    demand(number_hosts(std::span(&*read, 1)).size() == 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::size_t count = size - 1;
    if (data[0] % 4 == 0) {
        script input(data + 1, count);
        speak_pmi(input);
        return 0;
    }
    // Exactly these bytes, without any after them.
    const std::unique_ptr<std::byte[]> exact(new std::byte[count]);
    if (count != 0) std::memcpy(exact.get(), data + 1, count);
    const std::span<const std::byte> bytes(exact.get(), count);
    if (data[0] % 4 == 1) {
        meet(bytes);
    } else if (data[0] % 4 == 2) {
        announce(bytes);
    } else {
        const std::string_view text(reinterpret_cast<const char*>(bytes.data()), count);
        const std::vector<std::uint32_t> nodes = read_process_mapping(text, 64);
        demand(nodes.empty() || nodes.size() == 64);
    }
    return 0;
}

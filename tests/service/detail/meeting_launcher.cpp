#include <rdmacoro/service/detail/meeting_launcher.hpp>

#include "support/catch.hpp"
#include "support/meeting.hpp"
#include "support/scripted_names.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/resource.h>

namespace test_service_detail_meeting_launcher {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;
using detail::launch_environment;
using detail::meeting_launcher;

namespace {

using variables = std::map<std::string, std::string, std::less<>>;

/// An address at which no other process listens.
std::string free_url() {
    detail::meeting_server one(loopback_endpoint(), 1, detail::job_key(), false);
    return "tcp://" + one.address();
}
variables of_rank(const std::string& url, std::uint32_t rank, std::uint32_t size) {
    return {{"RDMACORO_JOB", url},
            {"RDMACORO_RANK", std::to_string(rank)},
            {"RDMACORO_SIZE", std::to_string(size)}};
}

/// Answers one connection with these bytes, and waits for its end.
class false_meeting {
public:
    explicit false_meeting(std::vector<std::byte> says)
        : listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), says_(std::move(says)) {
        const detail::inet_endpoint at = loopback_endpoint();
        if (::bind(listening_, at.get(), at.bytes) != 0 || ::listen(listening_, 1) != 0) std::abort();
        url = "tcp://" + detail::inet_endpoint::local(listening_).text();
        answering_ = std::thread([this] {
            const int fd = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
            if (fd < 0) return;
            if (!says_.empty() && ::send(fd, says_.data(), says_.size(), MSG_NOSIGNAL) < 0) std::abort();
            std::array<char, 512> room;
            while (::recv(fd, room.data(), room.size(), 0) > 0) {}
            ::close(fd);
        });
    }
    false_meeting(const false_meeting&) = delete;
    false_meeting& operator=(const false_meeting&) = delete;
    ~false_meeting() {
        ::shutdown(listening_, SHUT_RDWR);
        answering_.join();
        ::close(listening_);
    }
    std::string url;

private:
    int listening_;
    std::vector<std::byte> says_;
    std::thread answering_;
};

/// Takes and closes so many connections; then its queue of those that wait is full, and the system answers none more.
class crowded_listener {
public:
    explicit crowded_listener(int taken)
        : listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
          at_((bind(), detail::inet_endpoint::local(listening_))),
          url("tcp://" + at_.text()) {
        if (taken == 0) {
            fill();
            return;
        }
        taking_ = std::thread([this, taken] {
            for (int n = 0; n < taken; ++n) {
                const int fd = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
                if (fd < 0) return;
                if (n + 1 == taken) fill();
                ::close(fd);
            }
        });
    }
    crowded_listener(const crowded_listener&) = delete;
    crowded_listener& operator=(const crowded_listener&) = delete;
    ~crowded_listener() {
        ::shutdown(listening_, SHUT_RDWR);
        if (taking_.joinable()) taking_.join();
        for (const int fd : fill_) ::close(fd);
        ::close(listening_);
    }

private:
    void bind() {
        const detail::inet_endpoint at = loopback_endpoint();
        if (::bind(listening_, at.get(), at.bytes) != 0 || ::listen(listening_, 0) != 0) std::abort();
    }
    void fill() {
        for (int& fd : fill_) {
            fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
            if (::connect(fd, at_.get(), at_.bytes) != 0 && errno != EINPROGRESS) std::abort();
        }
    }

    int listening_;
    detail::inet_endpoint at_;
    std::array<int, 3> fill_{-1, -1, -1};
    std::thread taking_;

public:
    const std::string url;
};

}  // namespace

TEST_CASE("ranks meet at rank 0, whichever comes first, and exchange twice") {
    const std::string url = free_url();
    std::vector<std::string> failures(4), names(4), addresses(4);
    std::vector<std::vector<std::vector<std::byte>>> got(4);
    std::vector<std::thread> ranks;
    for (const std::uint32_t rank : {3u, 1u, 0u, 2u}) {
        ranks.emplace_back([&, rank] {
            failures[rank] =
                error_of([&] {
                    meeting_launcher one{launch_environment(of_rank(url, rank, 4))};
                    names[rank] = one.name();
                    one.open(patience_of(10s));
                    const std::vector<std::byte> first(1 + rank, std::byte{1});
                    static_cast<void>(one.exchange(first, patience_of(10s)));
                    const std::vector<std::byte> mine(5000 * rank + 1, static_cast<std::byte>(rank));
                    got[rank] = one.exchange(mine, patience_of(10s));
                    addresses[rank] = one.address();
                    one.leave(patience_of(10s));
                }).second;
        });
    }
    for (std::thread& one : ranks) one.join();
    CHECK(failures == std::vector<std::string>(4));
    CHECK(names == std::vector<std::string>(4, url));
    CHECK(addresses == std::vector<std::string>(4, "127.0.0.1"));
    for (const auto& all : got) {
        REQUIRE(all.size() == 4);
        for (std::uint32_t rank = 0; rank < 4; ++rank)
            CHECK(all[rank] == std::vector<std::byte>(5000 * rank + 1, static_cast<std::byte>(rank)));
    }
}

TEST_CASE("a name that leads to its own host alone there is reached from others all the same") {
    scripted_names hosts;
    hosts.set("alpha", {"127.0.1.1"});  // as in /etc/hosts of Debian
    hosts.set("beta", {"127.0.0.1"});
    for (const std::string host : {"alpha", "beta", "localhost", "127.0.1.1"}) {
        INFO(host);
        const bool is_name = host == "alpha" || host == "beta";
        const std::string url = free_url();
        const std::string port = url.substr(url.rfind(':') + 1);
        std::vector<std::string> failures(2), addresses(2);
        std::vector<std::thread> ranks;
        bool by_other_address = false;
        for (const std::uint32_t rank : {0u, 1u}) {
            ranks.emplace_back([&, rank] {
                failures[rank] = error_of([&] {
                                     meeting_launcher one{
                                         launch_environment(of_rank("tcp://" + host + ':' + port, rank, 2))};
                                     one.open(patience_of(10s));
                                     addresses[rank] = one.address();
                                     if (rank == 1) {
                                         // An address as that of a network, at which others would come.
                                         detail::inet_endpoint to = loopback_endpoint(port);
                                         reinterpret_cast<sockaddr_in&>(to.address).sin_addr.s_addr =
                                             ::inet_addr("127.0.0.9");
                                         const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                                         by_other_address = ::connect(fd, to.get(), to.bytes) == 0;
                                         ::close(fd);
                                     }
                                     static_cast<void>(one.exchange({std::byte{1}}, patience_of(10s)));
                                     one.leave(patience_of(10s));
                                 }).second;
            });
        }
        for (std::thread& one : ranks) one.join();
        CHECK(failures == std::vector<std::string>(2));
        CHECK(by_other_address == is_name);
        for (const std::string& address : addresses) CHECK(address.empty() == is_name);
    }
}

TEST_CASE("rank 0 names the ranks that do not come, and tells those that have") {
    const std::string url = free_url();
    std::string other;
    std::thread second([&] {
        other = error_of([&] {
                    meeting_launcher one{launch_environment(of_rank(url, 2, 4))};
                    one.open(patience_of(10s));
                    static_cast<void>(one.exchange({std::byte{1}}, patience_of(10s)));
                }).second;
    });
    meeting_launcher one{launch_environment(of_rank(url, 0, 4))};
    one.open(patience_of(10s));
    const auto [code, text] =
        error_of([&] { static_cast<void>(one.exchange({std::byte{1}}, patience_of(700ms))); });
    second.join();
    CHECK(code == errc::timed_out);
    CHECK_THAT(text, contains("ranks 1 and 3 of 4 have not come"));
    CHECK_THAT(other, contains("1 and 3 of 4"));
}

TEST_CASE("rank 0 says that it had no descriptor left for the ranks that have not come") {
    meeting_launcher one{launch_environment(of_rank(free_url(), 0, 2))};
    one.open(patience_of(10s));
    const stranger waits(one.name());
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit few = before;
    few.rlim_cur = std::min<rlim_t>(before.rlim_cur, 256);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    std::vector<int> taken;
    for (int fd = 0; (fd = ::fcntl(0, F_DUPFD_CLOEXEC, 3)) >= 0;) taken.push_back(fd);
    const int why = errno;
    const auto [code, text] =
        error_of([&] { static_cast<void>(one.exchange({std::byte{1}}, patience_of(200ms))); });
    for (const int fd : taken) ::close(fd);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(why == EMFILE);
    CHECK(code == errc::timed_out);
    CHECK_THAT(text, contains("rank 1 of 2 has not come within the limit") && contains("no descriptor left"));
}

TEST_CASE("without rank 0 the others end within their limit, and say that it is missing") {
    meeting_launcher one{launch_environment(of_rank(free_url(), 1, 2))};
    const auto [code, text] = error_of([&] { one.open(patience_of(200ms)); });
    CHECK(code == errc::timed_out);
    CHECK_THAT(text, contains("rank 0") && contains("Connection refused"));
    variables served = of_rank(free_url(), 1, 2);
    served["RDMACORO_SERVED"] = "1";
    meeting_launcher other{launch_environment(served)};
    CHECK(error_of([&] { other.open(patience_of(20s)); }).first == errc::connection_refused);
}

TEST_CASE("without time to connect, what is missing is no reason of the system's") {
    meeting_launcher one{launch_environment(of_rank(free_url(), 1, 2))};
    const auto [code, text] = error_of([&] { one.open(patience_of(0s)); });
    CHECK(code == errc::timed_out);
    CHECK_THAT(text, contains("has not come within the limit") && !contains("in progress"));
}

TEST_CASE("ranks name the one that stood still, and that one is told that they have waited to their limits") {
    served_meeting meeting(3);
    meeting_launcher stopped{launch_environment(meeting.variables(1, 3))};
    stopped.open(patience_of(10s));
    // The limit of rank 0 ends first, and with it what rank 2 waits for.
    std::string other;
    std::thread second([&] {
        other = error_of([&] {
                    meeting_launcher one{launch_environment(meeting.variables(2, 3))};
                    one.open(patience_of(20s));
                    static_cast<void>(one.exchange({std::byte{1}}, patience_of(20s)));
                }).second;
    });
    {
        meeting_launcher first{launch_environment(meeting.variables(0, 3))};
        first.open(patience_of(10s));
        const auto [code, text] =
            error_of([&] { static_cast<void>(first.exchange({std::byte{1}}, patience_of(500ms))); });
        CHECK(code == errc::timed_out);
        CHECK_THAT(text, contains("rank 1") && contains("not come within the limit"));
    }
    second.join();
    CHECK_THAT(other, contains("rank 0 of 3 has waited to the limit; rank") && contains("1") &&
                          contains("not come") && !contains("gone before"));
    const auto [code, text] =
        error_of([&] { static_cast<void>(stopped.exchange({std::byte{1}}, patience_of(-7s))); });
    CHECK(code == errc::peer_lost);
    CHECK_THAT(text, contains("rank 0 of 3 has waited to the limit; rank") && contains("not come") &&
                         contains("this process stood still, and went on 7 s after its own limit"));
    // One that has not come as far as that.
    meeting_launcher late{launch_environment(meeting.variables(2, 3))};
    CHECK_THAT(error_of([&] { late.open(patience_of(-7s)); }).second,
               contains("rank 2 was there before") && contains("7 s after its own limit"));
}

TEST_CASE("a rank that stood still joins all the same where the others still wait for it") {
    served_meeting meeting(2);
    const std::vector<std::byte> blob(10, std::byte{7});
    std::vector<std::vector<std::byte>> there, here;
    std::string failed;
    std::thread other([&] {
        meeting_launcher one{launch_environment(meeting.variables(0, 2))};
        failed = error_of([&] {
                     one.open(patience_of(20s));
                     there = one.exchange(blob, patience_of(20s));
                 }).second;
    });
    const auto [code, text] = error_of([&] {
        meeting_launcher one{launch_environment(meeting.variables(1, 2))};
        one.open(patience_of(-7s));
        // The other one has come by then, or comes while it is waited for.
        here = one.exchange(blob, patience_of(20s));
    });
    other.join();
    CHECK(text.empty());
    CHECK(failed.empty());
    CHECK(there.size() == 2);
    CHECK(here == there);
}

TEST_CASE("rank 0 that stood still hears what the others have said meanwhile") {
    using detail::meeting_kind;
    using detail::meeting_message;
    const std::vector<std::byte> blob(10, std::byte{7});
    for (const bool waits : {true, false}) {
        meeting_launcher one{launch_environment(of_rank(free_url(), 0, 2))};
        one.open(patience_of(10s));
        std::optional<stranger> other(std::in_place, one.name());
        other->say(meeting_message(meeting_kind::hello, detail::meeting_hello{.rank = 1, .size = 2}));
        other->say(meeting_message(meeting_kind::put, detail::meeting_put{0, blob}));
        // At its limit it has said so, and gone.
        if (!waits) other->say(meeting_message(meeting_kind::bye, std::uint8_t{1}));
        if (!waits) other.reset();
        std::vector<std::vector<std::byte>> all;
        const auto [code, text] = error_of([&] { all = one.exchange(blob, patience_of(-7s)); });
        INFO(text);
        if (waits) {
            CHECK(all == std::vector<std::vector<std::byte>>(2, blob));
        } else {
            CHECK(code == errc::peer_lost);
            CHECK_THAT(text, contains("rank 1 of 2 has waited to the limit") && !contains("not come") &&
                                 contains("this process stood still, and went on 7 s after its own limit"));
        }
    }
}

TEST_CASE("where the rendezvous stands still no rank is blamed that may have come since it spoke") {
    using detail::meeting_kind;
    using detail::meeting_message;
    std::vector<std::byte> says = meeting_message(meeting_kind::greeting, detail::meeting_greeting{});
    for (const std::vector<std::byte>& one :
         {meeting_message(meeting_kind::welcome, detail::meeting_welcome{}),
          meeting_message(meeting_kind::missing, detail::meeting_missing{.count = 1, .ranks = {2}})})
        says.insert(says.end(), one.begin(), one.end());
    false_meeting there(says);
    std::optional<meeting_launcher> rank(std::in_place, launch_environment(of_rank(there.url, 1, 3)));
    rank->open(patience_of(10s));
    const auto [code, text] =
        error_of([&] { static_cast<void>(rank->exchange({std::byte{1}}, patience_of(400ms))); });
    CHECK(code == errc::timed_out);
    CHECK_THAT(text, contains("rank 0, which listens there, does not answer") && !contains("rank 2"));
    rank.reset();
}

TEST_CASE("what listens there and is no rendezvous is told from one") {
    using detail::meeting_kind;
    using detail::meeting_message;
    const auto text_bytes = [](std::string_view text) {
        const auto bytes = std::as_bytes(std::span(text));
        return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    struct wrong {
        std::vector<std::byte> says;
        std::error_code code;
        std::string text;
    };
    std::vector<std::byte> silent_after = meeting_message(meeting_kind::greeting, detail::meeting_greeting{});
    std::vector<std::byte> no_welcome = silent_after;
    const auto more = meeting_message(meeting_kind::all, detail::meeting_all{});
    no_welcome.insert(no_welcome.end(), more.begin(), more.end());
    std::vector<std::byte> no_proof = silent_after;
    const auto welcome = meeting_message(meeting_kind::welcome, detail::meeting_welcome{5});
    no_proof.insert(no_proof.end(), welcome.begin(), welcome.end());
    std::vector<std::byte> refused = silent_after;
    const auto refusal = meeting_message(meeting_kind::refusal, std::string("for a reason"));
    refused.insert(refused.end(), refusal.begin(), refusal.end());
    const std::vector<wrong> all = {
        {{}, make_error_code(errc::timed_out), "does not answer"},
        {text_bytes("HTTP/1.1 400 Bad Request\r\n\r\n"), make_error_code(errc::protocol_violation),
         "no rendezvous"},
        {meeting_message(meeting_kind::greeting, detail::meeting_greeting{.mark = 1}),
         make_error_code(errc::protocol_violation), "no rendezvous"},
        {meeting_message(meeting_kind::greeting, detail::meeting_greeting{.version = 9}),
         make_error_code(errc::version_mismatch), "version 9"},
        {silent_after, make_error_code(errc::timed_out), "does not answer"},
        {no_welcome, make_error_code(errc::protocol_violation), "does not speak as one"},
        {no_proof, make_error_code(errc::permission_denied), "does not have the key"},
        {refused, make_error_code(errc::permission_denied), "for a reason"},
    };
    for (const wrong& one : all) {
        INFO(one.text);
        false_meeting there(one.says);
        std::optional<meeting_launcher> rank(std::in_place, launch_environment(of_rank(there.url, 1, 2)));
        const auto [code, text] = error_of([&] { rank->open(patience_of(300ms)); });
        CHECK(code == one.code);
        CHECK_THAT(text, contains(one.text) && contains(there.url));
        rank.reset();
    }
}

TEST_CASE("a rank that is closed before it has been heard, as in a crowd of strangers, connects again") {
    served_meeting meeting(1);
    const withheld_answers between(meeting.server.address(), 5);
    variables mine = meeting.variables(0, 1);
    mine["RDMACORO_JOB"] = between.url();
    meeting_launcher rank{launch_environment(mine)};
    rank.open(patience_of(20s));
    CHECK(between.turned_away() == 5);
    const std::vector<std::byte> blob(10, std::byte{7});
    const std::vector<std::vector<std::byte>> all = rank.exchange(blob, patience_of(20s));
    CHECK(all == std::vector<std::vector<std::byte>>{blob});
    rank.leave(patience_of(20s));
}

TEST_CASE("a rank that is refused after it was closed once is told why, at once") {
    served_meeting meeting(1);
    const withheld_answers between(meeting.server.address(), 1);
    variables mine = meeting.variables(0, 2);
    mine["RDMACORO_JOB"] = between.url();
    meeting_launcher rank{launch_environment(mine)};
    const auto [code, text] = error_of([&] { rank.open(patience_of(20s)); });
    CHECK(between.turned_away() == 1);
    CHECK(code == errc::permission_denied);
    CHECK_THAT(text, contains("job of 2, this one is of 1"));
}

TEST_CASE("a rendezvous that leaves a connection unanswered is tried again until the limit") {
    // Longer than one attempt.
    constexpr auto limit = 3s;
    const crowded_listener crowded(0);
    variables served = of_rank(crowded.url, 1, 2);
    served["RDMACORO_SERVED"] = "1";
    meeting_launcher one{launch_environment(served)};
    const auto [code, text] = error_of([&] { one.open(patience_of(limit)); });
    CHECK(code == errc::timed_out);
    CHECK_THAT(text, contains("the program that is to listen there has not answered within the limit"));

    // Nor is it one that has gone where it has closed a connection before.
    const crowded_listener after_one(1);
    meeting_launcher other{launch_environment(of_rank(after_one.url, 1, 2))};
    const auto [why, said] = error_of([&] { other.open(patience_of(limit)); });
    CHECK(why == errc::timed_out);
    CHECK_THAT(said, contains("rank 0, which listens there, does not answer"));
}

TEST_CASE("what closes each connection is told from a rank that has gone") {
    const withheld_answers closes("", 1'000'000);
    meeting_launcher rank{launch_environment(of_rank(closes.url(), 1, 2))};
    const auto [code, text] = error_of([&] { rank.open(patience_of(300ms)); });
    CHECK(code == errc::timed_out);
    CHECK_THAT(text, contains("closes connections before it answers") && contains(closes.url()));
    CHECK(closes.turned_away() > 2);

    const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const detail::inet_endpoint at = loopback_endpoint();
    REQUIRE(::bind(listening, at.get(), at.bytes) == 0);
    REQUIRE(::listen(listening, 1) == 0);
    const std::string url = "tcp://" + detail::inet_endpoint::local(listening).text();
    std::thread goes([&] {
        const int one = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
        ::close(listening);
        ::close(one);
    });
    meeting_launcher left{launch_environment(of_rank(url, 1, 2))};
    const auto [why, said] = error_of([&] { left.open(patience_of(20s)); });
    goes.join();
    CHECK(why == errc::peer_lost);
    CHECK_THAT(said, contains("rank 0, which listens there, has gone"));
}

TEST_CASE("variables that name no place, rank or size are refused, with the variable in the text") {
    const variables good = of_rank("tcp://127.0.0.1:7470", 1, 2);
    struct wrong {
        const char* name;
        const char* value;
    };
    for (const wrong& one : std::initializer_list<wrong>{{"RDMACORO_JOB", "shm://a"},
                                                         {"RDMACORO_JOB", "tcp://"},
                                                         {"RDMACORO_JOB", "tcp://:7470"},
                                                         {"RDMACORO_JOB", "tcp://a:0"},
                                                         {"RDMACORO_JOB", "tcp://a:x"},
                                                         {"RDMACORO_RANK", "2"},
                                                         {"RDMACORO_RANK", "x"},
                                                         {"RDMACORO_SIZE", ""},
                                                         {"RDMACORO_LOCAL_SIZE", "0"},
                                                         {"RDMACORO_LOCAL_SIZE", "3"},
                                                         {"RDMACORO_KEY", "secret"}}) {
        variables values = good;
        values[one.name] = one.value;
        const auto [code, text] = error_of([&] { meeting_launcher made{launch_environment(values)}; });
        INFO(one.name << ' ' << one.value << ": " << text);
        CHECK((code == errc::address_invalid || code == errc::invalid_argument));
        CHECK_THAT(text, contains("RDMACORO_"));
        CHECK_THAT(text, !contains("secret"));
    }
    CHECK_FALSE(meeting_launcher(launch_environment(good)).may_hang());
    CHECK(meeting_launcher(launch_environment(of_rank("tcp://alpha:7470", 1, 2))).may_hang());
    CHECK_FALSE(meeting_launcher(launch_environment(of_rank("tcp://[::1]:7470", 1, 2))).may_hang());
}

}  // namespace test_service_detail_meeting_launcher

// Every protocol list under many orders of events, all of them where it says so: small programs of sends, receives and cancels
// between two endpoints.
//
// The ordinary run explores samples that fit half a minute, chosen by a seeded shuffle; RDMACORO_EXPLORE_EVERY=n takes one of n
// of their programs (under a sanitizer). The hidden tests, tagged [.nightly], explore all programs of five operations and many
// longer ones. They can be run in parts:
//
//   RDMACORO_EXPLORE_SLICE=3/20         the third of twenty parts of each sweep (searches are shuffled before they are divided)
//   RDMACORO_EXPLORE_LIST=NAME          one of the lists
//   RDMACORO_EXPLORE_SWEEP=NAME         one line of what is printed, such as "2+2, canceled"; prints what is not complete
//   RDMACORO_EXPLORE_SECONDS=n          time for each list; twenty minutes if not set. What it does not allow is left out
//   RDMACORO_EXPLORE_EXECUTIONS=n       executions of a search; two million if not set. One that takes more is capped
//   RDMACORO_EXPLORE_RECORD=FILE        appends a line for each sweep to it
//
// tools/explore runs slices and keeps explored.md, the table of how far this came. A failure prints the command that replays its
// schedule.

#include "support/explored_program.hpp"

#include <rdmacoro/protocol/protocols.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace test_protocol_explored {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

// ---- the lists

template <class List>
struct named_list {
    using type = List;
    const char* name;
    bool short_ones = true;  ///< has a policy of its own for short messages
};
constexpr named_list<protocols<get_rendezvous<>>> gets{"get", false};
constexpr named_list<protocols<put_rendezvous<>>> puts{"put", false};
constexpr named_list<protocols<eager<up_to<16>>, get_rendezvous<up_to<48>>, put_rendezvous<>>> eager_get_put{
    "eager+get+put"};
constexpr named_list<protocols<eager<up_to<16>>, speculative<get_rendezvous<>>>> speculative_get{
    "eager+speculative<get>"};
constexpr named_list<protocols<eager<up_to<16>>, speculative<put_rendezvous<>>>> speculative_put{
    "eager+speculative<put>"};
constexpr named_list<protocols<eager<up_to<16>>, cooperative_rendezvous<up_to<48>>, segmented<>>> cooperative{
    "eager+cooperative+segmented"};
constexpr named_list<protocols<eager<up_to<16>>, staged_get<>, get_rendezvous<>>> staged{"eager+staged+get"};
constexpr named_list<protocols<eager<up_to<16>>, segmented<>>> eager_segmented{"eager+segmented"};
/// Messages here are shorter than those whose memory it watches: they travel as with `eager`.
constexpr named_list<protocols<reuse_aware_eager<up_to<48>>, segmented<>>> reuse_segmented{"reuse+segmented"};

/// All of them, or the one that RDMACORO_EXPLORE_LIST names.
template <class Visit>
void each_list(Visit visit) {
    const char* const asked = std::getenv("RDMACORO_EXPLORE_LIST");
    bool found = false;
    const auto visit_asked = [&](const auto& list) {
        if (asked != nullptr && std::string_view(asked) != list.name) return;
        found = true;
        visit(list);
    };
    visit_asked(gets);
    visit_asked(puts);
    visit_asked(eager_get_put);
    visit_asked(speculative_get);
    visit_asked(speculative_put);
    visit_asked(cooperative);
    visit_asked(staged);
    visit_asked(eager_segmented);
    visit_asked(reuse_segmented);
    if (!found) FAIL("RDMACORO_EXPLORE_LIST names none of the lists: " << asked);
}

constexpr explored_link usual{};
const std::vector<explored_link> all_links{
    {true, false, false}, {true, true, false}, {false, false, false}, {false, true, false}};
const std::vector<explored_link> borrowing{{true, false, true}, {false, true, true}};

// ---- the programs

using programs = std::vector<two_sided_program>;

/// All words of `length` letters.
std::vector<std::string> words(std::string_view letters, unsigned length) {
    std::vector<std::string> made{""};
    for (unsigned n = 0; n < length; ++n) {
        std::vector<std::string> longer;
        for (const std::string& word : made) {
            for (const char c : letters) longer.push_back(word + c);
        }
        made = std::move(longer);
    }
    return made;
}
/// `steps`, and with each operation canceled at each point behind it.
std::vector<std::string> with_one_cancel(const std::string& steps) {
    std::vector<std::string> made{steps};
    for (std::size_t canceled = 0; canceled < steps.size(); ++canceled) {
        for (std::size_t at = canceled + 1; at <= steps.size(); ++at)
            made.push_back(steps.substr(0, at) + "c" + std::to_string(canceled) + steps.substr(at));
    }
    return made;
}
std::vector<std::string> with_one_cancel(const std::vector<std::string>& all) {
    std::vector<std::string> made;
    for (const std::string& one : all) {
        const auto more = with_one_cancel(one);
        made.insert(made.end(), more.begin(), more.end());
    }
    return made;
}
programs crossed(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    programs made;
    for (const std::string& one : a) {
        for (const std::string& other : b) made.push_back(two_sided_program::parsed(one + "/" + other));
    }
    return made;
}

constexpr std::string_view receive_kinds = "RWT";
std::string_view send_kinds(bool short_ones) { return short_ones ? "ers" : "rs"; }

programs one_way(unsigned sends, unsigned receives, bool short_ones) {
    return crossed(words(send_kinds(short_ones), sends), words(receive_kinds, receives));
}
programs one_way_with_cancels(unsigned sends, unsigned receives, bool short_ones) {
    return crossed(with_one_cancel(words(send_kinds(short_ones), sends)),
                   with_one_cancel(words(receive_kinds, receives)));
}
/// Each side sends and receives once, in either order.
programs both_ways(bool short_ones, bool cancels) {
    std::vector<std::string> side;
    for (const char s : send_kinds(short_ones)) {
        for (const char r : receive_kinds) {
            side.push_back({s, r});
            side.push_back({r, s});
        }
    }
    return crossed(cancels ? with_one_cancel(side) : side, side);
}
/// Messages of two tags, and receives that take them in another order.
programs two_tags(bool short_ones) {
    std::vector<std::string> side;
    for (const std::string& kinds : words(send_kinds(short_ones), 2))
        side.push_back({kinds[0], '1', kinds[1], '2'});
    return crossed(side,
                   {"R2R1", "R1R2", "R2W", "WR1", "T2R1", "R2T1", "R2R1c0", "R2R1c1", "R2R2R1c1", "R2Wc0"});
}

// ---- the record of a run

/// The value of a variable of the environment, or nothing.
std::string_view named(const char* variable) {
    const char* const asked = std::getenv(variable);
    return asked != nullptr ? asked : "";
}
/// Whether this run looks at a part of it only; then it says what was not complete.
bool by_name() { return !named("RDMACORO_EXPLORE_SWEEP").empty(); }

struct tally {
    std::size_t searches = 0;
    std::size_t complete = 0;
    std::uint64_t executions = 0;
    std::uint64_t pruned = 0;
    std::uint64_t by_chance = 0;
    std::size_t left_out = 0;               ///< searches that time did not allow
    std::vector<std::string> unfinished{};  ///< what is not complete, for RDMACORO_EXPLORE

    void print(const std::string& what) const {
        std::printf("%-48s %6zu searches, %s, %9llu executions, %9llu pruned", what.c_str(), searches,
                    searches == 0          ? "none made"
                    : searches == complete ? "all complete"
                                           : (std::to_string(searches - complete) + " NOT COMPLETE").c_str(),
                    static_cast<unsigned long long>(executions), static_cast<unsigned long long>(pruned));
        if (by_chance != 0) std::printf(", %llu by chance", static_cast<unsigned long long>(by_chance));
        if (left_out != 0) std::printf(", %zu searches LEFT OUT", left_out);
        std::printf("\n");
        if (by_name()) {
            for (const std::string& one : unfinished) std::printf("    not complete: %s\n", one.c_str());
        }
        std::fflush(stdout);
    }
};

std::string command(const char* list, const explored_link& how, const two_sided_program& what) {
    return std::string("RDMACORO_EXPLORE='") + list + " " + how.text() + " " + what.text() +
           "' test_protocol 'the program that RDMACORO_EXPLORE names'";
}

/// How much of a search is done: so many executions, and, where these are not all, so many by chance.
struct bounds {
    std::uint64_t executions;
    std::uint64_t by_chance;
};

template <class List>
void search(const named_list<List>& list, const two_sided_program& what, const explored_link& how,
            const bounds& most, tally& sum) {
    explore_options options;
    options.most_executions = most.executions;
    options.command = command(list.name, how, what);
    explore_report report = explore(explored_program<List>(what, how), options);
    ++sum.searches;
    if (report.complete) {
        ++sum.complete;
    } else {
        sum.unfinished.push_back(std::string(list.name) + " " + how.text() + " " + what.text());
    }
    sum.executions += report.executions;
    sum.pruned += report.pruned;
    if (!report.failed && !report.complete && most.by_chance != 0) {
        options.random_executions = most.by_chance;
        report = explore(explored_program<List>(what, how), options);
        sum.by_chance += report.executions;
    }
    if (report.failed)
        FAIL_CHECK(list.name << " " << how.text() << " " << what.text() << "\n" << report.text());
}

class stopwatch {
public:
    explicit stopwatch(double seconds)
        : until_(std::chrono::steady_clock::now() +
                 std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                     std::chrono::duration<double>(seconds))) {}
    [[nodiscard]] bool over() const { return std::chrono::steady_clock::now() > until_; }

private:
    std::chrono::steady_clock::time_point until_;
};

/// Shuffled, the same each time.
template <class T>
void shuffle(std::vector<T>& all) {
    std::mt19937_64 random(all.size());
    for (std::size_t left = all.size(); left > 1; --left) std::swap(all[left - 1], all[random() % left]);
}

/// One of `n`, at least one, chosen by chance.
programs sample(std::size_t n, programs all) {
    shuffle(all);
    all.resize((all.size() + n - 1) / n);
    return all;
}

/// The share of an ordinary run: one of so many programs.
std::size_t one_of() {
    static const std::size_t n = [] {
        const char* asked = std::getenv("RDMACORO_EXPLORE_EVERY");
        return asked != nullptr ? std::max(std::strtoul(asked, nullptr, 10), 1ul) : 1ul;
    }();
    return n;
}

/// The part of each sweep that this run is to look at.
struct slice {
    std::size_t number = 1;  ///< from 1
    std::size_t of = 1;

    [[nodiscard]] static slice asked() {
        const std::string text(named("RDMACORO_EXPLORE_SLICE"));
        slice made;
        if (!text.empty() && (std::sscanf(text.c_str(), "%zu/%zu", &made.number, &made.of) != 2 ||
                              made.number == 0 || made.number > made.of))
            throw std::invalid_argument("RDMACORO_EXPLORE_SLICE=NUMBER/OF, not " + text);
        return made;
    }
    /// The first of `all` that is not in the slices before `n`.
    [[nodiscard]] std::size_t begin(std::size_t all, std::size_t n) const noexcept {
        return all * (n - 1) / of;
    }
};

/// The claim of a sweep about its searches.
enum class claim : std::uint8_t {
    every_order,        ///< all are complete
    as_far_as_printed,  ///< what is printed
};

void record(const std::string& sweep, const char* list, const slice& part, std::size_t whole,
            const bounds& most, const tally& sum) {
    const std::string file(named("RDMACORO_EXPLORE_RECORD"));
    if (file.empty()) return;
    std::FILE* const to = std::fopen(file.c_str(), "a");
    if (to == nullptr) throw std::runtime_error("RDMACORO_EXPLORE_RECORD: " + file + " cannot be written");
    std::fprintf(to, "%s\t%s\t%zu/%zu\t%zu\t%llu\t%zu\t%zu\t%zu\t%llu\n", sweep.c_str(), list, part.number,
                 part.of, whole, static_cast<unsigned long long>(most.executions), sum.searches, sum.complete,
                 sum.left_out, static_cast<unsigned long long>(sum.executions));
    std::fclose(to);
}

template <class List>
void sweep(const std::string& what, const named_list<List>& list, const programs& whole,
           const std::vector<explored_link>& links, const bounds& most, claim claimed,
           const stopwatch* time = nullptr) {
    if (by_name() && named("RDMACORO_EXPLORE_SWEEP") != what) return;
    struct one_search {
        const two_sided_program* program;
        const explored_link* link;
    };
    const programs all = time == nullptr ? sample(one_of(), whole) : whole;
    std::vector<one_search> searches;
    for (const two_sided_program& program : all) {
        for (const explored_link& how : links) searches.push_back({&program, &how});
    }
    const slice part = time == nullptr ? slice{} : slice::asked();
    if (part.of != 1) shuffle(searches);
    tally sum;
    const std::size_t end = part.begin(searches.size(), part.number + 1);
    for (std::size_t n = part.begin(searches.size(), part.number); n < end; ++n) {
        if (time != nullptr && time->over()) {
            sum.left_out = end - n;
            break;
        }
        search(list, *searches[n].program, *searches[n].link, most, sum);
    }
    const std::string sliced =
        part.of == 1 ? "" : " (" + std::to_string(part.number) + "/" + std::to_string(part.of) + ")";
    sum.print(what + sliced + " " + list.name);
    if (time != nullptr) record(what, list.name, part, searches.size(), most, sum);
    CHECK_FALSE(searches.empty());
    CHECK(sum.searches + sum.left_out == end - part.begin(searches.size(), part.number));
    CHECK(sum.executions >= sum.searches);
    if (claimed == claim::every_order) {
        CHECK(sum.left_out == 0);
        CHECK(sum.complete == searches.size());
    }
}

constexpr claim every_order = claim::every_order;
constexpr claim printed = claim::as_far_as_printed;
constexpr bounds ordinary{2000, 50};
constexpr bounds to_the_end{200'000, 0};
bounds share_of(const bounds& whole) { return {whole.executions / one_of(), whole.by_chance / one_of()}; }

}  // namespace

TEST_CASE("programs are what their text says") {
    for (const char* text : {"e,r,s/R,W,T", "r2,c0/R2,R", "-,r/R,-", "e/"})
        CHECK(two_sided_program::parsed(text).text() == text);
    CHECK(two_sided_program::parsed("rc0/R1").text() == "r,c0/R");
    CHECK_THROWS_AS(two_sided_program::parsed("x"), std::invalid_argument);
    CHECK(with_one_cancel("rr").size() == 4);
    CHECK(one_way(2, 2, true).size() == 81);
    CHECK(one_way_with_cancels(2, 2, true).size() == 81 * 16);
}

TEST_CASE("two sends and two receives of any kinds, in every order of events") {
    each_list([](const auto& list) {
        sweep("2+2", list, one_way(2, 2, list.short_ones), all_links, to_the_end, every_order);
    });
}

TEST_CASE("a send and a receive each way, in every order of events") {
    each_list([](const auto& list) {
        sweep("1+1 each way", list, sample(5, both_ways(list.short_ones, false)), {usual}, to_the_end,
              every_order);
    });
}

TEST_CASE("messages of two tags, received in any order, in every order of events") {
    each_list([](const auto& list) {
        sweep("two tags", list, two_tags(list.short_ones), {usual}, to_the_end, every_order);
    });
}

TEST_CASE("two sends and two receives, canceled at any point, in 2,000 orders of events") {
    each_list([](const auto& list) {
        sweep("2+2, canceled", list, sample(7, one_way_with_cancels(2, 2, list.short_ones)), all_links,
              ordinary, printed);
    });
}

TEST_CASE("messages sent from the caller's memory, in 2,000 orders of events") {
    each_list([](const auto& list) {
        sweep("2+2, borrowed", list, sample(3, one_way(2, 2, list.short_ones)), borrowing, ordinary, printed);
    });
}

TEST_CASE("two sends and two receives where credit is short, in every order of events") {
    std::vector<explored_link> short_of_credit(3);
    short_of_credit[0].credit = 0;
    short_of_credit[1].credit = 4;
    short_of_credit[2].credit = 4;
    short_of_credit[2].borrows = true;
    each_list([&](const auto& list) {
        if (std::decay_t<decltype(list)>::type::speculates)
            return;  // its messages are numbered: they keep their order
        sweep("short of credit", list, one_way(2, 2, list.short_ones), short_of_credit, to_the_end,
              every_order);
        sweep("short of credit, two tags", list, sample(4, two_tags(list.short_ones)), short_of_credit,
              to_the_end, every_order);
        sweep("short of credit, canceled", list, sample(35, one_way_with_cancels(2, 2, list.short_ones)),
              short_of_credit, ordinary, printed);
    });
}

TEST_CASE("five operations, in 2,000 orders of events") {
    each_list([](const auto& list) {
        sweep("3+2", list, sample(9, one_way(3, 2, list.short_ones)), {usual}, ordinary, printed);
        sweep("2+3", list, sample(9, one_way(2, 3, list.short_ones)), {usual}, ordinary, printed);
    });
}

TEST_CASE("longer programs, in orders by chance") {
    each_list([](const auto& list) {
        programs all;
        for (const char* text : {"r,r,r/R,R,R", "s,r,r/R,W,R", "r,r,c0,r/R,R,R,c1", "r,s,R,R/r,R,s,R",
                                 "r,r,r,r/R,R,R,R", "r1,r2,r1,r2/R2,R1,c0,R2,R1,R2", "r,r,r,r,r/R,R,W,R,R",
                                 "s,r,c1,r,r,c2,r/R,R,R,c0,R,R,c2,R", "r2,r,s2,r,r2/R,R2,W,R,R2,c1"})
            all.push_back(two_sided_program::parsed(text));
        sweep("3+3 to 5+5", list, all, {usual}, {500, 500}, printed);
    });
}

// ---- the two cases in which the published acknowledge-and-flag rules write into a wrong buffer
// (speculation_model.cpp plays both by those rules)

namespace {

const std::string send = "step actor 0";
const std::string receive = "step actor 1";
const std::string receiver_hears = "deliver lane 0";
const std::string sender_hears = "deliver lane 1";
const std::string read_ends = "get lane 1";

/// The order of events as told, and what was announced in it; on the last link, as on all.
template <class List>
seen_announcements play(const named_list<List>& list, const char* text,
                        const std::vector<std::string>& story) {
    seen_announcements seen;
    for (const explored_link& how : all_links) {
        CAPTURE(list.name, how.text());
        seen = {};
        const auto what = two_sided_program::parsed(text);
        told_order told(story);
        explored_program<List> program(what, how, &told);
        program.count_into(seen);
        explore_options once;
        once.most_executions = 1;
        const explore_report r = explore(program, once);
        INFO(r.failure);
        CHECK_FALSE(r.failed);
        INFO(told.impossible());
        CHECK(told.told());
    }
    return seen;
}

}  // namespace

TEST_CASE("a receive that is not announced, and two that are behind it: each message matches its own") {
    // Receive 0 takes any tag, so that it is not announced. By the published rules the announcement of receive 1 is taken
    // for the answer to message 0, and message 1 is put into receive 2.
    const char* const text = "r,r,r/W,R,R";
    const std::vector<std::string> story{
        send,         receive,      receiver_hears,  // request 0 finds receive 0
        receive,      receive,                       // 1 and 2, announced
        sender_hears, sender_hears,                  // before message 0 is over
        send,                                        // 1
    };
    for (const auto& seen : {play(speculative_get, text, story), play(speculative_put, text, story)}) {
        CHECK(seen.announced == 2);
        CHECK(seen.met == 2);
        CHECK(seen.crossed == 0);
    }

    const auto what = two_sided_program::parsed("r,r/W,R,R");
    tally sum;
    for (const explored_link& how : all_links) {
        search(speculative_get, what, how, share_of({200'000, 1000}), sum);
        search(speculative_put, what, how, share_of({200'000, 1000}), sum);
    }
    sum.print("unannounced receive in front");
    if (one_of() == 1) CHECK(sum.complete == sum.searches);
}

TEST_CASE(
    "a short message, one that crosses its announcement, and two announced: each matches its own receive") {
    // By the published rules message 2 throws the announcement of receive 2 away, takes that of receive 3 for its own, and
    // message 3 is put into receive 4.
    const char* const text = "e,r,r,r,r/W,R,R,R,R";
    const std::vector<std::string> story{
        send,                                          // 0, short
        receive,        receiver_hears,                // 0
        receive,        receive,                       // 1 and 2, announced
        send,                                          // 1 asks
        sender_hears,   sender_hears,                  // the announcements of 1, too late, and of 2
        receiver_hears, read_ends,      sender_hears,  // 1 is over
        send,           receiver_hears,                // 2 claims its buffer
        receive,        receive,                       // 3 and 4, announced
        sender_hears,   sender_hears,
        send,  // 3
    };
    const auto seen = play(speculative_get, text, story);
    CHECK(seen.announced == 4);
    CHECK(seen.met == 3);
    CHECK(seen.crossed == 1);

    const auto what = two_sided_program::parsed("e,r,r,r/W,R,R,R,R");
    tally sum;
    for (const explored_link& how : all_links) {
        search(speculative_get, what, how, share_of({5000, 5000}), sum);
        search(speculative_put, what, how, share_of({5000, 5000}), sum);
    }
    sum.print("short message in front");
}

TEST_CASE("an announcement does not count on a receive that is being canceled") {
    // Receive 1 is canceled, and receive 0, which message 0 claims all the same: that ends receive 1, too. If it waited for
    // the answer to the other's withdrawal, the announcement of receive 2 would count on it.
    const char* const text = "r,r,r/R,R,c1,c0,R";
    const std::vector<std::string> story{
        receive,        receive,        sender_hears, sender_hears,  // 0 and 1, announced
        receive,        sender_hears,                                // 1 is canceled
        send,                                                        // 0 claims its buffer
        receive,                                                     // 0 is canceled
        receiver_hears, receiver_hears,                              // 1 is taken back, and 0 is claimed
        receive,                                                     // 2, announced
        sender_hears,   sender_hears,   sender_hears,                // 0 is taken back; 2
        send,           send,                                        // 1 and 2
    };
    for (const auto& seen : {play(speculative_get, text, story), play(speculative_put, text, story)}) {
        CHECK(seen.announced == 3);
        CHECK(seen.met == 2);
    }
    tally sum;
    for (const explored_link& how : all_links) {
        search(speculative_get, two_sided_program::parsed(text), how, share_of({5000, 5000}), sum);
        search(speculative_put, two_sided_program::parsed(text), how, share_of({5000, 5000}), sum);
    }
    sum.print("two receives canceled");
}

// ---- all of it

namespace {
double seconds_of_a_list() {
    const char* asked = std::getenv("RDMACORO_EXPLORE_SECONDS");
    return asked != nullptr ? std::strtod(asked, nullptr) : 1200;
}
bounds deep() {
    const char* asked = std::getenv("RDMACORO_EXPLORE_EXECUTIONS");
    return {asked != nullptr ? std::strtoull(asked, nullptr, 10) : 2'000'000, 20'000};
}
}  // namespace

TEST_CASE("all programs of up to five operations, canceled at any point, on all links", "[.nightly]") {
    each_list([](const auto& list) {
        const stopwatch time(seconds_of_a_list());
        const bool shorts = list.short_ones;
        for (const auto& [sends, receives] :
             {std::pair{1u, 1u}, std::pair{2u, 1u}, std::pair{1u, 2u}, std::pair{3u, 1u}, std::pair{1u, 3u},
              std::pair{2u, 2u}, std::pair{3u, 2u}, std::pair{2u, 3u}, std::pair{4u, 1u},
              std::pair{1u, 4u}}) {
            const std::string name = std::to_string(sends) + "+" + std::to_string(receives);
            sweep(name, list, one_way(sends, receives, shorts), all_links, deep(), printed, &time);
        }
        sweep("1+1 each way", list, both_ways(shorts, false), all_links, deep(), printed, &time);
        sweep("two tags", list, two_tags(shorts), all_links, deep(), printed, &time);
        sweep("2+2, borrowed", list, one_way(2, 2, shorts), borrowing, deep(), printed, &time);
        sweep("1+1, canceled", list, one_way_with_cancels(1, 1, shorts), all_links, deep(), printed, &time);
        sweep("2+1, canceled", list, one_way_with_cancels(2, 1, shorts), all_links, deep(), printed, &time);
        sweep("1+2, canceled", list, one_way_with_cancels(1, 2, shorts), all_links, deep(), printed, &time);
        sweep("2+2, canceled", list, one_way_with_cancels(2, 2, shorts), all_links, deep(), printed, &time);
        sweep("1+1 each way, canceled", list, both_ways(shorts, true), all_links, deep(), printed, &time);
        sweep("3+2, canceled", list, one_way_with_cancels(3, 2, shorts), {usual}, deep(), printed, &time);
        sweep("2+3, canceled", list, one_way_with_cancels(2, 3, shorts), {usual}, deep(), printed, &time);
    });
}

TEST_CASE("longer programs, deeper", "[.nightly]") {
    each_list([](const auto& list) {
        const stopwatch time(seconds_of_a_list());
        const bool shorts = list.short_ones;
        constexpr bounds longer{20'000, 20'000};
        sweep("3+3", list, one_way(3, 3, shorts), {usual}, longer, printed, &time);
        sweep("4+4", list, sample(7, one_way(4, 4, shorts)), {usual}, longer, printed, &time);
        sweep("5+5", list, sample(101, one_way(5, 5, shorts)), {usual}, longer, printed, &time);
    });
}

TEST_CASE("the program that RDMACORO_EXPLORE names", "[.replay]") {
    const char* asked = std::getenv("RDMACORO_EXPLORE");
    if (asked == nullptr) FAIL("RDMACORO_EXPLORE='LIST LINK PROGRAM' is not set");
    const std::string_view text(asked);
    const std::size_t first = text.find(' ');
    const std::size_t second = text.find(' ', first + 1);
    if (second == std::string_view::npos) FAIL("RDMACORO_EXPLORE='LIST LINK PROGRAM'");
    const auto what = two_sided_program::parsed(text.substr(second + 1));
    bool found = false;
    each_list([&](const auto& list) {
        for (const auto* links : {&all_links, &borrowing}) {
            for (const explored_link& how : *links) {
                if (text.substr(0, first) != list.name ||
                    text.substr(first + 1, second - first - 1) != how.text())
                    continue;
                found = true;
                tally sum;
                search(list, what, how, deep(), sum);
                sum.print(asked);
            }
        }
    });
    CHECK(found);
}

}  // namespace test_protocol_explored

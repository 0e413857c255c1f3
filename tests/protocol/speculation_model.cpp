// The rules of the published speculative rendezvous, and numbers in their place, under every order of events. States and
// wrong programs are counted exactly: a change of the model that loses some orders shows in the numbers.

#include "support/speculation_model.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace test_protocol_speculation_model {

using namespace rdmacoro::test::speculation;

namespace {

struct totals {
    std::size_t programs = 0;
    std::size_t states = 0;
    std::vector<std::string> wrong;  ///< the programs that can end so

    [[nodiscard]] bool all_well() const { return wrong.empty(); }
};

enum class sends { all_long, of_both_kinds };
enum class receives { all_speculate, of_both_kinds };

totals sweep(unsigned messages, sends first, receives second, const rules& how) {
    static search find;
    totals sum;
    const unsigned all = 1u << messages;
    for (unsigned eager = 0; eager < (first == sends::all_long ? 1u : all); ++eager) {
        for (unsigned silent = 0; silent < (second == receives::all_speculate ? 1u : all); ++silent) {
            const program what(messages, static_cast<std::uint8_t>(eager), static_cast<std::uint8_t>(silent));
            const verdict found = find(what, how);
            ++sum.programs;
            sum.states += found.states;
            if (found.wrong.empty()) continue;
            sum.wrong.push_back(what.text());
            // What the search says can happen, does when it is played.
            const auto lines = story(what, how, found.how);
            CHECK(lines.size() == found.how.size() + 1);
            CHECK(lines.back() == found.wrong);
        }
    }
    return sum;
}

/// The story that the search finds for one program.
std::vector<std::string> shortest_story(const program& what, const rules& how) {
    return story(what, how, search{}(what, how).how);
}

constexpr rules published{};
// An RTS-ACK also from a receive that has said no RTR and that an RTS finds waiting.
constexpr rules repaired_acks{.rts_ack_always = true};
constexpr rules repaired{.rts_ack_always = true, .purge_one = true};
constexpr rules repaired_and_chained{
    .rtr_ack = false, .rts_ack_always = true, .purge_one = true, .chained = true};
constexpr rules numbers{.numbered = true};

using lines = std::vector<std::string>;
constexpr const char* writes_astray = "a send writes into another's receive";

}  // namespace

// ---- acknowledgements

TEST_CASE("without acknowledgements a send is paired with the receive of the one before") {
    const rules none{.rtr_ack = false, .rts_ack = false};
    CHECK(shortest_story({"RRRR", "RRRR"}, none) ==
          lines{"receive 0 says RTR", "RTR 0 is kept", "send 0 writes into receive 0", "send 1 says RTS",
                "RTS 1 finds receive 0", "a send is paired with another's receive"});
    CHECK_FALSE(sweep(3, sends::all_long, receives::all_speculate, none).all_well());
}

TEST_CASE("one kind of acknowledgement is not enough, unless a write and its done are chained") {
    const auto verdict_of = [](const rules& how) {
        return sweep(4, sends::all_long, receives::all_speculate, how);
    };
    CHECK_FALSE(verdict_of({.rtr_ack = false}).all_well());
    CHECK_FALSE(verdict_of({.rts_ack = false}).all_well());
    const totals chained = verdict_of({.rtr_ack = false, .chained = true});
    CHECK(chained.all_well());
    CHECK(chained.states == 8829);
    const totals both = verdict_of(published);
    CHECK(both.all_well());
    CHECK(both.states == 18804);
}

TEST_CASE("without the blocking rule 11 of 16 programs with receives that do not speculate go wrong") {
    const rules free{.blocking = false};
    const totals found = sweep(4, sends::all_long, receives::of_both_kinds, free);
    CHECK(found.programs == 16);
    CHECK(found.wrong.size() == 11);
    CHECK(shortest_story({"RRRR", "NRRR"}, free) == lines{"receive 0 waits", "receive 1 says RTR",
                                                          "RTR 1 is kept", "send 0 writes into receive 1",
                                                          writes_astray});
}

TEST_CASE("the published acknowledge rules let a send write into a later receive") {
    const totals found = sweep(4, sends::all_long, receives::of_both_kinds, published);
    CHECK(found.programs == 16);
    CHECK(found.wrong == lines{"RRRR/NRRR", "RRRR/RNRR", "RRRR/NNRR", "RRRR/NRRN"});
    // Receive 0 is found by an RTS, has said no RTR, and acknowledges nothing: the sender takes RTR 1 for its answer.
    const std::vector<action> as_told{
        action::send,    action::receive,      action::receiver_hears, action::receive,
        action::receive, action::sender_hears, action::sender_hears,   action::send,
    };
    const lines expected{"send 0 says RTS",
                         "receive 0 waits",
                         "RTS 0 finds receive 0",
                         "receive 1 says RTR",
                         "receive 2 says RTR",
                         "RTR 1 is dropped for send 0",
                         "RTR 2 is kept",
                         "send 1 writes into receive 2",
                         writes_astray};
    CHECK(story({"RRRR", "NRRR"}, published, as_told) == expected);
    CHECK(shortest_story({"RRRR", "NRRR"}, published).size() == expected.size());
    // With the acknowledgement RTR 1 waits for send 1.
    const lines mended = story({"RRRR", "NRRR"}, repaired_acks, as_told);
    REQUIRE(mended.size() == as_told.size());
    CHECK(mended[5] == "RTS-ACK 0 arrives");
    CHECK(mended[6] == "RTR 1 is kept");
    CHECK(mended[7] == "send 1 writes into receive 1");
}

TEST_CASE("an acknowledgement from each receive that said no RTR repairs the acknowledge rules") {
    const totals found = sweep(4, sends::all_long, receives::of_both_kinds, repaired_acks);
    CHECK(found.all_well());
    CHECK(found.states == 85128);
}

// ---- eager sends

TEST_CASE("without the eager flag 11 of 16 programs with eager sends go wrong") {
    const rules without{.eager_flag = false};
    const totals found = sweep(4, sends::of_both_kinds, receives::all_speculate, without);
    CHECK(found.programs == 16);
    CHECK(found.wrong.size() == 11);
    CHECK(shortest_story({"ERRR", "RRRR"}, without) == lines{"send 0 is eager", "receive 0 says RTR",
                                                             "RTR 0 is kept", "send 1 writes into receive 0",
                                                             writes_astray});
}

TEST_CASE("the published flag rules hold for four messages") {
    const totals found = sweep(4, sends::of_both_kinds, receives::all_speculate, published);
    CHECK(found.all_well());
    CHECK(found.states == 75463);
}

TEST_CASE("the published flag rules let a send write into a later receive, with five messages") {
    const totals found = sweep(5, sends::of_both_kinds, receives::all_speculate, published);
    CHECK(found.programs == 32);
    CHECK(found.wrong == lines{"ERRRR/RRRRR", "ERRRE/RRRRR"});
    // Send 2 threw its RTR away, so that it takes the next one, RTR 3, for its own.
    const std::vector<action> as_told{
        action::send,                                                          // 0, eager
        action::receive,        action::receiver_hears,                        // 0
        action::receive,        action::receive,                               // 1, 2
        action::send,                                                          // 1
        action::sender_hears,   action::sender_hears,                          // RTR 1 and 2
        action::receiver_hears, action::read_ends,      action::sender_hears,  // 1 is done
        action::send,           action::receiver_hears,                        // 2
        action::receive,        action::receive,                               // 3, 4
        action::sender_hears,   action::sender_hears,                          // RTR 3 and 4
        action::send,                                                          // 3
    };
    const lines told = story({"ERRRR", "NRRRR"}, repaired_acks, as_told);
    CHECK(told == lines{"send 0 is eager", "receive 0 waits", "eager 0 finds receive 0", "receive 1 says RTR",
                        "receive 2 says RTR", "send 1 says RTS+stop", "RTR 1 is dropped for send 1",
                        "RTR 2 is kept", "RTS 1 finds receive 1", "read 1 ends", "done 1 arrives",
                        "send 2 says RTS+resume", "RTS 2 finds receive 2", "receive 3 says RTR",
                        "receive 4 says RTR", "RTR 3 is dropped for send 2", "RTR 4 is kept",
                        "send 3 writes into receive 4", writes_astray});
    // Where a flagged send throws away one RTR, its own, send 3 writes where it should.
    const lines mended = story({"ERRRR", "NRRRR"}, repaired, as_told);
    REQUIRE(mended.size() == as_told.size());
    CHECK(mended[15] == "RTR 3 is kept");
    CHECK(mended.back() == "send 3 writes into receive 3");
}

// ---- everything

TEST_CASE("all published rules, N=4: 12 of 256 programs go wrong, and none with the acknowledgement added") {
    const totals literal = sweep(4, sends::of_both_kinds, receives::of_both_kinds, published);
    CHECK(literal.programs == 256);
    CHECK(literal.wrong.size() == 12);
    const totals mended = sweep(4, sends::of_both_kinds, receives::of_both_kinds, repaired_acks);
    CHECK(mended.all_well());
    CHECK(mended.states == 381957);
}

TEST_CASE("the acknowledgement alone is not enough, N=5: 4 of 1024 programs go wrong") {
    const totals found = sweep(5, sends::of_both_kinds, receives::of_both_kinds, repaired_acks);
    CHECK(found.programs == 1024);
    lines wrong = found.wrong;
    std::sort(wrong.begin(), wrong.end());
    CHECK(wrong == lines{"ERRRE/NRRRR", "ERRRE/RRRRR", "ERRRR/NRRRR", "ERRRR/RRRRR"});
}

TEST_CASE("both repairs pair every send with its receive, N=5 all 1024 programs") {
    const totals found = sweep(5, sends::of_both_kinds, receives::of_both_kinds, repaired);
    CHECK(found.programs == 1024);
    CHECK(found.all_well());
    CHECK(found.states == 5400076);
}

TEST_CASE("a chained write replaces the RTR-ACK") {
    const totals four = sweep(4, sends::of_both_kinds, receives::of_both_kinds, repaired_and_chained);
    CHECK(four.programs == 256);
    CHECK(four.all_well());
    CHECK(four.states == 269428);
    CHECK(sweep(5, sends::of_both_kinds, receives::all_speculate, repaired_and_chained).all_well());
}

// ---- numbers

TEST_CASE("sequence numbers pair every send with its receive, N=4 all 256 programs") {
    const totals found = sweep(4, sends::of_both_kinds, receives::of_both_kinds, numbers);
    CHECK(found.programs == 256);
    CHECK(found.all_well());
    CHECK(found.states == 204655);
}

TEST_CASE("sequence numbers pair every send with its receive, N=5 all 1024 programs") {
    const totals found = sweep(5, sends::of_both_kinds, receives::of_both_kinds, numbers);
    CHECK(found.programs == 1024);
    CHECK(found.all_well());
    CHECK(found.states == 2780144);
}

TEST_CASE("sequence numbers and both repairs, N=6 all 64 programs whose receives speculate", "[.long]") {
    CHECK(sweep(6, sends::of_both_kinds, receives::all_speculate, numbers).all_well());
    const totals found = sweep(6, sends::of_both_kinds, receives::all_speculate, repaired);
    CHECK(found.all_well());
    CHECK(found.states == 6459647);
}

TEST_CASE("each message that crosses its RTR goes the way of its RTS") {
    const std::vector<action> crossing{action::send, action::receive, action::sender_hears,
                                       action::receiver_hears, action::read_ends};
    CHECK(story({"R", "R"}, numbers, crossing) == lines{"send 0 says RTS", "receive 0 says RTR",
                                                        "RTR 0 is late", "RTS 0 finds receive 0",
                                                        "read 0 ends"});
    // Nothing is left to do but to hear that it is done.
    CHECK(story({"R", "R"}, numbers, {action::write_ends}) == lines{"impossible"});
}

}  // namespace test_protocol_speculation_model

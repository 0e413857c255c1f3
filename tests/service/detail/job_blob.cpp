#include <rdmacoro/service/detail/job_blob.hpp>

#include "support/catch.hpp"
#include "support/pmi_server.hpp"

#include <random>

namespace test_service_detail_job_blob {

using namespace rdmacoro;
using namespace rdmacoro::test;
using detail::job_blob;

namespace {

job_blob blob_of(node_id id, std::uint64_t network = 1, std::string launched_on = {}) {
    host_identity host;
    host.boot[0] = 1;
    host.network = network;
    node_card card{
        .id = id, .born = generation{7}, .host = host, .urls = {"shm://a", "tcp://127.0.0.1:7471"}};
    return {.host = host, .launched_on = std::move(launched_on), .cards = {card}};
}
using blobs = std::vector<std::vector<std::byte>>;

}  // namespace

TEST_CASE("what a rank says of itself is read as it was written, with several cards, and with none") {
    job_blob one = blob_of(3, 9, "node 1");
    one.cards.push_back(one.cards[0]);
    const auto read = detail::decode_job_blob(detail::encode_job_blob(one));
    REQUIRE(read);
    CHECK(read->host == one.host);
    CHECK(read->launched_on == "node 1");
    CHECK(!read->compares_calls);
    one.compares_calls = true;
    CHECK(detail::decode_job_blob(detail::encode_job_blob(one))->compares_calls);
    CHECK(read->cards == one.cards);
    const auto none = detail::decode_job_blob(detail::encode_job_blob({}));
    REQUIRE(none);
    CHECK(none->cards.empty());
    CHECK(error_of([&] {
              job_blob many = blob_of(1);
              many.cards.resize(9, many.cards[0]);
              static_cast<void>(detail::encode_job_blob(many));
          }).first == errc::invalid_argument);
}

TEST_CASE("no bytes of another rank do more than be refused") {
    const std::vector<std::byte> good = detail::encode_job_blob(blob_of(3, 9, "a"));
    for (std::size_t cut = 0; cut < good.size(); ++cut)
        CHECK_FALSE(detail::decode_job_blob(std::span(good).first(cut)));
    std::vector<std::byte> longer = good;
    longer.push_back(std::byte{0});
    CHECK_FALSE(detail::decode_job_blob(longer));
    std::mt19937 random(seed());
    for (int n = 0; n < 20'000; ++n) {
        std::vector<std::byte> bytes = good;
        for (auto changes = 1 + random() % 3; changes != 0; --changes)
            bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        const auto read = detail::decode_job_blob(bytes);
        if (!read) continue;
        for (const node_card& card : read->cards) CHECK(card.fault() == nullptr);
    }
    std::vector<std::byte> other = good;
    other[4] = std::byte{99};
    CHECK(detail::decode_job_blob(other).error() == errc::version_mismatch);
}

TEST_CASE(
    "two ranks with one id are named, and so are one of another version and one that sends something else") {
    blobs all;
    for (const node_id id : {1u, 2u, 7u, 4u, 7u}) all.push_back(detail::encode_job_blob(blob_of(id)));
    auto [code, text] = error_of([&] { static_cast<void>(detail::decode_job_blobs(all)); });
    CHECK(code == errc::invalid_argument);
    CHECK_THAT(text, contains("ranks 2 and 4 both have a node of id 7"));
    all[4] = detail::encode_job_blob(blob_of(5));
    CHECK(detail::decode_job_blobs(all).size() == 5);
    std::vector<std::byte> kept = all[3];
    all[3][4] = std::byte{99};
    std::tie(code, text) = error_of([&] { static_cast<void>(detail::decode_job_blobs(all)); });
    CHECK(code == errc::version_mismatch);
    CHECK_THAT(text, contains("rank 3"));
    all[3].resize(3);
    std::tie(code, text) = error_of([&] { static_cast<void>(detail::decode_job_blobs(all)); });
    CHECK(code == errc::protocol_violation);
    CHECK_THAT(text, contains("rank 3"));
    job_blob two = blob_of(4);
    two.cards.push_back(two.cards[0]);
    all[3] = detail::encode_job_blob(two);
    std::tie(code, text) = error_of([&] { static_cast<void>(detail::decode_job_blobs(all)); });
    CHECK(code == errc::protocol_violation);
    CHECK_THAT(text, contains("rank 3") && contains("has 2 nodes"));
}

TEST_CASE("where ranks give different numbers of nodes the text names the setting in which they differ") {
    const std::vector<std::byte> none = detail::encode_job_blob({});
    job_blob with_groups = blob_of(2);
    with_groups.cards.push_back(blob_of(3).cards[0]);
    const std::vector<std::byte> one = detail::encode_job_blob(blob_of(1));
    const std::vector<std::byte> two = detail::encode_job_blob(with_groups);
    const auto text_of = [](const blobs& all) {
        return error_of([&] { static_cast<void>(detail::decode_job_blobs(all)); }).second;
    };
    CHECK_THAT(text_of({none, two}), contains("rank 1") && contains("RDMACORO_LOCAL_SIZE"));
    CHECK_THAT(text_of({one, none}), contains("rank 1") && contains("RDMACORO_LOCAL_SIZE"));
    CHECK_THAT(text_of({one, two}), contains("rank 1") && contains("job_options::groups"));
}

TEST_CASE("further cards have ids of their own") {
    blobs all;
    for (const node_id id : {1u, 2u}) {
        job_blob one = blob_of(id);
        one.cards.push_back(blob_of(id == 1 ? 2 : 1).cards[0]);
        all.push_back(detail::encode_job_blob(one));
    }
    CHECK(detail::decode_job_blobs(all).size() == 2);
}

TEST_CASE("hosts are told apart by identity and by the launcher's name, and numbered by their lowest ranks") {
    const std::vector<job_blob> all = {blob_of(1, 5), blob_of(2, 4), blob_of(3, 5), blob_of(4, 5, "b"),
                                       blob_of(5, 4)};
    CHECK(detail::number_hosts(all) == std::vector<std::uint32_t>{0, 1, 0, 2, 1});
    const std::vector<job_blob> unknown(2);
    CHECK(detail::number_hosts(unknown) == std::vector<std::uint32_t>{0, 1});
}

}  // namespace test_service_detail_job_blob

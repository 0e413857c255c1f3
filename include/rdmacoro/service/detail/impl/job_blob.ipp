// How cards travel through a launcher, and what is checked of them.
#pragma once

#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/job_blob.hpp>
#include <rdmacoro/service/detail/launcher.hpp>

#include <algorithm>
#include <map>
#include <system_error>
#include <tuple>

namespace rdmacoro::detail {

inline constexpr std::uint32_t job_mark = 0x626f6a72;
inline constexpr std::uint16_t job_version = 2;

struct job_blob_head {
    std::uint32_t mark = job_mark;
    std::uint16_t version = job_version;
};
struct job_blob_body {
    host_identity host{};
    std::string launched_on{};
    std::vector<std::vector<std::byte>> cards{};  // each as `encode_card` makes it
    bool compares_calls = false;
};

RDMACORO_COLD std::vector<std::byte> encode_job_blob(const job_blob& from) {
    if (from.cards.size() > job_blob::most_cards || from.launched_on.size() > job_blob::most_host_bytes)
        throw_error(errc::invalid_argument, "a job carries eight cards a rank at most");
    job_blob_body body{
        .host = from.host, .launched_on = from.launched_on, .compares_calls = from.compares_calls};
    for (const node_card& card : from.cards) body.cards.push_back(encode_card(card));
    encoder to;
    to.write(job_blob_head{});
    to.write(body);
    return to.bytes();
}

RDMACORO_COLD result<job_blob> decode_job_blob(std::span<const std::byte> bytes) {
    const auto refused = std::make_error_code(std::errc::bad_message);
    decoder from(bytes, {.bytes = 64 * launcher::most_bytes, .depth = 4});
    job_blob_head head;
    job_blob_body body;
    if (bytes.size() > launcher::most_bytes || !from.read(head) || head.mark != job_mark) return refused;
    if (head.version != job_version) return errc::version_mismatch;
    if (!from.read(body) || from.left() != 0 || body.cards.size() > job_blob::most_cards ||
        body.launched_on.size() > job_blob::most_host_bytes)
        return refused;
    job_blob said{
        .host = body.host, .launched_on = std::move(body.launched_on), .compares_calls = body.compares_calls};
    for (const std::vector<std::byte>& one : body.cards) {
        result<node_card> card = decode_card(one);
        if (!card) return refused;
        said.cards.push_back(std::move(*card));
    }
    return said;
}

RDMACORO_COLD std::vector<job_blob> decode_job_blobs(std::span<const std::vector<std::byte>> of_all) {
    std::vector<job_blob> said;
    said.reserve(of_all.size());
    std::map<std::pair<std::size_t, node_id>, std::size_t> ids;  // of the card's place and its id: the rank
    for (std::size_t rank = 0; rank < of_all.size(); ++rank) {
        const std::string named = "rank " + std::to_string(rank) + " of the job ";
        result<job_blob> one = decode_job_blob(of_all[rank]);
        if (!one && one.error() == errc::version_mismatch)
            throw error(errc::version_mismatch,
                        named + "is of another version of the toolkit: all have to be built with the same");
        if (!one)
            throw error(errc::protocol_violation,
                        named + "gave the launcher something else than this toolkit's cards");
        said.push_back(std::move(*one));
        const std::size_t nodes = said[rank].cards.size();
        const std::size_t of_first = said[0].cards.size();
        if (nodes != of_first) {
            // Ranks without the variable ask each other for their hosts first, by a blob without nodes.
            const char* const why = nodes == 0 || of_first == 0
                                        ? ": RDMACORO_LOCAL_SIZE has to be set for all ranks, or for none"
                                        : ": job_options::groups has to be the same at all ranks";
            throw error(errc::protocol_violation, named + "has " + std::to_string(nodes) +
                                                      " nodes, rank 0 has " + std::to_string(of_first) + why);
        }
        for (std::size_t place = 0; place < said[rank].cards.size(); ++place) {
            const node_id id = said[rank].cards[place].id;
            const auto [before, is_new] = ids.emplace(std::pair(place, id), rank);
            if (!is_new)
                throw error(errc::invalid_argument, "join_job: ranks " + std::to_string(before->second) +
                                                        " and " + std::to_string(rank) +
                                                        " both have a node of id " + std::to_string(id) +
                                                        "; job_node_id() gives each rank another one");
        }
    }
    return said;
}

RDMACORO_COLD std::vector<std::uint32_t> number_hosts(std::span<const job_blob> of_all) {
    std::map<std::tuple<std::array<std::uint8_t, 16>, std::uint64_t, std::string>, std::uint32_t> hosts;
    std::vector<std::uint32_t> numbers;
    std::uint32_t next = 0;
    for (const job_blob& one : of_all) {
        if (!one.host.known()) {  // alone on its host, for all that is known
            numbers.push_back(next++);
            continue;
        }
        const auto [host, is_new] =
            hosts.emplace(std::tuple(one.host.boot, one.host.network, one.launched_on), next);
        if (is_new) ++next;
        numbers.push_back(host->second);
    }
    return numbers;
}

}  // namespace rdmacoro::detail

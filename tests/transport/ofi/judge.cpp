#include <rdmacoro/transport/ofi/judge.hpp>

#include "support/catch.hpp"

#include <functional>
#include <string_view>
#include <vector>

namespace test_transport_ofi_judge {

using namespace rdmacoro;
using namespace rdmacoro::detail::fabric;

namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
    const auto* first = reinterpret_cast<const std::byte*>(text.data());
    return {first, first + text.size()};
}

}  // namespace

TEST_CASE("addresses have the form of the format that is spoken here, whole") {
    std::vector<std::byte> ip(sizeof(sockaddr_in));
    const std::uint16_t inet = AF_INET;
    std::memcpy(ip.data(), &inet, sizeof inet);
    std::vector<std::byte> ip6(sizeof(sockaddr_in6));
    const std::uint16_t inet6 = AF_INET6;
    std::memcpy(ip6.data(), &inet6, sizeof inet6);
    using namespace std::literals;
    const std::vector<std::byte> text = bytes_of("fi_shm://1:2\0"sv);
    const std::vector<std::byte> opaque(24, std::byte{0xff});
    constexpr std::uint32_t other_format = 6;
    const struct {
        std::uint32_t format;
        const std::vector<std::byte>& good;
    } all[] = {{address_format::sockaddr_in, ip},
               {address_format::sockaddr_in6, ip6},
               {address_format::text, text},
               {other_format, opaque}};
    for (const auto& one : all) {
        CAPTURE(one.format);
        connect_limits own;
        own.address_format = one.format;
        own.own_address_bytes = opaque.size();
        CHECK(looks_like_address(one.format, one.good, own));
        CHECK_FALSE(looks_like_address(one.format + 1, one.good, own));
        for (std::size_t bytes = 0; bytes < one.good.size(); ++bytes)
            CHECK_FALSE(looks_like_address(one.format, std::span(one.good).first(bytes), own));
        std::vector<std::byte> longer = one.good;
        longer.push_back(std::byte{0});
        CHECK_FALSE(looks_like_address(one.format, longer, own));
    }
    connect_limits texts;
    texts.address_format = address_format::text;
    CHECK_FALSE(looks_like_address(address_format::text, bytes_of("no scheme here\0"sv), texts));
    connect_limits ips;
    ips.address_format = address_format::sockaddr_in;
    CHECK_FALSE(
        looks_like_address(address_format::sockaddr_in, std::vector<std::byte>(sizeof(sockaddr_in)), ips));
}

TEST_CASE("a connect_info that does not fit is refused with the reason") {
    connect_info good;
    good.slot_bytes = 8192;
    good.credits = 64;
    good.flags = connect_info::served;
    good.address_format = 6;
    good.address_bytes = 24;
    good.host = 5;
    good.name_provider("shm");
    const connect_limits own{.provider = "shm",
                             .slot_bytes = 8192,
                             .served = true,
                             .same_host = true,
                             .host = 5,
                             .address_format = 6,
                             .own_address_bytes = 24};
    CHECK(judge(good, own) == verdict::welcome);
    const struct {
        std::function<void(connect_info&)> change;
        verdict said;
    } all[] = {{[](connect_info& c) { ++c.version; }, verdict::other_version},
               {[](connect_info& c) { c.name_provider("shmem"); }, verdict::other_provider},
               {[](connect_info& c) { c.slot_bytes = 8191; }, verdict::other_provider},
               {[](connect_info& c) { c.flags = 0; }, verdict::other_provider},
               {[](connect_info& c) { ++c.host; }, verdict::other_host},
               {[](connect_info& c) { ++c.address_format; }, verdict::bad_address},
               {[](connect_info& c) { ++c.address_bytes; }, verdict::bad_address}};
    for (const auto& one : all) {
        CAPTURE(&one - all);
        connect_info bad = good;
        one.change(bad);
        CHECK(judge(bad, own) == one.said);
    }
    connect_limits anywhere = own;
    anywhere.same_host = false;
    connect_info far = good;
    ++far.host;
    CHECK(judge(far, anywhere) == verdict::welcome);
    connect_info larger = good;
    larger.slot_bytes = 16384;
    CHECK(judge(larger, own) == verdict::welcome);
}

}  // namespace test_transport_ofi_judge

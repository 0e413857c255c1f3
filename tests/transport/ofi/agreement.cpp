#include <rdmacoro/transport/ofi/agreement.hpp>

#include "ofi/pair.hpp"

#include <functional>

namespace test_transport_ofi_agreement {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::detail::fabric;

namespace {

/// The provider's answer to the hints of its profile here.
unique_info answer_of(const ofi_profile& p) {
    const unique_info hints = hints_of(p);
    fi_info* answer = nullptr;
    REQUIRE(::fi_getinfo(spoken_version, nullptr, nullptr, 0, hints.get(), &answer) == 0);
    return unique_info(answer);
}

struct mismatch {
    const char* field;
    std::function<void(fi_info&)> change;
    std::string said;
    std::string answered;
};

}  // namespace

TEST_CASE("the providers of this libfabric agree with their profiles") {
    const ofi_profile* const profile =
        GENERATE(&provider::tcp, &provider::shm, &provider::sockets, &provider::udp);
    CAPTURE(profile->provider);
    CHECK(disagreement(*profile, *answer_of(*profile)) == "");
}

TEST_CASE(
    "an answer that differs from the profile is refused, and the text names the field and both values") {
    const ofi_profile& p = provider::tcp;
    const mismatch all[] = {
        {"tx_attr.inject_size", [](fi_info& i) { i.tx_attr->inject_size = 32; }, "at least 64", "32"},
        {"ep_attr.type", [](fi_info& i) { i.ep_attr->type = FI_EP_DGRAM; }, "FI_EP_RDM", "FI_EP_DGRAM"},
        {"caps", [](fi_info& i) { i.caps &= ~FI_RMA; }, "FI_RMA", "FI_MSG"},
        {"mode", [](fi_info& i) { i.mode |= FI_MSG_PREFIX; }, "FI_CONTEXT", "FI_MSG_PREFIX"},
        {"domain_attr.mr_mode", [](fi_info& i) { i.domain_attr->mr_mode = FI_MR_LOCAL; }, "none",
         "FI_MR_LOCAL"},
        {"domain_attr.mr_key_size", [](fi_info& i) { i.domain_attr->mr_key_size = 4; }, "8 to 8 bytes", "4"},
        {"domain_attr.mr_key_size", [](fi_info& i) { i.domain_attr->mr_key_size = 16; }, "8 to 8 bytes",
         "16"},
        {"domain_attr.cq_data_size", [](fi_info& i) { i.domain_attr->cq_data_size = 4; }, "at least 8", "4"},
        {"domain_attr.threading", [](fi_info& i) { i.domain_attr->threading = FI_THREAD_UNSPEC; },
         "one thread", "nothing"},
        {"domain_attr.resource_mgmt", [](fi_info& i) { i.domain_attr->resource_mgmt = FI_RM_DISABLED; },
         "FI_RM_ENABLED", "FI_RM_DISABLED"},
        {"tx_attr.iov_limit", [](fi_info& i) { i.tx_attr->iov_limit = 1; }, "at least 4", "1"},
        {"tx_attr.rma_iov_limit", [](fi_info& i) { i.tx_attr->rma_iov_limit = 0; }, "at least 1", "0"},
        {"rx_attr.iov_limit", [](fi_info& i) { i.rx_attr->iov_limit = 2; }, "at least 4", "2"},
        {"ep_attr.max_msg_size", [](fi_info& i) { i.ep_attr->max_msg_size = 8192; }, "at least 4294967295",
         "8192"},
        {"tx_attr.msg_order", [](fi_info& i) { i.tx_attr->msg_order = FI_ORDER_SAS; }, "FI_ORDER_SAW",
         "FI_ORDER_SAS"},
        {"rx_attr.msg_order", [](fi_info& i) { i.rx_attr->msg_order = FI_ORDER_SAW; }, "FI_ORDER_SAS",
         "FI_ORDER_SAW"},
    };
    for (const mismatch& one : all) {
        const unique_info answer = answer_of(p);
        one.change(*answer);
        const std::string text = disagreement(p, *answer);
        CAPTURE(one.field, text);
        CHECK(text.find(std::string(one.field) + ": the description says ") == 0);
        CHECK(text.find(one.said) != std::string::npos);
        const std::size_t answers = text.find("the provider answers ");
        REQUIRE(answers != std::string::npos);
        CHECK(text.find(one.answered, answers) != std::string::npos);
    }
    const unique_info manual = answer_of(provider::sockets);
    manual->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    CHECK(disagreement(provider::sockets, *manual).find("domain_attr.data_progress: ") == 0);
}

TEST_CASE("the list of libfabric's providers names each once") {
    const std::string text = providers_text();
    CAPTURE(text);
    CHECK(text.find("tcp;ofi_rxm") != std::string::npos);
    CHECK(text.find("shm") != std::string::npos);
    CHECK(text.find("shm", text.find("shm") + 1) == std::string::npos);
}

TEST_CASE("options that no domain can have are refused with a text that says what to do") {
    struct wrong {
        const char* about;
        std::function<void(ofi_options&)> change;
        errc code;
        const char* names;
    };
    const wrong all[] = {
        {"credits", [](ofi_options& o) { o.credits = 7; }, errc::invalid_argument,
         "credits must be 8 to 1024"},
        {"credits", [](ofi_options& o) { o.credits = 1025; }, errc::invalid_argument,
         "credits must be 8 to 1024"},
        {"slots", [](ofi_options& o) { o.slot_bytes = 4096; }, errc::invalid_argument,
         "slot_bytes must be 8192"},
        {"slots", [](ofi_options& o) { o.slot_bytes = (1u << 20) + 64; }, errc::invalid_argument,
         "slot_bytes"},
        {"receives", [](ofi_options& o) { o.receives = 7; }, errc::invalid_argument,
         "receives must be 8 at least, or 0"},
        {"spare slots", [](ofi_options& o) { o.spare_slots = 65537; }, errc::invalid_argument,
         "spare_slots must be 65536 at most"},
        {"fabric", [](ofi_options& o) { o.fabric = "nosuchnet"; }, errc::unsupported,
         "there is no fabric \"nosuchnet\""},
        {"node", [](ofi_options& o) { o.node = "203.0.113.77"; }, errc::unsupported, "203.0.113.77"},
        {"domain", [](ofi_options& o) { o.domain = "nosuchdomain"; }, errc::unsupported,
         "there is no domain \"nosuchdomain\""},
    };
    for (const wrong& one : all) {
        CAPTURE(one.about);
        scheduler on;
        ofi_options o = ofi_here("tcp");
        one.change(o);
        try {
            ofi_any_domain domain(on, o);
            FAIL("opened");
        } catch (const error& why) {
            const std::string text = why.what();
            CAPTURE(text);
            CHECK(why.code() == one.code);
            CHECK(text.find(one.names) != std::string::npos);
            CHECK(text.find("ofi+tcp: ") == 0);
        }
    }
}

TEST_CASE("slots that ofi_rxm would receive by gets are refused where those can't be closed") {
    scheduler on;
    ofi_options o = ofi_here("tcp");
    o.slot_bytes = 16384;
    { const ofi_any_domain as_long_as_may_be(on, o); }
    o.slot_bytes = 16384 + 64;
    errc why = errc::ok;
    try {
        const ofi_any_domain domain(on, o);
    } catch (const error& e) {
        why = static_cast<errc>(e.code().value());
        CHECK(std::string(e.what()).find("16384") != std::string::npos);
    }
    CHECK((why == errc::ok) == (::fi_version() >= provider::tcp.closes_amid_gets_from));
}

}  // namespace test_transport_ofi_agreement

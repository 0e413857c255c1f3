#include "form.hpp"

static_assert(RDMACORO_WITH_OFI == 1, "the dependency says what it brings");

// First: libfabric's headers define macros, which no other header of the toolkit may meet. The standard library has functions, such as
// std::quoted, that calls with its types find as well.
#include <rdmacoro/transport/ofi.hpp>

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <numeric>
#include <ranges>
#include <regex>

#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/job.hpp>
#include <rdmacoro/transport/ugni.hpp>
// Opens libfabric's provider for TCP, which is there, and that for Cray's network, which need not be.
int main() {
    rdmacoro::scheduler on;
    rdmacoro::ofi<rdmacoro::provider::tcp>::domain domain(on);
    try {
        rdmacoro::ugni::domain cray(on);
    } catch (const rdmacoro::error& why) {
        return why.code() == rdmacoro::errc::unsupported ? 0 : 1;
    }
}

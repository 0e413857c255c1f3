#include "form.hpp"

static_assert(RDMACORO_WITH_VERBS == 1, "the dependency says what it brings");

#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/verbs_rc.hpp>
// Opens the default device, where there is one.
int main() try {
    rdmacoro::scheduler on;
    rdmacoro::verbs_rc::domain domain(on);
} catch (const rdmacoro::error& why) {
    return why.code() == rdmacoro::errc::unsupported ? 0 : 1;
}

// A list that leaves matching to the link and has another policy, too: the message says that it stands alone.
// expect: stands alone in its list
// expect: matching_link
#include <rdmacoro/rdmacoro.hpp>

int main() {
    // wrong
    return rdmacoro::protocols<rdmacoro::provider_matched, rdmacoro::segmented<>>::count == 2 ? 0 : 1;
    // end
}

#pragma once

// Messages that a lost peer did not finish stay in a mailbox until a receive meets them: tests that end without such receives drop them.

#include <rdmacoro/protocol/connection_base.hpp>

namespace rdmacoro::test {

/// Drops those messages of a connection.
inline void drop_lost(detail::connection_base& from) {
    from.mailbox().matching().each_stored(from.source(), [&](detail::unexpected_message& m) noexcept {
        if (m.lost) from.withdraw(m);
    });
}

}  // namespace rdmacoro::test

// metrics: counts of one link's operations, exact enough for tests to rely on.
#pragma once

#include <cstdint>

namespace rdmacoro {

/// Counts of one endpoint or mailbox peer since it was connected. Plain numbers: read them on the scheduler's thread. A message is
/// sent when its send has ended well, and received when its receive has: a truncated or canceled one is not counted, but one without
/// payload that was dropped in the place of a canceled receive is.
struct metrics {
    std::uint64_t messages_sent = 0;      ///< messages sent
    std::uint64_t bytes_sent = 0;         ///< of payload, in bytes
    std::uint64_t messages_received = 0;  ///< by receives that ended with a value
    std::uint64_t bytes_received = 0;     ///< in those
    std::uint64_t eager_sent = 0;     ///< messages sent by `eager`, or by `reuse_aware_eager` as `eager` does
    std::uint64_t in_place_sent = 0;  ///< messages sent from memory that `reuse_aware_eager` had prepared
    std::uint64_t reuse_registrations = 0;  ///< times it prepared memory
    std::uint64_t segmented_sent = 0;       ///< messages sent by the `segmented` policy
    std::uint64_t segments_sent = 0;        ///< pieces of those
    std::uint64_t get_sent = 0;             ///< messages sent by `get_rendezvous`
    std::uint64_t put_sent = 0;             ///< messages sent by `put_rendezvous`
    std::uint64_t cooperative_sent = 0;     ///< messages sent by `cooperative_rendezvous`
    std::uint64_t staged_sent = 0;          ///< messages sent by `staged_get`
    std::uint64_t switched_to_put =
        0;  ///< messages that were put although their source could be got, counted at each side
    std::uint64_t regions_exposed = 0;  ///< pieces of memory opened to the peer for messages
    std::uint64_t speculative_sent =
        0;  ///< messages sent by `speculative`, into announced buffers or by its fallback
    std::uint64_t announcements_used = 0;  ///< of those, into buffers that the peer had announced
    std::uint64_t announced = 0;           ///< buffers that this side announced
    std::uint64_t announcements_met = 0;   ///< of those, used
    std::uint64_t announcements_crossed =
        0;  ///< of those, matched by a message that asked for a rendezvous nevertheless
    std::uint64_t announcements_mispredicted = 0;  ///< of those, matched by a message of another policy
    std::uint64_t announcements_withdrawn = 0;     ///< of those, taken back when a receive was canceled
    std::uint64_t speculation_stopped = 0;         ///< times announcing did not pay
    std::uint64_t speculation_resumed = 0;         ///< times it was tried again
    std::uint64_t unexpected = 0;                  ///< messages that came before their receive was posted
    std::uint64_t payload_copies = 0;  ///< copies made above the transport: received, stored, staged
    std::uint64_t bytes_copied = 0;    ///< in those copies
    std::uint64_t lent = 0;            ///< messages lent to the user without a copy
    std::uint64_t credit_waits = 0;    ///< sends that found no credit, and none that waited before them
    std::uint64_t room_waits =
        0;  ///< the same of room in the transport, or of a policy's streams or blocks, which the peer may have to free
    std::uint64_t credit_messages = 0;  ///< messages sent only to give credit back
    std::uint64_t sent_ahead =
        0;  ///< messages sent ahead of others that waited for credit, to receives that waited
    std::uint64_t provider_matched_sent = 0;  ///< messages that the transport matches
};

}  // namespace rdmacoro

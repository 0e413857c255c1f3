// The bodies of service/, for one unit of a program: see <rdmacoro/src.hpp>.
#pragma once

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#error "define RDMACORO_SEPARATE_COMPILATION for the whole program before this is included"
#endif

#include <rdmacoro/service/service.hpp>

#include <rdmacoro/service/detail/impl/algorithms_all_to_all.ipp>
#include <rdmacoro/service/detail/impl/algorithms_by_host.ipp>
#include <rdmacoro/service/detail/impl/algorithms_from_one.ipp>
#include <rdmacoro/service/detail/impl/algorithms_reduce.ipp>
#include <rdmacoro/service/detail/impl/algorithms_reduce_scatter.ipp>
#include <rdmacoro/service/detail/impl/algorithms_scans.ipp>
#include <rdmacoro/service/detail/impl/algorithms_to_one.ipp>
#include <rdmacoro/service/detail/impl/answer_in_place.ipp>
#include <rdmacoro/service/detail/impl/call_failure.ipp>
#include <rdmacoro/service/detail/impl/call_history.ipp>
#include <rdmacoro/service/detail/impl/calls_asked.ipp>
#include <rdmacoro/service/detail/impl/calls_base.ipp>
#include <rdmacoro/service/detail/impl/calls_served.ipp>
#include <rdmacoro/service/detail/impl/fixed_call.ipp>
#include <rdmacoro/service/detail/impl/gate_core.ipp>
#include <rdmacoro/service/detail/impl/gate_entry.ipp>
#include <rdmacoro/service/detail/impl/gate_lane.ipp>
#include <rdmacoro/service/detail/impl/gate_put.ipp>
#include <rdmacoro/service/detail/impl/group_absence.ipp>
#include <rdmacoro/service/detail/impl/group_base.ipp>
#include <rdmacoro/service/detail/impl/group_state.ipp>
#include <rdmacoro/service/detail/impl/group_words.ipp>
#include <rdmacoro/service/detail/impl/helper_call.ipp>
#include <rdmacoro/service/detail/impl/in_turns.ipp>
#include <rdmacoro/service/detail/impl/item_sender.ipp>
#include <rdmacoro/service/detail/impl/job_blob.ipp>
#include <rdmacoro/service/detail/impl/launcher.ipp>
#include <rdmacoro/service/detail/impl/launcher_choice.ipp>
#include <rdmacoro/service/detail/impl/meeting_launcher.ipp>
#include <rdmacoro/service/detail/impl/meeting_server.ipp>
#include <rdmacoro/service/detail/impl/meeting_wire.ipp>
#include <rdmacoro/service/detail/impl/node_connections.ipp>
#include <rdmacoro/service/detail/impl/node_core.ipp>
#include <rdmacoro/service/detail/impl/node_guards.ipp>
#include <rdmacoro/service/detail/impl/node_wire.ipp>
#include <rdmacoro/service/detail/impl/pmi_launcher.ipp>
#include <rdmacoro/service/detail/impl/pmi_lines.ipp>
#include <rdmacoro/service/detail/impl/rank_links.ipp>
#include <rdmacoro/service/detail/impl/run_collective.ipp>
#include <rdmacoro/service/detail/impl/scratch.ipp>
#include <rdmacoro/service/detail/impl/task_port.ipp>
#include <rdmacoro/service/detail/impl/thread_wait.ipp>
#include <rdmacoro/service/detail/impl/udp_socket.ipp>
#include <rdmacoro/service/detail/impl/upstream.ipp>
#include <rdmacoro/service/impl/best_stream.ipp>
#include <rdmacoro/service/impl/call_error.ipp>
#include <rdmacoro/service/impl/codec.ipp>
#include <rdmacoro/service/impl/collective.ipp>
#include <rdmacoro/service/impl/collective_options.ipp>
#include <rdmacoro/service/impl/collectives.ipp>
#include <rdmacoro/service/impl/cost_fit.ipp>
#include <rdmacoro/service/impl/group.ipp>
#include <rdmacoro/service/impl/group_failure.ipp>
#include <rdmacoro/service/impl/job.ipp>
#include <rdmacoro/service/impl/node_call_operation.ipp>
#include <rdmacoro/service/impl/node_card.ipp>
#include <rdmacoro/service/impl/node_discovery.ipp>
#include <rdmacoro/service/impl/node_watch.ipp>
#include <rdmacoro/service/impl/scheduler_pool.ipp>
#include <rdmacoro/service/impl/service.ipp>
#include <rdmacoro/service/impl/stream.ipp>

// Templates last: they need the bodies above.
#include <rdmacoro/service/compiled/shm.ipp>
#include <rdmacoro/service/compiled/sim.ipp>

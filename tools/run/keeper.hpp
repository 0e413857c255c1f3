// Two processes instead of one, so that the ranks end where either is killed and can do nothing any more.
#pragma once

#include <csignal>
#include <functional>

namespace run {

/// Runs `job` in a child, the keeper, which starts the ranks; passes signals on to it, and ends with its status. `job` gets the signal mask that this
/// process had, for the ranks; the signals that are passed on are blocked. What the ranks leave behind, in whichever group and session, becomes a child of the
/// keeper. Where this process is killed, by SIGKILL, too, the keeper kills all that there are; where the keeper is, they become children of this one, which does it.
int run_kept(const std::function<int(const sigset_t& for_ranks)>& job);

/// Kills the children of this process until there are none: their own become children of it. Those are left that it may not kill, which run as another user,
/// and those that have not ended ten seconds after that; `run_kept` names them. Needs no descriptor that is free.
void end_children() noexcept;

}  // namespace run

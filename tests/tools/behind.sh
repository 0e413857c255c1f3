#!/bin/sh
# behind sends short messages beside long ones with each list over every transport, and alone; wrong options are refused.
# Usage: behind.sh PATH. Ends with 77 (skipped) where there are not two CPUs.
. "$(dirname "$0")/../support/program.sh" "$@"
needs_two_cpus

succeeds --seconds 0.1 --mebibytes 4 --json "$work/all.json"
grep -q 'behind messages of 4M (goal: 100 us)' "$work/out"
succeeds --alone --seconds 0.1 --json "$work/alone.json"
python3 - "$work/all.json" "$work/alone.json" <<'PYTHON'
import json, os, sys

transports = {"shm"} | ({"tcp"} if os.environ.get("RDMACORO_WITH_TCP") == "1" else set())
lists = {"shm": ["default", "get", "put", "cooperative"], "tcp": ["default", "get", "put"]}
behind, alone = (json.load(open(path))["results"] for path in sys.argv[1:])
assert sorted((r["transport"], r["protocol"]) for r in behind) == sorted((t, p) for t in transports for p in lists[t]), behind
assert sorted((r["transport"], r["protocol"]) for r in alone) == sorted((t, "default") for t in transports), alone
for r in behind + alone:
    # At most one each 100 us of 100 ms, and one that began before their end.
    assert 1 <= r["messages"] <= 1001, r
    assert 0 < r["from_send_p50_us"] <= r["from_send_p99_us"] <= r["from_send_max_us"], r
    assert r["from_send_p50_us"] <= r["from_due_p50_us"] <= r["from_due_p99_us"] <= r["from_due_max_us"], r
    assert r["from_send_max_us"] <= r["from_due_max_us"], r
    assert 0 <= r["beyond_100_us_percent"] <= 100, r
    assert (r["beyond_100_us_percent"] > 0) == (r["from_send_max_us"] > 100), r
    assert r.get("goal_us") == (100 if r["transport"] == "shm" else None), r
for r in behind:
    assert not r["alone"] and r["bytes"] == 4 << 20 and r["long_messages"] >= 1 and r["gigabytes_per_second"] > 0, r
for r in alone:
    assert r["alone"] and not r.keys() & {"bytes", "long_messages", "gigabytes_per_second"}, r
policies = {(r["transport"], r["protocol"]): r["policy"] for r in behind}
assert all("get" in policies[t, "get"] and "put" in policies[t, "put"] for t in transports), policies
PYTHON

succeeds --transport shm --alone --seconds 0.01 --json -
python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["results"]) == 1' "$work/out"
# A row that cannot be measured is an error.
(
    ulimit -n 8
    refuses 1 'shm, default: ' --transport shm --alone --seconds 0.01
)
succeeds --help
for option in transport seconds mebibytes alone cpus timeout json; do grep -q -e "--$option" "$work/out"; done

refuses 2 '--help' --no-such-option
refuses 2 '--help' shm
refuses 2 'there are shm' --transport no-such-transport
refuses 2 'seconds' --seconds 0
refuses 2 'seconds' --seconds 31
refuses 2 'mebibytes' --mebibytes 0
refuses 2 'timeout' --timeout -1
refuses 2 'two different CPUs' --cpus 0
refuses 2 'two different CPUs' --cpus 0,0
refuses 2 'there is no CPU 100000' --cpus 0,100000
refuses 1 'cannot write' --json "$work/no/such/folder/x"

#!/bin/sh
# calls times messages, calls and what goes by no library over every transport, and prints the median, p99 and p99.9 of each, and rates; wrong
# options are refused.
# Usage: calls.sh PATH. Ends with 77 (skipped) where there are not two CPUs.
. "$(dirname "$0")/../support/program.sh" "$@"
needs_two_cpus

succeeds --adaptive --rounds 2000 --json "$work/all.json"
for text in '8 bytes there and back over shm' '64 under way' 'p99 ' 'p99\.9 '; do grep -q "$text" "$work/out"; done
python3 - "$work/all.json" <<'PYTHON'
import json, os, sys

found = json.load(open(sys.argv[1]))
assert found["machine"]["idle"] == "adaptive", found["machine"]
ways = ["two messages", "a call", "of a coroutine"]
transports = ["shm"] + (["tcp"] if os.environ.get("RDMACORO_WITH_TCP") == "1" else [])
rows = found["results"]
bare = {"shm": "a bare line", "tcp": "bare sockets"}
expected = [row for at in transports for row in [("round trip", w) for w in [bare[at], *ways]] + [("rate", w) for w in ways]]
assert [(r["test"], r["by"]) for r in rows] == expected, rows
for trip in (r for r in rows if r["test"] == "round trip"):
    assert 0 < trip["median_ns"] <= trip["p99_ns"] <= trip["p999_ns"], trip
    assert abs(trip["p999_to_median"] - trip["p999_ns"] / trip["median_ns"]) < 0.01 * trip["p999_to_median"], trip
for rate in (r for r in rows if r["test"] == "rate"):
    assert rate["millions_per_second"] > 0 and rate["window"] == 64, rate
for r in rows:
    assert (r["ratio"] == 1) if r["by"] == "two messages" else r["ratio"] > 0, r
PYTHON

succeeds --rounds 500 --json - "shm://calls-test-$$"
python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["machine"]["idle"] == "spin"' "$work/out"
succeeds --help
for option in rounds cpus adaptive json; do grep -q -e "--$option" "$work/out"; done

refuses 2 '--help' --no-such-option
refuses 2 'no transport here' ftp://nowhere
refuses 2 'rounds' --rounds 10
refuses 1 'cannot write' --json "$work/no/such/folder/x"

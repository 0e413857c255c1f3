#!/bin/sh
# gate sends by each number of threads and by a mutex over every transport, and prints a rate for each; wrong options are refused.
# Usage: gate.sh PATH. Ends with 77 (skipped) where there are not two CPUs.
. "$(dirname "$0")/../support/program.sh" "$@"
needs_two_cpus

succeeds --messages 4000 --rounds 1 --json "$work/all.json"
grep -q '64-byte messages over shm' "$work/out"
python3 - "$work/all.json" <<'PYTHON'
import json, os, sys

rows = json.load(open(sys.argv[1]))["results"]
gates = ["gate, 1 thread", "gate, 4 threads", "gate, 16 threads"]
expected = {"shm": gates + ["mutex, 4 threads"]}
if os.environ.get("RDMACORO_WITH_TCP") == "1":
    expected["tcp"] = gates + ["mutex and socket, 4 threads"]
for transport, ways in expected.items():
    found = [r for r in rows if r["url"].startswith(transport + "://")]
    assert [r["by"] for r in found] == ways, found
    least = found[-1]["millions_per_second"]
    for r in found:
        assert r["test"] == "rate" and r["millions_per_second"] > 0, r
        assert abs(r["ratio"] - r["millions_per_second"] / least) < 0.01 * r["ratio"], r
assert len(rows) == sum(map(len, expected.values())), rows
PYTHON

succeeds --help
for option in messages rounds room cpus json; do grep -q -e "--$option" "$work/out"; done

refuses 2 '--help' --no-such-option
refuses 2 'no transport here' ftp://nowhere
refuses 2 'messages' --messages 10
refuses 2 'rounds' --rounds 0
refuses 2 'room' --room 1
refuses 1 'cannot write' --json "$work/no/such/folder/x"

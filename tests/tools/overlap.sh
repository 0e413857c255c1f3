#!/bin/sh
# overlap searches every list over every transport, from both sides, in both orders; wrong options are refused.
# Usage: overlap.sh PATH. Ends with 77 (skipped) where there are not two CPUs.
. "$(dirname "$0")/../support/program.sh" "$@"
needs_two_cpus

succeeds --protocol all --sizes 64,128K --repeat 3 --json "$work/all.json"
grep -q 'overlap' "$work/out"
python3 - "$work/all.json" <<'PYTHON'
import json, os, sys

document = json.load(open(sys.argv[1]))
for key in ("kernel", "cpu", "cpus", "compiler", "idle", "date"):
    assert document["machine"][key], key
results = document["results"]
transports = {r["transport"] for r in results}
assert transports == {"shm"} | ({"tcp"} if os.environ.get("RDMACORO_WITH_TCP") == "1" else set()), transports
protocols = {r["protocol"] for r in results}
assert {"auto", "eager", "get", "put", "speculative", "cooperative", "reuse"} <= protocols, protocols
wanted = {(t, p, side, order, n) for t in transports for p in protocols for side in ("send", "receive")
          for order in ("sender-first", "receiver-first") for n in (64, 128 << 10)}
assert {(r["transport"], r["protocol"], r["test"], r["order"], r["bytes"]) for r in results} == wanted
assert len(results) == len(wanted)
for r in results:
    assert r["l0_ns"] > 0 and len(r["steps"]) >= 1, r
    assert abs(r["ratio"] - (r["c_ns"] - (r["l_ns"] - r["l0_ns"])) / r["l0_ns"]) < 1e-3, r
    assert r["l_ns"] < 1.1 * r["l0_ns"] * 1.0001, r
    for c, l in r["steps"][:-1]:
        assert l < 1.1 * r["l0_ns"] * 1.0001, r
PYTHON

succeeds --transport shm --test send --order receiver-first --sizes 8K --repeat 2 --json -
python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["results"]) == 1' "$work/out"
grep -q 'send test, receiver-first' "$work/err"
succeeds --help
for option in transport protocol sizes repeat cpus idle timeout json test order; do grep -q -e "--$option" "$work/out"; done

refuses 2 '--help' --no-such-option
refuses 2 'there are shm' --transport no-such-transport
refuses 2 'is not a size' --sizes 8,12q
refuses 2 'no last byte' --sizes 0
refuses 2 '--repeat: "0"' --repeat 0
refuses 1 'cannot write' --json "$work/no/such/folder/x"
refuses 2 'there are auto' --protocol no-such-list
refuses 2 'spin, yield, adaptive' --idle sleep
refuses 2 'two different CPUs' --cpus 0
refuses 2 'two different CPUs' --cpus 0,0
refuses 2 'there is no CPU 100000' --cpus 0,100000
refuses 2 'there are send, receive' --test both
refuses 2 'there are sender-first, receiver-first' --order any

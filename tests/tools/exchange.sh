#!/bin/sh
# exchange goes through both models with every list over every transport; wrong options are refused.
# Usage: exchange.sh PATH. Ends with 77 (skipped) where there are not two CPUs.
. "$(dirname "$0")/../support/program.sh" "$@"
needs_two_cpus

succeeds --sizes 64,128K --repeat 5 --rounds 2 --ratios 0.5,1 --json "$work/all.json"
grep -q 'comm/comp' "$work/out"
python3 - "$work/all.json" <<'PYTHON'
import json, os, sys

results = json.load(open(sys.argv[1]))["results"]
transports = {r["transport"] for r in results}
assert transports == {"shm"} | ({"tcp"} if os.environ.get("RDMACORO_WITH_TCP") == "1" else set()), transports
protocols = {r["protocol"] for r in results}
assert {"auto", "eager", "get", "put", "speculative", "cooperative", "reuse"} <= protocols, protocols
wanted = {(t, p, n, m, x) for t in transports for p in protocols for n in (64, 128 << 10) for m in ("1", "2")
          for x in (None, 0.5, 1)}
assert {(r["transport"], r["protocol"], r["bytes"], r["model"], r["comm_over_comp"]) for r in results} == wanted
assert len(results) == len(wanted)
for r in results:
    assert r["iteration_ns"] > 0 and (r["computation_ns"] > 0) == (r["comm_over_comp"] is not None), r
    assert r["protocol"] != results[0]["protocol"] or r["shorter"] == 0, r
for other in ("1", "2"):
    comp = {(r["transport"], r["bytes"], r["comm_over_comp"], r["computation_ns"]) for r in results if r["model"] == other}
    assert len(comp) == len(transports) * 2 * 3, "every list has the same computation"
PYTHON

succeeds --transport shm --protocol eager --model 2 --ratios 1 --sizes 8K --repeat 2 --rounds 1 --json -
python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["results"]) == 2' "$work/out"
succeeds --help
for option in transport protocol sizes repeat rounds cpus idle timeout json model ratios; do
    grep -q -e "--$option" "$work/out"
done

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
refuses 2 'there are 1, 2' --model 3
refuses 2 'not a number from 0.01' --ratios 1,x
refuses 2 '--rounds: "0"' --rounds 0

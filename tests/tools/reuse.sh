#!/bin/sh
# reuse measures the patterns of reuse and the spectrum over every transport and list; wrong options are refused.
# Usage: reuse.sh PATH. Ends with 77 (skipped) where there are not two CPUs.
. "$(dirname "$0")/../support/program.sh" "$@"
needs_two_cpus

succeeds --protocol all --sizes 512,128K --repeat 6 --rounds 2 --json "$work/all.json"
succeeds --spectrum --buffers 12 --protocol eager,reuse --sizes 100,8K --rounds 1 --json "$work/spectrum.json"
grep -q '12 buffers, number i used i times' "$work/out"
python3 - "$work/all.json" "$work/spectrum.json" <<'PYTHON'
import json, os, sys

results = json.load(open(sys.argv[1]))["results"]
transports = {r["transport"] for r in results}
assert transports == {"shm"} | ({"tcp"} if os.environ.get("RDMACORO_WITH_TCP") == "1" else set()), transports
protocols = {r["protocol"] for r in results}
assert {"auto", "eager", "get", "put", "speculative", "cooperative", "reuse"} <= protocols, protocols
assert len(results) == len(transports) * len(protocols) * 2
for r in results:
    assert r["iterations"] == 6 and min(r["reuse_0_ns"], r["reuse_50_ns"], r["reuse_100_ns"]) > 0, r
    assert abs(r["ratio"] - r["reuse_0_ns"] / r["reuse_100_ns"]) < 1e-3 * r["ratio"], r

results = json.load(open(sys.argv[2]))["results"]
wanted = {(t, p, n, l) for t in transports for p in ("eager", "reuse") for n in (100, 8192) for l in ("packed", "pages")}
assert {(r["transport"], r["protocol"], r["bytes"], r["layout"]) for r in results} == wanted
for r in results:
    assert r["latency_ns"] > 0 and r["buffers"] == 12, r
    if r["protocol"] == "eager":
        assert r["in_place"] == r["registrations"] == 0 == r["shorter"], r
PYTHON

succeeds --help
for option in transport protocol sizes repeat rounds cpus idle timeout json spectrum buffers layout; do
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
refuses 2 'there are packed, pages' --layout heap
refuses 2 '--buffers: "0"' --buffers 0
refuses 1 'more than 1G' --spectrum --buffers 100000 --sizes 1M --transport shm

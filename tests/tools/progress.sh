#!/bin/sh
# progress delays sends and receives over every transport and list, and sees what had landed; wrong options are refused.
# Usage: progress.sh PATH. Ends with 77 (skipped) where there are not two CPUs.
. "$(dirname "$0")/../support/program.sh" "$@"
needs_two_cpus

succeeds --protocol all --sizes 64,128K --repeat 3 --points 3 --json "$work/all.json"
grep -q 'remaining' "$work/out"
python3 - "$work/all.json" <<'PYTHON'
import json, os, sys

results = json.load(open(sys.argv[1]))["results"]
transports = {r["transport"] for r in results}
assert transports == {"shm"} | ({"tcp"} if os.environ.get("RDMACORO_WITH_TCP") == "1" else set()), transports
protocols = {r["protocol"] for r in results}
assert {"auto", "eager", "get", "put", "speculative", "cooperative", "reuse"} <= protocols, protocols
sweeps = {}
for r in results:
    sweeps.setdefault(tuple(r[k] for k in ("transport", "protocol", "test", "order", "delay", "bytes")), []).append(r)
assert len(sweeps) == len(transports) * len(protocols) * 2 * 2 * 2 * 2
for key, sweep in sweeps.items():
    assert len(sweep) == 3, key
    first = sweep[0]
    assert first["delay_ns"] == 0 and first["latency_ns"] > 0 and first["remaining"] == 1, first
    for r in sweep[1:]:
        assert r["delay_ns"] > 0 and r["remaining"] >= 0, r
        assert ("landed_before_wait" in r) == (key[2] == "receive"), r
        if key[2] == "receive":
            assert 0 <= r["landed_before_wait"] <= 1, r
            assert r["latency_ns"] >= r["delay_ns"], r
            assert "landed_ns" not in r or r["landed_before_wait"] > 0, r
PYTHON

succeeds --transport shm --test send --order sender-first --delay spin --sizes 8K --repeat 2 --points 2 --json -
python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["results"]) == 2' "$work/out"
succeeds --help
for option in transport protocol sizes repeat cpus idle timeout json test order delay points; do
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
refuses 2 'there are send, receive' --test both
refuses 2 'there are spin, sleep' --delay nap
refuses 2 '--points: "1"' --points 1

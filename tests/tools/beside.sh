#!/bin/sh
# beside measures shared memory beside a link of every transport that needs no device; wrong options are refused.
# Usage: beside.sh PATH. Ends with 77 (skipped) where there are not two CPUs.
. "$(dirname "$0")/../support/program.sh" "$@"
needs_two_cpus

if [ "$RDMACORO_WITH_TCP$RDMACORO_WITH_OFI" = 00 ]; then
    refuses 1 'no transport was built' --rounds 1
else
    succeeds --rounds 1 --samples 2 --json "$work/all.json"
    grep -q ' x (1.15) .* x (1.30) .* us (2.0)' "$work/out"
    python3 - "$work/all.json" <<'PYTHON'
import json, os, sys

document = json.load(open(sys.argv[1]))
results = document["results"]
assert document["settings"]["rounds"] == 1 and document["settings"]["samples"] == 2, document["settings"]
transports = [name for name, built in (("tcp", "TCP"), ("ofi+tcp", "OFI")) if os.environ["RDMACORO_WITH_" + built] == "1"]
assert [r["transport"] for r in results] == transports, results
for r in results:
    assert r["url"] == r["transport"] + "://127.0.0.1:0", r
    assert min(r["shm_alone_ns"], r["shm_beside_idle_ns"], r["shm_beside_busy_ns"]) > 0, r
    assert min(r["own_alone_ns"], r["own_beside_shm_ns"]) > 0, r
    for what in ("idle", "busy"):
        assert abs(r[what + "_ratio"] - r[f"shm_beside_{what}_ns"] / r["shm_alone_ns"]) < 1e-3 * r[what + "_ratio"], r
    longer = r["own_beside_shm_ns"] - r["own_alone_ns"]
    assert abs(r["own_longer_ns"] - longer) < 1e-3 * max(r["own_beside_shm_ns"], r["own_alone_ns"]), r
    assert (r["idle_ratio_goal"], r["busy_ratio_goal"], r["own_longer_goal_ns"]) == (1.15, 1.3, 2000), r
PYTHON
fi

if [ "$RDMACORO_WITH_TCP" = 1 ]; then
    succeeds tcp://127.0.0.1:0 --rounds 1 --samples 1 --json -
    python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["results"]) == 1' "$work/out"
    # A row that cannot be measured is an error: no host has this address.
    refuses 1 'tcp://192.0.2.1:0, shm beside it, idle: ' tcp://192.0.2.1:0 --rounds 1 --samples 1
    if grep -q ' x (1.15)' "$work/out"; then
        cat "$work/out"
        exit 1
    fi
fi

succeeds --help
for option in url rounds samples cpus timeout json; do grep -q -e "$option" "$work/out"; done
refuses 2 '--help' --no-such-option
refuses 2 'has the URL smoke://signals' smoke://signals
refuses 2 'has the URL tcp' tcp
refuses 2 'rounds' --rounds 0
refuses 2 'samples' --samples 0
refuses 2 'timeout' --timeout -1
refuses 2 'two different CPUs' --cpus 0
refuses 2 'two different CPUs' --cpus 0,0
refuses 2 'there is no CPU 100000' --cpus 0,100000
if [ "$RDMACORO_WITH_TCP$RDMACORO_WITH_OFI" != 00 ]; then
    refuses 1 'cannot write' --json "$work/no/such/folder/x"
fi

#!/bin/sh
# ofi_floor measures the bare libfabric loop on the providers that run anywhere; wrong options are refused.
# Usage: ofi_floor.sh PATH. Ends with 77 (skipped) where there are not two CPUs.
. "$(dirname "$0")/../support/program.sh" "$@"
needs_two_cpus

for provider in 'tcp;ofi_rxm' shm; do
    succeeds --provider "$provider" --sizes 8,64K --iterations 300 --repeat 3 --json "$work/all.json"
    python3 - "$work/all.json" <<'PYTHON'
import json, sys

results = json.load(open(sys.argv[1]))["results"]
assert {(r["test"], r["bytes"]) for r in results} == {(t, n) for t in ("latency", "bandwidth") for n in (8, 65536)}, results
for r in results:
    assert r["median_ns" if r["test"] == "latency" else "bytes_per_s"] > 0, r
    if r["test"] == "latency":
        assert r["min_ns"] <= r["mean_ns"], r
PYTHON
done
succeeds --provider 'tcp;ofi_rxm' --descriptor --test latency --iterations 100

refuses 1 'no-such-provider' --provider no-such-provider
refuses 2 'no-such-test' --test no-such-test
refuses 2 'not a size' --sizes 8x
refuses 2 '--help' --no-such-option

#!/bin/sh
# registration measures registration with every transport, with and without the cache; wrong options are refused.
# Usage: registration.sh PATH.
. "$(dirname "$0")/../support/program.sh" "$@"

succeeds --sizes 4K,1M --repeat 5 --json "$work/all.json"
python3 - "$work/all.json" <<'PYTHON'
import json, os, sys

results = json.load(open(sys.argv[1]))["results"]
transports = {"shm"} | ({"tcp"} if os.environ.get("RDMACORO_WITH_TCP") == "1" else set())
assert {(r["transport"], r["bytes"]) for r in results} == {(t, n) for t in transports for n in (4096, 1 << 20)}
for r in results:
    assert min(r["register_ns"], r["deregister_ns"], r["cache_miss_ns"]) > 0, r
    if "cache_hit_ns" in r:
        assert min(r["cache_hit_ns"], r["cache_release_ns"], r["cache_drop_ns"]) > 0, r
PYTHON

succeeds --transport shm --sizes 8K --repeat 2 --json -
python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["results"]) == 1' "$work/out"
succeeds --help
for option in transport sizes repeat cpus json; do grep -q -e "--$option" "$work/out"; done

refuses 2 '--help' --no-such-option
refuses 2 'there are shm' --transport no-such-transport
refuses 2 'is not a size' --sizes 8,12q
refuses 2 'no last byte' --sizes 0
refuses 2 '--repeat: "0"' --repeat 0
refuses 1 'cannot write' --json "$work/no/such/folder/x"
refuses 2 'one CPU' --cpus 0,1

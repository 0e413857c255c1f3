#!/bin/sh
# matching measures mailboxes with few and many peers, and a service beside a saturated one; wrong options are refused.
# Usage: matching.sh PATH.
. "$(dirname "$0")/../support/program.sh" "$@"

succeeds --peers 1,30 --json "$work/all.json"
grep -q 'behind 16,000: taken' "$work/out"
python3 - "$work/all.json" <<'PYTHON'
import json, sys

results = json.load(open(sys.argv[1]))["results"]
assert [(r["test"], r.get("peers"), r.get("stored")) for r in results] == [
    ("peers", 1, None), ("peers", 30, None), ("service", None, 0), ("service", None, 16384)], results
names = {"peers": ("any_source_ns", "one_of_each_ns", "behind_ns", "destroyed_ns"), "service": ("receive_ns",)}
for r in results:
    # 1e99 is what no measurement has replaced.
    assert all(0 < r[name] < 1e12 for name in names[r["test"]]), r
PYTHON

succeeds --peers 2 --json -
python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["results"]) == 3' "$work/out"
succeeds --help
for option in peers json; do grep -q -e "--$option" "$work/out"; done

refuses 2 '--help' --no-such-option
refuses 2 '--help' 1 100
refuses 2 'peers' --peers 0
refuses 2 'peers' --peers 1,x
refuses 1 'cannot write' --json "$work/no/such/folder/x"

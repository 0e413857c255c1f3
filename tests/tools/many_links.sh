#!/bin/sh
# many_links measures one link beside idle ones over every transport, as many as there are descriptors for; wrong options are refused.
# Usage: many_links.sh PATH.
. "$(dirname "$0")/../support/program.sh" "$@"

succeeds --links 1,20 --repeat 200 --json "$work/all.json"
grep -q 'idle turn (goal)' "$work/out"
# With 84 descriptors there are 20 for links: five over shm, ten over tcp.
(
    ulimit -n 84
    succeeds --links 3 7,20 --repeat 100 --json "$work/few.json"
)
grep -q 'RLIMIT_NOFILE allows no 20 links of 4 descriptors each' "$work/out"
python3 - "$work/all.json" "$work/few.json" <<'PYTHON'
import json, os, sys

transports = ["shm"] + (["tcp"] if os.environ["RDMACORO_WITH_TCP"] == "1" else [])
figures = ("idle_turn", "one_way", "open", "region", "park")
all_links, few = (json.load(open(path))["results"] for path in sys.argv[1:])
assert [(r["transport"], r["links"], r["links_asked"]) for r in all_links] == [(t, n, n) for t in transports for n in (1, 20)], all_links
most = {"shm": 5, "tcp": 10}
assert [(r["transport"], r["links"], r["links_asked"]) for r in few] == [(t, min(n, most[t]), n) for t in transports for n in (3, 7, 20)], few
for results in (all_links, few):
    for r in results:
        first = next(one for one in results if one["transport"] == r["transport"])
        assert all(r[name + "_ns"] > 0 for name in figures), r
        assert r["open_goal_ns"] == 1e6 * r["links"], r
        for name, times in (("idle_turn", 3), ("one_way", 1.2), ("region", 1.5), ("park", 2)):
            assert abs(r[name + "_goal_ns"] - times * first[name + "_ns"]) < 1e-3 * r[name + "_goal_ns"], r
PYTHON

succeeds --transport shm --links 2 --repeat 10 --json -
python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["results"]) == 1' "$work/out"
# A row that cannot be measured is an error.
(
    ulimit -n 8
    refuses 1 'shm, 1 link: ' --transport shm --links 1
)
succeeds --help
for option in transport links repeat json; do grep -q -e "--$option" "$work/out"; done

refuses 2 '--help' --no-such-option
refuses 2 '--help' shm 1
refuses 2 'there are shm' --transport no-such-transport
refuses 2 'links' --links 0
refuses 2 'links' --links 1,x
refuses 2 'repeat' --repeat 9
refuses 1 'cannot write' --json "$work/no/such/folder/x"

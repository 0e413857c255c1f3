#!/bin/sh
# guests compares the same exchanges in one run: each loop has a row for each transport and idle strategy, and none is absurdly slower than
# the scheduler's own. The bounds are far from what is measured (bench/README.md).
# Usage: guests.sh PATH.
. "$(dirname "$0")/../support/program.sh" "$@"

succeeds --seconds 0.002 --rounds 5 --json "$work/all.json"
python3 - "$work/all.json" <<'PYTHON'
import json, os, sys

results = json.load(open(sys.argv[1]))["results"]
rows = {(r["transport"], r["idle"], r["loop"]): r for r in results}
for transport in ["shm"] + (["tcp"] if os.environ["RDMACORO_WITH_TCP"] == "1" else []):
    for idle in ("spin", "adaptive", "parks at once"):
        assert rows[transport, idle, "own"]["ratio_of_best"] == 1, rows
        assert 0 < rows[transport, idle, "epoll"]["ratio_of_best"] < 30, rows
        if os.environ["RDMACORO_WITH_ASIO"] == "1":
            assert 0 < rows[transport, idle, "Asio"]["ratio_of_best"] < 30, rows
PYTHON

succeeds --help
for option in seconds rounds cpus json; do grep -q -e "--$option" "$work/out"; done
refuses 2 '--help' --no-such-option
refuses 2 'seconds' --seconds 0
refuses 2 'no transport here' smoke://signals
refuses 1 'cannot write' --json "$work/no/such/folder/x"

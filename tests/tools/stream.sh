#!/bin/sh
# stream compares the same exchanges in one run: each way has a row, and none is absurdly slower than messages. The bounds are far from
# what is measured (bench/README.md).
# Usage: stream.sh PATH.
. "$(dirname "$0")/../support/program.sh" "$@"

succeeds --seconds 0.01 --rounds 5 --json "$work/all.json"
python3 - "$work/all.json" <<'PYTHON'
import json, os, sys

results = json.load(open(sys.argv[1]))["results"]
rows = {(r["transport"], r["bytes"], r["way"]): r for r in results}
transports = ["shm"] + (["tcp"] if os.environ["RDMACORO_WITH_TCP"] == "1" else [])
for transport in transports:
    for size in (8, 1 << 20):
        assert rows[transport, size, "messages"]["ratio_of_best"] == 1, rows
        assert 0 < rows[transport, size, "byte_stream"]["ratio_of_best"] < 30, rows
PYTHON

succeeds --help
for option in seconds rounds cpus json; do grep -q -e "--$option" "$work/out"; done
refuses 2 '--help' --no-such-option
refuses 2 'seconds' --seconds 0
refuses 1 'cannot write' --json "$work/no/such/folder/x"

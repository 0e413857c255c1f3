#!/bin/bash
# tools/hardware-check goes through its steps over a provider that every machine has, on one host and on two, names what cannot run,
# and ends with 1 and the output of what failed. Files of tests and speeds are few: each is tested elsewhere.
# Usage: hardware_check.sh
set -eu
[ "$RDMACORO_WITH_OFI" = 1 ] || { echo "needs libfabric"; exit 77; }
[ "$(nproc)" -ge 2 ] || { echo "needs two CPUs"; exit 77; }
limit=200
. "$RDMACORO_SOURCE_ROOT/tests/support/hardware_check.sh"

# A build whose conformance suite has two files, and a stand-in for libfabric's tool.
build=$work/build
mkdir -p "$build/tests/ofi" "$build/tools/info" "$build/tools/pingpong" "$build/tools/soaking" "$work/bin"
touch "$build/build.ninja"
for program in tools/info/info tools/soaking/soak; do
    ln -s "$RDMACORO_BUILD_ROOT/$program" "$build/$program"
done
cat >"$build/tools/pingpong/pingpong" <<END
#!/bin/sh
echo "\${RDMACORO_OFI_NODE-}" >"$work/node"
exec "$RDMACORO_BUILD_ROOT/tools/pingpong/pingpong" "\$@"
END
cat >"$build/tests/ofi/ofi_conformance" <<END
#!/bin/sh
case "\$*" in
    *--list-tags*) [ -z "\${UNLOADED_SUITE-}" ] || { echo "error while loading shared libraries"; exit 127; }; echo '  2  [#describe]  3  [#lent]' ;;
    *'[#lent]'*) [ -z "\${SKIPPED_SUITE-}" ] || { echo "lent.cpp:7: skipped: no such memory here"; exit 77; }
        [ -z "\${BROKEN_SUITE-}" ] || { echo "broken on purpose"; exit 1; }; exec "$RDMACORO_BUILD_ROOT/tests/ofi/ofi_conformance" "\$@" ;;
    *) exec "$RDMACORO_BUILD_ROOT/tests/ofi/ofi_conformance" "\$@" ;;
esac
END
# As fi_pingpong 1.17 prints: bytes, sent, acknowledged, total, time, MB/s, microseconds a transfer, million transfers a second.
cat >"$work/bin/fi_pingpong" <<'END'
#!/bin/sh
case "$*" in
    *-B*) exec sleep 60 ;;
esac
echo 'bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec'
echo '8       50      =50      800         0.00s      1.25       6.41       0.16'
END
chmod +x "$build/tests/ofi/ofi_conformance" "$build/tools/pingpong/pingpong" "$work/bin/fi_pingpong"

(PATH=$work/bin:$PATH; ends 0 --build "$build" --quick --minutes 0.05 ofi+tcp://127.0.0.1:0)
reports '^| facts | rdmacoro-info | ok |'
reports '^| conformance | describe | ok |'
reports '^| conformance | lent | ok |'
reports '^| faults | soak: killed, stopped and restarted processes | ok |'
reports '^| 8 B, one way, mean | µs | [0-9.]* ([0-9.]* to [0-9.]*) | fi_pingpong | 6.41 (6.41 to 6.41) | [0-9.]* |'
reports '^| 1 MiB, one way, mean | µs | [0-9]'
reports 'restart the subnet manager'
reports '^libfabric_providers '
grep -q '^0 parts failed' "$work/out" || fail "no closing line"
# By the adapter with this address, not by the provider's first.
[ "$(cat "$work/node")" = 127.0.0.1 ] || fail "pingpong ran over whichever interface the provider takes"

# What fails is named, with what it said; the rest goes on.
BROKEN_SUITE=1 ends 1 --build "$build" --only conformance,speed --quick ofi+tcp://127.0.0.1:0
reports '^| conformance | describe | ok |'
reports '^| conformance | lent | FAILED, status 1 |'
reports '^broken on purpose'
reports '^| speed | pingpong | ok |'
command -v fi_pingpong >/dev/null || reports '^| speed | fi_pingpong | not run: no fi_pingpong |'
# A suite that says nothing of its tests is not one that does not know the provider.
UNLOADED_SUITE=1 ends 1 --build "$build" --only conformance ofi+tcp://127.0.0.1:0
reports '^| conformance | libfabric | FAILED: the suite lists no tests, status 127 |'
reports '^error while loading shared libraries'
# A file whose cases all left has not failed, and its reason is in the report.
SKIPPED_SUITE=1 ends 0 --build "$build" --only conformance ofi+tcp://127.0.0.1:0
reports '^| conformance | describe | ok |'
reports '^| conformance | lent | skipped |'
reports 'skipped: no such memory here'

# The serving side on another host: the remote shell here is this one.
printf '#!/bin/sh\nshift\nexec "$@"\n' >"$work/bin/remote"
chmod +x "$work/bin/remote"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
ends 0 --build "$build" --only speed --quick --peer there --shell "$work/bin/remote" "ofi+tcp://127.0.0.1:$port"
reports 'two hosts'
reports '^| 8 B, one way, mean | µs | [0-9]'

ends 2 --build "$build" tcp://127.0.0.1:0
ends 2 --build "$build" ofi+tcp://nowhere
ends 2 --build "$build" --peer there ofi+tcp://127.0.0.1:0
ends 2 --build "$work" ofi+tcp://127.0.0.1:0
ends 2 --build "$build" --only conformanc ofi+tcp://127.0.0.1:0
ends 2 --build "$build" --rounds 0 ofi+tcp://127.0.0.1:0
for minutes in nan inf 0 -1; do ends 2 --build "$build" --only facts --minutes=$minutes ofi+tcp://127.0.0.1:0; done
[ -d /sys/class/infiniband ] || ends 2 --build "$build" verbs://127.0.0.1:0
ends 0 --help

#!/bin/bash
# tools/hardware-check goes through its steps over verbs, on the software devices of the virtual machine: it finds the device of the
# address, runs the suite on that one and no other, and puts speeds beside perftest's. Files of tests are few, and perftest's programs
# are stand-ins: what is tested is that each step runs. (tests/tools/hardware_check.sh has the steps over libfabric.)
# Usage: hardware_check.sh, in a virtual machine of tools/soft-rdma-vm
set -eu
for program in tools/info/info tools/pingpong/pingpong; do
    [ -x "$RDMACORO_BUILD_ROOT/$program" ] || { echo "$program was not built"; exit 77; }
done
limit=140
. "$RDMACORO_SOURCE_ROOT/tests/support/hardware_check.sh"
export RDMACORO_WITHIN_HARDWARE_CHECK=1

# A build whose programs of tests have one file each.
build=$work/build
mkdir -p "$build/tests/verbs" "$build/tools/info" "$build/tools/pingpong" "$work/bin"
touch "$build/build.ninja"
for program in tools/info/info tools/pingpong/pingpong; do ln -s "$RDMACORO_BUILD_ROOT/$program" "$build/$program"; done
# program NAME FILE
program() {
    cat >"$build/tests/verbs/$1" <<END
#!/bin/sh
case "\$*" in
    *--list-tags*) echo '  2  [#$2]' ;;
    *) echo "device \$RDMACORO_VERBS_DEVICE, RXE_IP \${RXE_IP-none}, SIW_IP \${SIW_IP-none}" >>"$work/seen"
       exec "$RDMACORO_BUILD_ROOT/tests/verbs/$1" "\$@" ;;
esac
END
    chmod +x "$build/tests/verbs/$1"
}
program verbs_conformance lent
program verbs_verbs revoke
program verbs_faults wrong_owner
[ ! -x "$RDMACORO_BUILD_ROOT/tests/verbs/verbs_ofi" ] || program verbs_ofi connect
# As perftest prints a row: bytes, iterations, then times in microseconds or rates in MiB/s. The serving side has no address behind its
# options.
for tool in ib_send_lat ib_write_bw ib_read_bw; do
    cat >"$work/bin/$tool" <<'END'
#!/bin/sh
size=
for word; do
    [ "$before" != -s ] || size=$word
    [ "$before" != -d ] || [ -e "/sys/class/infiniband/$word" ] || exit 1
    before=$word
done
case "$before" in
    -F | -R) exec sleep 60 ;;
esac
echo " $size 50 3.50 4.50 5.50"
END
    chmod +x "$work/bin/$tool"
done
PATH=$work/bin:$PATH

# saw DEVICE ADDRESSES COUNT: so many programs of tests ran, all for that device
saw() {
    [ "$(sort -u "$work/seen")" = "device $1, $2" ] || fail "the suite saw $(sort -u "$work/seen"), not device $1, $2"
    [ "$(wc -l <"$work/seen")" -eq "$3" ] || fail "$(wc -l <"$work/seen") programs of tests ran, not $3"
    : >"$work/seen"
}
rxe=$RXE_IP siw=$SIW_IP
unset RXE_IP SIW_IP
ends 0 --build "$build" --quick "verbs://$rxe:0"
reports '^| facts | rdmacoro-info | ok |'
reports '^| conformance | verbs_conformance lent | ok, [1-9]'
reports '^| faults | verbs_verbs revoke | ok, 1 passed'
reports '^| faults | verbs_faults wrong_owner | ok, [1-9]'
reports '^| 8 B, one way, median | µs | [0-9.]* ([0-9.]* to [0-9.]*) | ib_send_lat | 5.5 (5.5 to 5.5) | [0-9.]* |'
reports '^| 1 MiB | MB/s | [0-9.e+]* ([0-9.e+]* to [0-9.e+]*) | ib_write_bw | 4.72 (4.72 to 4.72) | [0-9.e+]* |'
reports '^| get of 64 KiB, 32 at a time | MB/s | [0-9]'
reports '^| speed | pingpong | ok |'
saw "$RXE_DEV" "RXE_IP $rxe, SIW_IP none" 3
ends 0 --build "$build" --only conformance "verbs://$siw:0"
reports '^| conformance | verbs_conformance lent | ok, [1-9]'
saw "$SIW_DEV" "RXE_IP none, SIW_IP $siw" 1

# What the report says of the devices: what will be used of each, and what bounds its links.
(ulimit -l 7680 && "$build/tools/info/info" --json "$work/info.json" >"$work/table")
python3 - "$work" "$rxe" "$siw" <<'PYTHON'
import json, pathlib, sys

work, rxe, siw = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
devices = {device['name']: device['used'] for device in json.loads((work / 'info.json').read_text())['rdma_devices']}
table = (work / 'table').read_text()
roce, iwarp = devices['rxe0'], devices['siw0']
for used in roce, iwarp:
    assert used['problem'] is None and used['limits']['max_qp'] > 100 and used['limits']['max_cqe'] >= 1024, used
    assert used['limits']['bytes_of_link'] == 768 * 1024 and used['limits']['links_of_memlock'] == 10, used
assert roce['gid'] == f'::ffff:{rxe}' and roce['gid_index'] == 1 and roce['mtu'] == 4096, roce
assert f'rdma_cm at {rxe}' in roce['describe'] and f'rdma_cm at {siw}' in iwarp['describe'], devices
assert iwarp['gid'] is None and 'iWARP' in iwarp['describe'], iwarp
assert f'with GID 1, ::ffff:{rxe}, MTU 4096, traffic class' in table, table
assert 'memlock allows 10 links' in table, table
PYTHON

if [ -x "$build/tests/verbs/verbs_ofi" ]; then
    ends 0 --build "$build" --quick --only conformance "ofi+verbs://$rxe:0"
    reports '^| conformance | verbs_ofi connect | ok, [1-9]'
fi

ends 2 --build "$build" "verbs://203.0.113.77:0"
grep -q -e 'Name it by --device' "$work/out" || fail "an address of no device is not refused"
echo "hardware-check over $RXE_DEV and $SIW_DEV: ok"

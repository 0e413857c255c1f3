#!/bin/sh
# pingpong measures every test over every transport of this build, checks what it should check, tells its results in
# each form, and ends with the right status and message when it cannot.
# Usage: pingpong.sh PATH_OF_PINGPONG. Ends with 77 (skipped) where there are not two CPUs.
set -eu
pingpong=${1:?usage: pingpong.sh PATH_OF_PINGPONG}
# The same program, which starts at once, for what is not about libfabric.
quick=$(realpath "${pingpong}")_without_ofi  # one case runs it in another folder
[ -x "$quick" ] || quick=$pingpong
if [ "$(nproc)" -lt 2 ]; then
    echo "needs two CPUs"
    exit 77
fi
work=$(mktemp -d)
started=
cleanup() {
    for pid in $started; do kill -9 "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT

shm="shm://pingpong-test-$$"
urls="$shm"
if [ "${RDMACORO_WITH_TCP:-0}" = 1 ]; then urls="$urls tcp://127.0.0.1:0"; fi
if [ "${RDMACORO_WITH_OFI:-0}" = 1 ]; then urls="$urls ofi://127.0.0.1:0"; fi
cpus=$(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0))[:2])')
all=latency,rate,bandwidth,bidirectional,get,put,call,cast,stream

fail() {
    echo "FAILED: $*"
    for file in out err; do
        if [ -s "$work/$file" ]; then sed "s/^/  $file: /" "$work/$file"; fi
    done
    exit 1
}

# choose ARGUMENT...: which program is to be run with these; in $program.
choose() {
    case $* in
        *ofi*) program=$pingpong ;;
        *) program=$quick ;;
    esac
}

# succeeds ARGUMENT...: pingpong ends well within a minute.
succeeds() {
    choose "$@"
    timeout 60 "$program" "$@" >"$work/out" 2>"$work/err" || fail "pingpong $*: status $?"
}

# refuses STATUS PATTERN ARGUMENT...: it ends with this status and a message that matches, and prints no result.
refuses() {
    wanted=$1
    pattern=$2
    shift 2
    status=0
    choose "$@"
    timeout 60 "$program" "$@" >"$work/out" 2>"$work/err" || status=$?
    [ "$status" -eq "$wanted" ] || fail "pingpong $*: status $status, expected $wanted"
    grep -q -e "$pattern" "$work/err" || fail "pingpong $*: no message with \"$pattern\""
}

# read_line_like PATTERN FD: reads from a running process until such a line; prints it.
read_line_like() {
    while read -r line <&"$2"; do
        if printf '%s\n' "$line" | grep -q -e "$1"; then
            printf '%s\n' "$line"
            return 0
        fi
    done
    echo "the process ended without a line \"$1\": $(cat "$work"/*.err)" >&2
    return 1
}

# starts_listening URL ARGUMENT...: in the background; its pid in $listener, its address in $address.
starts_listening() {
    rm -f "$work/listener.pipe"
    mkfifo "$work/listener.pipe"
    choose "$@"
    timeout 60 "$program" --listen "$@" >"$work/listener.pipe" 2>"$work/listener.err" &
    listener=$!
    started="$started $listener"
    exec 3<"$work/listener.pipe"
    address=$(read_line_like '^listening on ' 3) || fail "listening on $1"
    address=${address#listening on }
}

# starts_measuring ARGUMENT...: in the background, and waits until it is connected; its pid in $client.
starts_measuring() {
    rm -f "$work/client.pipe"
    mkfifo "$work/client.pipe"
    choose "$@"
    timeout 60 "$program" "$@" >"$work/client.pipe" 2>"$work/client.err" &
    client=$!
    started="$started $client"
    exec 4<"$work/client.pipe"
    read_line_like 'protocol auto' 4 >/dev/null || fail "pingpong $*"
}

# ends_with STATUS PID: a process in the background ends with this status; its time limit is its own.
ends_with() {
    status=0
    wait "$2" || status=$?
    [ "$status" -eq "$1" ] || fail "background process: status $status, expected $1: $(cat "$work"/*.err)"
}

# child_of PID: the pingpong that runs below a `timeout`.
child_of() {
    cat "/proc/$1/task/$1/children"
}

# ---- every test, every byte checked, in every form of output

for url in $urls; do
    succeeds --pair "$url" --test "$all" --sizes 0,1,8,48,63,4K,4097,300000 --iterations 42 --window 8 --warmup 8 \
        --verify --json "$work/all.json" --csv "$work/all.csv"
    cp "$work/out" "$work/table"
    succeeds --pair "$url" --test latency,rate --sizes 8 --iterations 100 --warmup 0 --json -
    python3 - "$work" "${url%%:*}" <<'PYTHON'
import csv, json, os, sys

work, scheme = sys.argv[1], sys.argv[2]
keys = """test transport protocol bytes iterations min_ns median_ns mean_ns p95_ns p99_ns p999_ns max_ns bytes_per_s
messages_per_s""".split()
tests = "latency rate bandwidth bidirectional get put call cast stream".split()
sizes = [0, 1, 8, 48, 63, 4096, 4097, 300000]

document = json.load(open(os.path.join(work, "all.json")))
assert set(document) == {"machine", "results"}, document.keys()
machine = document["machine"]
for key in ("kernel", "cpu", "cpus", "compiler", "rdmacoro"):
    assert machine[key], key
assert machine["kernel"] == os.uname().release
assert len(set(machine["cpus"])) == 2 and set(machine["cpus"]) <= os.sched_getaffinity(0), machine
assert os.uname().nodename not in json.dumps(document) or len(os.uname().nodename) < 4

results = document["results"]
assert [(r["test"], r["bytes"]) for r in results] == [(t, s) for t in tests for s in sizes]
for r in results:
    assert set(keys) <= set(r), set(keys) - set(r)
    assert r["transport"] == scheme and r["protocol"] == "auto", r
    window = 1 if r["test"] == "latency" else 8
    assert r["window"] == window, r
    assert r["iterations"] == (42 if window == 1 else 48), r
    # Each call has a time of its own, of its round trip; of others a window has one.
    assert r["samples"] == r["iterations"] // (1 if r["test"] == "call" else window), r
    assert r["threads"] == 1, r
    assert r["verified"] is True, r
    times = [r[k] for k in ("min_ns", "median_ns", "p95_ns", "p99_ns", "p999_ns", "max_ns")]
    assert times == sorted(times) and r["max_ns"] > 0, r
    assert r["min_ns"] <= r["mean_ns"] <= r["max_ns"], r
    assert r["messages_per_s"] > 0, r
    assert abs(r["bytes_per_s"] - r["messages_per_s"] * r["bytes"]) <= 1e-4 * r["bytes_per_s"], r
policies = {(r["test"], r["bytes"]): r["policy"] for r in results}
long = "get_rendezvous" if scheme == "ofi" else "segmented"
assert policies["latency", 8] == "eager" and policies["latency", 300000] == long, policies

rows = list(csv.reader(open(os.path.join(work, "all.csv"))))
assert set(keys) <= set(rows[0]), rows[0]
assert len(rows) == 1 + len(results) and {len(row) for row in rows} == {len(rows[0])}
for row, r in zip(rows[1:], results):
    fields = dict(zip(rows[0], row))
    assert fields["test"] == r["test"] and int(fields["bytes"]) == r["bytes"], row
    assert float(fields["median_ns"]) == r["median_ns"], row

table = open(os.path.join(work, "table")).read()
for column in "min median mean p95 p99 p99.9 max GB/s".split() + ["M msg/s"]:
    assert table.count(column) >= len(tests), column

only_json = json.load(open(os.path.join(work, "out")))
assert [r["iterations"] for r in only_json["results"]] == [100, 128], only_json
assert "median" in open(os.path.join(work, "err")).read()
PYTHON
    # The messages of a window can have buffers of their own.
    for test in rate bandwidth bidirectional get put; do
        succeeds --pair "$url" --test "$test" --sizes 100,5000 --iterations 20 --window 10 --buffers 3 --json "$work/buffers.json"
        python3 -c 'import json, sys
assert all(row["buffers"] == 3 for row in json.load(open(sys.argv[1]))["results"])' "$work/buffers.json"
    done
    # Casts alone: how long one takes, and how many there can be.
    succeeds --pair "$url" --test cast --sizes 8,100 --iterations 128 --json "$work/cast.json"
    python3 -c 'import json, sys
rows = [(row["window"], row["bytes"]) for row in json.load(open(sys.argv[1]))["results"]]
assert rows == [(1, 8), (1, 100), (64, 8), (64, 100)], rows' "$work/cast.json"
    # Several threads of each side, each with a connection: their messages are counted together, and each is checked.
    succeeds --pair "$url" --threads 3 --test "$all" --sizes 8,5000 --iterations 60 --window 6 --warmup 6 --verify \
        --json "$work/threads.json"
    python3 - "$work/threads.json" <<'PYTHON'
import json, sys
for r in json.load(open(sys.argv[1]))["results"]:
    assert r["threads"] == 3 and r["iterations"] == 3 * 60, r
    assert r["samples"] == r["iterations"] // (1 if r["test"] in ("latency", "call") else 6), r
    sent = sum(r["carried"].values())
    least = 0 if r["test"] in ("get", "put", "stream") else 3 * 60
    assert sent >= least, r
PYTHON
    # A sample is the time of a whole window, of the first one too: no message of 16 MiB takes less than it would at a terabyte a second.
    succeeds --pair "$url" --test rate,bandwidth --sizes 16M --window 4 --iterations 12 --warmup 4 --json "$work/few.json"
    python3 -c 'import json, sys
for row in json.load(open(sys.argv[1]))["results"]:
    assert row["samples"] == 3 and row["min_ns"] >= row["bytes"] / 1000, row' "$work/few.json"
    # How many messages take about a second is found out by itself.
    succeeds --pair "$url" --test rate --sizes 4K --json "$work/auto.json" --idle spin
    python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["results"][0]["iterations"] >= 4 * 64' "$work/auto.json"
done

# ---- a byte that is wrong on its way is found, by whichever side it goes to

for url in $urls; do
    for test in latency rate bandwidth bidirectional get put call cast stream; do
        refuses 1 'arrived wrong' --pair "$url" --test "$test" --sizes 100 --iterations 16 --window 4 --verify --spoil 6
        grep -q 'message 6 at byte 50' "$work/err" || fail "$test: the wrong byte was put elsewhere"
        succeeds --pair "$url" --test "$test" --sizes 100 --iterations 16 --window 4 --verify
        refuses 1 "--spoil: $test, 100: there is no message 16 of 16" \
            --pair "$url" --test "$test" --sizes 100 --iterations 16 --window 4 --verify --spoil 16
    done
done

for url in $urls; do
    refuses 1 'arrived wrong' --pair "$url" --test rate --threads 2 --sizes 100 --iterations 16 --window 4 --verify --spoil 6
    case $url in ofi://*) continue ;; esac
    for test in call cast stream; do
        refuses 1 'message 6 at byte 4' --pair "$url" --test "$test" --sizes 8 --iterations 16 --window 4 --verify --spoil 6
    done
    refuses 1 'arrived wrong' --pair "$url" --test cast --sizes 8 --iterations 16 --window 1 --verify --spoil 6
done

# ---- protocol lists, idle strategies

for url in $urls; do
    # Each list with each strategy; over libfabric, where each process takes a second to begin, with one of them.
    case $url in
        ofi://*) idles=adaptive ;;
        *) idles="spin yield adaptive" ;;
    esac
    for protocol in auto eager staged get put speculative cooperative reuse eager-only segmented; do
        for idle in $idles; do
            succeeds --pair "$url" --protocol "$protocol" --idle "$idle" --test latency,bandwidth --sizes 8,2000 \
                --iterations 50 --warmup 10 --verify
        done
    done
    refuses 1 'carries no message of 64M' --pair "$url" --protocol eager-only --sizes 8,64M --iterations 4
    refuses 2 'compiled in are auto, eager' --pair "$url" --protocol no-such-list

    succeeds --explain --pair "$url"
    grep -q eager "$work/out" && grep -q segmented "$work/out" || fail "--explain names no policies"
done

# ---- two separate processes

for url in $urls; do
    starts_listening "$url" --cpus "${cpus#* }"
    succeeds --cpus "${cpus% *}" --test latency,put --sizes 8,64K --iterations 20 --verify --json "$work/two.json" "$address"
    ends_with 0 "$listener"
    python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["machine"]["cpus"] == [int(c) for c in sys.argv[2:]]' \
        "$work/two.json" ${cpus}

    starts_listening "$url" --forever
    for _ in 1 2 3; do succeeds --test rate --sizes 8 --iterations 1000 --warmup 0 "$address"; done
    refuses 1 'give both sides the same --protocol' --protocol eager-only "$address"
    refuses 1 'arrived wrong' --test rate --sizes 8 --iterations 100 --verify --spoil 3 "$address"
    succeeds --test rate --sizes 8 --iterations 1000 --warmup 0 "$address"
    refuses 1 'listens' --listen "$address"
    kill "$(child_of "$listener")"
    ends_with 143 "$listener"

    case $url in
        shm://*) nobody="$url-nobody" ;;
        tcp://* | ofi://*) nobody=${url%%:*}://127.0.0.1:$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') ;;
    esac
    refuses 1 'nobody listens' "$nobody"
    succeeds --explain "$nobody"
    grep -q 'No process listens' "$work/out" && grep -q segmented "$work/out" || fail "--explain without a peer"
done

# ---- a side that dies, or stands still, in mid-run

for url in $urls; do
    # Services do the same over every transport; libfabric takes a second for each process to begin.
    case $url in
        ofi://*) services= ;;
        *) services="call:adaptive:2:1:10000000 cast:spin cast:adaptive:1:1:10000000 stream:adaptive" ;;
    esac
    for how in rate:spin rate:adaptive bidirectional:spin get:adaptive rate:adaptive:65536:3:100000000000 $services; do
        # shellcheck disable=SC2046  # test, idle strategy, window, threads, iterations
        set -- $(echo "$how" | tr : ' ')
        test=$1
        idle=$2
        endless="--sizes 8 --warmup 0 --iterations ${5:-600000000000} --window ${3:-65536} --threads ${4:-1}"
        starts_listening "$url"
        # shellcheck disable=SC2086  # a list of options
        starts_measuring --test "$test" --idle "$idle" $endless "$address"
        kill -9 "$(child_of "$listener")"
        ends_with 1 "$client"
        grep -q "the peer vanished during $test" "$work/client.err" || fail "the client: $(cat "$work/client.err")"
        ends_with 137 "$listener"

        starts_listening "$url"
        # shellcheck disable=SC2086
        starts_measuring --test "$test" --idle "$idle" $endless "$address"
        kill -9 "$(child_of "$client")"
        ends_with 1 "$listener"
        grep -q 'the client vanished' "$work/listener.err" || fail "the listener: $(cat "$work/listener.err")"
        ends_with 137 "$client"
    done

    # A run that moves goes on: in gets and puts, of which the listening side sees nothing, and in a window that takes longer than the limit.
    case $url in
        tcp://*)
            succeeds --pair "$url" --test get,put --sizes 64M --window 64 --iterations 64 --warmup 0 --timeout 2
            ;;
    esac

    starts_listening "$url"
    endless="--sizes 8 --warmup 0 --iterations 600000000000 --window 65536"
    # shellcheck disable=SC2086
    starts_measuring --test rate --timeout 1 $endless "$address"
    kill -STOP "$(child_of "$listener")"
    ends_with 1 "$client"
    grep -q 'nothing moved' "$work/client.err" || fail "the client: $(cat "$work/client.err")"
    kill -9 "$(child_of "$listener")"
    ends_with 137 "$listener"

    # A client that comes while another one is served waits for its limit, and says what for.
    case $url in
        shm://*)
            starts_listening "$url" --forever
            # shellcheck disable=SC2086
            starts_measuring --test rate $endless "$address"
            refuses 1 'not answered for 1 s: one that serves another client' --test rate --sizes 8 --iterations 100 --timeout 1 "$address"
            kill -9 "$(child_of "$client")"
            ends_with 137 "$client"
            kill "$(child_of "$listener")"
            ends_with 143 "$listener"
            ;;
    esac

    # A client that stands still ends with its link; the next one is served.
    starts_listening "$url" --forever
    ended=0
    for how in "rate --threads 1" "get --threads 1" "rate --threads 2"; do
        # shellcheck disable=SC2086
        starts_measuring --timeout 1 $endless --test $how "$address"
        kill -STOP "$(child_of "$client")"
        attempts=0
        ended=$((ended + 1))
        until [ "$(grep -c 'nothing moved for 1 s' "$work/listener.err")" -eq "$ended" ]; do
            kill -0 "$listener" 2>/dev/null && [ "$attempts" -lt 300 ] || fail "a client that stood still: $(cat "$work/listener.err")"
            attempts=$((attempts + 1))
            sleep 0.1
        done
        succeeds --test rate --sizes 8 --iterations 1000 --warmup 0 --timeout 10 "$address"
        kill -9 "$(child_of "$client")"
        ends_with 137 "$client"
    done
    kill "$(child_of "$listener")"
    ends_with 143 "$listener"
done

# Ended by Ctrl-C, a pair leaves nothing in /dev/shm. Its sides' objects begin with their numbers.
if [ "${RDMACORO_WITH_OFI:-0}" = 1 ]; then
    # shellcheck disable=SC2086
    starts_measuring --test rate $endless --pair ofi+shm://127.0.0.1:0
    measuring=$(child_of "$client")
    measuring=${measuring%% *}
    other=$(child_of "$measuring")
    other=${other%% *}
    [ -n "$(find /dev/shm -name "$other:*")" ] || fail "the listening side has no object in /dev/shm"
    kill -INT "$measuring"
    ends_with 130 "$client"
    attempts=0
    while [ -e "/proc/$other" ] && [ "$attempts" -lt 300 ]; do
        attempts=$((attempts + 1))
        sleep 0.1
    done
    [ -z "$(find /dev/shm -name "$other:*")" ] || fail "the listening side's object stays in /dev/shm"
fi

# The value of a call is below a limit that its head takes it over.
case $urls in
    *tcp://*)
        succeeds --pair tcp://127.0.0.1:0 --test call,cast --sizes 65536 --iterations 64 --window 4 --json "$work/head.json"
        python3 -c 'import json, sys
for row in json.load(open(sys.argv[1]))["results"]:
    assert row["policy"] == max(row["carried"], key=row["carried"].get) == "segmented", row' "$work/head.json"
        ;;
esac

# ---- what cannot be

refuses 2 'no address'
refuses 2 'more than one address' --listen "$shm" --pair "$shm"
refuses 2 'more than one address' "$shm" --pair "$shm"
refuses 2 'shm://NAME' --pair smoke://signals
refuses 2 'is no address' localhost:7471
refuses 2 'contradict each other' --transport tcp --pair "$shm"
refuses 2 'there is no transport "smoke"' --transport smoke --pair signals
refuses 2 '--device goes with verbs://' --device mlx5_0 --pair "$shm"
refuses 2 '--port goes with verbs://' --port 1 --pair "$shm"
refuses 2 '--port: "0"' --port 0 --pair "$shm"
if [ "${RDMACORO_WITH_OFI:-0}" = 1 ]; then
    succeeds --transport ofi --provider tcp --test latency --sizes 8 --iterations 100 --pair 127.0.0.1:0
    succeeds --test latency --sizes 8 --iterations 100 --pair ofi+tcp://127.0.0.1:0
fi
refuses 2 'contradict each other' --provider shm --pair ofi+tcp://127.0.0.1:0
refuses 2 '--provider goes with ofi://' --provider tcp --pair "$shm"
refuses 2 '--gid-index: "x"' --gid-index x --pair "$shm"
succeeds --transport shm --test latency --sizes 8 --iterations 100 --pair "by-name-$$"
refuses 2 '"12q" is not a size' --sizes 8,12q --pair "$shm"
refuses 2 '"" is not a size' --sizes 8, --pair "$shm"
refuses 2 '"8x1" is not a size' --sizes 8x1 --pair "$shm"
refuses 2 'too large' --sizes 99999999999999999999 --pair "$shm"
refuses 2 'too large' --sizes 9999999999G --pair "$shm"
refuses 2 'ends before it begins' --sizes 64:8 --pair "$shm"
refuses 2 'cannot begin at 0' --sizes 0:8 --pair "$shm"
refuses 2 'there are latency, rate, bandwidth, bidirectional, get, put, call, cast, stream' --test no-such-test --pair "$shm"
refuses 2 'spin, yield, adaptive' --idle sleep --pair "$shm"
refuses 2 '--iterations: "many" is not a number' --iterations many --pair "$shm"
refuses 2 '--window: "0"' --window 0 --pair "$shm"
refuses 2 '--buffers: "0"' --buffers 0 --pair "$shm"
refuses 2 'one of its own' --buffers 2 --verify --pair "$shm"
refuses 2 'there is no CPU 100000' --cpus 0,100000 --pair "$shm"
refuses 2 '"one" is not the number of a CPU' --cpus one --pair "$shm"
refuses 2 'two different CPUs' --cpus 0,0 --pair "$shm"
refuses 2 'or one for each thread of both sides: 6' --cpus "0,1,0" --threads 3 --pair "$shm"
refuses 2 '--threads: "0"' --threads 0 --pair "$shm"
refuses 2 'holds for both' --threads 2 --listen "$shm"
refuses 2 'call goes by the library' --test call --protocol eager --pair "$shm"
refuses 1 'at most 1K less than 64M' --test call --sizes 64M --pair "$shm"
refuses 2 'goes with --listen' --forever --pair "$shm"
refuses 2 'goes with --verify' --spoil 1 --pair "$shm"
refuses 1 'rate, 8: there is no message 1000000000000 of ' --test rate --sizes 8 --verify --spoil 1000000000000 --pair "$shm"
refuses 1 'a message of 0 bytes has none' --test latency --sizes 0 --iterations 16 --verify --spoil 1 --pair "$shm"
refuses 2 'standard output' --json - --csv - --pair "$shm"
refuses 2 'are one file' --json "$work/both" --csv "$work/./both" --pair "$shm"
[ ! -e "$work/both" ] || fail "it wrote into a file that it refused"
(cd "$work" && refuses 2 'are one file' --json "$work/both" --csv both --pair "$shm")
: >"$work/both"
ln -s both "$work/link"
refuses 2 'are one file' --json "$work/both" --csv "$work/link" --pair "$shm"
for form in json csv; do
    refuses 2 '--explain measures nothing' --explain "--$form" "$work/explained" --pair "$shm"
    refuses 1 'pingpong: cannot write /dev/full: No space left' --test latency --sizes 8 --iterations 100 "--$form" /dev/full --pair "$shm"
done
for what in "" "--json -" "--csv -" --explain --help; do
    status=0
    # shellcheck disable=SC2086  # no word, or two
    timeout 60 "$quick" --test latency --sizes 8 --iterations 100 $what --pair "$shm" >/dev/full 2>"$work/err" || status=$?
    [ "$status" -eq 1 ] || fail "standard output that takes nothing, $what: status $status, not 1"
    grep -q '^pingpong: cannot write standard output' "$work/err" || fail "no message about standard output, $what"
done
status=0
timeout 60 "$quick" --listen "$shm" >/dev/full 2>"$work/err" || status=$?
[ "$status" -eq 1 ] && grep -q '^pingpong: cannot write standard output: No space left' "$work/err" || fail "the address of a listener is lost"
# Nor is most of what the machine has left taken: it says here that this is little.
if [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null; then
    printf 'MemTotal: 8000000 kB\nMemAvailable: 20000 kB\n' >"$work/meminfo"
    cat >"$work/little_memory" <<END
#!/bin/sh
exec unshare -m --propagation private sh -c 'mount --bind "$work/meminfo" /proc/meminfo && exec "\$0" "\$@"' "$quick" "\$@"
END
    chmod +x "$work/little_memory"
    (quick=$work/little_memory; refuses 1 'no memory for 1 buffer of 16M' --test latency --sizes 16M --iterations 4 --pair "$shm")
    (quick=$work/little_memory; succeeds --test latency --sizes 8M --iterations 4 --pair "$shm")
fi
# The limit is what makes it too much: a machine may promise memory that it has not.
(ulimit -v 67108864; refuses 1 'no memory for 1 buffer of 100G' --test latency --sizes 100G --iterations 4 --pair "$shm")
refuses 2 '--help' --no-such-option --pair "$shm"
refuses 2 '--help' --pair
refuses 1 "cannot write $work/no/such/file" --json "$work/no/such/file" --pair "$shm"
refuses 1 '--iterations: at most 100000000 windows fit' --test latency --iterations 100000000000 --pair "$shm"
(ulimit -v 67108864; refuses 1 '--warmup: at most 100000000 windows fit' --test latency --warmup 100000000000 --iterations 100 --pair "$shm")
(ulimit -v 67108864; refuses 1 '--warmup: at most 100000000 calls fit' --test call --warmup 100000000000 --iterations 100 --pair "$shm")
refuses 1 'has no' --pair shm://a/b

succeeds --version
grep -q '^pingpong [0-9]' "$work/out" || fail "--version"
succeeds --help
for option in listen pair forever transport device port gid-index connect-by provider test sizes iterations warmup window buffers protocol idle cpus threads timeout verify explain json csv; do
    grep -q -e "--$option" "$work/out" || fail "--help does not mention --$option"
done

#!/bin/bash
# Every example does what it says: alone, or as two processes over each transport that was built.
# (copy_file has a test of its own.)
set -euo pipefail
examples=${RDMACORO_BUILD_ROOT:?}/examples
if [ ! -x "$examples/hello" ]; then
    echo "the examples were not built"
    exit 77
fi
work=$(mktemp -d)
running=
trap '[ -z "$running" ] || kill "$running" 2>/dev/null || :; rm -rf "$work"' EXIT

fail() {
    echo "$*" >&2
    exit 1
}

# says EXPECTED NAME [ARGUMENT]...: the program ends well and prints exactly that.
says() {
    local expected=$1 name=$2 said
    shift 2
    said=$(timeout 60 "$examples/$name" "$@") || fail "$name $*: exit status $?"
    [ "$said" = "$expected" ] || fail "$name $*: said \"$said\", not \"$expected\""
}

# refuses PATTERN NAME [ARGUMENT]...: the program fails and says so on stderr.
refuses() {
    local pattern=$1 name=$2
    shift 2
    if timeout 60 "$examples/$name" "$@" >"$work/out" 2>"$work/err"; then fail "$name $*: succeeded"; fi
    grep -q -e "$pattern" "$work/err" || fail "$name $*: no \"$pattern\" in: $(cat "$work/err")"
}

# serve NAME ARGUMENT...: starts it in the background; `url` is where it listens, with the real port. `limit= serve` makes it a process
# of this shell's, to be killed; `tries=N serve` tries so often: the kernel closes what a killed process gave to io_uring a moment later.
serve() {
    local line= try=1
    while :; do
        mkfifo "$work/said"
        ${limit-timeout 120} "$@" >"$work/said" &
        running=$!
        exec 3<"$work/said"
        rm "$work/said"
        ! read -r -t 60 line <&3 || break
        [ $try -lt ${tries:-1} ] || fail "$*: did not start"
        try=$((try + 1))
        read -r -t 0.1 <> <(:) || :
    done
    [ "${line#listening at }" != "$line" ] || fail "$*: said \"$line\""
    url=${line#listening at }
}

says 'got hello, world' hello
says $'after 20 ms: the operation did not end in the time it was given
stopped: the operation was canceled
first: the clock
asked: late, but here' deadline
says $'client: sum done
client: the link is closed
server: stopped' graceful_stop
says $'scattered: 3 x 4, 104 bytes, sum 78
lent: 104 bytes, sum 78
probed: 104 bytes, sum 78' gather
says 'sum 40002400000.000000' compute_meanwhile
says $'hello, node 1
node 9 has left
hello again, node 1
node 9 has left' nodes
says 'the squares of 1 to 100 add up to 338350' any_source
says $'sent 80016 bytes, 16 of them copied
north: 10000 samples, windy' typed_messages
says $'after a restart red is #ff0000
1048576 bytes were loaded' node_calls
says $'red is #ff0000
green red are there
4 after two more
call of kv.get, which answered: there is no shape: the handler failed
the wait ended: the operation did not end in the time it was given' calls
if [ -x "$examples/cereal_types" ]; then
    says 'north: 3 values, worth 6' cereal_types
fi
says 'the squares of 1 to 2000 add up to 2668667000' threads
says '8 threads heard of 17348 primes and sent 8000 messages' worker_pool
# Where the network fails no thread waits for ever: 9 descriptors are enough for the listener and not for its link. A sanitizer needs
# descriptors of its own.
if ! grep -qa -e __asan_init -e __tsan_init "$examples/threads"; then
    status=0
    said=$(ulimit -n 9 && timeout 60 "$examples/threads" 2>&1) || status=$?
    [ $status -eq 1 ] || fail "threads without descriptors: exit status $status, said \"$said\""
    [[ $said == *"threads: "*"ulimit -n"* ]] || fail "threads without descriptors: said \"$said\""
fi
if [ -x "$examples/asio_client" ]; then
    says $'how long is this? 17
no answer in 50 ms
and this one? 13' asio_client
fi
said=$(printf 'one' | timeout 60 "$examples/other_loop") || fail "other_loop: exit status $?"
[ "$said" = "echo: one" ] || fail "other_loop: said \"$said\""
says "$(timeout 60 "$examples/own_transport" | head -n -1)
all bytes came back" own_transport
says "$(timeout 60 "$examples/custom_protocol" | head -n -4)
got 3 bytes: one
got 100000 bytes
got 3 bytes: two
ended: Bad message" custom_protocol
timeout 60 "$examples/custom_protocol" | grep -q 'protocols: checked_eager, segmented$'
says 'tag 1: 1000000 bytes, the last 7
tag 2: 1000000 bytes, the last 7
tag 3: the operation did not end in the time it was given
tag 4: the link is closed' own_rendezvous
timeout 60 "$examples/own_transport" | grep -q '^loopback (two ends in one scheduler), protocols: '

# halo: as many processes as it is given, the same result.
said=$(timeout 60 "$examples/halo" "shm://halo-$$" "shm://halo-$$" 0 1 1000) || fail "halo, alone: exit status $?"
timeout 60 "$examples/halo" "shm://halo-$$-b" "shm://halo-$$-c" 1 3 1000 &
second=$!
timeout 60 "$examples/halo" "shm://halo-$$-c" "shm://halo-$$-a" 2 3 1000 &
third=$!
says "$said" halo "shm://halo-$$-a" "shm://halo-$$-b" 0 3 1000
wait "$second" && wait "$third" || fail "halo: a neighbour ended with status $?"
# A neighbour that dies ends the others with an error.
"$examples/halo" "shm://halo-$$-b" "shm://halo-$$-a" 1 2 1000000000 &
second=$!
timeout 60 "$examples/halo" "shm://halo-$$-a" "shm://halo-$$-b" 0 2 1000000000 2>"$work/err" &
running=$!
until grep -q "has its neighbours" "$work/err"; do read -r -t 0.1 <> <(:) || :; done
kill -KILL "$second"
wait "$running" && fail "halo: ended well without its neighbour"
running=
grep -q "gone" "$work/err" || fail "halo, without its neighbour: said $(cat "$work/err")"
refuses 'are numbers' halo "shm://halo-$$-a" "shm://halo-$$-a" a b
refuses 'are numbers' halo "shm://halo-$$-a" "shm://halo-$$-a" 0 1 many

urls=("shm://examples-$$")
[ "${RDMACORO_WITH_TCP:?}" = 0 ] || urls+=(tcp://127.0.0.1:0)
[ "${RDMACORO_WITH_VERBS:?}" = 0 ] || [ -z "$(ls /sys/class/infiniband 2>/dev/null)" ] || urls+=("verbs://*:0")
[ "${RDMACORO_WITH_OFI:?}" = 0 ] || urls+=(ofi://127.0.0.1:0)
for from in "${urls[@]}"; do
    echo "over $from"

    serve "$examples/echo" serve "$from"
    # Over libfabric each process polls: with more of them than processors a connection takes many turns of the others.
    clients='1 2 3 4'
    case $from in ofi://*) clients='1 2' ;; esac
    asking=()
    for i in $clients; do
        timeout 60 "$examples/echo" ask "$url" "question $i" >"$work/answer$i" &
        asking+=($!)
    done
    for i in $clients; do
        wait "${asking[i - 1]}" || fail "echo ask $url: exit status $?"
        [ "$(cat "$work/answer$i")" = "question $i" ] || fail "echo said \"$(cat "$work/answer$i")\" to $i"
    done
    refuses 'another' echo serve "$url"
    kill "$running"
    wait "$running" || :
    running=

    serve "$examples/table_reads" serve "$from"
    says 'read 10000 rows' table_reads read "$url" 10000
    kill "$running"
    wait "$running" || :
    running=

    serve "$examples/rdma" open "$from"
    # An adapter, or a library for it, tells of a refusal less than this toolkit does.
    past='the access goes past the end of the remote region'
    case $from in verbs://* | ofi://*) past='.*' ;; esac
    timeout 60 "$examples/rdma" use "$url" >"$work/out" || fail "rdma use $url: exit status $?"
    tr '\n' '|' <"$work/out" | grep -q -x -e "read 500|past the end: $past|" ||
        fail "rdma use $url: said $(cat "$work/out")"
    read -r -t 60 line <&3
    [ "$line" = "table[500] is now 1000" ] || fail "rdma open said \"$line\""
    wait "$running" || fail "rdma open: exit status $?"
    running=
done

# key_value: a client in the middle of its requests goes on when the server is killed, or stopped, and started again.
head -c 3000000 /dev/zero >"$work/bulk"
for from in "${urls[@]}"; do
    # Its node is over these two.
    case $from in shm://* | tcp://*) ;; *) continue ;; esac
    [ -x "$examples/key_value" ] || continue
    echo "key_value over $from"
    limit='' serve "$examples/key_value" serve "$from"
    mkfifo "$work/requests" "$work/answers"
    timeout 100 "$examples/key_value" use "$url" <"$work/requests" >"$work/answers" 2>"$work/err" 3<&- &
    client=$!
    exec 4>"$work/requests" 5<"$work/answers"
    # answers REQUEST LINE...: what the client prints for it.
    answers() {
        local line expected
        echo "$1" >&4
        shift
        for expected in "$@"; do
            read -r -t 60 line <&5 || fail "key_value: no \"$expected\"; $(cat "$work/err")"
            [ "$line" = "$expected" ] || fail "key_value: said \"$line\", not \"$expected\""
        done
    }
    answers "put red #ff0000" "put done"
    answers "get red" "#ff0000" "get done"
    answers "load big $work/bulk" "load done"
    answers "scan a" "big 3000000" "red 7" "scan done"
    # What cannot be read changes nothing.
    answers "load big $work/no-such-file"
    answers "load big $work"
    answers "scan a" "big 3000000" "red 7" "scan done"
    answers "get colour"
    answers "put green #00ff00" "put done"
    for text in "cannot open $work/no-such-file" "Is a directory" "kv.get, which answered: map::at"; do
        grep -q "$text" "$work/err" || fail "key_value: no \"$text\" in: $(cat "$work/err")"
    done
    for signal in KILL TERM; do
        kill "-$signal" "$running"
        wait "$running" || [ $signal = KILL ] || fail "key_value serve: status $? after SIG$signal"
        running=
        limit='' tries=50 serve "$examples/key_value" serve "$url" 4>&- 5<&-
        answers "put red $signal" "put done"
        answers "load big $work/bulk" "load done"
        answers "scan a" "big 3000000" "red 4" "scan done"  # without green: it is the next one
    done
    exec 4>&-
    wait "$client" || fail "key_value use: status $?"
    exec 5<&-
    rm "$work/requests" "$work/answers"
    kill "$running"
    wait "$running" || fail "key_value serve: status $? at its end"
    running=
done

refuses 'start the listening process first' echo ask "shm://nobody-$$" hello
[ "$RDMACORO_WITH_TCP" = 0 ] || refuses 'start the listener first' echo ask tcp://127.0.0.1:1 hello
refuses 'shm://NAME' echo ask ftp://nowhere hello
refuses 'usage' echo
refuses 'usage' rdma open
[ ! -x "$examples/key_value" ] || refuses 'usage' key_value

# Jobs: alone, and as several ranks.
says 2000 dot_product
RDMACORO_ALLREDUCE=star refuses 'RDMACORO_ALLREDUCE=star' dot_product
timeout 60 "$examples/heat" "$work/alone.pgm" 40 >"$work/out" || fail "heat: exit status $?"
for points in many 0 -1 8x; do
    refuses "^heat: $points is no number of points" heat "$work/refused.pgm" $points
    [ ! -e "$work/refused.pgm" ] || fail "heat: a picture of $points points"
done
refuses "^heat: cannot write $work/no/folder" heat "$work/no/folder" 8
refuses '^heat: cannot write /dev/full' heat /dev/full 8
(cd "$work" && says 'usage: heat [FILE [POINTS]]; POINTS of each edge, 1 to 20000' heat --help && [ ! -e ./--help ]) || fail "heat --help"
job=$RDMACORO_BUILD_ROOT/tools/run/run
if [ -x "$job" ]; then
    [ "$(timeout 60 "$job" -n 4 "$examples/dot_product")" = 20000 ] || fail "dot_product: a wrong sum of four ranks"
    [ "$(RDMACORO_ALLREDUCE=ring RDMACORO_CHECK_COLLECTIVES=1 timeout 60 "$job" -n 3 "$examples/dot_product")" = 12000 ] ||
        fail "dot_product: a wrong sum of three ranks, around the ring or by default"
    timeout 60 "$job" -n 3 "$examples/heat" "$work/three.pgm" 40 >"$work/out" || fail "heat with three ranks: exit status $?"
    cmp "$work/alone.pgm" "$work/three.pgm" || fail "heat: another picture with three ranks"
    timeout 60 "$examples/heat" "$work/few.pgm" 3 >"$work/out" || fail "heat with three points: exit status $?"
    timeout 60 "$job" -n 5 "$examples/heat" "$work/five.pgm" 3 >"$work/out" || fail "heat with more ranks than rows: exit status $?"
    cmp "$work/few.pgm" "$work/five.pgm" || fail "heat: another picture with more ranks than rows"
    for ranks in 3 4; do
        timeout 60 "$job" -n $ranks "$examples/bine_tree" >"$work/out" || fail "bine_tree: exit status $?"
        [ $ranks -eq 4 ] && by='by the Bine tree' || by=' by '  # it needs a power of two
        grep -q "4 KiB to $ranks ranks: .*$by" "$work/out" || fail "bine_tree: $(cat "$work/out")"
    done
fi

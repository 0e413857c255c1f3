# What the tests of tools/run share, after program.sh: a job's end is waited for, and no process is left behind.
ring=${RDMACORO_RING:-$RDMACORO_BUILD_ROOT/tests/launchers/ring}
[ -x "$ring" ] || {
    echo "skipped: this build has no tests/launchers"
    exit 77
}
unset RDMACORO_JOB RDMACORO_RANK RDMACORO_SIZE RDMACORO_ADDRESS PMI_FD PMI_RANK PMI_SIZE
# What every process that may be left has in its command line.
mark=31536000.$$
echo "$mark" >"$work/mark"

fail() {
    echo "FAILED: $*"
    sed 's/^/  out: /' "$work/out"
    sed 's/^/  err: /' "$work/err"
    exit 1
}
# ends STATUS ARGUMENT...: run ends with this status, and leaves no process.
ends() {
    local wanted=$1 status=0
    shift
    timeout -k 5 60 "$program" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    [ "$status" -eq "$wanted" ] || fail "run $*: status $status, not $wanted"
    nothing_left "run $*"
}
marked() { grep -al -f "$work/mark" /proc/[0-9]*/cmdline 2>/dev/null | grep -v "/$$/" || true; }
# nothing_left WHEN: those that were killed may need a moment.
nothing_left() {
    for ((n = 0; n < 100; n++)); do
        [ -n "$(marked)" ] || return 0
        sleep 0.1
    done
    fail "$1: left behind: $(for one in $(marked); do tr '\0' ' ' 2>/dev/null <"$one" || true; echo; done)"
}
prints() { grep -q -e "$1" "$work/out" || fail "\"$1\" is not printed"; }
says() { grep -q -e "$1" "$work/err" || fail "\"$1\" is not said"; }

# begins ARGUMENT...: run is in $runs, in the background, at the head of a group, and its ranks have begun.
begins() {
    : >"$work/out"
    setsid "$program" "$@" >"$work/out" 2>"$work/err" </dev/null &
    runs=$!
    for ((n = 0; n < 200; n++)); do
        [ "$(grep -c begun "$work/out")" -lt 2 ] || return 0
        sleep 0.1
    done
    fail "run $*: the ranks do not begin"
}
# over STATUS: it ends with it.
over() {
    local status=0
    wait "$runs" || status=$?
    [ "$status" -eq "$1" ] || fail "status $status, not $1"
    nothing_left "after $2"
}
waits="trap 'echo told; exit 0' TERM; trap 'echo used' USR1; echo begun; while :; do sleep $mark & wait; done"

# on_other_hosts: jobs by $work/ssh, which notes what it is asked for in $work/commands; the host `down` cannot be reached.
on_other_hosts() {
    remote="--ssh $work/ssh --address 127.0.0.1"
    ends 0 -n 4 --hosts a,b $remote "$ring"
    prints '4 ranks on 2 hosts'
    prints '^sum 6$'
    [ "$(grep -c '^a: ' "$work/commands")" -eq 2 ] || fail "ranks are not spread over the hosts"
    ! grep -q 'RDMACORO_KEY=' "$work/commands" || fail "the key is in a command line, where others see it"
    ends 0 -n 4 --hosts a:1,b:3 --tag-output $remote sh -c 'echo "$RDMACORO_HOST, $RDMACORO_LOCAL_SIZE; it'\''s \"$1\""' x 'a  b $c'
    prints "^\[0\] a, 1; it's \"a  b \$c\"\$"
    prints "^\[3\] b, 3; it's \"a  b \$c\"\$"
    # A name that would be commands in a shell.
    env "RDMACORO_ONE;echo >$work/came;RDMACORO_TWO=1" timeout -k 5 60 "$program" -n 1 --hosts a $remote true >"$work/out" 2>"$work/err" </dev/null ||
        fail "with a variable that no shell takes: status $?"
    [ ! -e "$work/came" ] || fail "the name of a variable is run as a command"
    # Variables are for the rank, and for none of the programs that start it and end it.
    ends 0 -n 1 --hosts a --env "GIVEN=it's 'a'  \$b" --env PATH=/no/such/folder $remote /bin/sh -c 'echo "$PATH; $GIVEN"'
    prints "^/no/such/folder; it's 'a'  \$b\$"
    ends 6 -n 4 --hosts a,b $remote sh -c "[ \$RDMACORO_RANK = 2 ] && exit 6; exec sleep $mark"
    says 'rank 2 on b ended with status 6'
    ends 6 -n 2 --hosts a,b --grace 0.3 $remote sh -c "trap '' TERM; [ \$RDMACORO_RANK = 1 ] && exit 6; sleep $mark & sleep $mark"
    ends 255 -n 2 --hosts a,down $remote sh -c "exec sleep $mark"
    says "rank 1 on down ended with status 255.*ssh"
    begins -n 2 --hosts a,b $remote bash -c "$waits"
    kill -TERM $runs
    over 0 'SIGTERM to ranks on other hosts'
    [ "$(grep -c told "$work/out")" -eq 2 ] || fail "SIGTERM is not passed on to other hosts"
    begins -n 2 --hosts a,b --grace 60 $remote bash -c "$waits"
    kill -INT $runs
    over 0 'SIGINT to ranks on other hosts'
    [ "$(grep -c told "$work/out")" -eq 2 ] || fail "SIGINT does not end ranks on other hosts"
    begins -n 2 --hosts a,b $remote bash -c "$waits"
    kill -TSTP $runs
    stopped=0
    for ((n = 0; n < 100 && stopped < 2; n++)); do
        sleep 0.1
        stopped=0
        for one in $(marked); do
            case $(cat "${one%cmdline}stat" 2>/dev/null || true) in *"(bash) T "*) stopped=$((stopped + 1)) ;; esac
        done
    done
    [ $stopped -ge 2 ] || fail "SIGTSTP does not stop ranks on other hosts"
    kill -CONT $runs
    kill -TERM $runs
    over 0 'SIGTERM to ranks on other hosts that stood still'
    echo some >"$work/input"
    timeout -k 5 60 "$program" -n 2 --hosts a,b $remote true <"$work/input" >"$work/out" 2>"$work/err" || fail "two ranks with input: status $?"
    says 'rank 0 is on a, and has no input'
    begins -n 2 --hosts a,b $remote bash -c "$waits"
    kill -KILL $runs
    wait $runs 2>/dev/null || true
    nothing_left 'after SIGKILL, on other hosts'
}

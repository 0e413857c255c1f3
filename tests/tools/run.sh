#!/usr/bin/env bash
# tools/run starts the ranks of a job here and, by a stand-in for ssh, on other hosts; they meet; when one fails all end, and whatever happens no process
# is left behind.
# Usage: run.sh PATH_OF_RUN
. "$(dirname "$0")/../support/program.sh" "$@"
. "$(dirname "$0")/../support/jobs.sh"

# The command line.
ends 0 --help
prints '--tag-output'
prints '-n 4 \[--hosts alpha,beta\]'
status=0
timeout 60 "$program" --help >/dev/full 2>"$work/err" || status=$?
[ $status -eq 1 ] || fail "--help at /dev/full: status $status, not 1"
says '^run: cannot write standard output: No space left'
refuses 2 'which program' -n 2
refuses 2 'no such option' -n 2 --no-such-option true
refuses 2 'not in range' -n 0 true
refuses 2 'no host' --hosts 'a b' true
refuses 2 'no host' --hosts '' true
refuses 2 'no host' --hosts=-oProxyCommand=x true
refuses 2 'a number of ranks' --hosts a:0 true
refuses 2 'NAME' --env 1=2 true
for seconds in nan -nan NaN inf -inf -1 3601 1e999 5x; do refuses 2 '^--grace: ' --grace=$seconds true; done
ends 1 -n 2 ./no-such-program
says 'no-such-program: No such file'

# A job meets.
for ranks in 1 2 5; do
    ends 0 -n $ranks "$ring"
    prints "^sum $((ranks * (ranks - 1) / 2))\$"
    prints 'on 1 host'
    prints 'started by tcp://127.0.0.1:'
done
# Ranks connect to each other at once, and leave when they have said their word: no order of that loses it.
for ((round = 0; round < 20; round++)); do ends 0 -n 4 "$ring"; done
ends 0 -n 3 --tag-output -- "$ring"
[ -z "$(grep -v '^\[[0-2]\] ' "$work/out")" ] || fail "a line without its rank"
prints '^\[0\] sum 3$'

# Lines of any length, and one without an end, keep their ranks.
ends 0 -n 2 --tag-output sh -c 'head -c 100000 /dev/zero | tr "\0" x; echo; printf end; echo error >&2'
[ "$(grep -c '^\[[01]\] end$' "$work/out")" -eq 2 ] || fail "the last lines have no end, and are lost"
[ "$(grep -c '^\[[01]\] error$' "$work/err")" -eq 2 ] || fail "what goes to the standard error has no rank"
[ "$(tr -cd x <"$work/out" | wc -c)" -eq 200000 ] || fail "a long line is not whole"

# An output that fails is said once, and is a failure; one that nothing reads any more is neither. The ranks end as they would.
ends_into() {  # OUTPUT STATUS ARGUMENT...
    local to=$1 wanted=$2 status=0
    shift 2
    : >"$work/out"
    timeout -k 5 60 "$program" "$@" >"$to" 2>"$work/err" </dev/null || status=$?
    [ "$status" -eq "$wanted" ] || fail "run $* >$to: status $status, not $wanted"
    nothing_left "run $* >$to"
}
ends_into /dev/full 1 -n 2 --tag-output sh -c 'seq 100000; echo ended >&2'
says '^run: the standard output: No space left on device'
[ "$(grep -c '^run: ' "$work/err")" -eq 1 ] || fail "the output that fails is not said once"
[ "$(grep -c '^\[[01]\] ended$' "$work/err")" -eq 2 ] || fail "the ranks do not end as they would"
ends_into /dev/full 0 -n 2 --tag-output true
ends_into /dev/full 3 -n 1 --tag-output sh -c 'echo; exit 3'
status=0
timeout -k 5 60 "$program" -n 2 --tag-output sh -c 'echo >&2' >"$work/out" 2>/dev/full </dev/null || status=$?
[ $status -eq 1 ] || fail "standard error at /dev/full: status $status, not 1"
ends_into >(exec head -c 1 >/dev/null) 0 -n 2 --tag-output sh -c 'seq 100000; echo ended >&2'
[ "$(grep -c '^run: ' "$work/err")" -eq 0 ] || fail "a reader that has gone is taken for an error"
[ "$(grep -c '^\[[01]\] ended$' "$work/err")" -eq 2 ] || fail "the ranks do not end as they would"

# Input is for rank 0, variables are for all, other launchers' are for none.
echo 'a word' | PMI_RANK=7 timeout 60 "$program" -n 2 --tag-output --env GIVEN=1 sh -c \
    'read -r word; echo "$word, $GIVEN, ${PMI_RANK-none}, $RDMACORO_RANK of $RDMACORO_SIZE"' >"$work/out"
prints '^\[0\] a word, 1, none, 0 of 2$'
prints '^\[1\] , 1, none, 1 of 2$'
# Settings of other launchers go to the ranks, except where that launcher has started run: then they may be of its own job.
settings='OMPI_MCA_btl=self OMPI_ALLOW_RUN_AS_ROOT=1 PMIX_MCA_gds=hash'
shows='echo "${OMPI_MCA_btl-none} ${OMPI_ALLOW_RUN_AS_ROOT-none} ${PMIX_MCA_gds-none} ${PMIX_RANK-none} ${OMPI_COMM_WORLD_RANK-none}"'
env $settings PMIX_RANK=7 OMPI_COMM_WORLD_RANK=7 timeout 60 "$program" sh -c "$shows" >"$work/out"
prints '^self 1 hash none none$'
for launched in PMIX_NAMESPACE=a OMPI_COMM_WORLD_SIZE=2; do
    env $settings $launched timeout 60 "$program" sh -c "$shows" >"$work/out"
    prints '^none none none none none$'
done

# One fails: the others are told, then killed; the status is its own.
ends 3 -n 4 sh -c "[ \$RDMACORO_RANK = 2 ] && exit 3; exec sleep $mark"
says 'run: rank 2 ended with status 3: ending the others'
ends 137 -n 3 sh -c "[ \$RDMACORO_RANK = 1 ] && kill -KILL \$\$; exec sleep $mark"
says 'rank 1 was ended by signal 9'
ends 3 -n 3 --grace 0.3 sh -c "trap '' TERM; [ \$RDMACORO_RANK = 2 ] && exit 3; sleep $mark & sleep $mark; sleep $mark"
says 'does not end: SIGKILL'
ends 4 -n 2 --grace 20 sh -c "[ \$RDMACORO_RANK = 1 ] && { sleep 0.5; exit 4; }; trap 'echo was told; exit 0' TERM; sleep $mark & wait"
prints 'was told'
# One that stands still hears nothing before it goes on.
ends 5 -n 2 --grace 100 sh -c "[ \$RDMACORO_RANK = 1 ] && { sleep 0.5; exit 5; }; kill -STOP \$\$; exec sleep $mark"
# What a rank leaves, in whichever group and session.
ends 0 -n 2 sh -c "setsid sleep $mark & sleep $mark & exit 0"

# A failure, or a signal, while ranks are still started: the rest is not. Each rank prints its number.
ends 3 -n 300 sh -c "echo begun \$RDMACORO_RANK; [ \$RDMACORO_RANK = 0 ] && exit 3; exec sleep $mark"
prints '^begun 0$'
! grep -q '^begun 2..$' "$work/out" || fail "ranks are started after one has failed: $(tail -n 1 "$work/out")"
# The parent of a rank is the process that starts them. This one ends well when it is told to.
ends 143 -n 300 sh -c "trap 'exit 0' TERM; echo begun \$RDMACORO_RANK; [ \$RDMACORO_RANK = 0 ] && kill -TERM \$PPID; sleep $mark & wait"
prints '^begun 0$'
! grep -q '^begun 2..$' "$work/out" || fail "ranks are started after SIGTERM: $(tail -n 1 "$work/out")"
# The same where a later rank cannot be started: those that run are told, and what they say is read.
cp "$(command -v bash)" "$work/shell"
ends 1 -n 300 --tag-output "$work/shell" -c "trap 'echo told; exit 0' TERM; echo begun; [ \$RDMACORO_RANK = 0 ] && rm '$work/shell'; sleep $mark & wait"
says '^run: .*/shell: No such file or directory: ending the others$'
prints '^\[0\] told$'
! grep -q '^\[2..\] begun$' "$work/out" || fail "ranks are started after one could not be: $(tail -n 1 "$work/out")"
# A rank that was not begun is no other.
says_only() { [ "$(cat "$work/err")" = "$1" ] || fail "it does not say only \"$1\""; }
ends 1 -n 2 ./no-such-program
says_only 'run: ./no-such-program: No such file or directory'

# A rank that ends well and never joins is named to those that wait for it.
ends 1 -n 3 sh -c 'case $RDMACORO_RANK in 1) exit 0 ;; esac; exec "$0"' "$ring"
says 'rank 1 of 3 has gone before all had joined'
ends 1 -n 3 sh -c 'case $RDMACORO_RANK in 1) exec sleep 4 ;; esac; exec "$0" --limit-ms 1000' "$ring"
says 'rank 1 '
says 'not come'

# Too few descriptors, for run itself, for the ranks' connections or for their output: it says so, and leaves nothing.
printf '#!/bin/sh\n[ "$RDMACORO_RANK" = 2 ] && exit 1\nexec sleep %s\n' "$mark" >"$work/fails"
chmod +x "$work/fails"
for ((most = 5; most <= 20; most++)); do
    for what in "-n 8 sleep 0.01" "-n 3 --tag-output sleep 0.01" "-n 3 $work/fails" "-n 3 $ring --limit-ms 2000"; do
        status=0
        (ulimit -n $most && exec timeout -k 5 60 "$program" $what) >"$work/out" 2>"$work/err" </dev/null || status=$?
        [ $status -le 1 ] || fail "run $what with $most descriptors: status $status"
        [ $status -eq 0 ] || grep -q '^run: ' "$work/err" || fail "run $what with $most descriptors: it does not say why"
        nothing_left "run $what with $most descriptors"
    done
done
(ulimit -n 12 && ! "$program" -n 8 sleep $mark) >"$work/out" 2>"$work/err" </dev/null || fail "8 ranks are begun with 12 descriptors"
says '^run: 8 ranks need .*: Too many open files'
# A soft limit is raised, for run alone.
(ulimit -Sn 32 && exec timeout -k 5 60 "$program" -n 40 sh -c '[ "$(ulimit -Sn)" = 32 ]') >"$work/out" 2>"$work/err" </dev/null ||
    fail "40 ranks with a soft limit of 32 descriptors: $(cat "$work/err")"

# A script that becomes run by exec leaves it the processes of its redirections: they are not run's to end.
bash -c 'exec > >(sleep 1; cat >"$1/kept"); exec "$0" -n 2 echo line' "$program" "$work" </dev/null 2>"$work/err" || fail "run by exec: status $?"
for ((n = 0; n < 100; n++)); do [ "$(grep -c line "$work/kept" 2>/dev/null)" != 2 ] || break; sleep 0.1; done
[ "$(grep -c line "$work/kept")" -eq 2 ] || fail "run by exec: its reader has got $(cat "$work/kept")"

begins -n 2 bash -c "$waits"
kill -USR1 $runs
for ((n = 0; n < 100; n++)); do [ "$(grep -c used "$work/out")" -eq 2 ] && break || sleep 0.1; done
[ "$(grep -c used "$work/out")" -eq 2 ] || fail "SIGUSR1 is not passed on"
kill -TERM $runs
over 0 SIGTERM
[ "$(grep -c told "$work/out")" -eq 2 ] || fail "SIGTERM is not passed on"
# One stop that comes twice is not a second one: as a cgroup's, to both processes, and as from timeout, to the child and its group. The ranks have their time.
slow="trap 'sleep 0.3; echo told; exit 0' TERM; echo begun; while :; do sleep $mark & wait; done"
for ((round = 0; round < 3; round++)); do
    begins -n 2 --grace 60 bash -c "$slow"
    kill -TERM $runs "$(cat /proc/$runs/task/$runs/children)"
    over 0 'SIGTERM to both processes of run'
    [ "$(grep -c told "$work/out")" -eq 2 ] || fail "SIGTERM to both processes of run is taken for two"
done
direct=$program
program=timeout
for ((round = 0; round < 4; round++)); do
    begins 60 "$direct" -n 2 --grace 60 bash -c "$slow"
    kill -TERM $runs
    over 0 'SIGTERM by timeout'
    [ "$(grep -c told "$work/out")" -eq 2 ] || fail "SIGTERM by timeout is taken for two"
done
program=$direct
# A second one, after a second, does not wait.
begins -n 2 --grace 60 bash -c "trap '' TERM INT; $waits; sleep $mark"
kill -INT $runs
for ((n = 0; n < 100; n++)); do grep -q 'ending all' "$work/err" && break || sleep 0.1; done
sleep 1.1
kill -INT $runs
status=0 SECONDS=0
wait $runs || status=$?
[ $status -eq 0 ] || [ $status -eq 137 ] || fail "after two SIGINT: status $status"
[ $SECONDS -lt 30 ] || fail "a second SIGINT waits as long as the first"
nothing_left 'after two SIGINT'
# It is killed itself, alone or with its group, or the child that keeps the ranks is: nothing is left of the ranks, of what they have started in sessions
# of its own, and of what that has started.
leaves="setsid sh -c 'setsid sleep $mark & sleep $mark & wait' & $waits"
# sleep_all COUNT: so many processes that ranks have started have begun.
sleep_all() {
    for ((n = 0; n < 100; n++)); do
        count=0
        for one in $(marked); do
            case $(tr '\0' ' ' 2>/dev/null <"$one" || true) in "sleep $mark "*) count=$((count + 1)) ;; esac
        done
        [ "$count" -lt "$1" ] || return 0
        sleep 0.1
    done
    fail "only $count of $1 processes of the ranks begin"
}
for group in '' -; do
    begins -n 2 bash -c "$leaves"
    sleep_all 6
    kill -KILL -- "$group$runs"
    wait $runs 2>/dev/null || true
    nothing_left "after SIGKILL of ${group:+the group of }run"
done
begins -n 2 bash -c "$leaves"
sleep_all 6
kill -KILL "$(cat /proc/$runs/task/$runs/children)"
over 137 'SIGKILL of the child that keeps the ranks'
says 'the process that keeps the ranks was ended by signal 9'

# A rank that has gone to another process group ends with the others.
ends 7 -n 2 --grace 0.3 python3 -c '
import os, signal, sys, time
if os.environ["RDMACORO_RANK"] == "1":
    time.sleep(0.5)
    sys.exit(7)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.setpgid(0, os.getpgid(os.getppid()))
time.sleep(1000)'
# One that is left and is traced by another that is left.
ends 0 -n 1 python3 -c '
import ctypes, os, time
traced = os.fork()
if traced == 0:
    time.sleep(1000)
ready, told = os.pipe()
if os.fork() == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace(16, traced, None, None)  # attach; where that is forbidden, it is left all the same
    os.write(told, b"x")
    time.sleep(1000)
os.read(ready, 1)'
# One that run may not kill, which runs as another user, is named and left. As root; run itself has no right to kill others' processes then.
if [ "$(id -u)" -eq 0 ] && command -v setpriv >"$work/out"; then
    as_other="setpriv --reuid=65534 --regid=65534 --clear-groups"
    for tags in '' --tag-output; do
        status=0
        timeout -k 5 60 setpriv --bounding-set=-kill "$program" -n 1 $tags $as_other sh -c "cd /; setsid sleep $mark & exit 0" \
            >"$work/out" 2>"$work/err" </dev/null || status=$?
        sleeps=$(pgrep -f "^sleep $mark") || fail "run kills a process that it may not kill"
        kill -KILL "$sleeps"
        [ $status -eq 1 ] || fail "with a process left behind that is of another user: status $status, not 1"
        [ "$(cat "$work/err")" = "run: process $sleeps is left behind: it runs as another user" ] || fail "it does not say only which process is left"
        nothing_left 'after the one of another user'
    done
fi
# Whoever starts it may ignore the ends of children.
for status in 0 3; do
    got=0
    timeout -k 5 60 python3 -c '
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$program" -n 2 sh -c "exit $status" >"$work/out" 2>"$work/err" </dev/null || got=$?
    [ $got -eq $status ] || fail "with SIGCHLD ignored: status $got, not $status"
done

# Nobody reads what it writes: it looks after its ranks and its signals all the same.
mkfifo "$work/full"
exec 9<>"$work/full"
# over_in_time STATUS WHAT: the run whose number is in $runs ends within 20 s, with that status.
over_in_time() {
    local status=0
    timeout 20 tail --pid=$runs -f /dev/null || {
        kill -KILL $runs
        fail "$2: it does not end"
    }
    wait $runs || status=$?
    [ $status -eq $1 ] || fail "$2: status $status, not $1"
    nothing_left "$2"
}
python3 -c '
import os
os.set_blocking(9, False)
try:
    while True:
        os.write(9, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(9, True)'
# ranks WHAT: waits until there are some, or none, beside the two processes of run.
ranks() {
    for ((n = 0; n < 200; n++)); do
        local count
        count=$(marked | wc -l)
        case $1 in some) [ "$count" -le 2 ] || return 0 ;; none) [ "$count" -gt 2 ] || return 0 ;; esac
        sleep 0.1
    done
    fail "$1 ranks: $count processes"
}
"$program" -n 2 --tag-output --grace 0.5 sh -c "while :; do echo $mark; done" >&9 2>"$work/err" </dev/null &
runs=$!
ranks some
kill -TERM $runs
over_in_time 143 'SIGTERM while its output is full'
"$program" -n 2 --tag-output --grace 0.5 sh -c "[ \$RDMACORO_RANK = 1 ] && { sleep 1; exit 3; }; while :; do echo $mark; done" >&9 2>"$work/err" </dev/null &
runs=$!
ranks some
ranks none
kill -TERM $runs
over_in_time 3 'a rank that fails while the output is full'
"$program" -n 2 --grace 0.5 sh -c "trap '' TERM; : $mark; while :; do sleep 0.1; done" >"$work/out" 2>&9 </dev/null &
runs=$!
ranks some
kill -TERM $runs
over_in_time 137 'SIGTERM while the output of its errors is full'
exec 9>&-

# A process outside the job writes to a rank's output, and goes on with it: the job ends all the same, and what the rank has printed is there.
"$program" -n 1 --tag-output sh -c "echo \$\$ >'$work/writes'; while [ ! -e '$work/has' ]; do : $mark; sleep 0.1; done; printf end" >"$work/out" 2>"$work/err" </dev/null &
runs=$!
for ((n = 0; n < 200; n++)); do [ ! -s "$work/writes" ] || break; sleep 0.1; done
(
    exec >"/proc/$(cat "$work/writes")/fd/1"
    echo >"$work/has"
    while echo outside; do sleep 0.1; done
) 2>"$work/outside" </dev/null &
over_in_time 0 'a process outside the job that writes to its output'
wait
prints '^\[0\] end'

# Started without outputs: no file of its own takes their numbers.
closed() { # STATUS ARGUMENTS...
    local wanted=$1 got=0
    shift
    timeout 30 "$program" "$@" >&- 2>&- <&- || got=$?
    [ $got = "$wanted" ] || fail "without outputs: run $* ends with $got"
}
closed 1 -n 1 --grace 0.5 false
closed 0 -n 2 --tag-output echo hello
closed 7 -n 2 sh -c 'echo hello; echo hello >&2; exit 7'

# Other hosts, by a stand-in that runs the command here, and notes it. By a real ssh: run_ssh.sh.
cat >"$work/ssh" <<'END'
#!/bin/sh
host=$1
shift
echo "$host: $*" >>"$(dirname "$0")/commands"
case $host in down) exit 255 ;; esac
exec sh -c "$*"
END
chmod +x "$work/ssh"
on_other_hosts
# The program of that name has options, lest it asks for something: a process group in the background of a terminal is stopped there.
mkdir "$work/path"
cat >"$work/path/ssh" <<'END'
#!/bin/sh
echo "$*" >>"$(dirname "$0")/commands"
while [ "$1" = -o ]; do shift 2; done
exec "$(dirname "$0")/../ssh" "$@"
END
chmod +x "$work/path/ssh"
(export PATH="$work/path:$PATH" && ends 0 -n 1 --hosts a --address 127.0.0.1 true)
grep -q -e '-o BatchMode=yes' "$work/path/commands" || fail "ssh may ask for something: $(head -n 1 "$work/path/commands")"

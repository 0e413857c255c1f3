#!/usr/bin/env bash
# A job joins under a real launcher, and messages go around it: launchers.sh hydra|openmpi|slurm PATH_OF_RING pmix|no-pmix. Ends with 77, and says
# why, where the launcher is not installed; one that is and does not work fails.
set -eu
launcher=${1:?usage: launchers.sh LAUNCHER PATH_OF_RING pmix|no-pmix}
ring=$(realpath "${2:?usage: launchers.sh LAUNCHER PATH_OF_RING pmix|no-pmix}")
pmix=${3:-no-pmix}
work=$(mktemp -d)
services=()
finish() {
    for one in "${services[@]}"; do kill "$one" 2>/dev/null || true; done
    for one in "${services[@]}"; do wait "$one" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT
# The traffic of tests stays on this machine.
export RDMACORO_ADDRESS=127.0.0.1
unset RDMACORO_JOB RDMACORO_RANK RDMACORO_SIZE PMI_FD PMI_RANK PMI_SIZE

skip() {
    echo "skipped: $*"
    exit 77
}
fail() {
    echo "FAILED: $*"
    sed 's/^/  out: /' "$work/out"
    sed 's/^/  err: /' "$work/err" "$SAID"
    exit 1
}
# Ranks that end by an error write it here: a launcher that ends all ranks with the first may not pass on what that one had said.
export SAID=$work/said
# runs STATUS COMMAND...: ends within a minute with this status; `some` stands for any but 0 and 124, the time-out.
runs() {
    local wanted=$1 status=0
    shift
    : >"$SAID"
    timeout -k 5 60 "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    if [ "$wanted" = some ]; then
        [ "$status" -ne 0 ] && [ "$status" -ne 124 ] || fail "$*: status $status"
    else
        [ "$status" -eq "$wanted" ] || fail "$*: status $status, not $wanted"
    fi
}
has() { grep -q -e "$1" "$work/out" || fail "\"$1\" is not printed"; }
says() { grep -q -e "$1" "$work/out" "$work/err" "$SAID" || fail "\"$1\" is not said"; }
# went_around RANKS BY: each rank has joined, the sum of their numbers has come back to rank 0, and every rank has it by an allreduce.
went_around() {
    [ "$(grep -c "of $1, .* joined by $2 in" "$work/out")" -eq "$1" ] || fail "not all of $1 ranks have joined by $2"
    has "^sum $(($1 * ($1 - 1) / 2))\$"
    for ((rank = 0; rank < $1; rank++)); do has "^rank $rank: allreduce $(($1 * ($1 - 1) / 2))\$"; done
    grep -h 'joined by' "$work/out"
}

case $launcher in
hydra)
    hydra=$(command -v mpiexec.hydra) || skip "no mpiexec.hydra: install mpich"
    for ranks in 1 2 4; do
        runs 0 "$hydra" -n "$ranks" "$ring"
        went_around "$ranks" PMI-1
        has "on 1 host"
    done
    # How long joining takes, by the slower of two ranks, beside what it is made of, in the same turns: the words of PMI-1 with nothing between
    # (the slower of two ranks, too), and a job of one without a launcher, which listens as all do. Other programs may run beside this one.
    for ((n = 0; n < 30; n++)); do
        runs 0 "$hydra" -n 2 "$ring"
        sed -n 's/.*joined by PMI-1 in \(.*\) ms$/\1/p' "$work/out" | sort -n | tail -n 1 >>"$work/times"
        runs 0 "$hydra" -n 2 "$ring" --words-alone
        sed -n 's/.*the words alone took \(.*\) ms$/\1/p' "$work/out" | sort -n | tail -n 1 >>"$work/words"
        runs 0 "$ring" --alone
        sed -n 's/.*joined by .* in \(.*\) ms$/\1/p' "$work/out" >>"$work/alone"
    done
    for one in times words alone; do
        [ "$(wc -l <"$work/$one")" -eq 30 ] || fail "ranks do not say how long it took ($one)"
    done
    for one in times words alone; do
        sort -n "$work/$one" | awk '{ all[NR] = $1 } END { print all[1], all[15] }'
    done | awk '{ best[NR] = $1; median[NR] = $2 }
        END {
            printf "joining over PMI-1, 2 ranks, 30 times: best %.2f ms, median %.2f ms; ", best[1], median[1]
            printf "the words alone %.2f and %.2f, a job of one without a launcher %.2f and %.2f\n", best[2], median[2], best[3], median[3]
            exit !(best[1] <= 3 * (best[2] + best[3]))
        }' || fail "joining takes three times what it is made of, and more"
    # Two hosts in name: what is between them goes over tcp.
    runs 0 "$hydra" -n 4 -hosts a:2,b:2 -launcher fork "$ring"
    went_around 4 PMI-1
    has "4 ranks on 2 hosts"
    # A launcher that speaks version 2 alone, as this one does after a first word of version 2.
    runs 0 "$hydra" -n 3 env SLURM_STEP_ID=0 "$ring"
    went_around 3 PMI-2
    runs some "$hydra" -n 3 "$ring" --limit-ms 1500 --exit-before-joining 1
    # A program between the launcher and the ranks that closes what it does not know.
    runs some "$hydra" -n 2 env PMI_FD=99 "$ring"
    says "PMI_FD is 99, which is no open descriptor"
    # One that never comes: the others do not wait for longer than their limit.
    runs some "$hydra" -n 3 sh -c '[ "$PMI_RANK" = 1 ] && exec sleep 50; exec "$0" --limit-ms 1500 2>>"$SAID"' "$ring"
    says "not all of the 3 ranks have come within the limit.*of those on this host rank 1 was not seen"
    # On another host: one where no rank comes, and one where another one does, in both versions.
    for version in 1 2; do
        slurm=
        [ "$version" = 1 ] || slurm=SLURM_STEP_ID=0
        runs some "$hydra" -n 6 -hosts a:2,b:2,c:2 -launcher fork env $slurm sh -c \
            'case $PMI_RANK in 2 | 3 | 5) exec sleep 12 ;; esac; exec "$0" --limit-ms 6000 2>>"$SAID"' "$ring"
        # The others are ended with the first of them.
        all_here="all that are to be on this host have come; of those on other hosts ranks 2, 3 and 5 have not come"
        one_here="of those on this host rank 5 was not seen; of those on other hosts ranks 2 and 3 have not come"
        says "PMI-$version: not all of the 6 ranks have come within the limit; rank [014] has; \($all_here\|$one_here\)"
    done
    ;;
openmpi)
    mpirun=$(command -v mpirun.openmpi) || skip "no mpirun.openmpi: install openmpi-bin"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    if [ "$pmix" = no-pmix ]; then
        # Never a job of one for each rank.
        runs some "$mpirun" --oversubscribe -n 2 "$ring" --alone
        says "speaks PMIx, and the program does not"
        skip "no libpmix-dev: only that joining without it is refused was tested"
    fi
    for ranks in 1 2 4; do
        runs 0 "$mpirun" --oversubscribe -n "$ranks" "$ring"
        went_around "$ranks" PMIx
    done
    # A server that is not there any more.
    runs some "$mpirun" --oversubscribe -n 2 sh -c 'env $(env | sed -n "s/^\(PMIX_SERVER_URI[^=]*\)=.*/-u \1/p") "$0" --alone' "$ring"
    says "PMIx: the launcher cannot be spoken to"
    runs some "$mpirun" --oversubscribe -n 3 sh -c '[ "$PMIX_RANK" = 1 ] && exec sleep 50; exec "$0" --limit-ms 2500 2>>"$SAID"' "$ring"
    says "within the limit.*rank 1 \(has not come\|was not seen\)"
    # On other hosts, by a stand-in for ssh: one where no rank comes, and one where another one does.
    printf '#!/bin/sh\nwhile case $1 in -*) true ;; *) false ;; esac; do shift; done\nshift\nexec sh -c "$*"\n' >"$work/ssh"
    chmod +x "$work/ssh"
    runs some "$mpirun" --mca plm_rsh_agent "$work/ssh" --host a:2,b:2,c:2 --oversubscribe -n 6 sh -c \
        'case $PMIX_RANK in 2 | 3 | 5) exec sleep 12 ;; esac; exec "$0" --limit-ms 6000 2>>"$SAID"' "$ring"
    says "not all of the 6 ranks have come within the limit; rank [014] has; ranks 2, 3 and 5 have not come"
    ;;
slurm)
    # Installed, or unpacked by tools/test. The names of Debian's files end in -wlm; its links are made by an installation.
    unpacked=$RDMACORO_SOURCE_ROOT/build/unpacked/usr
    PATH=$PATH:/usr/sbin:$unpacked/bin:$unpacked/sbin
    for one in slurmctld slurmd slurmstepd srun sinfo; do
        declare "$one=$(command -v "$one" || command -v "$one-wlm" || true)"
        [ -n "${!one}" ] || skip "no $one: tools/test unpacks it; or install slurmctld, slurmd and slurm-client"
    done
    library=$(find "${srun%/bin/srun}/lib" -name mpi_pmi2.so -printf '%h\n' 2>/dev/null | head -n 1)
    [ -n "$library" ] || fail "no mpi_pmi2.so beside $srun"
    export LD_LIBRARY_PATH=$library:${library%/*}${LD_LIBRARY_PATH+:$LD_LIBRARY_PATH}
    [ "$(id -u)" -eq 0 ] || skip "slurmd has to be started as root"
    name=$(hostname -s)
    mkdir "$work/state" "$work/spool"
    cat >"$work/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$name(127.0.0.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
PluginDir=$library
ReturnToService=2
SlurmctldPort=26817
SlurmdPort=26818
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
NodeName=$name NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$name Default=YES OverSubscribe=FORCE:8 MaxTime=INFINITE State=UP
END
    export SLURM_CONF=$work/slurm.conf
    broken() {
        echo "FAILED: $*: $(tail -n 2 "$work/slurmctld" "$work/slurmd")"
        exit 1
    }
    "$slurmctld" -D >"$work/slurmctld" 2>&1 &
    services+=($!)
    "$slurmd" -D -d "$slurmstepd" -N "$name" >"$work/slurmd" 2>&1 &
    services+=($!)
    for ((n = 0; n < 100; n++)); do
        [ "$("$sinfo" -h -o %t 2>/dev/null)" = idle ] && break
        for one in "${services[@]}"; do
            kill -0 "$one" 2>/dev/null || broken "slurmctld or slurmd does not start here"
        done
        sleep 0.2
    done
    [ "$("$sinfo" -h -o %t 2>/dev/null)" = idle ] || broken "slurmctld and slurmd do not find each other here"
    for ranks in 1 2 4; do
        runs 0 "$srun" --overcommit --mpi=pmi2 -n "$ranks" "$ring"
        went_around "$ranks" PMI-2
        [ "$pmix" = pmix ] || continue
        runs 0 "$srun" --overcommit --mpi=pmix -n "$ranks" "$ring"
        went_around "$ranks" PMIx
    done
    # One that never comes.
    for version in pmi2 $([ "$pmix" != pmix ] || echo pmix); do
        runs some "$srun" --overcommit --mpi=$version -n 3 sh -c \
            '[ "$SLURM_PROCID" = 1 ] && exec sleep 8; exec "$0" --limit-ms 2500 2>>"$SAID"' "$ring"
        says "within the limit.*rank 1 \(has not come\|was not seen\)"
    done
    [ "$pmix" = pmix ] || echo "no libpmix-dev: not tested over PMIx"
    runs some "$srun" --mpi=none -n 2 "$ring" --alone
    says "srun started this process without PMI"
    ;;
*) fail "no such launcher: $launcher" ;;
esac

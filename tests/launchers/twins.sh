#!/usr/bin/env bash
# The same random programs of collectives by the toolkit and by an MPI leave the same results: twins.sh openmpi|mpich PATH_OF_TWINS SOURCE_FOLDER.
# Ends with 77, and says why, where that MPI or its compiler is not installed. TWINS_SEED and TWINS_STEPS: other and longer programs.
set -eu
mpi=${1:?usage: twins.sh MPI PATH_OF_TWINS SOURCE_FOLDER}
twins=$(realpath "${2:?usage: twins.sh MPI PATH_OF_TWINS SOURCE_FOLDER}")
source=$(realpath "${3:?usage: twins.sh MPI PATH_OF_TWINS SOURCE_FOLDER}")
seed=${TWINS_SEED:-1}
steps=${TWINS_STEPS:-150}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export RDMACORO_ADDRESS=127.0.0.1
unset RDMACORO_JOB RDMACORO_RANK RDMACORO_SIZE RDMACORO_HOST PMI_FD PMI_RANK PMI_SIZE

skip() {
    echo "skipped: $*"
    exit 77
}
fail() {
    echo "FAILED: $*"
    exit 1
}
case $mpi in
openmpi)
    compiler=$(command -v mpicxx.openmpi) || skip "no mpicxx.openmpi: install libopenmpi-dev"
    launcher=$(command -v mpirun.openmpi) || skip "no mpirun.openmpi: install openmpi-bin"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    # Its operations with AVX add octets with saturation: 200 + 100 is 255 there.
    start=("$launcher" --oversubscribe --mca btl_vader_single_copy_mechanism none --mca op ^avx)
    ;;
mpich)
    compiler=$(command -v mpicxx.mpich) || skip "no mpicxx.mpich: install libmpich-dev"
    launcher=$(command -v mpiexec.hydra) || skip "no mpiexec.hydra: install mpich"
    start=("$launcher")
    ;;
*) fail "no such MPI: $mpi" ;;
esac
"$compiler" -std=c++20 -O1 -I"$source" "$source/twins_mpi.cpp" -o "$work/twins_mpi" 2>"$work/err" ||
    fail "$compiler: $(cat "$work/err")"

# by_toolkit RANKS FOLDER HOSTS: the ranks meet at an address, on so many hosts in name.
by_toolkit() {
    local ranks=$1 folder=$2 hosts=$3 rank pids=() status=0
    mkdir "$folder"
    for ((rank = 0; rank < ranks; rank++)); do
        RDMACORO_JOB=tcp://127.0.0.1:$port RDMACORO_SIZE=$ranks RDMACORO_RANK=$rank RDMACORO_HOST=h$((rank % hosts)) \
            timeout -k 5 60 "$twins" --seed "$seed" --steps "$steps" --out "$folder" &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do wait "$rank" || status=$?; done
    port=$((port + 1))
    return "$status"
}

port=$((10000 + $$ % 20000))
for ranks in 1 2 3 5; do
    mkdir "$work/mpi$ranks"
    timeout -k 5 90 "${start[@]}" -n "$ranks" "$work/twins_mpi" --seed "$seed" --steps "$steps" --out "$work/mpi$ranks" </dev/null ||
        fail "$mpi with $ranks ranks: status $?"
    for hosts in 1 2; do
        by_toolkit "$ranks" "$work/own$ranks-$hosts" "$hosts" || fail "the toolkit with $ranks ranks on $hosts hosts: status $?"
        "$twins" --compare "$work/own$ranks-$hosts" "$work/mpi$ranks" --ranks "$ranks" --seed "$seed" --steps "$steps" ||
            fail "$ranks ranks on $hosts hosts, seed $seed, $steps steps"
    done
    seed=$((seed + 1))
done
# A difference is found: in the first byte of the last result that has one.
seed=$((seed - 1))
python3 - "$work/own5-1/3" <<'END'
import struct, sys
rows = bytearray(open(sys.argv[1], 'rb').read())
at, last = 0, None
while at < len(rows):
    length, = struct.unpack_from('<Q', rows, at)
    last = at + 8 if length else last
    at += 8 + length
rows[last] ^= 0x80
open(sys.argv[1], 'wb').write(rows)
END
if "$twins" --compare "$work/own5-1" "$work/mpi5" --ranks 5 --seed "$seed" --steps "$steps" >"$work/out"; then fail "a spoilt result passes"; fi
grep -q ' 1 wrong$' "$work/out" || fail "a spoilt result is not the one that differs: $(cat "$work/out")"

# What the scripts that run one program share. Sourced from tests/tools with the program's path: . "$(dirname "$0")/../support/program.sh" "$@"
# Leaves $program, and $work, a folder that goes with the script.
set -eu
program=${1:?usage: $(basename "$0") PATH_OF_PROGRAM}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# needs_two_cpus: else the test is skipped.
needs_two_cpus() {
    if [ "$(nproc)" -lt 2 ]; then
        echo "needs two CPUs"
        exit 77
    fi
}

# succeeds ARGUMENT...: the program ends well within two minutes; it takes seconds, but not under a sanitizer beside other tests.
succeeds() {
    local status=0
    timeout 120 "$program" "$@" >"$work/out" 2>"$work/err" || status=$?
    [ $status -eq 0 ] || {
        echo "FAILED: $(basename "$program") $*: status $status"
        cat "$work/out" "$work/err"
        exit 1
    }
}

# refuses STATUS PATTERN ARGUMENT...: it ends with this status and a message that matches.
refuses() {
    wanted=$1
    pattern=$2
    shift 2
    status=0
    timeout 60 "$program" "$@" >"$work/out" 2>"$work/err" || status=$?
    if [ "$status" -ne "$wanted" ] || ! grep -q -e "$pattern" "$work/err"; then
        echo "FAILED: $(basename "$program") $*: status $status, expected $wanted and \"$pattern\""
        cat "$work/err"
        exit 1
    fi
}

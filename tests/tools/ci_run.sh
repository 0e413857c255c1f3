#!/bin/bash
# .ci/run counts what a fuzz target finds, also where the time ends while later targets run. All that it calls is a stand-in here.
# Usage: ci_run.sh
set -eu
source=${RDMACORO_SOURCE_ROOT:-$(cd "$(dirname "$0")/../.." && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    sed 's/^/  /' "$work/out"
    exit 1
}
# ends STATUS ARGUMENT...: .ci/run does, within a minute
ends() {
    local wanted=$1 got=0
    shift
    PATH=$work/bin:$PATH timeout 60 bash "$work/.ci/run" "$@" >"$work/out" 2>&1 || got=$?
    [ "$got" -eq "$wanted" ] || fail ".ci/run $*: status $got, not $wanted"
}
says() { grep -q -e "$1" "$work/out" || fail "no line like \"$1\""; }
# script PATH: the input becomes one
script() {
    mkdir -p "$(dirname "$work/$1")"
    { echo '#!/bin/bash'; cat; } >"$work/$1"
    chmod +x "$work/$1"
}

# A minute has two seconds here.
mkdir -p "$work/.ci" "$work/tests/fuzz"
sed -e 's/limit=$((60 \* minutes/limit=$((2 * minutes/' -e 's/"$limit" -lt 60/"$limit" -lt 2/' "$source/.ci/run" >"$work/.ci/run"
chmod +x "$work/.ci/run"
script tools/setup <<END
project_root=$work
line_numbers=()
install_missing() { :; }
configure() { :; }
run_tests() { echo '1 passed, 0 failed, 0 skipped'; }
END
for tool in test check-format api-reference check-docs; do script tools/$tool <<<"echo '1 passed, 0 failed'"; done
script bin/meson <<<:
script bin/nproc <<<'echo 1' # so that targets run two at a time
# target NAME: runs the input
target() {
    touch "$work/tests/fuzz/$1.cpp"
    script "build/ci/fuzz/tests/fuzz/fuzz_$1"
}
target a_crashes <<<'echo found on purpose; exit 77'
target b_ends <<<'echo stat::number_of_executed_units: 5'

ends 1 fuzz
says '^failed: fuzz a_crashes'
says '^failed| found on purpose'
says '^fuzz b_ends: stat::number_of_executed_units: 5'
[ "$(tail -n 1 "$work/out")" = '1 passed, 1 failed' ] || fail "the last line does not count"

target c_goes_on <<<'sleep 50'
RDMACORO_CI_MINUTES=4 ends 1
says 'fuzz .* 0 passed .* 1 failed .* cut short'
says '^fuzz: failed: fuzz a_crashes'
says '^fuzz: failed| found on purpose'
[ "$(tail -n 1 "$work/out")" = '4 passed, 1 failed' ] || fail "the last line does not count"

# What has no time to end has not failed.
target a_crashes <<<'echo stat::number_of_executed_units: 5'
RDMACORO_CI_MINUTES=4 ends 0
says 'fuzz .* 0 passed .* 0 failed .* cut short'

# For tests of tools/hardware-check, sourced: runs it, and looks into its report. `limit`: seconds that a run may take.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    for file in out report.md; do [ ! -s "$work/$file" ] || sed "s/^/  $file: /" "$work/$file"; done
    exit 1
}
# ends STATUS ARGUMENT...
ends() {
    local wanted=$1 got=0
    shift
    rm -f "$work/report.md"
    timeout "$limit" "$RDMACORO_SOURCE_ROOT/tools/hardware-check" --report "$work/report.md" "$@" >"$work/out" 2>&1 || got=$?
    [ "$got" -eq "$wanted" ] || fail "hardware-check $*: status $got, not $wanted"
}
reports() { grep -q -e "$1" "$work/report.md" || fail "the report has no line like \"$1\""; }

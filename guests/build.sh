#!/bin/bash
# Builds every guest program, guests/FAMILY/NAME.{c,cc,rs}, into OUTDIR/FAMILY/NAME. Only what is older than its source or a
# header is rebuilt; what has no source any more goes.
# Usage: guests/build.sh OUTDIR
set -euo pipefail
if [ $# -ne 1 ]; then
    echo "usage: $0 OUTDIR" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out"
# Tests that run beside each other build there, too.
exec 9> "$out/.lock"
flock 9
flags=(-O2 -g -pthread -Wall -Wextra -Werror "-I$here")

# Rebuilds binary $2 from source $1 by the remaining words.
build() {
    local source=$1 binary=$2 input
    shift 2
    for input in "$source" "$here"/*.h "$(dirname "$source")"/*.h "$here/build.sh"; do
        if [ "$input" -nt "$binary" ]; then
            mkdir -p "$(dirname "$binary")"
            "$@" -o "$binary.new" "$source"
            mv "$binary.new" "$binary"
            return
        fi
    done
}

shopt -s nullglob
for source in "$here"/*/*.{c,cc,rs}; do
    name=${source#"$here"/}
    binary=$out/${name%.*}
    case $name in
    # The calls that the compiler turns into __poll_chk, __read_chk, __recv_chk, ...
    *_chk.c) build "$source" "$binary" cc -std=gnu11 "${flags[@]}" -D_FORTIFY_SOURCE=2 ;;
    *.c) build "$source" "$binary" cc -std=gnu11 "${flags[@]}" ;;
    *.cc) build "$source" "$binary" c++ -std=gnu++20 "${flags[@]}" ;;
    *.rs) build "$source" "$binary" rustc --edition 2024 -O -D warnings ;;
    esac
done
for binary in "$out"/* "$out"/*/*; do
    sources=("$here/${binary#"$out"/}".{c,cc,rs})
    for source in "${sources[@]}"; do
        [ -e "$source" ] && continue 2
    done
    if [ -f "$binary" ]; then
        rm -- "$binary"
    fi
done

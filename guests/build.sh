#!/bin/bash
# Builds every guest program into OUTDIR: one binary a source file, named like it; servers in OUTDIR/servers, Rust in
# OUTDIR/rust. Only what is older than its source or a header is rebuilt; what has no source any more goes.
# Usage: guests/build.sh OUTDIR
set -euo pipefail
if [ $# -ne 1 ]; then
    echo "usage: $0 OUTDIR" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out/servers" "$out/rust"
flags=(-O2 -g -pthread -Wall -Wextra -Werror "-I$here")

# Rebuilds binary $2 from source $1 by the remaining words.
build() {
    local source=$1 binary=$2 input
    shift 2
    for input in "$source" "$here"/*.h "$here/build.sh"; do
        if [ "$input" -nt "$binary" ]; then
            "$@" -o "$binary.new" "$source"
            mv "$binary.new" "$binary"
            return
        fi
    done
}

for source in "$here"/*.c "$here"/servers/*.c; do
    name=${source#"$here"/}
    name=${name%.c}
    case $name in
    # The calls that the compiler turns into __poll_chk, __read_chk, __recv_chk, ...
    *_chk) build "$source" "$out/$name" cc -std=gnu11 "${flags[@]}" -D_FORTIFY_SOURCE=2 ;;
    *) build "$source" "$out/$name" cc -std=gnu11 "${flags[@]}" ;;
    esac
done
for source in "$here"/*.cc; do
    name=${source#"$here"/}
    build "$source" "$out/${name%.cc}" c++ -std=gnu++20 "${flags[@]}"
done
for source in "$here"/rust/*.rs; do
    name=${source#"$here"/}
    build "$source" "$out/${name%.rs}" rustc --edition 2024 -O -D warnings
done
for binary in "$out"/* "$out"/servers/* "$out"/rust/*; do
    source=$here/${binary#"$out"/}
    if [ -f "$binary" ] && [ ! -e "$source.c" ] && [ ! -e "$source.cc" ] && [ ! -e "$source.rs" ]; then
        rm -- "$binary"
    fi
done

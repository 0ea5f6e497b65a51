#!/bin/sh
# Builds every guest program into OUTDIR: one binary a source file, named like it; servers in OUTDIR/servers, Rust in OUTDIR/rust.
# Only what is older than its source (or guest.h) is rebuilt. Usage: guests/build.sh OUTDIR
set -eu
[ $# -eq 1 ] || { echo "usage: $0 OUTDIR" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out/servers" "$out/rust"
flags="-O2 -g -pthread -Wall -Wextra -Werror -I$here"

# Rebuilds $2 from $1 by the remaining words.
build() {
    source=$1
    binary=$2
    shift 2
    if [ ! -e "$binary" ] || [ "$source" -nt "$binary" ] || [ "$here/guest.h" -nt "$binary" ] || [ "$0" -nt "$binary" ]; then
        "$@" -o "$binary.new" "$source"
        mv "$binary.new" "$binary"
    fi
}

for source in "$here"/*.c "$here"/servers/*.c; do
    name=${source#"$here"/}
    name=${name%.c}
    case $name in
    # The calls that the compiler turns into __poll_chk, __read_chk, __recv_chk, ...
    *_chk) build "$source" "$out/$name" cc -std=gnu11 $flags -D_FORTIFY_SOURCE=2 ;;
    *) build "$source" "$out/$name" cc -std=gnu11 $flags ;;
    esac
done
for source in "$here"/*.cc; do
    name=${source#"$here"/}
    build "$source" "$out/${name%.cc}" c++ -std=gnu++20 $flags
done
for source in "$here"/rust/*.rs; do
    name=${source#"$here"/}
    build "$source" "$out/${name%.rs}" rustc --edition 2024 -O -D warnings
done

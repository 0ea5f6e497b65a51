#!/usr/bin/env bash
# Runs a command so that nothing of it is left when it has ended, however it or this script ended: not one process that it
# started, not one file in its temporary directory.
#
#   scripts/guarded.sh COMMAND [ARGUMENT...]
#
# Whatever the command starts inherits a mark in its environment; a watchman in a session of its own waits until this script is
# gone, ends every process with the mark, and removes the temporary directory that they had. Servers under Skein have no such
# mark, and end with their node.
set -euo pipefail

# Processes with the mark $1.
marked() {
    grep -lzx "SKEIN_GUARD=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
}

# watch PID MARK DIRECTORY: what the watchman does.
watch() {
    local round left pid
    tail --pid="$1" -f /dev/null
    # What is being started while others are ended is found in the next round.
    for round in {1..10}; do
        mapfile -t left < <(marked "$2")
        [ ${#left[@]} -gt 0 ] || break
        kill -KILL "${left[@]}" 2>/dev/null || true
        for pid in "${left[@]}"; do
            timeout "$round" tail --pid="$pid" -f /dev/null || true
        done
    done
    rm -rf "$3"
    # Control groups of tests, named after a process: one that has a process is not removed.
    for left in /sys/fs/cgroup/skein-test-* /sys/fs/cgroup/*/skein-test-*; do
        if [ -d "$left" ] && [ ! -e "/proc/${left##*-}" ]; then
            rmdir "$left" || true
        fi
    done
}

case ${1:-} in
    "")
        echo "usage: scripts/guarded.sh COMMAND [ARGUMENT...]" >&2
        exit 64
        ;;
    --watch)
        shift
        watch "$@"
        exit
        ;;
esac

dir=$(mktemp -d "${TMPDIR:-/tmp}/skein-test.XXXXXX")
# As the usual one: some tests become another user.
chmod 1777 "$dir"
mark=$$-${dir##*.}
# It keeps nobody's pipe open.
setsid --fork "$0" --watch $$ "$mark" "$dir" </dev/null >/dev/null 2>&1
TMPDIR=$dir SKEIN_GUARD=$mark "$@"

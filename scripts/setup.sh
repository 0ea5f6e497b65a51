#!/usr/bin/env bash
# Installs what building, testing or showing Skein needs on Debian 12, and nothing that is there.
#
#   scripts/setup.sh demo      what `make demo` needs
#   scripts/setup.sh test      what `make test` needs
#   scripts/setup.sh bench     what `cargo xtask bench peers` compares with, and what measures it
#
# Packages come without their services being started: a policy-rc.d that forbids it is in place
# only while they are installed, and what was there before is put back. The Rust toolchain is the
# user's own: an old or missing one is named with the way to get it, except that an installed
# rustup is asked for the right one. Prints nothing when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly RUST_MIN=1.95
readonly DENY_VERSION=0.20
readonly POLICY=/usr/sbin/policy-rc.d
readonly POLICY_SAVED=$POLICY.before-skein

common=(build-essential pkg-config redis-server)
tests=(
    redis-tools memcached libmemcached-tools iproute2 util-linux shellcheck strace
    # Servers that are driven as they come, and their usual clients.
    mariadb-server mariadb-client sysbench postgresql clamav-daemon clamdscan lighttpd nginx-light haproxy
    apache2 apache2-utils gerbera wrk curl openssl
    # For servers of this repository.
    libevent-dev
    # File systems with reflinks.
    btrfs-progs xfsprogs
    # For counting instructions.
    valgrind
    # For looking into a replayed server.
    gdb
)
bench=(
    # Beside those for tests: what people use today.
    galera-4 rsync postgresql etcd-server etcd-client
    # An idle JVM.
    openjdk-17-jdk-headless
    # For cargo xtask bench profile.
    linux-perf
)

fail() {
    echo "setup: $*" >&2
    exit 1
}

restore_policy() {
    rm -f "$POLICY"
    if [ -e "$POLICY_SAVED" ]; then mv "$POLICY_SAVED" "$POLICY"; fi
}

install_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' ||
            missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then return; fi
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            fail "missing packages: ${missing[*]}; install them with apt-get as root"
        # The toolchain is the user's: only the packages need root.
        sudo -- scripts/setup.sh packages "${missing[@]}"
        return
    fi
    install_as_root "${missing[@]}"
}

install_as_root() {
    echo "setup: installing $*"
    # A run that was killed left its own policy behind: the saved one is the right one.
    if [ -e "$POLICY" ] && [ ! -e "$POLICY_SAVED" ]; then mv "$POLICY" "$POLICY_SAVED"; fi
    trap restore_policy EXIT
    printf '#!/bin/sh\nexit 101\n' >"$POLICY"
    chmod 755 "$POLICY"
    export DEBIAN_FRONTEND=noninteractive
    local log
    log=$(mktemp)
    if ! { apt-get update -q && apt-get install -q -y --no-install-recommends "$@"; } \
        >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        fail "apt-get could not install $*; its whole output is in $log"
    fi
    rm -f "$log"
    restore_policy
    trap - EXIT
}

# The version of cargo in PATH as 1.95, or nothing.
rust_version() {
    { cargo --version 2>/dev/null || true; } | sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p'
}

check_rust() {
    PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    local found
    found=$(rust_version)
    if [ -n "$found" ] && printf '%s\n' "$RUST_MIN" "$found" | sort -V -C; then return; fi
    if command -v rustup >/dev/null; then
        echo "setup: cargo is ${found:-missing}; asking rustup for $RUST_MIN, for this folder only"
        rustup toolchain install "$RUST_MIN" --profile minimal -c rustfmt -c clippy ||
            fail "rustup has no Rust $RUST_MIN; the lines above say why"
        rustup override set "$RUST_MIN"
        return
    fi
    fail "cargo is ${found:-missing}, Skein needs Rust $RUST_MIN or newer (Debian 12's own is" \
        "too old): install it with rustup, see https://www.rust-lang.org/tools/install"
}

check_rust_tools() {
    cargo fmt --version >/dev/null 2>&1 || fail "no rustfmt: rustup component add rustfmt"
    cargo clippy --version >/dev/null 2>&1 || fail "no clippy: rustup component add clippy"
    if ! cargo deny --version >/dev/null 2>&1; then
        echo "setup: building cargo-deny once (about 3 minutes on 2 cores)"
        # A target directory of its own: the workspace's may be set in the environment.
        local target
        target=$(mktemp -d)
        CARGO_TARGET_DIR=$target cargo install --quiet --locked --version "^$DENY_VERSION" \
            cargo-deny || fail "cargo-deny could not be installed; the lines above say why"
        rm -rf "$target"
    fi
}

case ${1:-} in
    demo)
        install_packages "${common[@]}"
        check_rust
        ;;
    test)
        install_packages "${common[@]}" "${tests[@]}"
        check_rust
        check_rust_tools
        ;;
    bench)
        install_packages "${common[@]}" "${tests[@]}" "${bench[@]}"
        check_rust
        ;;
    packages)
        shift
        install_packages "$@"
        ;;
    *)
        fail "usage: scripts/setup.sh demo|test|bench"
        ;;
esac

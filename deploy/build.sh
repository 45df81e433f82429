#!/usr/bin/env bash
# Builds the agent as a static binary, in the root of the repository: for the image, for releases and in CI.
#
#   deploy/build.sh x86_64|aarch64 DIRECTORY
#
# DIRECTORY gets `pod-index`, which is stripped, and `pod-index.debug`, its debug information. Debuggers and profilers find the
# second file by the build ID, or beside the first. To build for aarch64 on x86-64, Debian's gcc-aarch64-linux-gnu and
# libc6-dev-arm64-cross are needed; for the opposite, gcc-x86-64-linux-gnu and libc6-dev-amd64-cross.
set -euo pipefail
processor=$1 to=$2
case $processor in x86_64 | aarch64) ;; *) echo "no such processor: $processor" >&2; exit 2 ;; esac
target=$processor-unknown-linux-musl
rustup target add "$target"

# ring, the cryptography behind TLS, has parts in C and assembly. Everything else is Rust: no other C library is linked.
export "CC_${processor}_unknown_linux_musl=$processor-linux-gnu-gcc" "AR_${processor}_unknown_linux_musl=$processor-linux-gnu-ar"
# Rust has a linker and the start files of musl for both processors.
linker=CARGO_TARGET_${processor^^}_UNKNOWN_LINUX_MUSL
flags="-Clink-self-contained=yes -Clink-arg=--build-id"
# Relocations in the compact form: 6 KB instead of half a megabyte. musl supports it since 1.2.4.
flags+=" -Clink-arg=--pack-dyn-relocs=relr"
export "${linker}_LINKER=rust-lld" "${linker}_RUSTFLAGS=$flags"
cargo build --locked --profile dist --target "$target" --package pod-index-agent

built=${CARGO_TARGET_DIR:-target}/$target/dist/pod-index
mkdir -p "$to"
objcopy=$processor-linux-gnu-objcopy
"$objcopy" --only-keep-debug --compress-debug-sections "$built" "$to/pod-index.debug"
"$objcopy" --strip-all --add-gnu-debuglink="$to/pod-index.debug" "$built" "$to/pod-index"

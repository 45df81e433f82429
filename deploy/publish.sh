#!/usr/bin/env bash
# Publishes the three packages of a release on a registry, exactly as they are in its files:
#
#   deploy/publish.sh DIRECTORY              packages them again, and compares; uploads nothing
#   deploy/publish.sh DIRECTORY --upload     and then publishes them, in the order of their dependencies
#
# DIRECTORY has the files of a release (deploy/release.sh, or downloaded from the release's page; check their attestations first:
# gh attestation verify FILE --repo OWNER/REPOSITORY). Why not `cargo publish` in a checkout? Its Cargo.toml names no repository, and
# the links of its README.md lead nowhere outside of it. A version that was published cannot be replaced.
#
# Needs the toolchain that made the release (rust:1.95.0 in release.yml) and, to upload, `cargo login`.
set -euo pipefail
directory=$(cd "$1" && pwd)
upload=${2:-}
packages=(pod-index pod-index-kubelet pod-index-agent)
(cd "$directory" && sha256sum --check --quiet --ignore-missing SHA256SUMS)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/source"
tar -xzf "$directory"/*-packages.tar.gz -C "$work/source"
cd "$work/source"
export CARGO_TARGET_DIR=$work/target

selected=()
for package in "${packages[@]}"; do selected+=(-p "$package"); done
cargo package --locked --no-verify "${selected[@]}"
for crate in "$CARGO_TARGET_DIR"/package/*.crate; do
  cmp "$crate" "$directory/$(basename "$crate")" || { echo "$crate is not the package of the release" >&2; exit 1; }
done
echo "the packages are those of the release"

case $upload in
--upload) cargo publish --locked --no-verify "${selected[@]}" ;;
"") ;;
*) echo "no such option: $upload" >&2; exit 2 ;;
esac

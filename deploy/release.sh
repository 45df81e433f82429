#!/usr/bin/env bash
# Makes the files of a release from the commit that is checked out:
#
#   deploy/release.sh https://HOST/OWNER/REPOSITORY DIRECTORY
#
# DIRECTORY gets, for both processors, the binary with the unit (.tar.gz) and its debug information (.debug.tar.gz); the list of
# dependencies (.cdx.json); the build context of the image (docker build -f deploy/Dockerfile - < FILE); the three packages, each built
# from its package (.crate); the sources that the packages were made of (-packages.tar.gz); and SHA256SUMS.
#
# The packages name the repository, and their links lead to it. A checkout has neither, so publish from the sources in
# -packages.tar.gz: deploy/publish.sh does so.
#
# Once the image is pushed, deploy/release-kubernetes.sh adds what names it by its digest.
#
# Needs what deploy/build.sh needs.
set -euo pipefail
repository=$1
mkdir -p "$2"
to=$(cd "$2" && pwd)
[ -z "$(git status --porcelain)" ] || { echo "there are changes that are not committed" >&2; exit 2; }
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
name=pod-index-v$version
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# The same commit gives the same files.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export CARGO_TARGET_DIR SOURCE_DATE_EPOCH
pack() { tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -czf "$@"; }

# Only what is committed.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/source"
git archive HEAD | tar -x -C "$work/source"
cd "$work/source"
deploy/release-sources.sh "$repository" .

# Before the builds write into it.
pack "$to/$name-packages.tar.gz" -C "$work/source" .

sed -n 's/^!//p' deploy/Dockerfile.dockerignore | xargs tar -cf "$work/context.tar" deploy/Dockerfile deploy/Dockerfile.dockerignore
mkdir "$work/context"
tar -xf "$work/context.tar" -C "$work/context"
pack "$to/$name-context.tar.gz" -C "$work/context" .

for processor in x86_64 aarch64; do
  deploy/build.sh "$processor" "$work/$processor"
  mkdir "$work/$name-linux-$processor"
  cp "$work/$processor/pod-index" deploy/systemd/* LICENSE-* "$work/$name-linux-$processor"
  pack "$to/$name-linux-$processor.tar.gz" -C "$work" "$name-linux-$processor"
  pack "$to/$name-linux-$processor.debug.tar.gz" -C "$work/$processor" pod-index.debug
done

# Builds each package from its package and those before it, as a registry would deliver them.
cargo package --locked -p pod-index -p pod-index-kubelet -p pod-index-agent
for package in pod-index pod-index-kubelet pod-index-agent; do
  cp "$CARGO_TARGET_DIR/package/$package-$version.crate" "$to"
done

# After the packages, which would contain the lists that it writes beside each Cargo.toml. The lists name this directory.
cargo cyclonedx --version 2>/dev/null | grep -qwF 0.5.9 || cargo install --locked cargo-cyclonedx@0.5.9
cargo cyclonedx --manifest-path agent/Cargo.toml --target x86_64-unknown-linux-musl --format json --spec-version 1.5 --no-build-deps
sed "s|$work||g" agent/pod-index-agent.cdx.json >"$to/$name.cdx.json"

cd "$to"
rm -f SHA256SUMS
sha256sum -- * >"$work/sums"
mv "$work/sums" SHA256SUMS

#!/usr/bin/env bash
# Makes the files of a release that name images:
#
#   deploy/release-kubernetes.sh REGISTRY/pod-index@sha256:… busybox@sha256:… DIRECTORY
#
# DIRECTORY gets the Helm chart (.tgz), the Kustomization with its components (-kubernetes.tar.gz), install.yaml, which is its base
# for `kubectl apply -f`, and a new SHA256SUMS. In the repository, images have tags. A tag can be moved to another image, so in a
# release every image has its digest, which is known only after the image was pushed; also that of the init container of the component
# socket. This program fails if an image of any component has none.
#
# Needs kubectl and helm.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
image=$1
socket_image=$2
mkdir -p "$3"
to=$(cd "$3" && pwd)
for given in "$image" "$socket_image"; do
  [[ $given =~ ^[^@[:space:]]+@sha256:[0-9a-f]{64}$ ]] || { echo "$given: not an image by its digest, NAME@sha256:…" >&2; exit 2; }
done
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
pack() { tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -czf "$@"; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Only what is tracked.
git ls-files -z deploy/kubernetes | tar --null -T - -c | tar -x -C "$work"
kubernetes=$work/deploy/kubernetes

# set_value FILE FROM TO: replaces a line, which must be there once.
set_value() {
  [ "$(grep -cxF "$2" "$1")" = 1 ] || { echo "$1 does not have the line: $2" >&2; exit 2; }
  sed -i "s|^$2\$|$3|" "$1"
}
set_value "$kubernetes/values.yaml" '  repository: pod-index' "  repository: ${image%@*}"
set_value "$kubernetes/values.yaml" '  tag: ""' "  tag: $version@${image#*@}"
init_image=$(sed -n 's/^\([a-z]*Image\): ""$/\1/p' "$kubernetes/values.yaml") # the value for the image of init containers
set_value "$kubernetes/values.yaml" "$init_image: \"\"" "$init_image: $socket_image"
patches=$(sed -n '/^images:$/,$p' "$kubernetes/kustomization.yaml" | sed -n '/^#/,$p') # what follows the images: an empty list to append to
[[ $patches == *$'\npatches:' ]] || { echo "kustomization.yaml does not end in the line patches:" >&2; exit 2; }
sed -i '/^images:$/,$d' "$kubernetes/kustomization.yaml"
cat >>"$kubernetes/kustomization.yaml" <<END
images:
  - {name: pod-index, newName: "${image%@*}", digest: "${image#*@}"}
  - {name: busybox, newName: "${socket_image%@*}", digest: "${socket_image#*@}"}
$patches
END

# With all components that go together, no image lacks a digest. As helm and kubectl render them, which is what a cluster gets. The one
# that is left out, kubelet-socket, has no image.
chosen=()
while read -r component; do
  chosen+=(--set "components.$component=true")
done < <(sed -n 's|^  # - components/||p' "$kubernetes/kustomization.yaml" | grep -vx kubelet-socket)
helm template pod-index "$kubernetes" "${chosen[@]}" >"$work/helm.yaml"
cp -r "$kubernetes" "$work/all"
sed -i '/kubelet-socket$/!s|^  # - components/|  - components/|' "$work/all/kustomization.yaml"
kubectl kustomize "$work/all" >"$work/kustomize.yaml"
for rendered in "$work/helm.yaml" "$work/kustomize.yaml"; do
  images=$(sed -n 's/^[- ]*image: *//p' "$rendered")
  [ "$(wc -l <<<"$images")" -ge 2 ] || { echo "only these images in ${rendered##*/}: $images" >&2; exit 1; }
  if grep -vE '@sha256:[0-9a-f]{64}"?$' <<<"$images"; then
    echo "these images have no digest in what ${rendered##*/} renders" >&2
    exit 1
  fi
done

# As `helm package` does, except for the times. The name is the one that Helm expects.
pack "$to/pod-index-$version.tgz" -C "$work/deploy" --transform 's|^kubernetes|pod-index|' kubernetes
pack "$to/pod-index-v$version-kubernetes.tar.gz" -C "$work/deploy" kubernetes
kubectl kustomize "$kubernetes" >"$to/install.yaml"

cd "$to"
rm -f SHA256SUMS
sha256sum -- * >"$work/sums"
mv "$work/sums" SHA256SUMS

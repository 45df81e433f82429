#!/usr/bin/env bash
# Makes a copy of the sources lead to their repository, as those of a release must:
#
#   deploy/release-sources.sh https://HOST/OWNER/REPOSITORY DIRECTORY
#
# DIRECTORY has the copy, and is changed: each package names the repository, and the links of the pages in the packages lead to it. Why?
# A registry or rustdoc shows these pages where nothing is beside them, so a relative link leads nowhere.
set -euo pipefail
repository=$1
cd "$2"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
sed -i "s|^license.workspace = true$|&\nrepository = \"$repository\"|" Cargo.toml kubelet/Cargo.toml agent/Cargo.toml

# With -z, sed reads a page at once, because the text of a link may break over two lines. Browsers take `..` out of an address.
for page in README.md CHANGELOG.md kubelet/README.md agent/README.md docs/embedders.md docs/lookups.md docs/writing.md src/docs/*.md; do
  at=$repository/blob/v$version/$(dirname "$page")
  sed -z -i -E "s#(!\[[^]]*\]\()([^):\#]+)\)#\1$at/\2?raw=true)#g; s#\]\(([^):\#]+(\#[^)]*)?\))#]($at/\1#g" "$page"
done

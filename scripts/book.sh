#!/usr/bin/env bash
# Builds the book in docs/ into target/book. mdBook is installed once, below target/tools, by cargo.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.5.4
tools=$PWD/target/tools/mdbook-$version
if [ ! -x "$tools/bin/mdbook" ]; then
    echo "book: installing mdBook $version into ${tools#"$PWD"/}" >&2
    # Without its web server and file watcher, which make up half of it.
    CARGO_TARGET_DIR=$tools/build cargo install mdbook --version "=$version" --locked --quiet \
        --no-default-features --features search --root "$tools"
    rm -rf "$tools/build"
fi
"$tools/bin/mdbook" build docs
echo "book: target/book/index.html" >&2

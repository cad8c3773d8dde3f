#!/bin/sh
# Installs the build tree $1 (of the project that holds this file) into a fresh prefix, builds the consumer against it, and runs it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$1" --prefix "$scratch/prefix" >/dev/null
cmake -S "$here" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_CXX_COMPILER="$2" -DCMAKE_CXX_FLAGS="$3" >/dev/null
cmake --build "$scratch/build"
"$scratch/build/consumer"

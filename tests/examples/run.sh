#!/bin/sh
# Builds the example project $2 of apps/examples against the frit that is installed in the prefix $1, with the compiler $3, and runs it in
# short: with $4 steps or epochs, on the data in folder $5, which the Debian package $6 brings. The figure that it prints first must be above
# $7. Exits with 77 where the data are not there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -d "$5" ]; then
  echo "$5 is missing: Debian's package $6 is not installed"
  exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake -S "$here/../../apps/examples/$2" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$1" -DCMAKE_CXX_COMPILER="$3" >/dev/null
cmake --build "$scratch/build"
program="$scratch/build/$(echo "$2" | tr - _)"
"$program" "$4" "$scratch/picture.png" "$5" | tee "$scratch/output"
sed -n '1s/^[^:]*: \([0-9.]*\).*/\1/p' "$scratch/output" | awk -v least="$7" '{ good = $1 > least } END { exit !good }'
[ "$(head -c 8 "$scratch/picture.png" | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ]

# What is not there is said in one line.
if "$program" 1 "$scratch/picture.png" "$scratch/nowhere" >/dev/null 2>"$scratch/error"; then exit 1; fi
grep -q "no such file" "$scratch/error"
[ "$(wc -l <"$scratch/error")" -eq 1 ]

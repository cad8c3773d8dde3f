#!/bin/sh
# Builds projects of somebody else's against the frit that is installed in the prefix $1, and runs them: through find_package and, where it is
# there, pkg-config. $2 is the compiler and $3 its flags, none by default.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=$1
compiler=${2:-c++}
flags=${3:-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
libraries=$(dirname "$(find "$prefix" -name 'libfrit-runtime.*' | head -n 1)")
# What was packed for /usr does not say where it lies here.
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

cmake -S "$here" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="$flags" >/dev/null
cmake --build "$scratch/build"
"$scratch/build/train"
"$scratch/build/forward"

# The library that runs models forward has no part of training.
if { nm -C "$libraries"/libfrit-runtime.*; nm -DC "$libraries"/libfrit-runtime.*; } 2>/dev/null | grep -E 'frit::(TrainStep|gradient\(|check_gradients|Adam|Sgd)'; then
  echo "libfrit-runtime holds autograd" >&2
  exit 1
fi

if ! command -v pkg-config >/dev/null; then
  echo "pkg-config is not there: not tried"
  exit 0
fi
export PKG_CONFIG_PATH="$libraries/pkgconfig"
for program in train:frit forward:frit-runtime; do
  # shellcheck disable=SC2046,SC2086  # lists of flags
  "$compiler" -std=c++20 $flags "$here/${program%:*}.cpp" -o "$scratch/${program%:*}" $(pkg-config --cflags --libs "${program#*:}")
  "$scratch/${program%:*}"
done

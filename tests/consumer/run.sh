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
libraries=$(dirname "$(find "$prefix"/lib* -name 'libfrit-training.*' | head -n 1)")
# What was packed for /usr does not say where it lies here.
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# build PROJECT NAME
build() {
  cmake -S "$1" -B "$scratch/$2" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="$flags" >/dev/null
  cmake --build "$scratch/$2"
}
build "$here" consumer
cd "$scratch"
consumer/train
consumer/forward
consumer/matrices
consumer/infer model.safetensors input.bin output.bin
if command -v python3 >/dev/null && [ -e "$libraries/libfrit-runtime.so" ]; then
  # By its name, as the programs load it: the loader may take that from glibc-hwcaps.
  python3 "$here/infer.py" "$(basename "$libraries"/libfrit-runtime.so.?.?)" model.safetensors input.bin output.bin
else
  echo "not tried from Python, which needs a shared library"
fi

# PyTorch's name for the learning rate is answered by frit's.
echo '#include <frit/frit.h>
frit::Optimizer optimizer = frit::Adam{.lr = 1e-3};' >lr.cpp
if "$compiler" -std=c++20 -I"$prefix/include" -fsyntax-only lr.cpp 2>lr.txt; then exit 1; fi
grep "PyTorch's lr is called learning_rate" lr.txt

# An operator from outside the tree is checked and timed by its own program's command line.
build "$here/../../apps/examples/operator" operator
operator/swish gradcheck swish | grep "1 of 1 gradients equal the central differences"
operator/swish bench swish --input-shape 64,64 --device cpu --warmup 1 --repeats 1 --per-operator | grep "f32 64x64 -> f32 64x64"

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
# shellcheck disable=SC2046,SC2086  # lists of flags
for program in train:frit forward:frit-runtime; do
  "$compiler" -std=c++20 $flags "$here/${program%:*}.cpp" -o "${program%:*}" $(pkg-config --cflags --libs "${program#*:}")
  "./${program%:*}"
done
# shellcheck disable=SC2046,SC2086
"$compiler" $flags -x c -std=c99 "$here/infer.c" -x none -o infer $(pkg-config --cflags --libs frit-runtime)
./infer model.safetensors input.bin output.bin

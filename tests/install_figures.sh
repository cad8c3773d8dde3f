#!/bin/sh
# Prints how large the frit that is installed in the prefix $1 is, stripped, and how long its program takes from its start to the first result
# on the CPU; fails above $2 MB without a shared library for ONNX, above 2 MB for that, or above 50 ms. Of the libraries for several levels of
# processors the largest counts: a machine loads one.
set -eu
prefix=$1
most_bytes=$(($2 * 1000000))
most_ms=50
# In memory where that can be: what a disk takes to make a result safe is not the program's time.
scratch=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/stripped"

# The component for ONNX may take 2 MB of its own.
total=0
runtime=0
onnx=0
for file in "$prefix"/bin/frit $(find "$prefix"/lib* -type f -name 'libfrit-*.so.*'); do
  strip -o "$scratch/stripped/file" "$file"
  bytes=$(wc -c <"$scratch/stripped/file")
  printf '%10d bytes  %s\n' "$bytes" "${file#"$prefix"/}"
  case "$file" in
    *libfrit-runtime*) [ "$bytes" -le "$runtime" ] || runtime=$bytes ;;
    *libfrit-onnx*) onnx=$bytes ;;
    *) total=$((total + bytes)) ;;
  esac
done
total=$((total + runtime))
printf '%10d bytes in all, at most %d\n' "$total" "$most_bytes"
[ "$total" -le "$most_bytes" ]
[ "$onnx" -le 2000000 ]

libraries=$(dirname "$(find "$prefix"/lib* -name 'libfrit-training.*' | head -n 1)")
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# zeros FILE N,C,... ELEMENTS: an array of NumPy's
zeros() {
  printf '\223NUMPY\001\000\166\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($2), }" >"$1"
  head -c $((4 * $3)) /dev/zero >>"$1"
}
# first_result MODEL SHAPE: the best of ten runs, and of more while it takes half of what it may: the machine may be busy.
first_result() {
  best=1000000
  runs=0
  while [ $runs -lt 10 ] || { [ "$best" -gt $((most_ms / 2)) ] && [ $runs -lt 50 ]; }; do
    runs=$((runs + 1))
    start=$(date +%s%N)
    "$prefix/bin/frit" infer "$1" --input "$scratch/input.npy" --output "$scratch/output.npy" --device cpu --quiet 2>/dev/null
    ms=$((($(date +%s%N) - start) / 1000000))
    [ "$ms" -ge "$best" ] || best=$ms
  done
  printf '%10d ms  to the first result of %s on %s\n' "$best" "$1" "$2"
  [ "$best" -le "$most_ms" ]
}
zeros "$scratch/input.npy" 1,1,28,28 784
first_result classifier 1x1x28x28
zeros "$scratch/input.npy" 1,8,128,128 131072
first_result conv2d-groupnorm-pool 1x8x128x128
zeros "$scratch/input.npy" 1,3,16,32,32 49152
first_result conv3d-instnorm-max 1x3x16x32x32
first_result convt3d-logsumexp 1x3x16x32x32

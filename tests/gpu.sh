#!/bin/sh
# On a machine with a GPU: builds frit with CUDA, passes the tests that need one, again with red zones around all memory, 2,000 random graphs,
# and again under compute-sanitizer's four tools. Arguments go to CMake (for instance -DFRIT_CUDNN_ROOT=DIR). Installs nothing.
set -eu
cd "$(dirname "$0")/.."
export FRIT_PLAN_CACHE=off FRIT_SEARCH=exhaustive  # what is tested is the search
cmake --preset release -DFRIT_CUDA=ON -DFRIT_BUILD_TESTS=ON "$@"
cmake --build --preset release
ctest --preset release -L gpu -j 4
FRIT_GUARD_MEMORY=1 ctest --preset release -L gpu -j 4
FRIT_RANDOM_GRAPHS=0..1999 build/release/tests/graph_test --gtest_brief=1 --gtest_filter='CudaRandomGraphs*'

# Each tool must find the fault that is there for it, or its silence below means nothing.
for tool in memcheck racecheck initcheck synccheck; do
  code=0
  compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 1 build/release/tests/cuda_faults "$tool" || code=$?
  if [ "$code" -ne 9 ]; then
    echo "gpu.sh: $tool did not find the fault that it must find (exit code $code)" >&2
    exit 1
  fi
done

# The generic suite and the device's own tests: every kernel at small shapes, in parts, a process for each core at a time, with one thread.
# memcheck takes the refusal that one test asks for as an error; one operator's layouts and one sample are too large for the slower tools;
# clusters have more barriers than synccheck follows by itself, and to follow more is slow. Nobody looks for races in all of cuDNN's plans.
unset FRIT_SEARCH
export FRIT_THREADS=1
each_part() {
  parts=$1 part=0
  shift
  while [ "$part" -lt "$parts" ]; do
    echo "$part $parts $*"
    part=$((part + 1))
  done
}
own='*CudaTap*:*CudaSwept*:*CudaWindow*:*CudaNarrow*:*CudaMirrored*.GivesTheSame'
own="$own:*CudaRearrangements*:*CudaSubpixel*:*CudaPacked*:*CudaNvrtc*"
instances='*CudaConvolutionInstance*'
device='*CudaDevice.*:*CudaDataLoader.*:-*EndsTheProcess*'
{
  for tool in racecheck memcheck initcheck; do
    each_part 8 "$tool" ops "*CudaOperator.A*:$own:$instances:*CudaOperator.Takes*:-*Takes*/elementwise:*NoClusterHolds*"
    each_part 1 "$tool" graph '*CudaChains*'
    each_part 2 "$tool" core "$device:*OutOfMemory*"
  done
  each_part 8 memcheck ops '*CudaOperator.Reads*'
  each_part 8 synccheck ops "*CudaOperator.A*:$own:-*scale_max*"
  each_part 8 synccheck ops "*CudaOperator.A*scale_max*:$instances:-*NoClusterHolds*" --num-cuda-barriers 65536
  each_part 2 synccheck core "$device"
} | xargs -P "$(nproc)" -L 1 sh -c '
  part=$1 parts=$2 tool=$3 suite=$4 filter=$5
  shift 5
  log=$(mktemp)
  GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$part compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 "$@" \
    "build/release/tests/${suite}_test" --gtest_brief=1 --gtest_filter="$filter" > "$log" 2>&1
  code=$?
  if [ "$code" -eq 0 ]; then
    echo "$tool: part $part of $parts of ${suite}_test is clean"
  else
    cat "$log"
    echo "gpu.sh: $tool found something in part $part of ${suite}_test, or a test failed (exit code $code)" >&2
  fi
  rm "$log"
  [ "$code" -eq 0 ]' check

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

# The generic suite and the device's own tests: every kernel at small shapes, in several processes at a time, since a tool waits more than it
# works; each has cores of its own, and so no more threads than these. memcheck takes the refusal that one test asks for as an error; one operator's layouts and one sample are too large for the slower
# tools; clusters have more barriers than synccheck follows by itself, and to follow more is slow.
shards=8 cores=$(nproc)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
check() {
  tool=$1 suite=$2 filter=$3
  shift 3
  processes="" failed=0 shard=0
  while [ "$shard" -lt "$shards" ]; do
    first=$((shard * cores / shards)) last=$(((shard + 1) * cores / shards - 1))
    [ "$last" -ge "$first" ] || last=$first
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard taskset -c "$first-$last" \
      compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 "$@" \
      "build/release/tests/${suite}_test" --gtest_brief=1 --gtest_filter="$filter" > "$logs/$shard" 2>&1 &
    processes="$processes $!" shard=$((shard + 1))
  done
  for process in $processes; do wait "$process" || failed=$?; done
  if [ "$failed" -ne 0 ]; then
    cat "$logs"/*
    echo "gpu.sh: $tool found something in ${suite}_test, or a test failed (exit code $failed)" >&2
    exit 1
  fi
  echo "$tool: ${suite}_test is clean"
}
kernels='*CudaOperator.A*:*CudaTap*:*CudaSubpixel*:*CudaPacked*:*CudaConvolutionInstance*:*CudaNvrtc*' layouts='*CudaOperator.Takes*:-*Takes*/elementwise:*NoClusterHolds*'
for tool in memcheck racecheck initcheck; do
  check "$tool" core '*CudaDevice.*:*CudaDataLoader.*:-*OutOfMemory*:*EndsTheProcess*'
  check "$tool" ops "$kernels:$layouts"
done
check memcheck ops '*CudaOperator.Reads*'
check synccheck core '*CudaDevice.*:-*EndsTheProcess*'
check synccheck ops "$kernels:-*scale_max*:*CudaConvolutionInstance*"
check synccheck ops '*CudaOperator.A*scale_max*:*CudaConvolutionInstance*:-*NoClusterHolds*' --num-cuda-barriers 65536

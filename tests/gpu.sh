#!/bin/sh
# On a machine with a GPU: builds frit with CUDA, passes the tests that need one, and again under compute-sanitizer's four tools. Arguments go to
# CMake (for instance -DFRIT_CUDNN_ROOT=DIR). Installs nothing.
set -eu
cd "$(dirname "$0")/.."
export FRIT_PLAN_CACHE=off  # what is tested is the search
cmake --preset release -DFRIT_CUDA=ON -DFRIT_BUILD_TESTS=ON "$@"
cmake --build --preset release
ctest --preset release -L gpu -j 4

# The generic suite and the device's own tests: every kernel at small shapes. memcheck takes the refusal that one test asks for as an error, and
# clusters have more barriers than synccheck follows by itself.
check() {
  tool=$1 suite=$2 filter=$3
  shift 3
  compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 "$@" "build/release/tests/${suite}_test" --gtest_brief=1 \
    --gtest_filter="$filter"
}
for tool in memcheck racecheck initcheck; do
  check "$tool" core '*CudaDevice.*:-*OutOfMemory*'
  check "$tool" ops '*CudaOperator.A*:*CudaOperator.Takes*'
done
check synccheck core '*CudaDevice.*'
check synccheck ops '*CudaOperator.A*:-*scale_max*'
check synccheck ops '*CudaOperator.A*scale_max*' --num-cuda-barriers 65536

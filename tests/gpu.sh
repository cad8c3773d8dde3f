#!/bin/sh
# On a machine with a GPU: builds frit with CUDA, passes the tests that need one, and again under compute-sanitizer's four tools. Arguments go to
# CMake (for instance -DFRIT_CUDNN_ROOT=DIR). Installs nothing.
set -eu
cd "$(dirname "$0")/.."
cmake --preset release -DFRIT_CUDA=ON -DFRIT_BUILD_TESTS=ON "$@"
cmake --build --preset release
ctest --preset release -L gpu -j 4

# The generic suite and the device's own tests: every kernel at small shapes. memcheck takes the refusal that one test asks for as an error.
for tool in memcheck racecheck initcheck synccheck; do
  # Clusters have more barriers than synccheck follows by itself.
  options=""
  [ "$tool" = synccheck ] && options="--num-cuda-barriers 65536"
  for suite in core ops; do
    # shellcheck disable=SC2086  # a list of options
    compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 $options "build/release/tests/${suite}_test" --gtest_brief=1 \
      --gtest_filter='*CudaDevice.*:*CudaOperator.A*:*CudaOperator.Takes*:-*OutOfMemory*'
  done
done

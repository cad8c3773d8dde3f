#!/bin/sh
# On a machine with a GPU: builds frit with CUDA, passes the tests that need one, and again under compute-sanitizer's four tools. Arguments go to
# CMake (for instance -DFRIT_CUDNN_ROOT=DIR). Installs nothing.
set -eu
cd "$(dirname "$0")/.."
cmake --preset release -DFRIT_CUDA=ON -DFRIT_BUILD_TESTS=ON "$@"
cmake --build --preset release
ctest --preset release -L gpu -j 4

# The generic suite and the device's own tests: every kernel at small shapes.
for tool in memcheck racecheck initcheck synccheck; do
  for suite in core ops; do
    compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 "build/release/tests/${suite}_test" --gtest_brief=1 \
      --gtest_filter='*CudaDevice.*:*CudaOperator.A*:*CudaOperator.Takes*'
  done
done

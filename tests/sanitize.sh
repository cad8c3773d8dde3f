#!/bin/sh
# Builds frit with clang++, warnings as errors, and runs the suite under AddressSanitizer and UndefinedBehaviorSanitizer (asan), and what
# starts threads (pool, allocator, loader, programs side by side) under ThreadSanitizer (tsan). Arguments choose one of them. Installs what
# it needs.
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2046
.ci/packages.sh $(cat .ci/build-packages) libgtest-dev clang libclang-rt-dev

for sanitizer in ${*:-asan tsan}; do
  cmake --preset "$sanitizer"
  if [ "$sanitizer" = tsan ]; then
    cmake --build --preset tsan --target core_test graph_test
    ctest --preset tsan -j "$(nproc)" -L nodevice
  else
    cmake --build --preset "$sanitizer"
    ctest --preset "$sanitizer" -j "$(($(nproc) + 1))"  # some tests wait for what does not come
  fi
done

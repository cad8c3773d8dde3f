#!/bin/sh
# Builds frit with clang++, warnings as errors, and runs the suite under AddressSanitizer and UndefinedBehaviorSanitizer, and
# what starts threads (pool, allocator, loader, programs side by side) under ThreadSanitizer. Installs what it needs.
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2046
.ci/packages.sh $(cat .ci/build-packages) libgtest-dev clang libclang-rt-dev

cmake --preset asan
cmake --build --preset asan
ctest --preset asan -j "$(nproc)"

cmake --preset tsan
cmake --build --preset tsan --target core_test graph_test
ctest --preset tsan -j "$(nproc)" -L nodevice

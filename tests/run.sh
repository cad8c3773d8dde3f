#!/bin/sh
# Builds frit with g++ and runs every test. Installs what it needs. Arguments go to CMake.
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2046
.ci/packages.sh $(cat .ci/build-packages) libgtest-dev libopenmpi-dev openmpi-bin doxygen graphviz pkg-config dataset-fashion-mnist mricron-data libonnx-testdata
cmake --preset release -DFRIT_BUILD_TESTS=ON -DFRIT_CUDA=AUTO "$@"
cmake --build --preset release
# One more than there are cores: some tests wait for what does not come.
ctest --preset release -j "$(($(nproc) + 1))"

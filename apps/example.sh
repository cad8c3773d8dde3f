#!/bin/sh
# Runs an example project, $1 of apps/examples, as a user's own: installs what it needs and frit itself below build/, builds the project
# against that, and runs it. Further arguments go to the program.
set -eu
cd "$(dirname "$0")/.."
name=${1:-}
case "$name" in
  fashion-mnist | diffusion) data=dataset-fashion-mnist ;;
  brain-mask | super-resolution) data=mricron-data ;;
  *)
    echo "usage: apps/example.sh fashion-mnist|brain-mask|super-resolution|diffusion [ARGUMENTS]" >&2
    exit 2
    ;;
esac
shift
# shellcheck disable=SC2046
.ci/packages.sh $(cat .ci/build-packages) "$data"
cuda=OFF
nvidia-smi -L >/dev/null 2>&1 && cuda=AUTO
cmake -S . -B build/installed -G Ninja -DFRIT_BUILD_TESTS=OFF -DFRIT_CUDA=$cuda
cmake --build build/installed
cmake --install build/installed --prefix build/installed/prefix >/dev/null
cmake -S "apps/examples/$name" -B "build/$name" -G Ninja -DCMAKE_PREFIX_PATH="$PWD/build/installed/prefix"
cmake --build "build/$name"
exec "build/$name/$(echo "$name" | tr - _)" "$@"

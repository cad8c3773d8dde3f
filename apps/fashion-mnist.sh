#!/bin/sh
# Builds frit and trains the classifier on Fashion-MNIST. Installs what it needs. Arguments go to `frit train` (for instance --epochs 3).
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2046
.ci/packages.sh $(cat .ci/build-packages) dataset-fashion-mnist
cuda=OFF
nvidia-smi -L >/dev/null 2>&1 && cuda=AUTO
# A build that is there keeps its tests.
[ -f build/release/build.ninja ] || cmake --preset release -DFRIT_BUILD_TESTS=OFF -DFRIT_CUDA=$cuda
cmake --build --preset release --target frit_program
case " $*" in *" --epochs"*) ;; *) set -- --epochs 5 "$@" ;; esac
exec build/release/frit train classifier --data /usr/share/datasets/fashion-mnist --batch-size 128 --optimizer adam --lr 2e-3 "$@"

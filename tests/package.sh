#!/bin/sh
# Builds the Debian packages in build/package, and tries what they hold: what goes with the program, programs of others built with it, its
# libraries for several levels of processors, its size, its start. With --install as the first argument the packages are installed on this
# machine, tried and removed again; without, they are unpacked into a folder. Other arguments go to CMake.
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2046
.ci/packages.sh $(cat .ci/build-packages) libopenmpi-dev openmpi-bin dpkg-dev pkg-config python3
install=""
if [ "${1:-}" = --install ]; then
  install=yes
  shift
fi
cmake --preset package "$@"
cmake --build --preset package
rm -f build/package/*.deb
(cd build/package && cpack -G DEB)
for package in build/package/*.deb; do dpkg-deb --field "$package" Package Version Depends; done
dpkg-deb --field build/package/libfrit0*.deb Depends | grep -q 'libstdc++6.*zlib1g'
dpkg-deb --field build/package/frit_*.deb Depends | grep -q 'libfrit0.* (= '
dpkg-deb --field build/package/libfrit-mpi_*.deb Depends | grep -q libopenmpi

# What goes with the program, read from its package: an installation may leave documentation out.
mkdir -p build/package/program
dpkg-deb --extract build/package/frit_*.deb build/package/program
share=build/package/program/usr/share
cmp LICENSE $share/doc/frit/copyright
for page in README.md SECURITY.md */README.md apps/report/example.svg graph/fusion.svg; do cmp "$page" "$share/doc/frit/$page"; done
cmp apps/frit_pytorch.py $share/frit/frit_pytorch.py
[ -x $share/frit/frit_pytorch.py ]
for file in bash-completion/completions/frit zsh/vendor-completions/_frit fish/vendor_completions.d/frit.fish; do
  grep -q __complete $share/$file
done
rm -r build/package/program

root=build/package/unpacked
rm -rf $root
if [ -n "$install" ]; then
  sudo=""
  [ "$(id -u)" -eq 0 ] || sudo=sudo
  trap '$sudo dpkg --purge frit libfrit-dev libfrit-mpi libfrit0.1' EXIT
  $sudo apt-get install -y -qq --no-install-recommends ./build/package/*.deb
  prefix=/usr
else
  for package in build/package/*.deb; do dpkg-deb --extract "$package" $root; done
  prefix=$PWD/$root/usr
fi
libraries=$(dirname "$(find "$prefix"/lib* -name 'libfrit-training.*' | head -n 1)")
# shellcheck disable=SC2016  # for bash to expand
LD_LIBRARY_PATH=$libraries bash -c '
  . "$1/share/bash-completion/completions/frit"
  COMP_WORDS=("$1/bin/frit" ver) COMP_CWORD=1
  _frit
  [ "${COMPREPLY[*]}" = verify ]' bash "$prefix"
tests/consumer/run.sh "$prefix"
# Several processes find the module of MPI that was installed.
LD_LIBRARY_PATH=$libraries OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -n 2 "$prefix/bin/frit" bench classifier --device cpu --threads 1 --batch-size 2 \
  --mode train --repeats 1 --warmup 1 | grep '2 processes'
levels=$(sed -n 's/^FRIT_CPU_LEVELS:[^=]*=//p' build/package/CMakeCache.txt | tr ';' ' ')
# shellcheck disable=SC2086  # a list
[ "$(uname -m)" != x86_64 ] || tests/cpu_levels.sh "$prefix" $levels
tests/install_figures.sh "$prefix" 8

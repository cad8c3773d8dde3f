#!/bin/sh
# Builds the Debian packages in build/package, and tries what they hold: programs of others built with it, its size, its start. With
# --install as the first argument the packages are installed on this machine, tried and removed again; without, they are unpacked into a
# folder. Other arguments go to CMake.
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2046
.ci/packages.sh $(cat .ci/build-packages) dpkg-dev pkg-config python3
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

root=build/package/unpacked
rm -rf $root
if [ -n "$install" ]; then
  sudo=""
  [ "$(id -u)" -eq 0 ] || sudo=sudo
  trap '$sudo dpkg --purge frit libfrit-dev libfrit0.1' EXIT
  $sudo apt-get install -y -qq --no-install-recommends ./build/package/*.deb
  prefix=/usr
else
  for package in build/package/*.deb; do dpkg-deb --extract "$package" $root; done
  prefix=$PWD/$root/usr
fi
tests/consumer/run.sh "$prefix"
tests/install_figures.sh "$prefix" 8

#!/bin/sh
# The frit that is installed in the prefix $1 has libfrit-runtime for the levels of processors $2 ... too, the lowest first. Each that
# this machine has must be loaded where higher ones are masked, hold code of its level, agree with golden cases, and on networks with the
# plain one.
set -eu
cases=$(cd "$(dirname "$0")" && pwd)/golden/models
prefix=$1
shift
libraries=$(dirname "$(find "$prefix"/lib* -name 'libfrit-training.so.*' | head -n 1)")
[ "$prefix" = /usr ] || export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_BIND_NOW=1  # each has all that the other libraries call
export FRIT_DEVICE=cpu FRIT_QUIET=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

python3 - "$scratch" <<'END'
import array, math, sys
for name, shape in ("image", (2, 3, 64, 64)), ("volume", (1, 1, 32, 32, 32)):
    header = str({"descr": "<f4", "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    with open(f"{sys.argv[1]}/{name}.npy", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00\x76\x00" + header.encode())
        array.array("f", (math.sin(0.37 * i) + math.cos(0.011 * i) for i in range(math.prod(shape)))).tofile(file)
END

# masks LEVEL...: what glibc is told that the processor lacks, so that it has none of them
masks() {
  for level in "$@"; do
    case $level in
      x86-64-v2) printf -- '-SSE4_2,' ;;
      x86-64-v3) printf -- '-AVX2,' ;;
      x86-64-v4) printf -- '-AVX512F,' ;;
    esac
  done
}
# check FOLDER MASKED...: the library in that folder, with those levels masked. The others are compared with what the first, the plain one,
# computes.
check() {
  folder=$1
  shift
  GLIBC_TUNABLES="glibc.cpu.hwcaps=$(masks "$@")"
  export GLIBC_TUNABLES
  loaded=$(LD_TRACE_LOADED_OBJECTS=1 "$prefix/bin/frit" | sed -n 's/.*libfrit-runtime.* => \(.*\) (.*/\1/p')
  echo "loaded: $loaded"
  [ "$(realpath "$loaded")" = "$(realpath "$folder"/libfrit-runtime.so.*.*.*)" ]
  "$prefix/bin/frit" info | grep '^processor'
  for dtype in f64 f32; do
    "$prefix/bin/frit" verify --dtype $dtype "$cases"/*.safetensors >"$scratch/verify" || { cat "$scratch/verify"; exit 1; }
    tail -n 1 "$scratch/verify"
  done
  for network in resnet:image mobilenet_v2:image convnext_tiny:image unet3d:volume; do
    expected=$scratch/${network%:*}.npy
    set -- "${network%:*}" --input "$scratch/${network#*:}.npy" --output "$scratch/output.npy"
    [ ! -e "$expected" ] || set -- "$@" --ref "$expected"
    "$prefix/bin/frit" infer "$@"
    [ -e "$expected" ] || mv "$scratch/output.npy" "$expected"
  done
}
check "$libraries" "$@"
while [ $# -gt 0 ]; do
  level=$1
  shift
  if env -u GLIBC_TUNABLES /lib64/ld-linux-x86-64.so.2 --help | grep -q "$level (supported"; then
    check "$libraries/glibc-hwcaps/$level" "$@"
    "$prefix/bin/frit" info | grep -q "^processor *code for $level,"
  else
    echo "not tried, as this machine does not have it: $level"
    [ -s "$(realpath "$libraries/glibc-hwcaps/$level"/libfrit-runtime.so.*.*.*)" ]
  fi
done

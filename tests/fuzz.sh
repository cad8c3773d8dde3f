#!/bin/sh
# Builds the fuzz targets of tests/fuzz with clang++ and libFuzzer, and runs each for some seconds (20, or the first argument; 0: its corpus
# alone), as many at a time as there are cores. Other arguments name targets. The same program meets the same inputs at every run; FRIT_FUZZ_SEED
# gives others (0: at every run). What makes one fail, or takes more than 2 GB or 10 seconds, is left in build/asan/found, with its log. Installs
# what it needs.
set -eu
cd "$(dirname "$0")/.."
found=build/asan/found

if [ "${1:-}" = --one ]; then
  target=$2 log=$found/$2.log limit=-max_total_time=$3 code=0
  [ "$3" -gt 0 ] || limit=-runs=0
  grown=$(mktemp -d)  # the corpus itself stays as it is
  trap 'rm -r "$grown"' EXIT
  ASAN_OPTIONS=quarantine_size_mb=16:malloc_context_size=4 "build/asan/tests/fuzz_$target" "$limit" "-seed=${FRIT_FUZZ_SEED:-1}" -entropic=0 -rss_limit_mb=2048 \
    -malloc_limit_mb=600 -timeout=10 -print_final_stats=1 "-artifact_prefix=$found/$target-" "$grown" "tests/fuzz/corpus/$target" \
    > "$log" 2>&1 || code=$?
  if [ "$code" -ne 0 ]; then
    tail -n 60 "$log" >&2
    echo "fuzz.sh: $target failed; again: build/asan/tests/fuzz_$target $(sed -n 's/.*Test unit written to //p' "$log")" >&2
    exit 1
  fi
  echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions, $(grep -o 'cov: [0-9]*' "$log" | tail -n 1)"
  exit 0
fi

# shellcheck disable=SC2046
.ci/packages.sh $(cat .ci/build-packages) libgtest-dev clang libclang-rt-dev
seconds=${1:-20}
[ $# -eq 0 ] || shift
cmake --preset asan
cmake --build --preset asan --target fuzz
mkdir -p $found
# shellcheck disable=SC2046  # names without spaces
[ $# -gt 0 ] || set -- $(ls tests/fuzz/corpus)
printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' tests/fuzz.sh --one '{}' "$seconds"

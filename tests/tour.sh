#!/bin/sh
# Runs every command of the tour in apps/README.md as it stands there, with the build in the folder $1, in a folder that looks like the repository.
# What needs PyTorch is left out where python3 has none. Exits with 77 where the data are not there.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
data=/usr/share/datasets/fashion-mnist
if [ ! -d $data ]; then
  echo "$data is missing: Debian's package dataset-fashion-mnist is not installed"
  exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/home" "$scratch/frit/build"
ln -s "$source/apps" "$source/tests" "$scratch/frit"
ln -s "$build" "$scratch/frit/build/release"

blocks=sh
if python3 -c 'import numpy, safetensors, torch' 2>/dev/null; then blocks='sh|sh pytorch'; else echo "left out: python3 has no PyTorch"; fi
awk -v blocks="^\`\`\`($blocks)\$" '
  /^## / { tour = $0 == "## A tour" }
  /^```/ { inside = tour && $0 ~ blocks; next }
  inside' "$source/apps/README.md" >"$scratch/commands"
[ "$(wc -l <"$scratch/commands")" -ge 15 ] # the tour is there

cd "$scratch/frit"
HOME="$scratch/home" sh -eux "$scratch/commands"

# What it promises.
for file in report.html steps.csv epochs.csv checkpoints/last.safetensors checkpoints/best.safetensors; do [ -s "runs/first/$file" ]; done
[ "$(wc -c <answers.npy)" -eq $((2 * (128 + 5 * 10 * 4))) ]

#!/bin/sh
# Holds the pages against the program: with the build in the folder $1, and frit installed in $2 for the compiler $3. In a folder that looks
# like the repository every command in blocks of the language "sh" runs as it stands there, page after page. Words after "sh" say what a block
# needs; those that are neither $4 nor found here are left out, by name. Blocks "cpp" and "cmake" are one project, which is built and run. In
# code anywhere, frit has each subcommand and flag, and there is each file below a folder of the repository. Exits with 77 without the data.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
installed=$(cd "$2" && pwd)
compiler=$3
met=${4:-}
data=/usr/share/datasets/fashion-mnist
if [ ! -d $data ]; then
  echo "$data is missing: Debian's package dataset-fashion-mnist is not installed"
  exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/home" "$scratch/project" "$scratch/frit/build" "$scratch/frit/.ci"
cd "$scratch/frit"
for name in CMakeLists.txt CMakePresets.json README.md apps core ops graph autograd models tests; do ln -s "$source/$name" .; done
ln -s "$build" build/release
# What runs here installs nothing.
ln -s "$source/.ci/build-packages" .ci
printf '#!/bin/sh\n' >.ci/packages.sh
chmod +x .ci/packages.sh
for page in README.md apps/README.md core/README.md models/README.md ops/README.md graph/README.md; do
  printf '\n@page %s\n' $page && cat $page
done >"$scratch/pages"

# Flags and files, in code between backquotes and in blocks.
awk '/^```/ { inside = !inside; next } inside' "$scratch/pages" >"$scratch/code"
awk '/^```/ { inside = !inside; next } !inside' "$scratch/pages" | tr '\n`' ' \n' | awk 'NR % 2 == 0' >>"$scratch/code"
for command in $("$installed/bin/frit" --help | sed -n '/^Subcommands/,/^$/s/^  \([a-z][a-z]*\) .*/\1/p') ""; do
  # shellcheck disable=SC2086  # none for the program itself
  "$installed/bin/frit" $command --help | sed -n 's/^  \(-[a-z],\)*\(--[a-z-]*\).*/\2/p' | sed "s/^/${command:-frit} /"
done >"$scratch/flags"
grep -Eoh -e '--[a-z-]+' apps/*.py tests/*.sh | sed 's/^/script /' >>"$scratch/flags"
sed -n 's/#.*//; s/.*\bfrit \([a-z][a-z]* \)/\1/p; /^--/p' "$scratch/code" | tr -d '[]' | awk '
  FNR == NR { has[$1 " " $2] = any[$2] = command[$1] = 1; next }
  $1 ~ /^--/ { sub(/=.*/, "", $1); if (!any[$1]) print "no command has the flag " $1; next }
  !command[$1] { print "there is no command frit " $1; next }
  { for (i = 2; i <= NF && $i != "|"; ++i) if ($i ~ /^--[a-z]/ && !has[$1 " " $i] && !has["frit " $i]) print "frit " $1 " has no flag " $i }
' "$scratch/flags" - >"$scratch/faults"
grep -Eo '(^|[ (])(apps|core|ops|graph|autograd|models|tests)/[a-z][^ ,;:)]*' "$scratch/code" | tr -d ' (' | sort -u | while read -r path; do
  case $path in */NAME*) continue ;; esac
  # shellcheck disable=SC2086  # it may have a pattern
  ls -d $path >/dev/null 2>&1 || echo "there is no $path"
done >>"$scratch/faults"
cat "$scratch/faults"
[ ! -s "$scratch/faults" ]

# Programs. "<!-- given: PARAMETERS -->" before a block says what statements are given.
{
  echo '#include <frit/frit.h>'
  awk '
    /^@page/ { page = $2; line = -1 }
    { ++line }
    /^<!-- given: / { given = $0; gsub(/^<!-- given: | -->$/, "", given); next }
    /^```/ && inside { if (inside == "```cpp") print (given == "" ? "" : "}\n") "}"; given = inside = ""; next }
    /^```/ { inside = $1 }
    /^```cpp/ {
      print "namespace snippet_" ++count " {\nusing namespace frit;\nusing namespace frit::models;"
      print (given == "" ? "" : "void run(" given ") {\n") "#line " line + 1 " \"" page "\""
      next
    }
    inside == "```cpp"' "$scratch/pages"
  echo '#line 1 "main"
int main() {
  const frit::Tensor images = frit::Tensor::zeros({64, 1, 12, 12}), classes = frit::Tensor::zeros({64}, frit::DType::i64);
  using Named = std::vector<frit::TensorDataset::NamedTensor>;
  snippet_1::train(std::make_shared<frit::TensorDataset>(Named{{"image", images}, {"class", classes}}));
}'
} >"$scratch/project/snippets.cpp"
{
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(pages CXX)\nadd_executable(your_program snippets.cpp)\n'
  sed -n '/^```cmake/,/^```$/{/^```/!p}' "$scratch/pages"
} >"$scratch/project/CMakeLists.txt"
cmake -S "$scratch/project" -B "$scratch/project/build" -DCMAKE_PREFIX_PATH="$installed" -DCMAKE_CXX_COMPILER="$compiler" >/dev/null
cmake --build "$scratch/project/build"
(cd "$scratch/project" && build/your_program && [ -s weights.safetensors ])

# Commands. First what they name and do not make: a few images, volumes, and for words in capitals small ones.
export HOME="$scratch/home" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# bytes FILE FIRST COUNT
bytes() { gzip -dc "$data/$1-ubyte.gz" 2>/dev/null | tail -c "+$2" | head -c "$3"; }
# nifti D H W
nifti() {
  printf '\134\001\000\000' && head -c 36 /dev/zero && printf '\003\000'
  for size in "$3" "$2" "$1" 1 1 1 1; do printf "\\$(printf %03o "$size")\\000"; done
  head -c 14 /dev/zero && printf '\002\000\010\000\000\000'
  for _ in 1 2 3 4 5 6 7 8; do printf '\000\000\200\077'; done
  printf '\000\000\260\103\000\000\200\077' && head -c 228 /dev/zero && printf 'n+1\000\000\000\000\000'
  bytes train-images-idx3 17 $(($1 * $2 * $3))
}
# dataset FOLDER COUNT: so many images each for training and for the test.
dataset() {
  mkdir "$1"
  count=$(printf '\\%03o' 0 0 $(($2 / 256)) $(($2 % 256)))
  for part in train t10k; do
    { printf "\000\000\010\003$count\000\000\000\034\000\000\000\034" && bytes $part-images-idx3 17 $(($2 * 784)); } >"$1/$part-images-idx3-ubyte"
    { printf "\000\000\010\001$count" && bytes $part-labels-idx1 9 "$2"; } >"$1/$part-labels-idx1-ubyte"
  done
}
dataset images 200
# For the tour, in place of all of them, on which the test of an example project trains.
dataset fashion-mnist 9000
gzip -1 fashion-mnist/*
mkdir volumes
for file in volumes/inputs.nii volumes/targets.nii volume.nii; do nifti 20 40 48 >$file; done
gzip volume.nii
{ printf "\223NUMPY\001\000v\000%-117s\n" "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 1, 28, 28), }" && head -c 15680 /dev/zero; } >x.npy
PATH="$installed/bin:$PATH"
frit train classifier --data images --epochs 1 --run-dir none --save weights.safetensors
case " $met " in *" onnx "*) frit export weights.safetensors --output model.onnx ;; esac
if python3 -c 'import numpy, safetensors, torch' 2>/dev/null; then
  met="$met pytorch"
  apps/frit_pytorch.py import weights.safetensors --output state_dict.pt
fi
{
  printf 'producer() { cat x.npy; }\nconsumer() { cat >/dev/null; }\n'
  awk -v met=" $met " '
    /^@page/ { page = $2; print "echo \"" page "\"" }
    /^```/ && inside { inside = 0; next }
    /^```/ {
      inside = 1
      runs = $1 == "```sh"
      for (i = 2; runs && i <= NF; ++i) if (!index(met, " " $i " ")) { runs = 0; print "echo \"left out: a block that needs " $i "\"" }
      next
    }
    runs && inside' "$scratch/pages" | sed -e 's/\bMODEL\b/classifier/g' -e 's/--data \(PATH\|FOLDER\)\b/--data images/g' \
    -e 's,^data=/usr/share/.*,data=fashion-mnist,' -e 's/timeout --signal=INT 8/timeout --signal=INT 2/' -e "s/CHECKPOINT/unet3d --model-config '{\"channels\": [8, 8]}'/"
} >"$scratch/commands"
[ "$(wc -l <"$scratch/commands")" -ge 40 ] # they are there
[ "$(grep -Ec 'data=fashion-mnist|INT 2' "$scratch/commands")" -eq 2 ]
sh -eux "$scratch/commands"
apps/fashion-mnist.sh --dry-run

# What the tour promises.
for file in report.html steps.csv epochs.csv checkpoints/last.safetensors checkpoints/best.safetensors; do [ -s "runs/first/$file" ]; done
[ "$(wc -c <answers.npy)" -eq $((2 * (128 + 5 * 10 * 4))) ]

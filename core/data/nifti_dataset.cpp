#include <filesystem>
#include <utility>

#include "frit/core/data/files.h"
#include "frit/core/io/folder.h"
#include "frit/core/io/nifti.h"
#include "frit/core/text.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

bool is_volume(const std::string& name) { return name.ends_with(".nii") || name.ends_with(".nii.gz"); }

/// `stem`.nii or `stem`.nii.gz; empty if there is neither.
std::string volume_at(const std::string& stem) {
  std::error_code error;
  for (const char* const suffix : {".nii", ".nii.gz"}) {
    if (fs::exists(stem + suffix, error)) return stem + suffix;
  }
  return {};
}

std::string without_suffix(const std::string& name) { return name.substr(0, name.rfind(".nii")); }

/// Paths of inputs and their targets.
using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs find_pairs(const std::string& folder) {
  Pairs pairs;
  const auto add = [&](const std::string& input, const std::string& target_stem) {
    const std::string target = volume_at(target_stem);
    if (target.empty()) fail(ErrorKind::file_system, printable(target_stem), ".nii or .nii.gz: no such file, for ", printable(input));
    pairs.emplace_back(input, target);
  };
  if (const std::string single = volume_at(folder + "/inputs"); !single.empty()) {
    add(single, folder + "/targets");
    return pairs;
  }
  if (!is_folder(folder + "/inputs")) return pairs;
  for (const std::string& name : names_in(folder + "/inputs", is_volume)) {
    add(folder + "/inputs/" + name, folder + "/targets/" + without_suffix(name));
  }
  return pairs;
}

/// The last three axes.
Shape space_of(const Tensor& volume) {
  const Shape& shape = volume.shape();
  return Shape(std::span(shape.begin(), static_cast<std::size_t>(shape.rank())).last(3));
}

std::shared_ptr<const Dataset> read_pair(const std::string& input_path, const std::string& target_path, const PatchOptions& patches) {
  const Tensor input = read_nifti(input_path).channels();
  const Tensor target = read_nifti(target_path).voxels;
  const Shape space = space_of(input);
  if (!(space_of(target) == space)) {
    fail(ErrorKind::format, printable(target_path), ": expected the size of ", printable(input_path), ", ", space, ", got ",
         space_of(target));
  }
  PatchOptions options = patches;
  if (options.size.empty()) options.size = space;
  try {
    return std::make_shared<PatchDataset>(std::vector<TensorDataset::NamedTensor>{{"input", input}, {"target", target}}, options);
  } catch (const Error& error) {
    fail(ErrorKind::format, printable(input_path), ": ", error.what());
  }
}

}  // namespace

std::shared_ptr<Dataset> read_nifti_dataset(const std::string& folder, const PatchOptions& patches) {
  const Pairs pairs = find_pairs(folder);
  if (pairs.empty()) fail(ErrorKind::format, printable(folder), ": has no inputs.nii or .nii.gz, nor such files in a folder inputs");
  std::vector<std::shared_ptr<const Dataset>> parts;
  for (const auto& [input, target] : pairs) {
    parts.push_back(read_pair(input, target, patches));
    const std::vector<Dataset::Field>&wanted = parts.front()->fields(), &found = parts.back()->fields();
    for (std::size_t f = 0; f < 2; ++f) {
      if (!(found[f].shape == wanted[f].shape)) {
        fail(ErrorKind::format, printable(f == 0 ? input : target), ": expected ", wanted[f].shape, " as in ",
             printable(f == 0 ? pairs.front().first : pairs.front().second), ", got ", found[f].shape, "; hint: give the size of a patch");
      }
    }
  }
  return concatenate(std::move(parts));
}

bool has_nifti_files(const std::string& folder) { return !volume_at(folder + "/inputs").empty() || has_any(folder + "/inputs", is_volume); }

}  // namespace frit

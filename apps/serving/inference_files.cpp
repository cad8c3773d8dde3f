#include "apps/serving/inference_files.h"

#include <filesystem>

#include "frit/core/data/files.h"
#include "frit/core/io/folder.h"

namespace frit::apps {

namespace fs = std::filesystem;

bool streams(const InferenceFiles& a) { return a.input == standard_stream; }

std::vector<std::string> input_files(const InferenceFiles& a) {
  if (streams(a)) return {};
  return is_folder(a.input) ? example_files(a.input) : std::vector<std::string>{a.input};
}

std::string partner(const InferenceFiles& a, const std::string& path, const std::string& input) {
  if (!is_folder(a.input)) return path;
  fs::path name = fs::path(input).filename();
  if (name.extension() == ".gz") name = name.stem();
  return (fs::path(path) / name.replace_extension(".npy")).string();
}

std::vector<std::string> partners(const InferenceFiles& a, const std::string& path) {
  std::vector<std::string> files;
  if (path.empty() || path == standard_stream) return files;
  for (const std::string& input : input_files(a)) files.push_back(partner(a, path, input));
  return files;
}

bool is_volume_name(const std::string& name) { return name.ends_with(".nii") || name.ends_with(".nii.gz"); }

std::string reference_of(const InferenceFiles& a, const std::string& path, const std::string& input) {
  const std::string array = partner(a, path, input);
  std::error_code error;
  if (!is_folder(a.input) || fs::exists(array, error)) return array;
  for (const char* const ending : {".png", ".nii", ".nii.gz"}) {
    const std::string mask = fs::path(array).replace_extension(ending).string();
    if (fs::exists(mask, error)) return mask;
  }
  return array;
}

std::vector<std::string> references(const InferenceFiles& a, const std::string& path) {
  std::vector<std::string> files;
  if (path.empty()) return files;
  for (const std::string& input : input_files(a)) files.push_back(reference_of(a, path, input));
  return files;
}

}  // namespace frit::apps

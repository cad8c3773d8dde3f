#include <algorithm>
#include <filesystem>

#include "frit/core/data/field_names.h"
#include "frit/core/data/files.h"
#include "frit/core/data/stored_dataset.h"
#include "frit/core/io/folder.h"
#include "frit/core/io/idx.h"
#include "frit/core/io/image.h"
#include "frit/core/io/npy.h"
#include "frit/core/io/npz.h"
#include "frit/core/io/safetensors.h"
#include "frit/core/text.h"

namespace frit {
namespace {

namespace fs = std::filesystem;
using NamedArray = StoredDataset::NamedArray;

template <class... Parts>
[[noreturn]] void bad(const std::string& path, const Parts&... parts) {
  fail(ErrorKind::format, printable(path), ": ", parts...);
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// The file by its name, or that with .gz.
std::string plain_or_compressed(const std::string& path) { return exists(path) ? path : path + ".gz"; }

NamedArray npy_array(const std::string& name, const std::string& path) {
  const auto input = std::make_shared<FileInput>(path, "a .npy file");
  if (const std::optional<StoredArray> array = find_npy_array(*input)) return {name, input, *array};
  return stored_in_memory(name, read_npy(*input), path);
}

/// "input" and "target" first, then by name.
void sort_fields(std::vector<NamedArray>& arrays) {
  const auto rank = [](const NamedArray& a) { return a.name == "input" ? 0 : a.name == "target" ? 1 : 2; };
  std::stable_sort(arrays.begin(), arrays.end(), [&](const NamedArray& a, const NamedArray& b) { return rank(a) < rank(b); });
}

/// The dataset, if it has the fields that are wanted and no others.
std::shared_ptr<Dataset> with_fields(const std::string& path, std::shared_ptr<Dataset> dataset, const std::vector<std::string>& wanted) {
  std::vector<std::string> found;
  for (const Dataset::Field& field : dataset->fields()) found.push_back(field.name);
  const std::string fault = difference(wanted, found);
  if (fault.empty()) return dataset;
  std::string names;
  for (const std::string& name : wanted) names += concat(names.empty() ? "\"" : ", \"", printable(name), '"');
  bad(path, "expected the arrays ", names, "; ", fault);
}

bool has_mnist_files(const std::string& folder, Split split) {
  const std::string images = folder + (split == Split::train ? "/train-" : "/t10k-") + "images-idx3-ubyte";
  return exists(images) || exists(images + ".gz");
}

/// The part of a folder with a part for each split; nothing if it has none.
std::optional<std::string> part_of(const std::string& folder, Split split) {
  if (!is_folder(folder + "/train")) return std::nullopt;
  for (const char* const name : {"/test", "/val"}) {
    if (is_folder(folder + name)) return folder + (split == Split::train ? "/train" : name);
  }
  return std::nullopt;
}

/// Throws unless the options that are set go with the format.
void check_options(const std::string& path, const ReadOptions& options, bool images, bool volumes) {
  const PatchOptions& patches = options.patches;
  require(images || options.image_size.empty(), printable(path), ": an image size goes with folders of images");
  require(volumes || patches.size.empty(), printable(path), ": patches are taken of NIfTI volumes");
  require(!patches.size.empty() || (patches.stride.empty() && patches.random == 0), "a stride or a number of patches needs a patch's size");
}

std::shared_ptr<Dataset> read_file(const std::string& path, const ReadOptions& options) {
  check_options(path, options, false, false);
  const bool zip = is_zip(FileInput(path, "a .safetensors or .npz file"));
  return with_fields(path, zip ? read_npz_dataset(path) : read_safetensors_dataset(path), options.fields);
}

enum class Format { arrays, mnist, volumes, masks, images, unknown };

Format format_of(const std::string& folder) {
  if (exists(folder + "/inputs.npy")) return Format::arrays;
  if (has_mnist_files(folder, Split::train) || has_mnist_files(folder, Split::test)) return Format::mnist;
  if (has_nifti_files(folder)) return Format::volumes;
  if (has_mask_files(folder)) return Format::masks;
  return has_any(folder, is_folder) ? Format::images : Format::unknown;
}

/// "input" and "target" lie in inputs.npy and targets.npy, any other field in a file of its name.
std::shared_ptr<Dataset> read_arrays(const std::string& folder, const std::vector<std::string>& fields) {
  std::vector<std::pair<std::string, std::string>> files;
  std::string missing;
  for (const std::string& field : fields) {
    if (field.find('/') != std::string::npos) bad(folder, "no file can have the name of the field \"", printable(field), '"');
    const bool plural = field == "input" || field == "target";
    const std::string file = field + (plural ? "s.npy" : ".npy");
    files.emplace_back(field, folder + '/' + file);
    if (!exists(files.back().second)) missing += concat(missing.empty() ? "" : ", ", printable(files.back().second));
  }
  if (!missing.empty()) fail(ErrorKind::file_system, missing, ": no such file");
  std::vector<NamedArray> arrays;
  for (const auto& [field, file] : files) arrays.push_back(npy_array(field, file));
  return std::make_shared<StoredDataset>(std::move(arrays));
}

std::shared_ptr<Dataset> read_folder(const std::string& path, Split split, const ReadOptions& options) {
  const Format format = format_of(path);
  if (format == Format::unknown) {
    bad(path,
        "holds no data: expected inputs.npy and targets.npy, MNIST files, inputs.nii and targets.nii, folders images and masks, or a "
        "folder of images a class");
  }
  check_options(path, options, format == Format::images || format == Format::masks, format == Format::volumes);
  const auto read = [&]() -> std::shared_ptr<Dataset> {
    switch (format) {
      case Format::arrays: return read_arrays(path, options.fields);
      case Format::mnist: return read_mnist_dataset(path, split);
      case Format::volumes: return read_nifti_dataset(path, options.patches);
      case Format::masks: return read_mask_dataset(path, options.image_size);
      default: return std::make_shared<ImageDataset>(path, options.image_size, options.classes);
    }
  };
  return with_fields(path, read(), options.fields);
}

}  // namespace

std::shared_ptr<Dataset> read_idx_dataset(const std::string& images, const std::string& labels) {
  const NamedArray input = stored_idx_images("input", images);
  const Tensor classes = read_idx(labels);
  if (classes.dtype() != DType::u8 || classes.rank() != 1)
    bad(labels, "expected u8 labels (N), got ", classes.dtype(), ' ', classes.shape());
  return std::make_shared<StoredDataset>(std::vector{input, stored_in_memory("target", classes.to(DType::i64), labels)});
}

std::shared_ptr<Dataset> read_mnist_dataset(const std::string& folder, Split split) {
  const std::string prefix = folder + (split == Split::train ? "/train-" : "/t10k-");
  return read_idx_dataset(plain_or_compressed(prefix + "images-idx3-ubyte"), plain_or_compressed(prefix + "labels-idx1-ubyte"));
}

std::shared_ptr<Dataset> read_npy_dataset(const std::string& inputs, const std::string& targets) {
  return std::make_shared<StoredDataset>(std::vector{npy_array("input", inputs), npy_array("target", targets)});
}

std::shared_ptr<Dataset> read_npz_dataset(const std::string& path) {
  std::vector<NamedArray> arrays;
  for (const auto& [name, tensor] : read_npz(path)) arrays.push_back(stored_in_memory(name, tensor, path));
  if (arrays.empty()) bad(path, "has no arrays");
  sort_fields(arrays);
  return std::make_shared<StoredDataset>(std::move(arrays));
}

std::shared_ptr<Dataset> read_safetensors_dataset(const std::string& path) {
  const auto input = std::make_shared<FileInput>(path, "a .safetensors file");
  const SafetensorsHeader header = read_safetensors_header(*input);
  if (header.size() == 0) bad(path, "has no tensors");
  std::vector<NamedArray> arrays;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const SafetensorsHeader::Entry entry = header.entry(i);
    arrays.push_back({std::string(entry.name), input, {entry.dtype, entry.shape, entry.offset}});
  }
  sort_fields(arrays);
  return std::make_shared<StoredDataset>(std::move(arrays));
}

std::shared_ptr<Dataset> read_dataset(const std::string& path, Split split, const ReadOptions& options) {
  if (!is_folder(path)) return read_file(path, options);
  const std::optional<std::string> part = part_of(path, split);
  if (!part) return read_folder(path, split, options);
  ReadOptions of_part = options;
  if (split == Split::test && options.classes.empty()) of_part.classes = class_names(path);
  return read_folder(*part, split, of_part);
}

std::vector<std::string> class_names(const std::string& path) {
  const std::string folder = part_of(path, Split::train).value_or(path);
  return format_of(folder) == Format::images ? ImageDataset::classes_in(folder) : std::vector<std::string>{};
}

std::vector<std::string> dataset_files(const std::string& path) {
  if (!is_folder(path)) return {path};
  constexpr std::string_view endings[] = {".npy", ".nii", ".nii.gz", "-ubyte", "-ubyte.gz"};
  constexpr int deepest = 2;  // train/, in it a folder for each class
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator entry(
      path, fs::directory_options::follow_directory_symlink | fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (entry.depth() >= deepest) entry.disable_recursion_pending();
    const auto is_called = [&](std::string_view ending) { return name.ends_with(ending); };
    if (is_image_name(name) || std::any_of(std::begin(endings), std::end(endings), is_called)) files.push_back(entry->path().string());
  }
  return files;
}

bool has_test_split(const std::string& path) { return part_of(path, Split::test).has_value() || has_mnist_files(path, Split::test); }

}  // namespace frit

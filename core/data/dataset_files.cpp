#include <algorithm>
#include <filesystem>

#include "frit/core/data/dataset.h"
#include "frit/core/io/file.h"
#include "frit/core/io/idx.h"
#include "frit/core/io/npy.h"
#include "frit/core/io/safetensors.h"
#include "frit/core/strided_loop.h"
#include "frit/core/text.h"

namespace frit {
namespace {

template <class... Parts>
[[noreturn]] void bad(const std::string& path, const Parts&... parts) {
  fail(ErrorKind::format, printable(path), ": ", parts...);
}

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::shared_ptr<Dataset> pair_up(const std::string& file, const Tensor& input, const Tensor& target) {
  if (input.rank() == 0 || target.rank() == 0) bad(file, "inputs and targets need a first axis that counts the examples");
  if (input.dim(0) != target.dim(0)) bad(file, "has ", target.dim(0), " targets for ", input.dim(0), " inputs");
  return std::make_shared<TensorDataset>(std::vector<TensorDataset::NamedTensor>{{"input", input}, {"target", target}});
}

/// Bytes as f32 in [0, 1], with a channel axis: (N,H,W) to (N,1,H,W).
Tensor scale_images(const Tensor& images) {
  const Tensor scaled = Tensor::empty({images.dim(0), 1, images.dim(1), images.dim(2)}, DType::f32);
  const std::span<const std::uint8_t> from = images.span<std::uint8_t>();
  float* const to = scaled.data<float>();
  parallel_for(images.elements(), elementwise_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = static_cast<float>(from[static_cast<std::size_t>(i)]) / 255.0f;
  });
  return scaled;
}

/// The file by its name, or that with .gz.
std::string plain_or_compressed(const std::string& path) { return exists(path) ? path : path + ".gz"; }

}  // namespace

std::shared_ptr<Dataset> read_idx_dataset(const std::string& images, const std::string& labels) {
  const Tensor pixels = read_idx(images);
  if (pixels.dtype() != DType::u8 || pixels.rank() != 3)
    bad(images, "expected u8 images (N,H,W), got ", pixels.dtype(), ' ', pixels.shape());
  const Tensor classes = read_idx(labels);
  if (classes.dtype() != DType::u8 || classes.rank() != 1)
    bad(labels, "expected u8 labels (N), got ", classes.dtype(), ' ', classes.shape());
  return pair_up(labels, scale_images(pixels), classes.to(DType::i64));
}

std::shared_ptr<Dataset> read_mnist_dataset(const std::string& folder, Split split) {
  const std::string prefix = folder + (split == Split::train ? "/train-" : "/t10k-");
  return read_idx_dataset(plain_or_compressed(prefix + "images-idx3-ubyte"), plain_or_compressed(prefix + "labels-idx1-ubyte"));
}

std::shared_ptr<Dataset> read_npy_dataset(const std::string& inputs, const std::string& targets) {
  const Tensor input = read_npy(inputs);
  return pair_up(targets, input, read_npy(targets));
}

std::shared_ptr<Dataset> read_safetensors_dataset(const std::string& path) {
  const SafetensorsHeader header = read_safetensors_header(path);
  if (header.size() != 2 || !header.find("input") || !header.find("target")) {
    std::string names;
    for (std::size_t i = 0; i < std::min<std::size_t>(header.size(), 10); ++i) {
      names += concat(i == 0 ? "" : ", ", '"', printable(header.entry(i).name), '"');
    }
    if (header.size() > 10) names += concat(" and ", header.size() - 10, " more");
    bad(path, "a dataset has the tensors \"input\" and \"target\", got ", names.empty() ? "none" : names);
  }
  const TensorFile file = read_safetensors(path);
  return pair_up(path, file.at("input"), file.at("target"));
}

std::shared_ptr<Dataset> read_dataset(const std::string& path, Split split) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return read_safetensors_dataset(path);
  const std::string inputs = path + "/inputs.npy";
  return exists(inputs) ? read_npy_dataset(inputs, path + "/targets.npy") : read_mnist_dataset(path, split);
}

}  // namespace frit

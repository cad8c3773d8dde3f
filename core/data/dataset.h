#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "frit/core/tensor.h"

namespace frit {

/// Where the random decisions of one pass over a dataset come from, such as where to crop: each is a pure function of the loader's seed,
/// the epoch, the example and a number for the decision, so that they are the same for any prefetch and after a resume.
struct Epoch {
  std::uint64_t seed = 0;
  std::uint64_t number = 0;

  std::array<std::uint32_t, 4> random(std::uint64_t decision, std::int64_t example) const;
  /// One of 0 .. count-1; count is at least 1.
  std::int64_t below(std::int64_t count, std::uint64_t decision, std::int64_t example) const;
};

/// Examples that are numbered from 0. Each is one tensor per field, of the same dtype and shape in every example.
class Dataset {
 public:
  struct Field {
    std::string name;
    DType dtype;
    Shape shape;  ///< of one example
  };

  virtual ~Dataset() = default;

  virtual std::int64_t size() const = 0;
  virtual const std::vector<Field>& fields() const = 0;
  /// Writes example indices[k] to row k of each field's tensor: contiguous, on the CPU, (indices.size(), field.shape...). A loader calls it
  /// on its own thread, one call at a time.
  virtual void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch& epoch) const = 0;
};

/// Tensors in memory, whose first axis counts the examples.
class TensorDataset final : public Dataset {
 public:
  struct NamedTensor {
    std::string name;
    Tensor tensor;
  };

  /// Throws ErrorKind::argument if there is no field, a name stands twice, or the first axes differ.
  explicit TensorDataset(const std::vector<NamedTensor>& tensors);

  std::int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }
  void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch& epoch) const override;

 private:
  std::int64_t size_ = 0;
  std::vector<Field> fields_;
  std::vector<Tensor> tensors_;
};

struct PatchOptions {
  Shape size;               ///< of the last axes of every tensor
  Strides stride = {};      ///< from one patch to the next; none: the size. The last patch of an axis ends where the axis does
  std::int64_t random = 0;  ///< above 0: so many patches an epoch, at random places, anew in every epoch
};

/// Patches of tensors in memory that lie over one another, such as a volume (1, D, H, W) and what is true of its voxels (D, H, W).
class PatchDataset final : public Dataset {
 public:
  /// Throws ErrorKind::argument if a tensor's last axes differ from the others', or are shorter than the patch.
  PatchDataset(const std::vector<TensorDataset::NamedTensor>& tensors, const PatchOptions& options);

  std::int64_t size() const override;
  const std::vector<Field>& fields() const override { return fields_; }
  void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch& epoch) const override;
  /// Where a patch begins, on each of the axes.
  Dims position(std::int64_t index, const Epoch& epoch = {}) const;

 private:
  PatchOptions options_;
  Shape extent_;  ///< of the axes that are cut
  Dims counts_;   ///< patches on each of them
  std::vector<Field> fields_;
  std::vector<Tensor> tensors_;
};

enum class Split { train, test };

// Each reader gives the fields "input" and "target", and throws ErrorKind::format or ErrorKind::file_system with the file's name.

/// IDX images (N,H,W) as f32 in [0, 1] of shape (1,H,W), and IDX labels (N) as i64.
std::shared_ptr<Dataset> read_idx_dataset(const std::string& images, const std::string& labels);
/// The folder of an MNIST set: train-images-idx3-ubyte, t10k-labels-idx1-ubyte and so on, with or without .gz. Debian's package
/// dataset-fashion-mnist has one at /usr/share/datasets/fashion-mnist.
std::shared_ptr<Dataset> read_mnist_dataset(const std::string& folder, Split split);
std::shared_ptr<Dataset> read_npy_dataset(const std::string& inputs, const std::string& targets);
/// A file with exactly the tensors "input" and "target".
std::shared_ptr<Dataset> read_safetensors_dataset(const std::string& path);
/// By what is there: a .safetensors file, a folder with inputs.npy and targets.npy, or an MNIST folder, which alone knows splits.
std::shared_ptr<Dataset> read_dataset(const std::string& path, Split split = Split::train);

}  // namespace frit

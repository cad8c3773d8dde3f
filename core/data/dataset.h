#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "frit/core/tensor.h"

namespace frit {

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
  virtual void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch) const = 0;
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
  void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch) const override;

 private:
  std::int64_t size_ = 0;
  std::vector<Field> fields_;
  std::vector<Tensor> tensors_;
};

/// The examples of another dataset with these numbers, in this order; a number may repeat. Throws ErrorKind::argument for one that is not
/// there.
std::shared_ptr<Dataset> subset(std::shared_ptr<const Dataset> dataset, std::vector<std::int64_t> indices);

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

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

/// The examples of several datasets, one after another. Throws ErrorKind::argument if there is none, or their fields differ.
std::shared_ptr<Dataset> concatenate(std::vector<std::shared_ptr<const Dataset>> parts);

/// The examples of another dataset with these numbers, in this order; a number may repeat. Throws ErrorKind::argument for one that is not
/// there.
std::shared_ptr<Dataset> subset(std::shared_ptr<const Dataset> dataset, std::vector<std::int64_t> indices);

}  // namespace frit

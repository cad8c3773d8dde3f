#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frit/core/data/dataset.h"
#include "frit/core/io/file.h"
#include "frit/core/io/shape_check.h"
#include "frit/core/io/stored_array.h"

namespace frit {

/// Arrays in files, whose first axis counts the examples. They stay there: a batch's rows are read when they are asked for, so that the
/// data may be larger than memory and need no time to load. The files are read, not mapped: the system keeps their pages just the same, and
/// a file that another process cuts short gives an error and not a signal.
class StoredDataset final : public Dataset {
 public:
  struct NamedArray {
    std::string name;
    std::shared_ptr<const Input> input;
    StoredArray array;
    bool image = false;  ///< u8 (N, H, W), given as f32 (1, H, W) in [0, 1]
  };

  /// Throws ErrorKind::format if there is no array, or the first axes differ.
  explicit StoredDataset(std::vector<NamedArray> arrays);

  std::int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }
  void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch& epoch) const override;

 private:
  std::int64_t size_ = 0;
  std::vector<NamedArray> arrays_;
  std::vector<Field> fields_;
};

/// The images of an IDX file, plain or compressed by gzip. Throws ErrorKind::format for another, ErrorKind::file_system. `check` is given
/// the shape (N, 1, H, W).
StoredDataset::NamedArray stored_idx_images(const std::string& name, const std::string& path, const ShapeCheck& check = {});

/// A tensor in memory as if it lay in a file of this name.
StoredDataset::NamedArray stored_in_memory(const std::string& name, const Tensor& tensor, const std::string& file);

}  // namespace frit

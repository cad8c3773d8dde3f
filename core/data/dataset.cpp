#include "frit/core/data/dataset.h"

#include <cstring>

namespace frit {
namespace {

class Subset final : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> whole, std::vector<std::int64_t> indices) : whole_(std::move(whole)), indices_(std::move(indices)) {
    for (const std::int64_t index : indices_) {
      require(index >= 0 && index < whole_->size(), "subset: no example ", index, ", there are ", whole_->size());
    }
  }

  std::int64_t size() const override { return std::ssize(indices_); }
  const std::vector<Field>& fields() const override { return whole_->fields(); }
  void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch) const override {
    std::vector<std::int64_t> of_whole;
    for (const std::int64_t index : indices) of_whole.push_back(indices_.at(static_cast<std::size_t>(index)));
    whole_->read(of_whole, batch);
  }

 private:
  std::shared_ptr<const Dataset> whole_;
  std::vector<std::int64_t> indices_;
};

}  // namespace

std::shared_ptr<Dataset> subset(std::shared_ptr<const Dataset> dataset, std::vector<std::int64_t> indices) {
  require(dataset != nullptr, "subset: the dataset is null");
  return std::make_shared<Subset>(std::move(dataset), std::move(indices));
}

TensorDataset::TensorDataset(const std::vector<NamedTensor>& tensors) {
  require(!tensors.empty(), "TensorDataset: needs at least one tensor");
  for (const auto& [name, tensor] : tensors) {
    require(tensor.defined() && tensor.rank() >= 1, "TensorDataset: \"", name, "\" needs a first axis that counts the examples");
    for (const Field& field : fields_) require(field.name != name, "TensorDataset: \"", name, "\" stands twice");
    if (fields_.empty()) size_ = tensor.dim(0);
    require(tensor.dim(0) == size_, "TensorDataset: \"", name, "\" has ", tensor.dim(0), " examples, \"", tensors.front().name, "\" has ",
            size_);
    Shape shape = tensor.shape();
    shape.erase(0);
    fields_.push_back({name, tensor.dtype(), shape});
    tensors_.push_back(tensor.to(Device::cpu()).contiguous());
  }
}

void TensorDataset::read(std::span<const std::int64_t> indices, std::span<const Tensor> batch) const {
  FRIT_CHECK(batch.size() == tensors_.size());
  for (std::size_t f = 0; f < tensors_.size(); ++f) {
    const auto row_bytes = byte_count(fields_[f].shape, size_of(fields_[f].dtype));
    if (row_bytes == 0) continue;
    const auto* const source = static_cast<const std::byte*>(tensors_[f].raw());
    auto* row = static_cast<std::byte*>(batch[f].raw());
    for (const std::int64_t index : indices) {
      FRIT_CHECK(index >= 0 && index < size_);
      std::memcpy(row, source + index * row_bytes, static_cast<std::size_t>(row_bytes));
      row += row_bytes;
    }
  }
}

}  // namespace frit

#include "frit/core/data/dataset.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "frit/core/random.h"

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
  void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch& epoch) const override {
    std::vector<std::int64_t> of_whole;
    for (const std::int64_t index : indices) of_whole.push_back(indices_.at(static_cast<std::size_t>(index)));
    whole_->read(of_whole, batch, epoch);
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

std::array<std::uint32_t, 4> Epoch::random(std::uint64_t decision, std::int64_t example) const {
  // A key for the epoch, from a stream that no permutation of examples draws from.
  const auto key = philox(seed, stream_of("frit::Epoch"), number);
  return philox(std::uint64_t{key[0]} << 32 | key[1], decision, static_cast<std::uint64_t>(example));
}

std::int64_t Epoch::below(std::int64_t count, std::uint64_t decision, std::int64_t example) const {
  FRIT_CHECK(count >= 1);
  const auto words = random(decision, example);
  __extension__ using Product = unsigned __int128;
  return static_cast<std::int64_t>((static_cast<Product>(std::uint64_t{words[0]} << 32 | words[1]) * static_cast<std::uint64_t>(count)) >>
                                   64);
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

void TensorDataset::read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch&) const {
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

namespace {

class ConcatenatedDataset final : public Dataset {
 public:
  explicit ConcatenatedDataset(std::vector<std::shared_ptr<const Dataset>> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part->size());
  }

  std::int64_t size() const override { return ends_.back(); }
  const std::vector<Field>& fields() const override { return parts_.front()->fields(); }

  void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch& epoch) const override {
    std::vector<Tensor> row(batch.size());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      FRIT_CHECK(indices[i] >= 0 && indices[i] < size());
      const auto part = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), indices[i]) - ends_.begin());
      const std::int64_t local = indices[i] - (part == 0 ? 0 : ends_[part - 1]);
      const auto k = static_cast<std::int64_t>(i);
      for (std::size_t f = 0; f < batch.size(); ++f) row[f] = batch[f].slice(0, k, k + 1);
      // Each part draws from a seed of its own: its examples are numbered from 0 again.
      parts_[part]->read(std::span(&local, 1), row, {epoch.seed + part * 0x9E3779B97F4A7C15u, epoch.number});
    }
  }

 private:
  std::vector<std::shared_ptr<const Dataset>> parts_;
  std::vector<std::int64_t> ends_;
};

}  // namespace

std::shared_ptr<Dataset> concatenate(std::vector<std::shared_ptr<const Dataset>> parts) {
  require(!parts.empty(), "concatenate: needs at least one dataset");
  const std::vector<Dataset::Field>& wanted = parts.front()->fields();
  for (const auto& part : parts) {
    const std::vector<Dataset::Field>& fields = part->fields();
    require(fields.size() == wanted.size(), "concatenate: a dataset has ", fields.size(), " fields, the first has ", wanted.size());
    for (std::size_t f = 0; f < fields.size(); ++f) {
      require(fields[f].name == wanted[f].name && fields[f].dtype == wanted[f].dtype && fields[f].shape == wanted[f].shape,
              "concatenate: expected \"", wanted[f].name, "\" of ", wanted[f].dtype, ' ', wanted[f].shape, ", got \"", fields[f].name,
              "\" of ", fields[f].dtype, ' ', fields[f].shape);
    }
  }
  return std::make_shared<ConcatenatedDataset>(std::move(parts));
}

}  // namespace frit

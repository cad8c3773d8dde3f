#include "frit/core/data/dataset.h"

#include <cstring>

#include "frit/core/random.h"

namespace frit {

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

}  // namespace frit

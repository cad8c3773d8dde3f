#include "frit/core/data/stored_dataset.h"

#include <algorithm>
#include <array>
#include <utility>

#include "frit/core/io/byte_order.h"
#include "frit/core/io/idx.h"
#include "frit/core/text.h"

namespace frit {
namespace {

/// The bytes of a tensor, which it keeps.
class TensorInput final : public Input {
 public:
  TensorInput(const Tensor& tensor, const std::string& name)
      : Input(printable(name), static_cast<std::uint64_t>(tensor.bytes())), tensor_(tensor), bytes_(bytes_of(tensor_), name) {}
  using Input::read;
  void read(std::uint64_t offset, std::span<std::byte> into) const override { bytes_.read(offset, into); }

 private:
  static std::span<const std::byte> bytes_of(const Tensor& tensor) {
    return {static_cast<const std::byte*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes())};
  }

  Tensor tensor_;
  MemoryInput bytes_;
};

std::uint64_t row_bytes(const StoredArray& array) {
  Shape row = array.shape;
  row.erase(0);
  return static_cast<std::uint64_t>(byte_count(row, size_of(array.dtype)));
}

/// The rows with these numbers, one after another; neighbours in one go.
void read_rows(const StoredDataset::NamedArray& source, std::span<const std::int64_t> indices, std::span<std::byte> to) {
  const std::uint64_t bytes = row_bytes(source.array);
  std::vector<Input::Piece> pieces;
  for (std::size_t begin = 0, end = 0; begin < indices.size(); begin = end) {
    for (end = begin + 1; end < indices.size() && indices[end] == indices[end - 1] + 1;) ++end;
    pieces.push_back(
        {source.array.offset + static_cast<std::uint64_t>(indices[begin]) * bytes, to.subspan(begin * bytes, (end - begin) * bytes)});
  }
  source.input->read(pieces);
  if (source.array.swapped) swap_bytes(to, size_of(source.array.dtype));
}

/// A byte as a number in [0, 1].
constexpr std::array<float, 256> unit_fractions = [] {
  std::array<float, 256> fractions{};
  for (std::size_t i = 0; i < fractions.size(); ++i) fractions[i] = static_cast<float>(i) / 255.0f;
  return fractions;
}();

}  // namespace

StoredDataset::StoredDataset(std::vector<NamedArray> arrays) : arrays_(std::move(arrays)) {
  FRIT_CHECK(!arrays_.empty());
  for (const NamedArray& a : arrays_) {
    if (a.array.shape.rank() == 0) a.input->bad('"', printable(a.name), "\" needs a first axis that counts the examples");
    if (fields_.empty()) size_ = a.array.shape[0];
    if (a.array.shape[0] != size_) {
      a.input->bad('"', printable(a.name), "\" has ", a.array.shape[0], " examples, \"", printable(arrays_.front().name), "\" has ", size_);
    }
    Shape shape = a.array.shape;
    if (a.image)
      shape[0] = 1;
    else
      shape.erase(0);
    // Nothing in the file would account for the number of examples.
    if (size_ != 0 && element_count(shape) == 0)
      a.input->bad('"', printable(a.name), "\" has ", size_, " examples without elements, ", shape);
    fields_.push_back({a.name, a.image ? DType::f32 : a.array.dtype, shape});
  }
}

void StoredDataset::read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch&) const {
  FRIT_CHECK(batch.size() == arrays_.size());
  for (const std::int64_t index : indices) FRIT_CHECK(index >= 0 && index < size_);
  for (std::size_t f = 0; f < arrays_.size(); ++f) {
    const auto bytes = static_cast<std::size_t>(row_bytes(arrays_[f].array)) * indices.size();
    if (bytes == 0) continue;
    if (!arrays_[f].image) {
      read_rows(arrays_[f], indices, {static_cast<std::byte*>(batch[f].raw()), bytes});
      continue;
    }
    std::vector<std::byte> samples(bytes);
    read_rows(arrays_[f], indices, samples);
    std::transform(samples.begin(), samples.end(), batch[f].data<float>(),
                   [](std::byte sample) { return unit_fractions[std::to_integer<std::size_t>(sample)]; });
  }
}

StoredDataset::NamedArray stored_idx_images(const std::string& name, const std::string& path, const ShapeCheck& check) {
  const auto input = std::make_shared<FileInput>(path, "an IDX file");
  const auto check_images = [&](const Shape& shape) {
    if (check && shape.rank() == 3) check({shape[0], 1, shape[1], shape[2]});
  };
  const std::optional<StoredArray> array = find_idx_array(*input);
  if (array) check_images(array->shape);
  StoredDataset::NamedArray images =
      array ? StoredDataset::NamedArray{name, input, *array} : stored_in_memory(name, read_idx(*input, check_images), path);
  if (images.array.dtype != DType::u8 || images.array.shape.rank() != 3) {
    input->bad("expected u8 images (N,H,W), got ", images.array.dtype, ' ', images.array.shape);
  }
  images.image = true;
  return images;
}

StoredDataset::NamedArray stored_in_memory(const std::string& name, const Tensor& tensor, const std::string& file) {
  const Tensor dense = tensor.to(Device::cpu()).contiguous();
  return {name, std::make_shared<TensorInput>(dense, file), {dense.dtype(), dense.shape()}};
}

}  // namespace frit

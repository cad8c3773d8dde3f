#include "frit/core/data/fingerprint.h"

#include <algorithm>

#include "frit/core/io/checksum.h"

namespace frit {
namespace {

constexpr std::int64_t most_bytes = std::int64_t{256} << 20, batch_bytes = std::int64_t{4} << 20, most_sampled = 1024;

std::int64_t example_bytes(const Dataset& dataset) {
  std::int64_t bytes = 0;
  for (const Dataset::Field& field : dataset.fields()) bytes += byte_count(field.shape, size_of(field.dtype));
  return std::max<std::int64_t>(1, bytes);
}

std::int64_t sample_size(std::int64_t examples, std::int64_t bytes) {
  if (examples <= most_bytes / bytes) return examples;
  return std::clamp<std::int64_t>(most_bytes / bytes, 1, std::min(examples, most_sampled));
}

/// Of the heap: what a training takes from the allocator is counted, and this comes before it.
std::vector<Tensor> room_for(const Dataset& dataset, std::int64_t examples) {
  std::vector<Tensor> batch;
  for (const Dataset::Field& field : dataset.fields()) {
    Shape shape = field.shape;
    shape.insert(0, examples);
    const auto bytes = static_cast<std::size_t>(byte_count(shape, size_of(field.dtype)));
    const auto memory = std::make_shared<std::vector<std::max_align_t>>(bytes / sizeof(std::max_align_t) + 1);
    batch.push_back(Tensor::over(memory->data(), shape, field.dtype, Device::cpu(), memory));
  }
  return batch;
}

std::uint64_t chained(const Tensor& tensor, std::uint64_t sum) {
  return checksum({static_cast<const std::byte*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes())}, sum);
}

}  // namespace

std::string fingerprint(const Dataset& dataset) {
  std::string facts = concat(dataset.size());
  for (const Dataset::Field& field : dataset.fields()) facts += concat('\n', field.name, ' ', field.dtype, ' ', field.shape);
  std::uint64_t sum = checksum(std::as_bytes(std::span(facts)));
  const std::int64_t bytes = example_bytes(dataset), count = sample_size(dataset.size(), bytes);
  const std::int64_t at_once = std::clamp<std::int64_t>(batch_bytes / bytes, 1, std::max<std::int64_t>(1, count));
  for (std::int64_t begin = 0; begin < count; begin += at_once) {
    std::vector<std::int64_t> indices;
    __extension__ using Wide = __int128;
    for (std::int64_t i = begin; i < std::min(count, begin + at_once); ++i)
      indices.push_back(static_cast<std::int64_t>(static_cast<Wide>(i) * dataset.size() / count));
    const std::vector<Tensor> batch = room_for(dataset, std::ssize(indices));
    dataset.read(indices, batch, {});
    for (const Tensor& tensor : batch) sum = chained(tensor, sum);
  }
  return checksum_text(sum);
}

}  // namespace frit

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace frit::ops {

/// The tensors of one launch, cut into chunks that are numbered through all of them: of each, `arrays` places in memory and as many
/// elements at each. Small enough for a kernel's argument, a __grid_constant__ one.
template <int arrays>
struct TensorTable {
  static constexpr int capacity = static_cast<int>(std::bit_floor(3840u / (8u * arrays + 16u)));
  void* memory[arrays][capacity];
  std::int64_t elements[capacity];
  std::int64_t first_chunk[capacity];
  std::int64_t chunk_elements, chunks = 0;
  int tensors = 0;

  explicit TensorTable(std::int64_t elements_of_chunk) : chunk_elements(elements_of_chunk) {}

  bool full() const { return tensors == capacity; }
  void add(std::int64_t count, const std::array<void*, arrays>& places) {
    for (std::size_t k = 0; k < arrays; ++k) memory[k][tensors] = places[k];
    elements[tensors] = count;
    first_chunk[tensors] = chunks;
    chunks += (count + chunk_elements - 1) / chunk_elements;
    ++tensors;
  }

  struct Chunk {
    int tensor;
    std::int64_t begin, end;  // elements of the tensor
  };
  /// Of the last tensor that begins at this chunk or before: empty ones have none.
  __device__ Chunk chunk(std::int64_t number) const {
    int tensor = 0;
    for (int step = capacity / 2; step > 0; step /= 2) {
      if (tensor + step < tensors && first_chunk[tensor + step] <= number) tensor += step;
    }
    const std::int64_t begin = (number - first_chunk[tensor]) * chunk_elements;
    return {tensor, begin, std::min(elements[tensor], begin + chunk_elements)};
  }
};

}  // namespace frit::ops

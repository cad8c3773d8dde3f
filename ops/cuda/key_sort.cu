// CUB's radix sort, of keys and places in one type each, so that it is compiled once.

#include <cub/device/device_radix_sort.cuh>

#include "frit/core/cuda/runtime.h"
#include "frit/ops/cuda/key_sort.cuh"

namespace frit::ops {
namespace {

constexpr std::size_t alignment = 256;

std::size_t array_bytes(std::int64_t count) {
  return (static_cast<std::size_t>(count) * sizeof(std::int64_t) + alignment - 1) / alignment * alignment;
}

}  // namespace

std::size_t KeySort::bytes(std::int64_t count) {
  std::size_t sorting = 0;
  cub::DoubleBuffer<std::uint64_t> keys;
  cub::DoubleBuffer<std::int64_t> places;
  FRIT_CUDA_CALL(cub::DeviceRadixSort::SortPairs(nullptr, sorting, keys, places, count));
  return 4 * array_bytes(count) + sorting;
}

KeySort::KeySort(std::span<std::byte> scratch, std::int64_t count) : count_(count) {
  std::byte* memory = scratch.data();
  for (int i = 0; i < 2; ++i) {
    keys_[i] = reinterpret_cast<std::uint64_t*>(memory);
    places_[i] = reinterpret_cast<std::int64_t*>(memory + array_bytes(count));
    memory += 2 * array_bytes(count);
  }
  rest_ = scratch.subspan(4 * array_bytes(count));
}

void KeySort::sort(cudaStream_t stream, int bits) {
  cub::DoubleBuffer<std::uint64_t> keys(keys_[current_], keys_[1 - current_]);
  cub::DoubleBuffer<std::int64_t> places(places_[current_], places_[1 - current_]);
  std::size_t given = rest_.size();
  FRIT_CUDA_CALL(cub::DeviceRadixSort::SortPairs(rest_.data(), given, keys, places, count_, 0, bits, stream));
  if (keys.Current() != keys_[current_]) current_ = 1 - current_;
}

}  // namespace frit::ops

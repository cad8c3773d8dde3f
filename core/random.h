#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "frit/core/half.h"
#include "frit/core/tensor.h"

namespace frit {

/// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four 32-bit words from a 64-bit seed, a
/// 64-bit stream and a 64-bit counter. A pure function, so that element i of a tensor is the same on every device and for any thread count.
FRIT_HOST_DEVICE inline std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  std::uint32_t key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  std::uint32_t c0 = static_cast<std::uint32_t>(counter), c1 = static_cast<std::uint32_t>(counter >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(stream), c3 = static_cast<std::uint32_t>(stream >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c2;
    const std::uint32_t next0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ key0;
    const std::uint32_t next2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c1 = static_cast<std::uint32_t>(product1);
    c3 = static_cast<std::uint32_t>(product0);
    c0 = next0;
    c2 = next2;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

/// A stream of its own for each name, so that initialising one parameter never shifts another.
std::uint64_t stream_of(std::string_view name);

/// Fills a floating CPU tensor; element i comes from counter i alone.
void fill_uniform(const Tensor& tensor, double low, double high, std::uint64_t seed, std::uint64_t stream);
void fill_normal(const Tensor& tensor, double mean, double deviation, std::uint64_t seed, std::uint64_t stream);

/// 0 .. count-1 in random order.
std::vector<std::int64_t> permutation(std::int64_t count, std::uint64_t seed, std::uint64_t stream);

}  // namespace frit

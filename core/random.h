#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "frit/core/half.h"
#include "frit/core/tensor.h"

namespace frit {

/// What Philox makes of the words that it starts with, of several counters at once. product(factor, word) is {its high half, its low half};
/// of a word that is wider than 32 bits the upper ones do not count.
template <class Word, std::size_t count, class Product>
FRIT_HOST_DEVICE void philox_rounds(std::array<Word, 4> (&words)[count], std::uint64_t seed, const Product& product) {
  std::uint32_t key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::array<Word, 4>& w : words) {
      const std::array<Word, 2> first = product(0xD2511F53u, w[0]), second = product(0xCD9E8D57u, w[2]);
      w = {second[0] ^ w[1] ^ key0, second[1], first[0] ^ w[3] ^ key1, first[1]};
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

struct WordProduct {
  FRIT_HOST_DEVICE std::array<std::uint32_t, 2> operator()(std::uint32_t factor, std::uint32_t word) const {
    const std::uint64_t product = std::uint64_t{factor} * word;
    return {static_cast<std::uint32_t>(product >> 32), static_cast<std::uint32_t>(product)};
  }
};

/// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four 32-bit words from a 64-bit seed, a
/// 64-bit stream and a 64-bit counter. A pure function, so that element i of a tensor is the same on every device and for any thread count.
FRIT_HOST_DEVICE inline std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  std::array<std::uint32_t, 4> words[1] = {{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                                            static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}};
  philox_rounds(words, seed, WordProduct{});
  return words[0];
}

/// A stream of its own for each name, so that initialising one parameter never shifts another.
std::uint64_t stream_of(std::string_view name);

/// Fills a floating CPU tensor; element i comes from counter i alone.
void fill_uniform(const Tensor& tensor, double low, double high, std::uint64_t seed, std::uint64_t stream);
void fill_normal(const Tensor& tensor, double mean, double deviation, std::uint64_t seed, std::uint64_t stream);

/// 0 .. count-1 in random order.
std::vector<std::int64_t> permutation(std::int64_t count, std::uint64_t seed, std::uint64_t stream);

}  // namespace frit

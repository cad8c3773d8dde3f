#pragma once

#include <cstdint>

namespace frit::cuda {

/// N elements that are read and written at once.
template <class T, int N>
struct alignas(sizeof(T) * N) Vector {
  T values[N];

  __device__ T& operator[](int i) { return values[i]; }
  __device__ const T& operator[](int i) const { return values[i]; }
};

/// As many as one 16-byte access carries.
template <class T>
inline constexpr int vector_width = 16 / static_cast<int>(sizeof(T));

template <class T>
using WideVector = Vector<T, vector_width<T>>;

#ifdef __CUDACC__  // not for the .cpp files that only ask for widths
/// Of 16 bytes that nobody reads again soon: the caches keep other data.
template <class T>
__device__ WideVector<T> load_once(const T* memory) {
  const uint4 words = __ldcs(reinterpret_cast<const uint4*>(memory));
  WideVector<T> elements;
  memcpy(&elements, &words, sizeof(words));
  return elements;
}
template <class T>
__device__ void store_once(T* memory, const WideVector<T>& elements) {
  uint4 words;
  memcpy(&words, &elements, sizeof(words));
  __stcs(reinterpret_cast<uint4*>(memory), words);
}
#endif

inline bool aligned_for_vectors(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % 16 == 0; }

}  // namespace frit::cuda

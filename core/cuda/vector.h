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

inline bool aligned_for_vectors(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % 16 == 0; }

}  // namespace frit::cuda

#pragma once

#include <bit>
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
/// A vector in the words in which registers hold it: taken apart where an element is used, so that nothing waits where it is loaded.
template <class T, int N>
struct VectorWords {
  static constexpr int count = sizeof(T) * N < 4 ? 1 : static_cast<int>(sizeof(T)) * N / 4;

  std::uint32_t words[count];

  __device__ T operator[](int i) const {
    if constexpr (sizeof(T) == 1) {
      return std::bit_cast<T>(static_cast<std::uint8_t>(words[i / 4] >> (i % 4 * 8)));
    } else if constexpr (sizeof(T) == 2) {
      return std::bit_cast<T>(static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16)));
    } else if constexpr (sizeof(T) == 4) {
      return std::bit_cast<T>(words[i]);
    } else {
      return std::bit_cast<T>(static_cast<std::uint64_t>(words[2 * i]) | static_cast<std::uint64_t>(words[2 * i + 1]) << 32);
    }
  }

  /// `aligned`: the memory may be accessed in vectors of 16 bytes, or of as many as there are.
  __device__ static VectorWords load(const T* memory, bool aligned) {
    VectorWords result;
    if (sizeof(T) * N < 4 || !aligned) {
      Vector<T, N> elements;
#pragma unroll
      for (int i = 0; i < N; ++i) elements[i] = memory[i];
      result.words[0] = 0;
      memcpy(result.words, &elements, sizeof(elements));
    } else if constexpr (count % 4 == 0) {
#pragma unroll
      for (int i = 0; i < count; i += 4) {
        const uint4 words = reinterpret_cast<const uint4*>(memory)[i / 4];
        result.words[i] = words.x, result.words[i + 1] = words.y, result.words[i + 2] = words.z, result.words[i + 3] = words.w;
      }
    } else if constexpr (count == 2) {
      const uint2 words = *reinterpret_cast<const uint2*>(memory);
      result.words[0] = words.x, result.words[1] = words.y;
    } else {
      static_assert(count == 1);
      result.words[0] = *reinterpret_cast<const std::uint32_t*>(memory);
    }
    return result;
  }
};

/// To global memory, in one access where that is 8 or 16 bytes: the assignment of a struct may be taken apart.
template <class T, int N>
__device__ void store_vector(T* memory, const Vector<T, N>& elements) {
  if constexpr (sizeof(elements) == 16) {
    uint4 words;
    memcpy(&words, &elements, sizeof(words));
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(memory), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
                 : "memory");
  } else if constexpr (sizeof(elements) == 8) {
    uint2 words;
    memcpy(&words, &elements, sizeof(words));
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(memory), "r"(words.x), "r"(words.y) : "memory");
  } else {
    *reinterpret_cast<Vector<T, N>*>(memory) = elements;
  }
}

/// The same of any number of elements, at most 16 bytes at a time; `aligned` as for VectorWords::load.
template <class T, int N>
__device__ void store_elements(T* memory, const Vector<T, N>& elements, bool aligned) {
  constexpr int at_once = N < vector_width<T> ? N : vector_width<T>;
  if (aligned) {
#pragma unroll
    for (int i = 0; i < N; i += at_once) {
      Vector<T, at_once> part;
#pragma unroll
      for (int k = 0; k < at_once; ++k) part[k] = elements[i + k];
      store_vector(memory + i, part);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) memory[i] = elements[i];
  }
}

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

/// The address of shared memory, as instructions take it.
__device__ inline std::uint32_t shared_address(const void* memory) { return static_cast<std::uint32_t>(__cvta_generic_to_shared(memory)); }
template <class T>
__device__ WideVector<T> load_shared(std::uint32_t address) {
  uint4 words;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(address)
               : "memory");
  WideVector<T> elements;
  memcpy(&elements, &words, sizeof(words));
  return elements;
}
template <class T>
__device__ void store_shared(std::uint32_t address, const WideVector<T>& elements) {
  uint4 words;
  memcpy(&words, &elements, sizeof(words));
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
}
#endif

#ifdef __CUDACC__
__host__ __device__
#endif
inline bool aligned_for_vectors(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % 16 == 0; }

}  // namespace frit::cuda

#pragma once

#include "frit/ops/cpu/gemm.h"

namespace frit::ops {

/// How gemm takes a b that comes packed, as products read it: only one that is the same for a whole batch can.
struct PackedOperand {
  std::int64_t elements = 0;  ///< 0: it cannot
  bool needed = false;        ///< else it packs part by part what comes unpacked: each part is read once
};
PackedOperand packed_operand(const GemmShape& shape, std::size_t element_size);
template <class T>
void pack_b(const GemmShape& shape, const T* b, T* packed);

/// As gemm, with the same bits. `packed` may be null; else `b` is not read.
template <class T>
void gemm(const GemmShape& shape, const T* a, const T* b, const T* packed, const T* bias, T* c, std::span<std::byte> scratch);

extern template void pack_b(const GemmShape&, const float*, float*);
extern template void pack_b(const GemmShape&, const double*, double*);
extern template void gemm(const GemmShape&, const float*, const float*, const float*, const float*, float*, std::span<std::byte>);
extern template void gemm(const GemmShape&, const double*, const double*, const double*, const double*, double*, std::span<std::byte>);

}  // namespace frit::ops

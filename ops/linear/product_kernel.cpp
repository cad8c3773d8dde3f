#include "frit/ops/linear/product_kernel.h"

#include "frit/ops/cpu/packed_gemm.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

struct Product {
  ProductRule shape;

  GemmShape of(const KernelContext& call) const { return shape(call.inputs[0].shape(), call.inputs[1].shape(), call.attributes); }
  GemmShape of(const InferContext& call) const { return shape(call.shape(0), call.shape(1), call.attributes); }

  void run(const KernelContext& call) const {
    dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
      const T* const packed = call.prepacked.empty() ? nullptr : scratch_part<T>(call.prepacked, 0);
      const T* const b = packed == nullptr ? call.inputs[1].data<T>() : nullptr;
      const T* const bias = call.has(2) ? call.inputs[2].data<T>() : nullptr;
      gemm(of(call), call.inputs[0].data<T>(), b, packed, bias, call.outputs[0].data<T>(), call.scratch);
    });
  }
  std::size_t scratch(const InferContext& call) const { return gemm_scratch(of(call), size_of(call.inputs[0].dtype)); }

  Prepacking prepacking(const InferContext& call) const {
    const std::size_t size = size_of(call.inputs[0].dtype);
    const PackedOperand packed = packed_operand(of(call), size);
    return {.bytes = static_cast<std::size_t>(packed.elements) * size, .input = 1, .in_parts = !packed.needed};
  }
  void prepack(const KernelContext& call) const {
    dispatch_floating(call.inputs[1].dtype(),
                      [&]<class T>() { pack_b(of(call), call.inputs[1].data<T>(), scratch_part<T>(call.prepacked, 0)); });
  }
};

}  // namespace

Kernel product_kernel(ProductRule shape) {
  const Product product{std::move(shape)};
  return {.run = [=](const KernelContext& call) { product.run(call); },
          .scratch = [=](const InferContext& call) { return product.scratch(call); },
          .prepacking = [=](const InferContext& call) { return product.prepacking(call); },
          .prepack = [=](const KernelContext& call) { product.prepack(call); }};
}

}  // namespace frit::ops

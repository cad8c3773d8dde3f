#include "frit/ops/linear/product_kernel.h"

#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

/// Bytes of a tensor in halves as float32, of which there are none of another.
std::size_t wide_bytes(const TensorType& type) {
  return is_half(type.dtype) ? aligned(static_cast<std::size_t>(TensorType{DType::f32, type.shape}.bytes())) : 0;
}

/// Gives tensors in halves stand-ins in float32, one after the other in memory.
class StandIns {
 public:
  explicit StandIns(std::span<std::byte> memory) : rest_(memory) {}

  Tensor of(const Tensor& tensor) {
    const std::size_t bytes = wide_bytes({tensor.dtype(), tensor.shape()});
    if (!is_half(tensor.dtype())) return tensor;
    const Tensor result = Tensor::over(rest_.data(), tensor.shape(), DType::f32, tensor.device(), nullptr);
    rest_ = rest_.subspan(bytes);
    return result;
  }
  /// With its elements.
  Tensor filled(const Tensor& tensor) {
    const Tensor result = of(tensor);
    if (is_half(tensor.dtype())) copy(result, tensor);
    return result;
  }
  std::span<std::byte> rest() const { return rest_; }

 private:
  std::span<std::byte> rest_;
};

/// Halves are computed in float32: b as it is prepacked, the others in scratch memory.
struct Product {
  ProductRule shape;

  GemmShape of(const KernelContext& call) const { return shape(call.inputs[0].shape(), call.inputs[1].shape(), call.attributes); }
  GemmShape of(const InferContext& call) const { return shape(call.shape(0), call.shape(1), call.attributes); }

  void run(const KernelContext& call) const {
    StandIns stand_ins(call.scratch);
    const Tensor a = stand_ins.filled(call.inputs[0]), result = stand_ins.of(call.outputs[0]);
    const Tensor bias = call.has(2) ? stand_ins.filled(call.inputs[2]) : Tensor();
    dispatch_floating(a.dtype(), [&]<class T>() {
      const std::size_t wide = wide_bytes({call.inputs[1].dtype(), call.inputs[1].shape()});
      const T* const packed = call.prepacked.size() > wide ? scratch_part<T>(call.prepacked, wide) : nullptr;
      const T* b = nullptr;
      if (packed == nullptr) b = is_half(call.inputs[1].dtype()) ? scratch_part<T>(call.prepacked, 0) : call.inputs[1].data<T>();
      gemm(of(call), a.data<T>(), b, packed, data_or_null<T>(bias), result.data<T>(), stand_ins.rest());
    });
    if (is_half(call.outputs[0].dtype())) copy(call.outputs[0], result);
  }
  std::size_t scratch(const InferContext& call) const {
    std::size_t wide = wide_bytes(call.op.infer_types(call.inputs, call.attributes).at(0));
    for (std::size_t i = 0; i < call.inputs.size(); ++i) wide += i == 1 ? 0 : wide_bytes(call.inputs[i]);
    return wide + gemm_scratch(of(call), size_of(computed_dtype(call.inputs[0].dtype)));
  }

  /// A b in halves as float32, if it is one, and after it the packed b.
  Prepacking prepacking(const InferContext& call) const {
    const std::size_t size = size_of(computed_dtype(call.inputs[1].dtype)), wide = wide_bytes(call.inputs[1]);
    const PackedOperand packed = packed_operand(of(call), size);
    return {.bytes = wide + static_cast<std::size_t>(packed.elements) * size, .input = 1, .in_parts = wide == 0 && !packed.needed};
  }
  void prepack(const KernelContext& call) const {
    StandIns stand_ins(call.prepacked);
    const Tensor b = stand_ins.filled(call.inputs[1]);
    if (stand_ins.rest().empty()) return;
    dispatch_floating(b.dtype(), [&]<class T>() { pack_b(of(call), b.data<T>(), scratch_part<T>(stand_ins.rest(), 0)); });
  }
};

}  // namespace

Kernel product_kernel(ProductRule shape) {
  const Product product{std::move(shape)};
  return {.run = [=](const KernelContext& call) { product.run(call); },
          .halves = true,
          .scratch = [=](const InferContext& call) { return product.scratch(call); },
          .prepacking = [=](const InferContext& call) { return product.prepacking(call); },
          .prepack = [=](const KernelContext& call) { product.prepack(call); }};
}

}  // namespace frit::ops

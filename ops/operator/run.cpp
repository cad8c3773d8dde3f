#include "frit/ops/operator/run.h"

#include <algorithm>
#include <limits>

#include "frit/core/cuda/device.h"
#include "frit/core/strided_loop.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

TensorType widened(TensorType type) {
  if (is_half(type.dtype)) type.dtype = DType::f32;
  return type;
}

std::vector<TensorType> widened(std::span<const TensorType> types) {
  std::vector<TensorType> result;
  for (const TensorType& type : types) result.push_back(widened(type));
  return result;
}

bool needs_widening(const Kernel& kernel, std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  const auto half = [](const Tensor& tensor) { return tensor.defined() && is_half(tensor.dtype()); };
  return !kernel.halves && (std::any_of(inputs.begin(), inputs.end(), half) || std::any_of(outputs.begin(), outputs.end(), half));
}

std::size_t kernel_scratch(const InferContext& call, const Kernel& kernel, bool prepacked) {
  const Prepacking prepacking = kernel.prepacking && !prepacked ? kernel.prepacking(call) : Prepacking();
  return (kernel.scratch ? aligned(kernel.scratch(call)) : 0) + (prepacking.in_parts ? 0 : aligned(prepacking.bytes));
}

void run_kernel(const Kernel& kernel, KernelContext call) {
  if (kernel.prepacking && call.prepacked.empty()) {
    const std::vector<TensorType> types = types_of(call.inputs);
    const CallLayouts layouts = layouts_of(call);
    const Prepacking prepacking = kernel.prepacking(InferContext{call.op, types, call.attributes, layouts});
    if (const std::size_t bytes = aligned(prepacking.bytes); bytes > 0 && !prepacking.in_parts) {
      FRIT_CHECK(bytes <= call.scratch.size());
      call.prepacked = call.scratch.first(bytes);
      call.scratch = call.scratch.subspan(bytes);
      kernel.prepack(call);
    }
  }
  kernel.run(call);
}

Device device_of(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  return inputs.empty() ? outputs[0].device() : inputs[0].device();
}

/// Throws ErrorKind::argument for the first of a chunk's indices that is outside [least, count).
template <class T>
void check_indices(const KernelContext& call, const IndexInput& declared, std::int64_t count) {
  constexpr std::int64_t largest = std::numeric_limits<T>::max();
  if (count > largest && declared.least <= std::numeric_limits<T>::min()) return;
  const T least = static_cast<T>(declared.least), last = static_cast<T>(std::min(count - 1, largest));
  const auto input = static_cast<std::size_t>(declared.input);
  const T* const indices = call.inputs[input].data<T>();
  const auto outside = [&](T index) { return index < least || index > last; };
  parallel_for(call.inputs[input].elements(), 4 * elementwise_grain, [&](std::int64_t begin, std::int64_t end) {
    T lowest = indices[begin], highest = indices[begin];
    for (std::int64_t i = begin; i < end; ++i) {  // by value, so that the loop becomes vector code
      const T index = indices[i];
      lowest = index < lowest ? index : lowest;
      highest = index > highest ? index : highest;
    }
    if (lowest >= least && highest <= last) return;
    const T* const first = std::find_if(indices + begin, indices + end, outside);
    fail(ErrorKind::argument, call.op.name, ": input \"", call.op.inputs[input].name, "\" has ", +*first, " at element ", first - indices,
         ", expected an index in [", declared.least, ", ", count, ')');
  });
}

void check_indices(const KernelContext& call) {
  if (call.op.index_inputs.empty()) return;
  const std::vector<TensorType> types = types_of(call.inputs);
  for (const IndexInput& declared : call.op.index_inputs) {
    const std::int64_t count = declared.count({call.op, types, call.attributes});
    switch (types[static_cast<std::size_t>(declared.input)].dtype) {
      case DType::u8: check_indices<std::uint8_t>(call, declared, count); break;
      case DType::i32: check_indices<std::int32_t>(call, declared, count); break;
      default: check_indices<std::int64_t>(call, declared, count);
    }
  }
}

/// Half tensors get a float32 stand-in each, in the same layout, carved from the scratch memory.
class WidenedCall {
 public:
  WidenedCall(std::span<const Tensor> inputs, std::span<const Tensor> outputs, std::span<std::byte> scratch) : scratch_(scratch) {
    for (const Tensor& input : inputs) {
      inputs_.push_back(stand_in(input));
      if (is_half(input.dtype())) copy(inputs_.back(), input);
    }
    for (const Tensor& output : outputs) outputs_.push_back(output.defined() ? stand_in(output) : output);
  }

  std::span<const Tensor> inputs() const { return inputs_; }
  std::span<const Tensor> outputs() const { return outputs_; }
  std::span<std::byte> rest() const { return scratch_; }

 private:
  Tensor stand_in(const Tensor& tensor) {
    if (!is_half(tensor.dtype())) return tensor;
    const std::size_t bytes = aligned(static_cast<std::size_t>(tensor.elements()) * sizeof(float));
    FRIT_CHECK(bytes <= scratch_.size());
    Tensor result = Tensor::over(scratch_.data(), tensor.shape(), DType::f32, tensor.device(), nullptr, tensor.layout());
    scratch_ = scratch_.subspan(bytes);
    return result;
  }

  std::span<std::byte> scratch_;
  std::vector<Tensor> inputs_, outputs_;
};

}  // namespace

std::vector<TensorType> types_of(std::span<const Tensor> tensors) {
  std::vector<TensorType> types;
  for (const Tensor& tensor : tensors) types.push_back({tensor.dtype(), tensor.shape()});
  return types;
}

CallLayouts layouts_of(const KernelContext& call) {
  CallLayouts layouts;
  for (const Tensor& input : call.inputs) layouts.inputs.push_back(input.defined() ? input.layout() : Layout::contiguous);
  for (const Tensor& output : call.outputs) layouts.outputs.push_back(output.defined() ? output.layout() : Layout::contiguous);
  return layouts;
}

std::size_t scratch_bytes(const Operator& op, std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                          const Attributes& attributes, Device device, CallLayouts layouts, bool prepacked) {
  const Kernel& kernel = op.kernel_on(device);
  if (device.kind == DeviceKind::cuda) (void)cuda::compute_stream(device.index);  // a scratch rule may try algorithms on the current device
  if (kernel.halves) return kernel_scratch({op, inputs, attributes, layouts}, kernel, prepacked);
  const std::vector<TensorType> wide = widened(inputs);
  std::size_t bytes = kernel_scratch({op, wide, attributes, layouts}, kernel, prepacked);
  const auto add = [&](const TensorType& type) {
    if (is_half(type.dtype)) bytes += aligned(static_cast<std::size_t>(widened(type).bytes()));
  };
  for (const TensorType& type : inputs) add(type);
  for (const TensorType& type : outputs) add(type);
  return bytes;
}

Prepacking prepacking_of(const Operator& op, std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                         const Attributes& attributes, Device device, const CallLayouts& layouts) {
  const Kernel& kernel = op.kernel_on(device);
  const auto half = [](const TensorType& type) { return is_half(type.dtype); };
  const bool converts = std::any_of(inputs.begin(), inputs.end(), half) || std::any_of(outputs.begin(), outputs.end(), half);
  if (!kernel.prepacking || (!kernel.halves && converts)) return {};
  Prepacking result = kernel.prepacking(InferContext{op, inputs, attributes, layouts});
  result.bytes = aligned(result.bytes);
  return result;
}

void prepack(const Operator& op, const Attributes& attributes, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
             std::span<std::byte> prepacked) {
  const Device device = device_of(inputs, outputs);
  CUstream_st* const stream = device.kind == DeviceKind::cuda ? cuda::compute_stream(device.index) : nullptr;
  op.kernel_on(device).prepack({op, attributes, inputs, outputs, {}, stream, prepacked});
}

void invoke(const Operator& op, const Attributes& attributes, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
            std::span<std::byte> scratch, std::span<std::byte> prepacked) {
  const Device device = device_of(inputs, outputs);
  const Kernel& kernel = op.kernel_on(device);
  CUstream_st* const stream = device.kind == DeviceKind::cuda ? cuda::compute_stream(device.index) : nullptr;
  const auto run = [&](const KernelContext& call) {
    if (device.kind == DeviceKind::cpu) check_indices(call);  // a CUDA kernel looks to it
    run_kernel(kernel, call);
  };
  if (!needs_widening(kernel, inputs, outputs)) return run({op, attributes, inputs, outputs, scratch, stream, prepacked});
  const WidenedCall call(inputs, outputs, scratch);
  run({op, attributes, call.inputs(), call.outputs(), call.rest(), stream});
  for (const int i : op.mutates) {
    const auto input = static_cast<std::size_t>(i);
    if (input < inputs.size() && is_half(inputs[input].dtype())) copy(inputs[input], call.inputs()[input]);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].defined() && is_half(outputs[i].dtype())) copy(outputs[i], call.outputs()[i]);
  }
}

void invoke(std::vector<KernelContext> calls) {
  const Device device = device_of(calls[0].inputs, calls[0].outputs);
  const Kernel& kernel = calls[0].op.kernel_on(device);
  const auto widens = [&](const KernelContext& call) { return needs_widening(kernel, call.inputs, call.outputs); };
  if (!kernel.run_together || std::any_of(calls.begin(), calls.end(), widens)) {
    for (const KernelContext& call : calls) invoke(call.op, call.attributes, call.inputs, call.outputs, call.scratch, call.prepacked);
    return;
  }
  for (KernelContext& call : calls) {
    if (device.kind == DeviceKind::cpu) check_indices(call);
    if (device.kind == DeviceKind::cuda) call.stream = cuda::compute_stream(device.index);
  }
  kernel.run_together(calls);
}

std::string schedule_of(const Operator& op, const Attributes& attributes, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                        std::span<std::byte> scratch) {
  const Device device = device_of(inputs, outputs);
  const Kernel& kernel = op.kernel_on(device);
  if (needs_widening(kernel, inputs, outputs)) return "converted to f32 and back";
  if (device.kind == DeviceKind::cuda) (void)cuda::compute_stream(device.index);  // a kernel may ask the current device
  return kernel.describe ? kernel.describe({op, attributes, inputs, outputs, scratch}) : "";
}

namespace {

/// As kernels take what they only read: contiguous, and on a GPU where vectors can be read, as a graph brings them to kernels that do not
/// take any strides.
Tensor in_order(const Tensor& tensor) {
  constexpr std::uintptr_t vector_bytes = 16;
  const bool aligned = tensor.device() == Device::cpu() || reinterpret_cast<std::uintptr_t>(tensor.raw()) % vector_bytes == 0;
  return aligned ? tensor.contiguous() : tensor.clone();
}

}  // namespace

std::vector<Tensor> run(const Operator& op, std::span<const Tensor> given, const Attributes& attributes) {
  const Device device = given.empty() ? Device::cpu() : given[0].device();
  std::vector<TensorType> types;
  std::vector<Tensor> inputs;
  for (const Tensor& input : given) {
    require(input.device() == device, op.name, ": inputs are on ", device, " and ", input.device());
    types.push_back({input.dtype(), input.shape()});
    const bool updated = std::find(op.mutates.begin(), op.mutates.end(), static_cast<int>(inputs.size())) != op.mutates.end();
    inputs.push_back(updated || (!op.view && op.kernel_on(device).strided) ? input : in_order(input));
  }
  for (const int i : op.mutates) {
    const auto input = static_cast<std::size_t>(i);
    require(input >= given.size() || given[input].is_contiguous(), op.name, ": input \"",
            op.inputs[std::min(input, op.inputs.size() - 1)].name, "\" is updated in place and must be contiguous");
  }
  const std::vector<TensorType> results = op.infer_types(types, attributes);
  if (op.view) return {inputs[0].reshape(results[0].shape)};
  std::vector<Tensor> outputs;
  for (const TensorType& type : results) outputs.push_back(Tensor::empty(type.shape, type.dtype, device));
  const std::size_t bytes = scratch_bytes(op, types, results, attributes, device);
  const Tensor scratch = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8, device);
  invoke(op, attributes, inputs, outputs, {static_cast<std::byte*>(scratch.raw()), bytes});
  return outputs;
}

std::vector<Tensor> run(std::string_view op, const std::vector<Tensor>& inputs, const Attributes& attributes) {
  return run(registry().find(op), inputs, attributes);
}

}  // namespace frit::ops

#pragma once

// Whether kernels take their images in the layouts that they say they take.

#include <optional>

#include "frit/ops/operator/unplaced_call.h"
#include "ops/operator_checks.h"

namespace frit {

inline bool mixes_layouts(const ops::Kernel& kernel, const ops::Attributes& attributes) {
  return kernel.mixes_layouts && kernel.mixes_layouts(attributes);
}

/// The layouts of a call's operands, of those that may lie in either: bit i of `mixture` is for input i of these, then for outputs. None if
/// the kernel does not take that mixture, or the call has not all of these operands.
inline std::optional<ops::CallLayouts> mixture_of_layouts(const Operator& op, const ops::Kernel& kernel, const ops::Attributes& attributes,
                                                          std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                                                          unsigned mixture) {
  const std::vector<int>&in = kernel.any_layout_inputs, &out = kernel.any_layout_outputs;
  const bool one_layout = kernel.one_layout && !mixes_layouts(kernel, attributes);
  unsigned used = 0;
  bool mixed = false;
  const auto layout = [&](const std::vector<int>& free, std::size_t operand, std::size_t first_bit, int rank) {
    const auto place = std::find(free.begin(), free.end(), static_cast<int>(operand));
    const bool has_other_axes = one_layout && rank != inputs[static_cast<std::size_t>(in.at(0))].shape.rank();
    if (place == free.end() || rank < 4 || has_other_axes) return Layout::contiguous;
    const unsigned bit = mixture & 1u << (first_bit + static_cast<std::size_t>(place - free.begin()));
    used |= bit;
    mixed = mixed || bit == 0;
    return bit != 0 ? Layout::channels_last : Layout::contiguous;
  };
  ops::CallLayouts layouts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::size_t declared = op.variadic ? std::min(i, op.inputs.size() - 1) : i;
    layouts.inputs.push_back(layout(in, declared, 0, inputs[i].shape.rank()));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) layouts.outputs.push_back(layout(out, i, in.size(), outputs[i].shape.rank()));
  if (used != mixture || (mixed && one_layout)) return std::nullopt;
  return layouts;
}

/// Whether every mixture of layouts that the operator's kernel says it takes gives the results of contiguous tensors on the CPU.
inline testing::AssertionResult takes_its_layouts(const Operator& op, const ops::Attributes& attributes, const std::vector<Tensor>& given,
                                                  Device device) {
  if (op.view) return testing::AssertionSuccess();  // runs no kernel
  const ops::Kernel& kernel = op.kernel_on(device);
  const std::vector<TensorType> input_types = types_of(given), types = op.infer_types(input_types, attributes);
  const std::size_t free = kernel.any_layout_inputs.size() + kernel.any_layout_outputs.size();
  const DType dtype = given[0].dtype();
  const double tolerance = is_half(dtype) ? 2e-3 : dtype == DType::f64 ? 1e-10 : 2e-5;
  for (unsigned mixture = 1; mixture < 1u << free; ++mixture) {
    const auto layouts = mixture_of_layouts(op, kernel, attributes, input_types, types, mixture);
    if (!layouts) continue;
    std::vector<Tensor> inputs, outputs;
    for (std::size_t i = 0; i < given.size(); ++i) inputs.push_back(given[i].clone().to(device).contiguous(layouts->inputs[i]));
    for (std::size_t i = 0; i < types.size(); ++i) {
      outputs.push_back(Tensor::empty(types[i].shape, types[i].dtype, device, layouts->outputs[i]));
    }
    const std::size_t bytes = ops::scratch_bytes(op, input_types, types, attributes, device, *layouts);
    const Tensor scratch = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8, device);
    ops::invoke(op, attributes, inputs, outputs, {static_cast<std::byte*>(scratch.raw()), bytes});
    const std::vector<Tensor> expected = ops::run(op, clones(given), attributes);
    if (outputs.size() != expected.size()) return testing::AssertionFailure() << outputs.size() << " results";
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Tensor found = outputs[i].to(Device::cpu());
      const double allowed = is_floating(expected[i].dtype()) ? tolerance : 0;
      if (const auto same = near(found, expected[i], allowed, std::max(1e-3, largest_finite(expected[i]))); !same) {
        return testing::AssertionFailure() << "mixture " << mixture << ", output " << i << ": " << same.message();
      }
    }
  }
  return testing::AssertionSuccess();
}

/// The same image as some channels of a channels-last one that is full of 77; `margin` of them before and after.
inline Tensor part_of_wider(const Tensor& image, std::int64_t margin) {
  Shape wide = image.shape();
  wide[1] += 2 * margin;
  const Tensor whole = Tensor::empty(wide, image.dtype(), image.device(), Layout::channels_last);
  whole.fill(77);
  const Tensor part = whole.slice(1, margin, margin + image.dim(1));
  copy(part, image);
  return part;
}
inline bool is_margin_untouched(const Tensor& part, std::int64_t margin) {
  if (part.elements() == 0) return true;
  Shape wide = part.shape();
  wide[1] += 2 * margin;
  auto* const begin = static_cast<std::byte*>(part.raw()) - margin * static_cast<std::int64_t>(size_of(part.dtype()));
  const Tensor whole = Tensor::over(begin, wide, part.dtype(), part.device(), nullptr, Layout::channels_last);
  for (const std::int64_t first : {std::int64_t{0}, margin + part.dim(1)}) {
    for (const double value : whole.slice(1, first, first + margin).to(Device::cpu()).to_vector<double>()) {
      if (value != 77) return false;
    }
  }
  return true;
}

/// Whether a call whose images are parts of wider ones, one of them or all, gives what it gives of wholes on the CPU, wherever the kernel
/// says that it takes them; `taken` counts these calls.
inline testing::AssertionResult takes_its_parts(const Operator& op, const ops::Attributes& attributes, const std::vector<Tensor>& given,
                                                Device device, int& taken) {
  if (op.view) return testing::AssertionSuccess();  // runs no kernel
  const ops::Kernel& kernel = op.kernel_on(device);
  if (!kernel.takes_parts) return testing::AssertionSuccess();
  const std::vector<TensorType> input_types = types_of(given), types = op.infer_types(input_types, attributes);
  const DType dtype = given[0].dtype();
  const double tolerance = is_half(dtype) ? 2e-3 : dtype == DType::f64 ? 1e-10 : 2e-5;
  const std::size_t operands = given.size() + types.size();
  const std::vector<Tensor> expected = ops::run(op, clones(given), attributes);
  for (const std::int64_t margin : {1, 16}) {
    for (std::size_t only = 0; only <= operands; ++only) {
      int parts = 0;
      const auto place = [&](const Tensor& tensor, std::size_t operand) {
        if (tensor.rank() < 4) return tensor;
        if (only < operands && only != operand) return tensor.contiguous(Layout::channels_last);
        ++parts;
        return part_of_wider(tensor, margin);
      };
      std::vector<Tensor> inputs, outputs;
      for (std::size_t i = 0; i < given.size(); ++i) {
        const auto declared = static_cast<int>(op.variadic ? std::min(i, op.inputs.size() - 1) : i);
        const bool is_free = std::count(kernel.any_layout_inputs.begin(), kernel.any_layout_inputs.end(), declared) > 0 && !mutates(op, i);
        const Tensor own = given[i].clone().to(device);
        inputs.push_back(is_free ? place(own, i) : own);
      }
      for (std::size_t i = 0; i < types.size(); ++i) {
        outputs.push_back(place(Tensor::empty(types[i].shape, types[i].dtype, device), given.size() + i));
      }
      if (parts == 0 || !kernel.takes_parts({op, attributes, inputs, outputs, {}})) continue;
      ++taken;
      const std::vector<Tensor> of_inputs = ops::wholes(inputs), of_outputs = ops::wholes(outputs);
      const ops::CallLayouts layouts = ops::layouts_of({op, attributes, of_inputs, of_outputs, {}});
      const std::size_t bytes = ops::scratch_bytes(op, input_types, types, attributes, device, layouts);
      const Tensor scratch = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8, device);
      ops::invoke(op, attributes, inputs, outputs, {static_cast<std::byte*>(scratch.raw()), bytes});
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double allowed = is_floating(expected[i].dtype()) ? tolerance : 0;
        const auto same = near(outputs[i].to(Device::cpu()), expected[i], allowed, std::max(1e-3, largest_finite(expected[i])));
        const bool is_part = outputs[i].rank() >= 4 && (only == operands || only == given.size() + i);
        if (same && (!is_part || is_margin_untouched(outputs[i], margin))) continue;
        return testing::AssertionFailure() << "operand " << only << " of " << operands << ", margin " << margin << ", output " << i << ": "
                                           << same.message();
      }
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace frit

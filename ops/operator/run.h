#pragma once

#include "frit/ops/operator/kernel.h"

namespace frit::ops {

std::vector<TensorType> types_of(std::span<const Tensor> tensors);
/// As its tensors lie; undefined ones count as contiguous.
CallLayouts layouts_of(const KernelContext& call);

/// Scratch memory that one call of `op` on the device needs, conversions of half inputs and outputs included, and what it prepacks,
/// unless that comes `prepacked`. The tensors lie as `layouts` says.
std::size_t scratch_bytes(const Operator& op, std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                          const Attributes& attributes, Device device = {}, CallLayouts layouts = {}, bool prepacked = false);

/// What such a call prepacks, for memory outside its scratch memory; the bytes are a multiple of 64. Nothing where halves are converted.
Prepacking prepacking_of(const Operator& op, std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                         const Attributes& attributes, Device device, const CallLayouts& layouts);
/// Prepacks for a call into `prepacked`, of so many bytes.
void prepack(const Operator& op, const Attributes& attributes, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
             std::span<std::byte> prepacked);

/// Runs the kernel over bound tensors: the one way in which kernels are called, by `run` and by the executable. Half tensors are converted
/// to f32 in `scratch` and back (mutated inputs too) unless the kernel takes halves. Inputs are contiguous unless the kernel is `strided`.
/// Where nothing comes prepacked, the call does that itself, in scratch memory.
void invoke(const Operator& op, const Attributes& attributes, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
            std::span<std::byte> scratch, std::span<std::byte> prepacked = {});
/// Likewise for one or more calls of one operator as Kernel::run_together takes them, whose streams are set here.
void invoke(std::vector<KernelContext> calls);

/// The way in which `invoke` computes a call, as its kernel describes it; empty where there is one.
std::string schedule_of(const Operator& op, const Attributes& attributes, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                        std::span<std::byte> scratch);

/// Infers, allocates, and runs at once, outside of any graph: for constant folding, tests and tools. Throws like graph building does.
std::vector<Tensor> run(const Operator& op, std::span<const Tensor> inputs, const Attributes& attributes = {});
std::vector<Tensor> run(std::string_view op, const std::vector<Tensor>& inputs, const Attributes& attributes = {});

}  // namespace frit::ops

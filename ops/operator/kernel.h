#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frit/core/strided_map.h"
#include "frit/ops/operator/attributes.h"
#include "frit/ops/operator/partial_moments.h"
#include "frit/ops/operator/value.h"

struct CUstream_st;  // what cudaStream_t points to

namespace frit::ops {

struct ElementwiseProgram;
struct Operator;
struct OperatorCall;

/// How the tensors of a call lie; where a list is empty, contiguous.
struct CallLayouts {
  std::vector<Layout> inputs = {}, outputs = {};
};

/// One call of an operator as an inference rule sees it: types and attributes, no data. A scratch rule sees the layouts too.
struct InferContext {
  const Operator& op;
  std::span<const TensorType> inputs;
  const Attributes& attributes;
  const CallLayouts& layouts = contiguous;

  template <class A>
  const A& as() const {
    return attributes.as<A>();
  }
  const Shape& shape(std::size_t input) const { return inputs[input].shape; }
  Layout input_layout(std::size_t input) const { return input < layouts.inputs.size() ? layouts.inputs[input] : Layout::contiguous; }
  bool has(std::size_t input) const { return input < inputs.size(); }
  /// Throws ErrorKind::argument "name: parts..." unless the condition holds.
  template <class... Parts>
  void require(bool condition, const Parts&... parts) const {
    if (!condition) fail_call(concat(parts...));
  }

 private:
  inline static const CallLayouts contiguous = {};
  [[noreturn]] void fail_call(const std::string& message) const;
};

/// One call as a kernel sees it. Inputs are contiguous unless the kernel declares `strided`. An output that nobody reads is undefined, and
/// the kernel need not compute it. `scratch` holds the bytes that the scratch rule asked for, 64-byte aligned. Calls that share no memory
/// may run at the same time.
struct KernelContext {
  const Operator& op;
  const Attributes& attributes;
  std::span<const Tensor> inputs;
  std::span<const Tensor> outputs;
  std::span<std::byte> scratch;
  CUstream_st* stream = nullptr;        ///< on a CUDA device: where the work is ordered
  std::span<std::byte> prepacked = {};  ///< what Kernel::prepack wrote, 64-byte aligned
  PartialMoments moments = {};          ///< see Operator::reads_moments

  template <class A>
  const A& as() const {
    return attributes.as<A>();
  }
  bool has(std::size_t input) const { return input < inputs.size(); }
};

/// Of an output that may be undefined.
template <class T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

using KernelFunction = std::function<void(const KernelContext&)>;
/// What computes an elementwise call's elements on the CPU: from its attributes and dtypes, and from the data of inputs of one element.
using ElementRule = std::function<ElementFunction(const KernelContext&)>;

/// An elementwise operator's functor as data, for CUDA kernels that compute several operators at once.
struct FunctorData {
  std::uint8_t number = 0;                          ///< which functor it is; see ops/elementwise/functions.h
  alignas(double) std::array<std::byte, 16> state;  ///< what it holds
};

/// What a call is computed together with, while its data is at hand: programs of elementwise operators, which keep the shape, on input
/// `input`, which is undefined then, and on output 0, where what the program gives is written then.
struct Stages {
  const ElementwiseProgram& before;  ///< its one result is the input; without instructions: the input is a tensor
  std::size_t input;
  TensorType input_type;
  std::span<const Tensor> before_inputs;
  const ElementwiseProgram& after;  ///< its input 0 is what output 0 would be, and its one result what is written there; or empty likewise
  std::span<const Tensor> after_inputs;  ///< its further inputs
  PartialMoments moments = {};           ///< where those of what is written to output 0 are to be written, too

  /// Of the program after the call, which gives `result`.
  std::vector<Tensor> after_operands(const Tensor& result) const {
    std::vector<Tensor> operands = {result};
    operands.insert(operands.end(), after_inputs.begin(), after_inputs.end());
    return operands;
  }
};

/// What computes calls with their stages.
struct StagedKernel {
  /// Whether it can; looks at types and layouts alone, and at nothing that lies in memory.
  std::function<bool(const KernelContext&, const Stages&)> takes = {};
  std::function<void(const KernelContext&, const Stages&)> run = {}, prepare = {};
  /// As those of Kernel. Missing: as for the call alone, and one kernel.
  std::function<std::size_t(const KernelContext&, const Stages&)> scratch = {};
  std::function<std::string(const KernelContext&, const Stages&)> describe = {};
  /// Whether a program after such a call, on operands of these types, the first of which is output 0, is to be computed with it on the
  /// current device, and not with what reads its result. Missing: any is.
  std::function<bool(const InferContext&, const ElementwiseProgram& after, std::span<const TensorType> operands)> leads = {};
  bool mixes_layouts = false;  ///< the call's images may lie in different layouts; see Kernel::one_layout
  std::function<bool(const KernelContext&, const Stages&)> takes_parts = {};  ///< as that of Kernel
  /// In how many parts `run` finds the moments of output 0 while it has it; 0: it does not. As `takes`, on the current device. Missing: 0.
  std::function<std::int64_t(const KernelContext&, const Stages&)> moment_parts = {};

  explicit operator bool() const { return static_cast<bool>(run); }
};

/// What a call makes of one of its inputs before all else, as a weight in the order in which products read it.
struct Prepacking {
  std::size_t bytes = 0;  ///< 0: nothing
  std::size_t input = 0;
  /// A call that gets nothing prepacked, since the input may change, packs part by part as it goes on, in its own scratch memory.
  bool in_parts = false;
};

struct Kernel {
  KernelFunction run = {};
  ElementRule elements = {};  ///< of an elementwise operator on the CPU: what `run` does, by itself
  /// Computes at once several calls that share no results, of any sizes, with the same attributes and dtypes. Missing: they run in turn.
  std::function<void(std::span<const KernelContext> calls)> run_together = {};
  /// Does what the first run of such a call would wait for, such as compiling. For several calls at once. Missing: nothing.
  KernelFunction prepare = {};
  bool strided = false;  ///< takes inputs of any strides, that begin anywhere
  /// Whether a call takes its tensors as they lie, of which some are parts of wider ones, above all images of some channels (see
  /// Tensor::pixel_pitch), as fast as if they had memory of their own, which they get else. Looks at nothing that lies in memory. Not asked
  /// for inputs alone if the kernel is `strided`. Missing: it does not.
  std::function<bool(const KernelContext&)> takes_parts = {};
  /// The attributes with which the operator computes, on the current device, a call together with that of a norm which reads its output 0
  /// (see Operator::reads_moments) and does not write its own. The inputs are the call's and the norm's other ones, `norm_inputs` of them.
  /// None if nothing is gained. Missing: none.
  std::function<std::optional<Attributes>(const OperatorCall& call, const OperatorCall& norm, std::span<const TensorType> inputs,
                                          std::int64_t norm_inputs)>
      join_norm = {};
  bool halves = false;  ///< takes f16 and bf16 as they are; otherwise they are converted to f32 around the call
  std::function<std::size_t(const InferContext&)> scratch = {};  ///< bytes of scratch memory; missing: none
  /// Asked as the scratch rule is. Missing: calls make nothing of the kind.
  std::function<Prepacking(const InferContext&)> prepacking = {};
  /// Writes KernelContext::prepacked. Reads the one input's data alone, which `run` then does not: where that input is the same in every
  /// run, a graph calls this once.
  KernelFunction prepack = {};
  /// Inputs and outputs that may lie in channels-last layout as well as contiguous, each as it comes: the kernel asks the tensor.
  std::vector<int> any_layout_inputs = {};
  std::vector<int> any_layout_outputs = {};
  bool one_layout = false;  ///< those of them that are images (rank 4 or more) come all in the same layout
  /// With which attributes they need not nevertheless. Missing: with none.
  std::function<bool(const Attributes&)> mixes_layouts = {};
  bool prefers_channels_last = false;  ///< far slower where they do not all lie so: a conversion before or after is worth it
  /// What else does the work, with its version: "cuDNN 9.19.0"; missing: frit does it alone.
  std::function<std::string()> library = {};
  /// Of an elementwise operator's CUDA kernel: the functor for these attributes, which computes in float64 if `wide`, else in float32.
  std::function<FunctorData(const Attributes&, bool wide)> functor = {};
  StagedKernel staged = {};
  /// The way that a call of its kind is computed, where there are several: "swept over columns", "cuDNN engine 47, bias fused". Looks at
  /// nothing that lies in memory. Missing: there is one way.
  std::function<std::string(const KernelContext&)> describe = {};

  explicit operator bool() const { return static_cast<bool>(run); }
};

}  // namespace frit::ops

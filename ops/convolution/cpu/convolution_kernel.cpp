#include "frit/ops/convolution/cpu/convolution_kernel.h"

#include <algorithm>

#include "frit/ops/convolution/convolution_epilogue.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/cpu/small_groups_cpu.h"
#include "frit/ops/elementwise/block_program.h"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/operator/scratch_parts.h"
#include "frit/ops/operator/unplaced_call.h"

namespace frit::ops {
namespace {

std::size_t bytes_of(DType dtype, const Shape& shape) { return aligned(static_cast<std::size_t>(TensorType{dtype, shape}.bytes())); }

/// Of a call, by shapes and layouts alone.
struct Call {
  ConvolutionGeometry geometry;
  Direction direction;
  ImageLayouts layouts;
  TensorType weight;
  bool in_bfloat;  ///< what is multiplied stays bfloat16

  Call(const GeometryRule& rule, bool back, const Shape& image, const TensorType& weight_type, const Attributes& attributes,
       ImageLayouts lie)
      : geometry(rule(image, weight_type.shape, attributes)),
        direction(back ? Direction::backward(geometry) : Direction::forward(geometry)),
        layouts(lie),
        weight(weight_type),
        in_bfloat(weight.dtype == DType::bf16 && convolves_in_bfloat(direction, layouts.source.layout)) {}
  Call(const Call&) = delete;  // the direction refers to the geometry

  std::size_t element_size() const { return size_of(in_bfloat ? weight.dtype : computed_dtype(weight.dtype)); }
  /// Of a weight in halves as float32, which is part of what is prepacked.
  std::size_t wide_bytes() const { return is_half(weight.dtype) && !in_bfloat ? bytes_of(DType::f32, weight.shape) : 0; }
  /// What an input is read as.
  DType computed_input(std::size_t input, DType dtype) const { return in_bfloat && input < 2 ? DType::bf16 : computed_dtype(dtype); }
};

/// The kernel's functions.
struct Convolution {
  GeometryRule geometry;
  bool back;

  Call of(const KernelContext& call) const {
    const Tensor &image = call.inputs[0], &weight = call.inputs[1];
    return {
        geometry, back, image.shape(), {weight.dtype(), weight.shape()}, call.attributes, {ImagePlace(image), ImagePlace(call.outputs[0])}};
  }

  /// Of images as they are computed with.
  void run(const KernelContext& call, const Finish& finish = {}) const {
    const Call of_call = of(call);
    if (of_call.in_bfloat) {
      const Weight<BFloat16> weight{.packed = scratch_part<BFloat16>(call.prepacked, 0)};
      return convolve(of_call.direction, read<BFloat16>(call.inputs[0]), weight, bias_of<float>(call), written<float>(call.outputs[0]),
                      call.scratch, finish);
    }
    dispatch_floating(call.outputs[0].dtype(), [&]<class T>() {
      const std::size_t wide = of_call.wide_bytes();
      Weight<T> weight;
      if (call.prepacked.size() > wide) {
        weight.packed = scratch_part<T>(call.prepacked, wide);
      } else if (is_half(call.inputs[1].dtype())) {
        weight.unpacked = {scratch_part<T>(call.prepacked, 0), ImagePlace(call.inputs[1])};
      } else {
        weight.unpacked = read<T>(call.inputs[1]);
      }
      convolve(of_call.direction, read<T>(call.inputs[0]), weight, bias_of<T>(call), written<T>(call.outputs[0]), call.scratch, finish);
    });
  }
  std::string describe(const KernelContext& call) const { return convolve_schedule(of(call).direction, of(call).element_size()); }

  /// A weight in halves as float32, if it is one, and after it the packed weight.
  Prepacking prepacking(const KernelContext& call) const {
    const Call c = of(call);
    const Packing packing = packing_of(c.direction, c.layouts, c.element_size());
    const std::size_t wide = c.wide_bytes();
    return {.bytes = wide + static_cast<std::size_t>(packing.elements) * c.element_size(),
            .input = 1,
            .in_parts = wide == 0 && !packing.needed};
  }
  void prepack(const KernelContext& call) const {
    const Call c = of(call);
    const std::size_t wide = c.wide_bytes();
    Tensor weight = call.inputs[1];
    if (c.in_bfloat) return pack_weight(c.direction, c.layouts, read<BFloat16>(weight), scratch_part<BFloat16>(call.prepacked, 0));
    if (wide > 0) {
      weight = Tensor::over(call.prepacked.data(), weight.shape(), DType::f32, weight.device(), nullptr, weight.layout());
      copy(weight, call.inputs[1]);
    }
    if (call.prepacked.size() == wide) return;
    dispatch_floating(weight.dtype(),
                      [&]<class T>() { pack_weight(c.direction, c.layouts, read<T>(weight), scratch_part<T>(call.prepacked, wide)); });
  }
};

/// A program that only adds an image and holds the sum between bounds: all that `convolve` does in registers, or what rounds its results to
/// halves, of which the image is one as well.
std::optional<Finish> in_registers(const Call& of_call, const Tensor& result, const Stages& stages) {
  const std::optional<ConvolutionEpilogue> epilogue = epilogue_of(stages.after, types_of(stages.after_operands(result)));
  if (!epilogue || !epilogue->is_exact()) return std::nullopt;
  Finish finish;
  for (const ConvolutionEpilogue::Step& step : epilogue->steps) {
    if (&step != &epilogue->steps.back() && step.activation) return std::nullopt;
    if (step.activation && step.activation->slope != 0) return std::nullopt;
    if (step.activation) {
      finish.low = step.activation->low, finish.high = step.activation->high;
      continue;
    }
    if (of_call.layouts.output.pitch > 0) return std::nullopt;
    const Tensor& addend = stages.after_inputs[static_cast<std::size_t>(step.operand)];
    const bool lies_alike = addend.layout() == result.layout() && addend.is_contiguous(result.layout()) && addend.dtype() == result.dtype();
    const bool adds = is_half(result.dtype()) || adds_in_registers(of_call.direction, result.layout(), of_call.element_size());
    if (!lies_alike || !adds) return std::nullopt;
    finish.addend = addend.raw();
  }
  return finish;
}

/// Rounds elements to halves; the addend, which may be null, and the bounds as `finish` says.
template <class To>
void round_elements(const float* from, const Finish& finish, const Runs& elements, To* to) {
  const To* const addends = static_cast<const To*>(finish.addend);
  const auto low = static_cast<float>(finish.low), high = static_cast<float>(finish.high);
  const auto clamped = [=](float x) {
    x = x < low ? low : x;
    return To(x > high ? high : x);
  };
  for (std::int64_t run = 0; run < elements.count; ++run) {
    const std::int64_t begin = elements.begin_of(run), end = begin + elements.length;
    if (addends == nullptr) {
      std::transform(from + begin, from + end, to + begin, clamped);
    } else {
      std::transform(from + begin, from + end, addends + begin, to + begin,
                     [&](float x, To addend) { return clamped(x + static_cast<float>(addend)); });
    }
  }
}

/// A call, and maybe a program that follows, through which elements of the result are carried while they are at hand. What comes in halves
/// is computed in float32, in scratch memory, or read as bfloat16.
class FollowedConvolution {
 public:
  FollowedConvolution(const Convolution& convolution, const KernelContext& call, const Stages* stages)
      : convolution_(convolution), call_(call), result_(stand_in(call.outputs[0], computed_dtype(call.outputs[0].dtype()))) {
    const Call of_call = convolution.of(call);
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const Tensor& input = call.inputs[i];
      inputs_.push_back(i == 1 ? input : stand_in(input, of_call.computed_input(i, input.dtype())));
    }
    if (stages == nullptr) return;
    in_registers_ = in_registers(of_call, call.outputs[0], *stages);
    if (in_registers_) return;
    program_.emplace(stages->after, types_of(stages->after_operands(call.outputs[0])));
    program_->bind(stages->after_operands(result_), call.outputs.first(1));
  }

  void run() const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].raw() != call_.inputs[i].raw()) copy(inputs_[i], call_.inputs[i]);
    }
    KernelContext wide = call_;
    wide.inputs = inputs_, wide.outputs = {&result_, 1}, wide.scratch = call_.scratch.subspan(wide_bytes_);
    convolution_.run(wide, finish());
  }
  std::size_t scratch() const {
    const Call call = convolution_.of(call_);
    return wide_bytes_ + convolve_scratch(call.direction, call.layouts, call.element_size(), finish());
  }

 private:
  Tensor stand_in(const Tensor& tensor, DType dtype) {
    if (tensor.dtype() == dtype) return tensor;
    std::byte* const memory = call_.scratch.empty() ? nullptr : call_.scratch.data() + wide_bytes_;
    wide_bytes_ += bytes_of(dtype, tensor.shape());
    return Tensor::over(memory, tensor.shape(), dtype, tensor.device(), nullptr, tensor.layout());
  }
  bool rounds() const { return is_half(call_.outputs[0].dtype()); }
  Finish finish() const {
    if (program_) {
      return {[this](const Runs& elements, std::byte* workspace) { program_->run(elements, workspace); }, program_->workspace_bytes()};
    }
    if (!rounds()) return in_registers_.value_or(Finish());
    return {.run = [this](const Runs& elements, std::byte*) { round(elements); }};
  }
  /// Elements of the result to where they lie in halves.
  void round(const Runs& elements) const {
    dispatch_all(call_.outputs[0].dtype(), [&]<class To>() {
      if constexpr (is_half_type<To>) {
        round_elements(result_.data<float>(), in_registers_.value_or(Finish()), elements, call_.outputs[0].data<To>());
      }
    });
  }

  const Convolution& convolution_;
  const KernelContext& call_;
  std::size_t wide_bytes_ = 0;
  std::vector<Tensor> inputs_;
  Tensor result_;
  std::optional<Finish> in_registers_;
  std::optional<BlockProgram> program_;  ///< else
};

/// Images that may be parts of others, where as much memory does as for wholes. A program reads its single numbers when it is bound: here
/// they have no memory yet.
bool takes_parts(const Convolution& convolution, const KernelContext& call, const Stages* given) {
  const Call of_call = convolution.of(call);
  const bool is_computed_there = of_call.weight.dtype == computed_dtype(of_call.weight.dtype);
  if (!is_computed_there || has_small_groups(of_call.direction, of_call.element_size())) return false;
  const std::vector<Tensor> inputs = wholes(call.inputs), outputs = wholes(call.outputs);
  const KernelContext of_wholes{call.op, call.attributes, inputs, outputs, {}};
  std::vector<Tensor> operands;
  if (given != nullptr) operands.assign(given->after_inputs.begin(), given->after_inputs.end());
  for (Tensor& operand : operands) {
    if (operand.elements() == 1) operand = Tensor::over(nullptr, operand.shape(), operand.dtype(), operand.device(), nullptr);
  }
  const auto scratch = [&](const KernelContext& context, const std::vector<Tensor>& after_inputs) {
    if (given == nullptr) return FollowedConvolution(convolution, context, nullptr).scratch();
    const Stages stages{given->before, given->input, given->input_type, given->before_inputs, given->after, after_inputs};
    return FollowedConvolution(convolution, context, &stages).scratch();
  };
  return scratch(call, operands) <= scratch(of_wholes, wholes(operands));
}

/// With programs that leave the type as it is.
StagedKernel with_program(const Convolution& convolution) {
  StagedKernel staged;
  staged.takes = [](const KernelContext& call, const Stages&) { return call.outputs[0].dtype() == call.inputs[1].dtype(); };
  staged.run = [=](const KernelContext& call, const Stages& stages) { FollowedConvolution(convolution, call, &stages).run(); };
  staged.scratch = [=](const KernelContext& call, const Stages& stages) {
    return FollowedConvolution(convolution, call, &stages).scratch();
  };
  staged.describe = [=](const KernelContext& call, const Stages&) { return convolution.describe(call); };
  staged.leads = [](const InferContext&, const ElementwiseProgram& after, std::span<const TensorType> operands) {
    return registry().find("elementwise").infer_types(operands, ElementwiseAttributes{after}).at(0) == operands[0];
  };
  staged.mixes_layouts = !convolution.back;
  staged.takes_parts = [=](const KernelContext& call, const Stages& stages) { return takes_parts(convolution, call, &stages); };
  return staged;
}

}  // namespace

Kernel convolution_kernel(GeometryRule geometry, bool back) {
  const Convolution convolution{std::move(geometry), back};
  const auto of_types = [](auto rule) {
    return [=](const InferContext& call) { return rule(UnplacedCall(call, Device::cpu()).context()); };
  };
  return {.run = [=](const KernelContext& call) { FollowedConvolution(convolution, call, nullptr).run(); },
          .takes_parts = [=](const KernelContext& call) { return takes_parts(convolution, call, nullptr); },
          .halves = true,
          .scratch = of_types([=](const KernelContext& call) { return FollowedConvolution(convolution, call, nullptr).scratch(); }),
          .prepacking = of_types([=](const KernelContext& call) { return convolution.prepacking(call); }),
          .prepack = [=](const KernelContext& call) { convolution.prepack(call); },
          .any_layout_inputs = {0},
          .any_layout_outputs = {0},
          .one_layout = back,  // phases are spread over lines: only channels-last do their pixels stay whole
          .prefers_channels_last = true,
          .staged = with_program(convolution),
          .describe = [=](const KernelContext& call) { return convolution.describe(call); }};
}

}  // namespace frit::ops

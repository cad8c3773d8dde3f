#include "frit/ops/libraries/cuda/cudnn_epilogue.h"

#include <cmath>

namespace frit::cudnn {
namespace {

using ops::Activation;
using ops::BinaryFunction;

/// What a library's activation is called; without a mode it is made of several nodes.
struct ActivationName {
  Activation::Kind kind;
  std::optional<cudnnPointwiseMode_t> mode;
  const char* text;
};

const ActivationName& name_of(Activation::Kind kind) {
  static constexpr ActivationName names[] = {{Activation::rectifier, CUDNN_POINTWISE_RELU_FWD, "rectifier"},
                                             {Activation::elu, CUDNN_POINTWISE_ELU_FWD, "elu"},
                                             {Activation::gelu, CUDNN_POINTWISE_GELU_FWD, "gelu"},
                                             {Activation::gelu_tanh, CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, "tanh form of gelu"},
                                             {Activation::sigmoid, CUDNN_POINTWISE_SIGMOID_FWD, "sigmoid"},
                                             {Activation::silu, CUDNN_POINTWISE_SWISH_FWD, "silu"},
                                             {Activation::tanh, CUDNN_POINTWISE_TANH_FWD, "tanh"},
                                             {Activation::mish, {}, "mish"},
                                             {Activation::hard_sigmoid, {}, "hard sigmoid"},
                                             {Activation::hard_swish, {}, "hard swish"}};
  return *std::find_if(std::begin(names), std::end(names), [&](const ActivationName& name) { return name.kind == kind; });
}

struct BinaryName {
  BinaryFunction function;
  cudnnPointwiseMode_t mode;
  const char* text;
};

const BinaryName& name_of(BinaryFunction function) {
  static constexpr BinaryName names[] = {
      {BinaryFunction::add, CUDNN_POINTWISE_ADD, "add"},           {BinaryFunction::subtract, CUDNN_POINTWISE_SUB, "subtract"},
      {BinaryFunction::multiply, CUDNN_POINTWISE_MUL, "multiply"}, {BinaryFunction::divide, CUDNN_POINTWISE_DIV, "divide"},
      {BinaryFunction::minimum, CUDNN_POINTWISE_MIN, "minimum"},   {BinaryFunction::maximum, CUDNN_POINTWISE_MAX, "maximum"}};
  return *std::find_if(std::begin(names), std::end(names), [&](const BinaryName& name) { return name.function == function; });
}

/// See pointwise_nodes.
class PointwiseNodes {
 public:
  PointwiseNodes(const ConvolutionKey& key, Fused fused) : epilogue_(key.epilogue) {
    // The residual comes before the bias, as the engines that are compiled already have it, if it is to be added first anyway.
    const bool residual_first = fused.epilogue && operand_of(epilogue_.steps[0]) == Operand::image && adds(epilogue_.steps[0]);
    if (fused.bias && !residual_first) combine(CUDNN_POINTWISE_ADD, bias_id);
    if (!fused.epilogue) return;
    for (const ops::ConvolutionEpilogue::Step& step : epilogue_.steps) {
      step.activation ? activate(*step.activation) : combine(step);
      if (fused.bias && residual_first && nodes_.size() == 1) combine(CUDNN_POINTWISE_ADD, bias_id);
    }
  }

  const std::vector<PointwiseNode>& nodes() const { return nodes_; }

 private:
  using Operand = ops::ConvolutionEpilogue::Operand;

  static bool adds(const ops::ConvolutionEpilogue::Step& step) { return step.function == BinaryFunction::add; }
  std::optional<Operand> operand_of(const ops::ConvolutionEpilogue::Step& step) const {
    return step.activation ? std::nullopt : std::optional(epilogue_.operands[static_cast<std::size_t>(step.operand)]);
  }

  std::size_t last() const { return nodes_.size(); }
  void apply(cudnnPointwiseMode_t mode, const Activation& settings = {}) {
    nodes_.push_back({.mode = mode, .x = last(), .settings = settings});
  }
  void combine(cudnnPointwiseMode_t mode, std::int64_t operand) { nodes_.push_back({.mode = mode, .x = last(), .operand = operand}); }
  void multiply(std::size_t factor) { nodes_.push_back({.mode = CUDNN_POINTWISE_MUL, .x = last(), .factor = factor}); }

  void combine(const ops::ConvolutionEpilogue::Step& step) {
    const bool reversed = step.operand_first && step.function == BinaryFunction::subtract;
    if (reversed) apply(CUDNN_POINTWISE_NEG);
    combine(reversed ? CUDNN_POINTWISE_ADD : name_of(step.function).mode, first_other_id + step.operand);
  }

  void activate(const Activation& activation) {
    const std::size_t x = last();
    if (const auto mode = name_of(activation.kind).mode) return apply(*mode, activation);
    if (activation.kind == Activation::mish) {
      apply(CUDNN_POINTWISE_SOFTPLUS_FWD);
      apply(CUDNN_POINTWISE_TANH_FWD);
      return multiply(x);
    }
    combine(CUDNN_POINTWISE_ADD, three_id);
    apply(CUDNN_POINTWISE_RELU_FWD, {.high = 6});
    if (activation.kind == Activation::hard_swish) multiply(x);
    combine(CUDNN_POINTWISE_MUL, sixth_id);
  }

  const ops::ConvolutionEpilogue& epilogue_;
  std::vector<PointwiseNode> nodes_;
};

/// "rectifier 0 inf 0".
std::string activation_text(const Activation& activation) {
  std::string text = name_of(activation.kind).text;
  if (activation.kind == Activation::rectifier) text += concat(' ', activation.low, ' ', activation.high, ' ', activation.slope);
  if (activation.kind == Activation::elu) text += concat(' ', activation.alpha);
  return text;
}

}  // namespace

std::vector<PointwiseNode> pointwise_nodes(const ConvolutionKey& key, Fused fused) { return PointwiseNodes(key, fused).nodes(); }

Descriptor pointwise_descriptor(const PointwiseNode& node, DType computed) {
  Descriptor pointwise(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  pointwise.set(CUDNN_ATTR_POINTWISE_MODE, node.mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, data_type(computed));
  const Activation& settings = node.settings;
  const bool is_rectifier = node.mode == CUDNN_POINTWISE_RELU_FWD;
  if (is_rectifier || node.mode == CUDNN_POINTWISE_MIN || node.mode == CUDNN_POINTWISE_MAX) {
    pointwise.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN);
  }
  // Engines that are compiled already know the plain one alone, without these.
  if (is_rectifier && settings.low != 0) pointwise.set(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, settings.low);
  if (is_rectifier && std::isfinite(settings.high)) pointwise.set(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, settings.high);
  if (is_rectifier && settings.slope != 0) pointwise.set(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, settings.slope);
  if (node.mode == CUDNN_POINTWISE_ELU_FWD) pointwise.set(CUDNN_ATTR_POINTWISE_ELU_ALPHA, settings.alpha);
  if (node.mode == CUDNN_POINTWISE_SWISH_FWD) pointwise.set(CUDNN_ATTR_POINTWISE_SWISH_BETA, 1.0);
  if (node.mode == CUDNN_POINTWISE_SOFTPLUS_FWD) pointwise.set(CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, 1.0);
  pointwise.finalize();
  return pointwise;
}

bool reads_constants(const ops::ConvolutionEpilogue& epilogue) {
  return std::any_of(epilogue.steps.begin(), epilogue.steps.end(), [](const ops::ConvolutionEpilogue::Step& step) {
    return step.activation && (step.activation->kind == Activation::hard_sigmoid || step.activation->kind == Activation::hard_swish);
  });
}

std::string epilogue_text(const ops::ConvolutionEpilogue& epilogue) {
  static constexpr const char* kinds[] = {"image", "channels", "number"};
  std::string text;
  for (const ops::ConvolutionEpilogue::Step& step : epilogue.steps) {
    text += text.empty() ? ", epilogue: " : ", ";
    if (step.activation) {
      text += activation_text(*step.activation);
      continue;
    }
    const char* const kind = kinds[static_cast<int>(epilogue.operands[static_cast<std::size_t>(step.operand)])];
    const char* const function = name_of(step.function).text;
    const bool is_residual = step.function == BinaryFunction::add && *kind == 'i';
    text += is_residual ? "residual" : step.operand_first ? concat(kind, ' ', function) : concat(function, ' ', kind);
  }
  return text;
}

}  // namespace frit::cudnn

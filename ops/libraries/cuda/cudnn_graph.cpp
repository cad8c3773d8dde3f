// Through cuDNN's graph API in its C form (cudnnBackend...), so that nothing but cuDNN itself is needed. One way of filling descriptors
// serves forward, data gradient and weight gradient.

#include "frit/ops/libraries/cuda/cudnn_graph.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "frit/core/cuda/device.h"

namespace frit::cudnn {
namespace {

using ops::Activation;
using ops::BinaryFunction;

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDNN_DATA_DOUBLE;
    case DType::f32: return CUDNN_DATA_FLOAT;
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    default: fail(ErrorKind::bug, "no convolution of dtype ", name_of(dtype));
  }
}

DType computed_in(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

int image_rank_of(const ops::ConvolutionGeometry& g) {
  return g.input[0] == 1 && g.output[0] == 1 && g.kernel[0] == 1 && g.padding[0] == 0 ? 2 : 3;
}

Dims image_dims(const ops::ImageAxes& axes, int rank) { return Dims(std::span(axes).last(static_cast<std::size_t>(rank))); }

Shape shape_of(std::int64_t first, std::int64_t second, const ops::ImageAxes& image, int rank) {
  Shape shape{first, second};
  for (const std::int64_t size : image_dims(image, rank)) shape.push_back(size);
  return shape;
}

Descriptor tensor_descriptor(std::int64_t id, const Shape& shape, DType dtype, Layout layout, bool within_graph = false) {
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id).set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(dtype));
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, shape).set(CUDNN_ATTR_TENSOR_STRIDES, dense_strides(shape, layout));
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16}).set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, within_graph);
  tensor.finalize();
  return tensor;
}

Descriptor convolution_descriptor(const ConvolutionKey& key) {
  const ops::ConvolutionGeometry& g = key.geometry;
  const int rank = image_rank_of(g);
  const Dims padding = image_dims(g.padding, rank);
  Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, data_type(computed_in(key.dtype)));
  convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{rank});
  convolution.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding).set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding);
  convolution.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, image_dims(g.stride, rank));
  convolution.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, image_dims(g.dilation, rank));
  convolution.finalize();
  return convolution;
}

/// What the three kinds of convolution are called.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, input, weight, output, alpha, beta;
};

constexpr Names names_of(ConvolutionKind kind) {
#define FRIT_NAMES(operation, prefix, input, weight, output)                                                             \
  {                                                                                                                      \
    CUDNN_BACKEND_OPERATION_CONVOLUTION_##operation##_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_CONV_DESC, \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##input, CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##weight,       \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##output, CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_ALPHA,         \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_BETA                                                                 \
  }
  switch (kind) {
    case ConvolutionKind::data_gradient: return FRIT_NAMES(BACKWARD_DATA, BWD_DATA, DX, W, DY);
    case ConvolutionKind::weight_gradient: return FRIT_NAMES(BACKWARD_FILTER, BWD_FILTER, X, DW, DY);
    default: return FRIT_NAMES(FORWARD, FORWARD, X, W, Y);
  }
#undef FRIT_NAMES
}

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

/// What a graph does after its convolution, to an earlier result: 0 is the convolution's, i that of the node before node i.
struct PointwiseNode {
  cudnnPointwiseMode_t mode;
  std::size_t x;
  std::optional<std::size_t> factor = {};    ///< a further result
  std::optional<std::int64_t> operand = {};  ///< a tensor, by its id
  Activation settings = {};
};

/// The bias and the epilogue as nodes.
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

  std::span<const PointwiseNode> nodes() const { return nodes_; }

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

/// Of a tensor that a node reads.
Descriptor operand_descriptor(const ConvolutionKey& key, std::int64_t id) {
  const ConvolutionShapes shapes(key);
  if (id == bias_id) return tensor_descriptor(id, shapes.bias, key.dtype, key.layout);
  if (id >= first_other_id) {
    return tensor_descriptor(id, operand_shape(key, static_cast<std::size_t>(id - first_other_id)), key.dtype, key.layout);
  }
  return tensor_descriptor(id, shape_of(1, 1, {1, 1, 1}, shapes.image_rank()), DType::f32, key.layout);
}

/// The convolution, and what is fused with it.
Descriptor operation_graph(const ConvolutionKey& key, Fused fused, cudnnHandle_t handle) {
  const ConvolutionShapes shapes(key);
  const bool forward = key.kind == ConvolutionKind::forward;
  const Descriptor input = tensor_descriptor(input_id, shapes.input, key.dtype, key.layout);
  const Descriptor weight = tensor_descriptor(weight_id, shapes.weight, key.dtype, key.layout);
  const Descriptor output = tensor_descriptor(output_id, shapes.output, key.dtype, key.layout);
  const Shape& result = forward ? shapes.output : shapes.input;
  const PointwiseNodes pointwise(key, fused);
  const std::span<const PointwiseNode> nodes = pointwise.nodes();
  std::vector<Descriptor> inner;  // what the convolution and all nodes but the last give
  std::map<std::int64_t, Descriptor> operands;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::int64_t id = first_inner_id + static_cast<std::int64_t>(i);
    inner.push_back(tensor_descriptor(id, result, computed_in(key.dtype), key.layout, /*within_graph=*/true));
    if (nodes[i].operand) operands.try_emplace(*nodes[i].operand, operand_descriptor(key, *nodes[i].operand));
  }

  const Names names = names_of(key.kind);
  std::vector<Descriptor> operations;
  Descriptor& convolution = operations.emplace_back(names.operation);
  const Descriptor settings = convolution_descriptor(key);
  convolution.set(names.convolution, settings).set(names.weight, weight);
  convolution.set(names.input, nodes.empty() || forward ? input : inner[0])
      .set(names.output, nodes.empty() || !forward ? output : inner[0]);
  if (key.dtype == DType::f64) {
    convolution.set(names.alpha, 1.0).set(names.beta, 0.0);
  } else {
    convolution.set(names.alpha, 1.0f).set(names.beta, 0.0f);
  }
  convolution.finalize();

  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const PointwiseNode& node = nodes[i];
    Descriptor& operation = operations.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise_descriptor(node, computed_in(key.dtype)));
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, inner[node.x]);
    if (node.factor) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, inner[*node.factor]);
    if (node.operand) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, operands.at(*node.operand));
    const Descriptor& to = i + 1 < nodes.size() ? inner[i + 1] : forward ? output : input;
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to).finalize();
  }
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle)
      .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const Descriptor>(operations))
      .finalize();
  return graph;
}

/// Ways of computing a graph, the one first that cuDNN thinks the fastest.
std::vector<Descriptor> engine_configurations(const Descriptor& graph, cudnnBackendHeurMode_t mode) try {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode).finalize();
  return heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, heuristics.count(CUDNN_ATTR_ENGINEHEUR_RESULTS));
} catch (const Refused&) {
  return {};
}

Descriptor engine_of(const Descriptor& configuration) {
  return std::move(configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1).at(0));
}

/// What tells one configuration from another.
ops::LibraryPlan identity_of(const Descriptor& configuration, Fused fused) {
  ops::LibraryPlan plan{.engine = engine_of(configuration).get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX),
                        .fused_bias = fused.bias,
                        .fused_epilogue = fused.epilogue};
  for (const Descriptor& choice :
       configuration.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS)) {
    plan.knobs += concat(plan.knobs.empty() ? "" : " ", int{choice.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)}, '=',
                         choice.get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  }
  return plan;
}

/// Whether the engine computes as exactly, and as repeatably, as the key asks.
bool is_allowed(const Descriptor& configuration, const ConvolutionKey& key) {
  const auto notes =
      engine_of(configuration).get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  const bool exact_float = key.dtype == DType::f32 && !key.tf32;
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return key.deterministic;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: return true;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return exact_float;
      default: return false;
    }
  });
}

const char* name_of(ConvolutionKind kind) {
  if (kind == ConvolutionKind::forward) return "convolution";
  return kind == ConvolutionKind::data_gradient ? "data gradient" : "weight gradient";
}

}  // namespace

ConvolutionShapes::ConvolutionShapes(const ConvolutionKey& key) {
  const ops::ConvolutionGeometry& g = key.geometry;
  const int rank = image_rank_of(g);
  input = shape_of(g.batch, g.groups * g.in_channels, g.input, rank);
  weight = shape_of(g.groups * g.out_channels, g.in_channels, g.kernel, rank);
  output = shape_of(g.batch, g.groups * g.out_channels, g.output, rank);
  bias = shape_of(1, key.kind == ConvolutionKind::forward ? output[1] : input[1], {1, 1, 1}, rank);
}

bool fuses_epilogue(const ConvolutionKey& key) {
  const bool rounds = is_half(key.dtype) || key.tf32;
  if (ops::is_depthwise(key.geometry)) return false;  // engines that fuse are those that take tens of times as long
  return !key.epilogue.steps.empty() && key.dtype != DType::f64 && (rounds || key.epilogue.is_exact());
}

bool reads_constants(const ops::ConvolutionEpilogue& epilogue) {
  return std::any_of(epilogue.steps.begin(), epilogue.steps.end(), [](const ops::ConvolutionEpilogue::Step& step) {
    return step.activation && (step.activation->kind == Activation::hard_sigmoid || step.activation->kind == Activation::hard_swish);
  });
}

Shape operand_shape(const ConvolutionKey& key, std::size_t operand) {
  const ConvolutionShapes shapes(key);
  switch (key.epilogue.operands[operand]) {
    case ops::ConvolutionEpilogue::Operand::image: return key.kind == ConvolutionKind::forward ? shapes.output : shapes.input;
    case ops::ConvolutionEpilogue::Operand::channels: return shapes.bias;
    default: return shape_of(1, 1, {1, 1, 1}, shapes.image_rank());
  }
}

// Engines that fuse are many in the first two lists; the last has what always works, for a graph without anything fused.
void for_each_configuration(const ConvolutionKey& key, Fused fused, cudnnHandle_t handle,
                            const std::function<bool(Configuration)>& visit) try {
  const Descriptor graph = operation_graph(key, fused, handle);
  std::set<std::pair<std::int64_t, std::string>> visited;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    if ((fused.bias || fused.epilogue) && mode == CUDNN_HEUR_MODE_FALLBACK) return;
    for (Descriptor& configuration : engine_configurations(graph, mode)) {
      if (!is_allowed(configuration, key)) continue;
      ops::LibraryPlan plan = identity_of(configuration, fused);
      if (!visited.insert({plan.engine, plan.knobs}).second) continue;
      if (!visit({std::move(plan), std::move(configuration)})) return;
    }
  }
} catch (const Refused&) {
  // Not for this problem; what was visited stays.
}

bool is_compiled_when_built(const Configuration& configuration) {
  const auto notes =
      engine_of(configuration.descriptor).get<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  return std::find(notes.begin(), notes.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != notes.end();
}

namespace {

/// "rectifier 0 inf 0".
std::string activation_text(const Activation& activation) {
  std::string text = name_of(activation.kind).text;
  if (activation.kind == Activation::rectifier) text += concat(' ', activation.low, ' ', activation.high, ' ', activation.slope);
  if (activation.kind == Activation::elu) text += concat(' ', activation.alpha);
  return text;
}

/// ", epilogue: residual, rectifier 0 inf 0, multiply channels, number subtract": where the operand's kind comes first, so does the
/// operand.
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

}  // namespace

std::string problem_text(const ConvolutionKey& key) {
  const ConvolutionShapes shapes(key);
  const ops::ConvolutionGeometry& g = key.geometry;
  const auto image = [&](const ops::ImageAxes& axes) { return image_dims(axes, shapes.image_rank()); };
  return concat(version(), ", ", cuda::model(key.device), ": ", name_of(key.kind), ' ', key.dtype, key.tf32 ? " in tf32" : "", ' ',
                key.layout == Layout::contiguous ? "contiguous" : "channels-last", ", input ", shapes.input, ", weight ", shapes.weight,
                ", output ", shapes.output, ", stride ", image(g.stride), ", padding ", image(g.padding), ", dilation ", image(g.dilation),
                ", groups ", g.groups, key.bias ? ", bias" : "", epilogue_text(key.epilogue), key.deterministic ? ", deterministic" : "",
                ", workspace at most ", key.workspace_limit);
}

}  // namespace frit::cudnn

// Through cuDNN's graph API in its C form (cudnnBackend...), so that nothing but cuDNN itself is needed. One way of filling descriptors
// serves forward, data gradient and weight gradient.

#include "frit/ops/libraries/cuda/cudnn_graph.h"

#include <map>
#include <set>

#include "frit/core/cuda/device.h"
#include "frit/ops/libraries/cuda/cudnn_epilogue.h"

namespace frit::cudnn {
namespace {

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
  const std::vector<PointwiseNode> nodes = pointwise_nodes(key, fused);
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

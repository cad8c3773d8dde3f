// Convolutions through cuDNN's graph API in its C form (cudnnBackend...), so that nothing but cuDNN itself is needed. One way of filling
// descriptors serves forward, data gradient and weight gradient. cuDNN's own ranking of its engines is not good enough for the shapes of
// small networks: every plan that it offers is run, and the fastest is kept.

#include "frit/ops/cuda/cudnn.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/noise.h"
#include "frit/core/cuda/runtime.h"
#include "frit/core/timer.h"
#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/cuda/cudnn_descriptor.h"

namespace frit::cudnn {
namespace {

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

/// A three-dimensional convolution whose depth is 1 everywhere is a two-dimensional one.
int image_rank(const ops::ConvolutionGeometry& g) {
  return g.input[0] == 1 && g.output[0] == 1 && g.kernel[0] == 1 && g.padding[0] == 0 ? 2 : 3;
}

Dims image_dims(const ops::ImageAxes& axes, int rank) { return Dims(std::span(axes).last(static_cast<std::size_t>(rank))); }

Shape shape_of(std::int64_t first, std::int64_t second, const ops::ImageAxes& image, int rank) {
  Shape shape{first, second};
  for (const std::int64_t size : image_dims(image, rank)) shape.push_back(size);
  return shape;
}

struct Shapes {
  Shape input, weight, output, bias;

  explicit Shapes(const ConvolutionKey& key) {
    const ops::ConvolutionGeometry& g = key.geometry;
    const int rank = image_rank(g);
    input = shape_of(g.batch, g.groups * g.in_channels, g.input, rank);
    weight = shape_of(g.groups * g.out_channels, g.in_channels, g.kernel, rank);
    output = shape_of(g.batch, g.groups * g.out_channels, g.output, rank);
    bias = shape_of(1, key.kind == ConvolutionKind::forward ? output[1] : input[1], {1, 1, 1}, rank);
  }
};

/// Names of the tensors within a graph.
enum TensorId : std::int64_t { input_id = 1, weight_id, output_id, bias_id, sum_id };

Descriptor tensor_descriptor(TensorId id, const Shape& shape, DType dtype, Layout layout, bool within_graph = false) {
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, std::int64_t{id}).set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(dtype));
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, shape).set(CUDNN_ATTR_TENSOR_STRIDES, dense_strides(shape, layout));
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16}).set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, within_graph);
  tensor.finalize();
  return tensor;
}

Descriptor convolution_descriptor(const ConvolutionKey& key) {
  const ops::ConvolutionGeometry& g = key.geometry;
  const int rank = image_rank(g);
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
  switch (kind) {
    case ConvolutionKind::data_gradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvolutionKind::weight_gradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  }
}

/// The convolution, and the addition of the bias to its result if `with_bias`.
Descriptor operation_graph(const ConvolutionKey& key, bool with_bias, cudnnHandle_t handle) {
  const Shapes shapes(key);
  const bool forward = key.kind == ConvolutionKind::forward;
  const Descriptor input = tensor_descriptor(input_id, shapes.input, key.dtype, key.layout);
  const Descriptor weight = tensor_descriptor(weight_id, shapes.weight, key.dtype, key.layout);
  const Descriptor output = tensor_descriptor(output_id, shapes.output, key.dtype, key.layout);
  const Descriptor sum =
      tensor_descriptor(sum_id, forward ? shapes.output : shapes.input, computed_in(key.dtype), key.layout, /*within_graph=*/true);

  const Names names = names_of(key.kind);
  std::vector<Descriptor> operations;
  Descriptor& convolution = operations.emplace_back(names.operation);
  const Descriptor settings = convolution_descriptor(key);
  convolution.set(names.convolution, settings).set(names.weight, weight);
  convolution.set(names.input, with_bias && !forward ? sum : input).set(names.output, with_bias && forward ? sum : output);
  if (key.dtype == DType::f64) {
    convolution.set(names.alpha, 1.0).set(names.beta, 0.0);
  } else {
    convolution.set(names.alpha, 1.0f).set(names.beta, 0.0f);
  }
  convolution.finalize();

  if (with_bias) {
    const Descriptor bias = tensor_descriptor(bias_id, shapes.bias, key.dtype, key.layout);
    Descriptor add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    add.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD).set(CUDNN_ATTR_POINTWISE_MATH_PREC, data_type(computed_in(key.dtype)));
    add.finalize();
    Descriptor& addition = operations.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    addition.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, add).set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, sum);
    addition.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias).set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, forward ? output : input);
    addition.finalize();
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

/// The engine's number, and its settings: what tells one configuration from another.
std::vector<std::int64_t> identity_of(const Descriptor& configuration) {
  std::vector<std::int64_t> identity{engine_of(configuration).get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)};
  for (const Descriptor& choice :
       configuration.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS)) {
    identity.push_back(choice.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE));
    identity.push_back(choice.get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  }
  return identity;
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

}  // namespace

struct ConvolutionPlan {
  ConvolutionKey key;
  bool adds_bias;
  Descriptor configuration, plan;
  std::size_t workspace;
};

namespace {

ConvolutionPlan make_plan(const ConvolutionKey& key, bool adds_bias, Descriptor configuration, cudnnHandle_t handle) {
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle).set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration).finalize();
  const auto workspace = plan.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  return {key, adds_bias, std::move(configuration), std::move(plan), static_cast<std::size_t>(workspace)};
}

void start(const ConvolutionPlan& plan, const ConvolutionOperands& operands, void* workspace, cudnnHandle_t handle, cudaStream_t stream) {
  std::vector<std::int64_t> ids = {input_id, weight_id, output_id};
  std::vector<void*> pointers = {operands.input.raw(), operands.weight.raw(), operands.output.raw()};
  if (plan.adds_bias) {
    ids.push_back(bias_id);
    pointers.push_back(operands.bias.raw());
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const std::int64_t>(ids));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(pointers));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace).finalize();
  FRIT_CUDNN_CALL(cudnnSetStream(handle, stream));
  FRIT_CUDNN_CALL(cudnnBackendExecute(handle, plan.plan.raw(), pack.raw()));
  if (plan.key.bias && !plan.adds_bias) ops::add_channel_bias(operands.result(plan.key.kind), operands.bias, stream);
}

/// Tries the plans for a key.
class Search {
 public:
  Search(const ConvolutionKey& key, cudnnHandle_t handle) : key_(key), handle_(handle), device_{DeviceKind::cuda, key.device} {
    const ops::ConvolutionGeometry& g = key.geometry;
    const double products = static_cast<double>(g.batch) * static_cast<double>(g.groups * g.in_channels * g.out_channels) *
                            static_cast<double>(ops::product(g.output)) * static_cast<double>(ops::product(g.kernel));
    constexpr double worth_timing = 1 << 22;
    first_will_do_ = products < worth_timing;
    try {
      allocate();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::out_of_memory) throw;
      operands_ = {};
      first_will_do_ = true;
    }
  }

  std::unique_ptr<ConvolutionPlan> run() {
    try_graph(false);
    if (key_.bias) try_graph(true);
    operands_ = {};
    workspace_ = {};
    timer_.reset();
    if (!first_will_do_) allocator_of(device_).trim();  // what follows has other sizes
    return std::move(best_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  /// Most plans are built within milliseconds, but some are compiled, for seconds: the rest of a long list is left untried.
  static constexpr std::chrono::seconds most_time{10};

  void allocate() {
    const Shapes shapes(key_);
    const auto noise = [&](const Shape& shape) {
      const Tensor tensor = Tensor::empty(shape, key_.dtype, device_, key_.layout);
      cuda::fill_with_noise(tensor);
      return tensor;
    };
    operands_ = {noise(shapes.input), noise(shapes.weight), noise(shapes.output), {}};
    if (key_.bias) operands_.bias = noise(shapes.bias).reshape({-1});
    if (!first_will_do_) timer_.emplace(device_);
  }

  bool done(Clock::time_point begin) const { return best_ && (first_will_do_ || Clock::now() - begin > most_time); }

  void try_graph(bool with_bias) try {
    const Clock::time_point begin = Clock::now();
    if (done(begin)) return;
    const Descriptor graph = operation_graph(key_, with_bias, handle_);
    std::set<std::vector<std::int64_t>> tried;
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
      for (Descriptor& configuration : engine_configurations(graph, mode)) {
        if (done(begin)) return;
        if (is_allowed(configuration, key_) && tried.insert(identity_of(configuration)).second) {
          try_configuration(with_bias, std::move(configuration));
        }
      }
    }
  } catch (const Refused&) {
    // Not for this problem; the plans found so far stay.
  }

  void try_configuration(bool adds_bias, Descriptor configuration) try {
    ConvolutionPlan plan = make_plan(key_, adds_bias, std::move(configuration), handle_);
    if (plan.workspace > key_.workspace_limit) return;
    const double time = operands_.input.defined() ? time_of(plan) : 0;
    if (best_ && time >= best_time_) return;
    best_ = std::make_unique<ConvolutionPlan>(std::move(plan));
    best_time_ = time;
  } catch (const Error&) {
    (void)cudaGetLastError();  // cuDNN offers configurations that it then cannot build or run
  }

  /// Microseconds.
  double time_of(const ConvolutionPlan& plan) {
    if (static_cast<std::int64_t>(plan.workspace) > workspace_.elements()) {
      workspace_ = {};
      workspace_ = Tensor::empty({static_cast<std::int64_t>(plan.workspace)}, DType::u8, device_);
    }
    const auto work = [&] { start(plan, operands_, workspace_.raw(), handle_, cuda::compute_stream(key_.device)); };
    work();  // the first run loads code
    cuda::synchronize(key_.device);
    if (first_will_do_) return 0;
    timer_->time(work);
    const double first = timer_->take().back();
    if (best_ && first > 1.5 * best_time_) return first;
    for (int run = 0; run < 5; ++run) timer_->time(work);
    return quantile(timer_->take(), 0.5);
  }

  const ConvolutionKey& key_;
  cudnnHandle_t handle_;
  Device device_;
  bool first_will_do_;  ///< a small problem, or no memory to try plans on
  ConvolutionOperands operands_;
  Tensor workspace_;
  std::optional<Timer> timer_;
  std::unique_ptr<ConvolutionPlan> best_;
  double best_time_ = 0;
};

/// Never destroyed, as static objects may run convolutions. The lock also keeps threads from using a handle at once.
struct Library {
  std::mutex mutex;
  std::map<int, cudnnHandle_t> handles;
  std::map<ConvolutionKey, std::unique_ptr<ConvolutionPlan>> plans;

  cudnnHandle_t handle(int device) {
    const auto [place, fresh] = handles.try_emplace(device, nullptr);
    (void)cuda::compute_stream(device);  // makes the device current
    if (place->second == nullptr) FRIT_CUDNN_CALL(cudnnCreate(&place->second));
    return place->second;
  }
};

Library& library() {
  static auto& library = *new Library;
  return library;
}

/// Half-precision convolutions in three dimensions are wrong in these versions (PyTorch issues 163539, 166122, 166643).
void refuse_wrong_versions(const ConvolutionKey& key) {
  const std::size_t number = cudnnGetVersion();
  if (!is_half(key.dtype) || image_rank(key.geometry) == 2 || number < 90800 || number >= 91500) return;
  fail(ErrorKind::device, version(), " computes three-dimensional convolutions of ", name_of(key.dtype),
       " wrongly, as versions 9.8 to 9.14 do: use another version, or float32");
}

/// Before version 9.3, elements are counted in 32 bits.
bool is_too_large(const ConvolutionKey& key) {
  const Shapes shapes(key);
  return cudnnGetVersion() < 90300 && std::max(element_count(shapes.input), element_count(shapes.output)) > INT32_MAX;
}

}  // namespace

std::string version() {
  const std::size_t number = cudnnGetVersion();
  return concat("cuDNN ", number / 10000, '.', number / 100 % 100, '.', number % 100);
}

const Tensor& ConvolutionOperands::result(ConvolutionKind kind) const {
  if (kind == ConvolutionKind::forward) return output;
  return kind == ConvolutionKind::data_gradient ? input : weight;
}

const ConvolutionPlan* plan_for(const ConvolutionKey& key) {
  refuse_wrong_versions(key);
  if (is_too_large(key)) return nullptr;
  const std::lock_guard lock(library().mutex);
  auto& plans = library().plans;
  const auto found = plans.find(key);
  if (found != plans.end()) return found->second.get();
  return plans.emplace(key, Search(key, library().handle(key.device)).run()).first->second.get();
}

std::size_t workspace_bytes(const ConvolutionPlan& plan) { return plan.workspace; }

void execute(const ConvolutionPlan& plan, const ConvolutionOperands& operands, void* workspace, CUstream_st* stream) {
  const std::lock_guard lock(library().mutex);
  start(plan, operands, workspace, library().handle(plan.key.device), stream);
}

}  // namespace frit::cudnn

// cuDNN's own ranking of its engines is not good enough for the shapes of small networks: an exhaustive search runs every plan that it
// offers, and keeps the fastest. In the plan cache a plan is its engine's number and its knobs, a line that people can read; it is made
// again from cuDNN's own list, which is the same for one version and device. (cuDNN's serialised plans have kernels in them, and not all
// engines can be serialised.)

#include "frit/ops/libraries/cuda/cudnn_search.h"

#include <chrono>
#include <cmath>
#include <optional>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/noise.h"
#include "frit/core/cuda/runtime.h"
#include "frit/core/plan_cache.h"
#include "frit/core/text.h"
#include "frit/core/timer.h"

namespace frit::cudnn {
namespace {

bool is_small(const ops::ConvolutionGeometry& g) {
  const double products = static_cast<double>(g.batch) * static_cast<double>(g.groups * g.in_channels * g.out_channels) *
                          static_cast<double>(ops::product(g.output)) * static_cast<double>(ops::product(g.kernel));
  constexpr double worth_timing = 1 << 22;
  return products < worth_timing;
}

/// Tries the plans for a key.
class Search {
 public:
  Search(const ConvolutionKey& key, const Finish& finish, cudnnHandle_t handle)
      : key_(key),
        finish_(finish),
        handle_(handle),
        device_{DeviceKind::cuda, key.device},
        timed_(key.exhaustive && !is_small(key.geometry)) {
    try {
      allocate();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::out_of_memory) throw;
      operands_ = {};
      timed_ = false;
    }
  }

  std::unique_ptr<ConvolutionPlan> run() {
    // For a large image the other way costs a pass over it, and where halves are stored it rounds twice. A small one in float32 is not
    // worth the compiling.
    const bool halves = is_half(key_.dtype);
    const bool worth_fusing = halves || !is_small(key_.geometry), fuse_first = key_.bias && worth_fusing;
    if (worth_fusing && fuses_epilogue(key_)) try_graph({.bias = key_.bias, .epilogue = true});
    try_graph({.bias = fuse_first});
    if (key_.bias && (!halves || best_.empty())) try_graph({.bias = !fuse_first});
    if (timed_) time_best_again();
    const bool large = operands_.input.defined() && !is_small(key_.geometry);
    operands_ = {};
    workspace_ = {};
    timer_.reset();
    if (large) allocator_of(device_).trim();  // what follows has other sizes
    return best_.empty() ? nullptr : std::move(best_.front());
  }

  bool timed() const { return timed_; }
  double building_seconds() const { return building_.count(); }
  /// All plans that ran, in the order of their trial.
  const std::vector<ops::LibraryPlan>& tried() const { return tried_; }
  /// Of the plans that were left out for their workspace, the least; nothing if there was none.
  std::optional<std::int64_t> least_beyond_limit() const { return least_beyond_limit_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  /// Most plans are built within milliseconds, but some are compiled, for seconds: the rest of a long list is left untried.
  static constexpr std::chrono::seconds most_time{10};
  static constexpr std::size_t timed_again = 3;

  void allocate() {
    const ConvolutionShapes shapes(key_);
    const auto noise = [&](const Shape& shape) {
      const Tensor tensor = Tensor::empty(shape, key_.dtype, device_, key_.layout);
      cuda::fill_with_noise(tensor);
      return tensor;
    };
    operands_ = {noise(shapes.input), noise(shapes.weight), noise(shapes.output), {}};
    if (key_.bias) operands_.bias = noise(shapes.bias).reshape({-1});
    if (key_.epilogue.adds_residual()) operands_.residual = noise(operands_.result(key_.kind).shape());
    if (timed_) timer_.emplace(device_);
  }

  void try_graph(Fused fused) {
    const Clock::time_point begin = Clock::now();
    const auto done = [&] { return !best_.empty() && (!timed_ || Clock::now() - begin > most_time); };
    if (done()) return;
    // Where cuDNN's guess is to be compiled first, what it fuses is quicker left to a pass.
    const bool waits = timed_ || key_.deterministic || !(fused.bias || fused.epilogue);
    for_each_configuration(key_, fused, handle_, [&](Configuration configuration) {
      if (!waits && is_compiled_when_built(configuration)) return false;
      try_configuration(std::move(configuration));
      return !done();
    });
  }

  void try_configuration(Configuration configuration) try {
    const Clock::time_point begin = Clock::now();
    auto plan = std::make_unique<ConvolutionPlan>(key_, finish_, std::move(configuration), handle_);
    building_ += Clock::now() - begin;
    const std::int64_t workspace = plan->facts.workspace;
    if (static_cast<std::size_t>(workspace) > key_.workspace_limit) {
      least_beyond_limit_ = std::min(workspace, least_beyond_limit_.value_or(workspace));
      return;
    }
    if (operands_.input.defined()) plan->facts.microseconds = time_of(*plan);
    tried_.push_back(plan->facts);
    const auto faster = [](const auto& a, const auto& b) { return a->facts.microseconds < b->facts.microseconds; };
    best_.insert(std::upper_bound(best_.begin(), best_.end(), plan, faster), std::move(plan));
    if (best_.size() > timed_again) best_.pop_back();
  } catch (const Error&) {
    (void)cudaGetLastError();  // cuDNN offers configurations that it then cannot build or run
  }

  /// Microseconds; 0 where no time is taken, after a run that shows whether the plan works.
  double time_of(const ConvolutionPlan& plan) {
    if (plan.facts.workspace > workspace_.elements()) {
      workspace_ = {};
      workspace_ = Tensor::empty({plan.facts.workspace}, DType::u8, device_);
    }
    work(plan);  // the first run loads code
    cuda::synchronize(key_.device);
    if (plan.facts.fused_epilogue && drops_nan(plan)) throw Refused(ErrorKind::device, "an activation makes a number of NaN");
    if (!timed_) return 0;
    const double first = median_time(plan, 1);
    return !best_.empty() && first > 1.5 * best_.front()->facts.microseconds ? first : median_time(plan, 5);
  }

  /// Activations are asked for that pass NaN on; what an engine does is seen where the weight has nothing else.
  bool drops_nan(const ConvolutionPlan& plan) {
    ConvolutionOperands operands = operands_;
    operands.weight = Tensor::empty(operands_.weight.shape(), key_.dtype, device_, key_.layout);
    operands.weight.fill(std::nan(""));
    start(plan, operands, workspace_.raw(), handle_, cuda::compute_stream(key_.device));
    Tensor pixel = operands.result(key_.kind).slice(0, 0, 1);
    for (int axis = 2; axis < pixel.rank(); ++axis) pixel = pixel.slice(axis, pixel.dim(axis) / 2, pixel.dim(axis) / 2 + 1);
    const std::vector<double> values = pixel.contiguous().to(Device::cpu()).to_vector<double>();
    return std::any_of(values.begin(), values.end(), [](double value) { return !std::isnan(value); });
  }

  double median_time(const ConvolutionPlan& plan, int runs) {
    for (int run = 0; run < runs; ++run) timer_->time([&] { work(plan); });
    return quantile(timer_->take(), 0.5);
  }

  void work(const ConvolutionPlan& plan) { start(plan, operands_, workspace_.raw(), handle_, cuda::compute_stream(key_.device)); }

  /// A few runs do not tell neighbours apart.
  void time_best_again() {
    for (const auto& plan : best_) plan->facts.microseconds = median_time(*plan, 25);
    const auto faster = [](const auto& a, const auto& b) { return a->facts.microseconds < b->facts.microseconds; };
    std::stable_sort(best_.begin(), best_.end(), faster);
  }

  const ConvolutionKey& key_;
  const Finish& finish_;
  cudnnHandle_t handle_;
  Device device_;
  bool timed_;
  ConvolutionOperands operands_;  ///< undefined where there is no memory to try plans on
  Tensor workspace_;
  std::optional<Timer> timer_;
  std::vector<std::unique_ptr<ConvolutionPlan>> best_;  ///< the fastest first
  std::vector<ops::LibraryPlan> tried_;
  std::optional<std::int64_t> least_beyond_limit_;
  Seconds building_{};
};

/// The plan of a cache's entry; null if there is none, or cuDNN does not offer or build it any more.
std::unique_ptr<ConvolutionPlan> remembered_plan(const ConvolutionKey& key, const Finish& finish, const std::string& cache_key,
                                                 cudnnHandle_t handle) try {
  const auto entry = plan_cache().find<ops::LibraryPlan>(cache_key);
  std::unique_ptr<ConvolutionPlan> plan;
  if (!entry || (entry->fused_bias && !key.bias) || (entry->fused_epilogue && !fuses_epilogue(key))) return plan;
  for_each_configuration(key, {entry->fused_bias, entry->fused_epilogue}, handle, [&](Configuration configuration) {
    if (!configuration.plan.is_same_algorithm(*entry)) return true;
    plan = std::make_unique<ConvolutionPlan>(key, finish, std::move(configuration), handle);
    return false;
  });
  if (!plan || static_cast<std::size_t>(plan->facts.workspace) > key.workspace_limit) return nullptr;
  plan->facts.microseconds = entry->microseconds;
  return plan;
} catch (const Error&) {
  return nullptr;
}

void note(ops::PlanChoice choice, const ConvolutionPlan& chosen, const std::vector<ops::LibraryPlan>& tried) {
  choice.plans = {chosen.facts};
  for (const ops::LibraryPlan& plan : tried) {
    if (!plan.is_same_algorithm(chosen.facts)) choice.plans.push_back(plan);
  }
  ops::note_plan_choice(std::move(choice));
}

}  // namespace

std::unique_ptr<ConvolutionPlan> choose_plan(const ConvolutionKey& key, const Finish& finish, cudnnHandle_t handle) {
  const std::string problem = problem_text(key), cache_key = concat(build_name(), ", ", problem);
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  if (!key.deterministic) {
    if (auto plan = remembered_plan(key, finish, cache_key, handle)) {
      note({problem, "from the plan cache", seconds()}, *plan, {});
      return plan;
    }
  }
  Search search(key, finish, handle);
  std::unique_ptr<ConvolutionPlan> plan = search.run();
  if (!plan && search.least_beyond_limit()) {
    fail(ErrorKind::device, "no plan fits the workspace limit of ", bytes_text(key.workspace_limit), ", one needs ",
         *search.least_beyond_limit(), " bytes; ", problem);
  }
  if (!plan) return plan;
  note({problem, search.timed() ? "by time" : "by heuristic", seconds(), search.building_seconds()}, *plan, search.tried());
  if (search.timed()) plan_cache().insert(cache_key, plan->facts);
  return plan;
}

}  // namespace frit::cudnn

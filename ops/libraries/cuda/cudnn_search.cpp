// cuDNN's own ranking of its engines is not good enough for the shapes of small networks: an exhaustive search runs every plan that it
// offers, and keeps the fastest. In the plan cache a plan is its engine's number and its knobs, a line that people can read; it is made
// again from cuDNN's own list, which is the same for one version and device. (cuDNN's serialised plans have kernels in them, and not all
// engines can be serialised.)

#include "frit/ops/libraries/cuda/cudnn_search.h"

#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/noise.h"
#include "frit/core/cuda/runtime.h"
#include "frit/core/plan_cache.h"
#include "frit/core/text.h"
#include "frit/core/thread_pool.h"
#include "frit/core/timer.h"

namespace frit::cudnn {
namespace {

double products(const ops::ConvolutionGeometry& g) {
  return static_cast<double>(g.batch) * static_cast<double>(g.groups * g.in_channels * g.out_channels) *
         static_cast<double>(ops::product(g.output)) * static_cast<double>(ops::product(g.kernel));
}

bool is_small(const ops::ConvolutionGeometry& g) {
  constexpr double worth_timing = 1 << 22;
  return products(g) < worth_timing;
}

/// Tries the plans for a key.
class Search {
 public:
  Search(const ConvolutionKey& key, const Finish& finish, std::span<const cudnnHandle_t> handles)
      : key_(key),
        finish_(finish),
        handles_(handles),
        device_{DeviceKind::cuda, key.device},
        trial_(key.deterministic || is_small(key.geometry) ? Trial::first_that_works
               : key.exhaustive                            ? Trial::all
                                                           : Trial::first_of_each_graph) {
    try {
      allocate();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::out_of_memory) throw;
      operands_ = {};
      trial_ = Trial::first_that_works;
    }
  }

  std::unique_ptr<ConvolutionPlan> run() {
    // For a large image the other way costs a pass over it, and where halves are stored it rounds twice. A small one in float32 is not
    // worth the compiling.
    const bool halves = is_half(key_.dtype);
    const bool worth_fusing = halves || !is_small(key_.geometry), fuse_first = key_.bias && worth_fusing;
    if (worth_fusing && fuses_epilogue(key_)) try_graph({.bias = key_.bias, .epilogue = true});
    try_graph({.bias = fuse_first});
    if (key_.bias && (!halves || best_.empty() || trial_ == Trial::first_of_each_graph)) try_graph({.bias = !fuse_first});
    if (timed()) time_best_again();
    const bool large = operands_.input.defined() && !is_small(key_.geometry);
    operands_ = {};
    workspace_ = {};
    timer_.reset();
    if (large) allocator_of(device_).trim();  // what follows has other sizes
    return best_.empty() ? nullptr : std::move(best_.front());
  }

  bool timed() const { return trial_ == Trial::all; }
  double building_seconds() const { return building_.count(); }
  /// All plans that ran, in the order of their trial.
  const std::vector<ops::LibraryPlan>& tried() const { return tried_; }
  /// Of the plans that were left out for their workspace, the least; nothing if there was none.
  std::optional<std::int64_t> least_beyond_limit() const { return least_beyond_limit_; }

 private:
  /// Which plans are run, and timed where there are several.
  enum class Trial { first_that_works, first_of_each_graph, all };
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  /// For building and for trying those of a graph. Most plans are built within milliseconds, but some are compiled, for seconds: the rest
  /// of a long list is left untried.
  static constexpr std::chrono::seconds most_time{10};
  static constexpr std::size_t timed_again = 3, most_guesses = 4;

  cudnnHandle_t handle() const { return handles_.front(); }

  void allocate() {
    const ConvolutionShapes shapes(key_);
    const auto noise = [&](const Shape& shape) {
      const Tensor tensor = Tensor::empty(shape, key_.dtype, device_, key_.layout);
      cuda::fill_with_noise(tensor);
      return tensor;
    };
    operands_ = {noise(shapes.input), noise(shapes.weight), noise(shapes.output), {}};
    if (key_.bias) operands_.bias = noise(shapes.bias).reshape({-1});
    for (std::size_t i = 0; i < key_.epilogue.operands.size(); ++i) operands_.others.push_back(noise(operand_shape(key_, i)));
    if (trial_ != Trial::first_that_works) timer_.emplace(device_);
  }

  void try_graph(Fused fused) {
    if (timed()) return try_all(fused);
    // The first that works, and a few more while that is slow. Where cuDNN's guess is to be compiled first, what it fuses is quicker left
    // to a pass, but for large images; a guess that is not may take a hundred times as long as another graph's.
    const bool waits = key_.deterministic || key_.exhaustive || is_worth_compiling() || !(fused.bias || fused.epilogue);
    if (trial_ == Trial::first_that_works && !best_.empty()) return;
    const std::size_t before = tried_.size();
    for_each_configuration(key_, fused, handle(), [&](Configuration configuration) {
      if (!waits && is_compiled_when_built(configuration)) return false;
      const Clock::time_point begin = Clock::now();
      auto plan = build(std::move(configuration), handle());
      building_ += Clock::now() - begin;
      if (plan) try_plan(std::move(plan));
      return tried_.size() == before || (tried_.size() < before + most_guesses && is_slow(*best_.front()));
    });
  }

  /// Whether a guess takes so long, for what it computes and moves, that cuDNN's next ones are likely to be faster: less than half of what
  /// good ones reach on an H200.
  bool is_slow(const ConvolutionPlan& plan) const {
    constexpr double worth_another = 30, bytes_a_microsecond = 1.5e6;
    if (trial_ != Trial::first_of_each_graph || plan.facts.microseconds < worth_another) return false;
    const double products_a_microsecond = is_half(key_.dtype) ? 150e6 : key_.tf32 ? 75e6 : 15e6;
    const auto bytes = static_cast<double>(operands_.input.bytes() + operands_.weight.bytes() + operands_.output.bytes());
    return plan.facts.microseconds > std::max(products(key_.geometry) / products_a_microsecond, bytes / bytes_a_microsecond);
  }

  /// A pass over the result would take longer than some 30 microseconds. That of GELU after a product took less time than what was
  /// compiled for both (ConvNeXt's layers, on an H200).
  bool is_worth_compiling() const {
    constexpr std::int64_t large_bytes = 64 << 20;
    const std::vector<ops::ConvolutionEpilogue::Step>& steps = key_.epilogue.steps;
    const bool has_gelu = std::any_of(steps.begin(), steps.end(), [](const ops::ConvolutionEpilogue::Step& step) {
      return step.activation && step.activation->kind == ops::Activation::gelu;
    });
    const bool product_and_gelu = has_gelu && key_.geometry.kernel == ops::ImageAxes{1, 1, 1};
    return operands_.input.defined() && operands_.result(key_.kind).bytes() >= large_bytes && !product_and_gelu;
  }

  void try_all(Fused fused) {
    auto plans = build_all(fused);
    const Clock::time_point begin = Clock::now();
    for (auto& [rank, plan] : plans) {
      if (best_.empty() || Clock::now() - begin < most_time) try_plan(std::move(plan));
    }
  }

  /// By their place in cuDNN's ranking, on many threads: a handle serves one at a time, and so does all that is made with it.
  std::map<std::size_t, std::unique_ptr<ConvolutionPlan>> build_all(Fused fused) {
    const Clock::time_point begin = Clock::now();
    std::mutex mutex;
    std::map<std::size_t, std::unique_ptr<ConvolutionPlan>> plans;
    parallel_for(std::ssize(handles_), 1, [&](std::int64_t first, std::int64_t) {
      const auto builder = static_cast<std::size_t>(first);
      (void)cuda::compute_stream(key_.device);  // makes the device the thread's
      std::size_t next = 0;
      for_each_configuration(key_, fused, handles_[builder], [&](Configuration configuration) {
        const std::size_t rank = next++;
        if (rank % handles_.size() != builder) return true;
        if (auto plan = build(std::move(configuration), handles_[builder])) {
          const std::lock_guard lock(mutex);
          plans[rank] = std::move(plan);
        }
        return Clock::now() - begin < most_time;
      });
    });
    building_ += Clock::now() - begin;
    return plans;
  }

  /// Null where cuDNN cannot build what it offered.
  std::unique_ptr<ConvolutionPlan> build(Configuration configuration, cudnnHandle_t handle) const try {
    return std::make_unique<ConvolutionPlan>(key_, finish_, std::move(configuration), handle);
  } catch (const Error&) {
    (void)cudaGetLastError();
    return nullptr;
  }

  void try_plan(std::unique_ptr<ConvolutionPlan> plan) try {
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
    (void)cudaGetLastError();  // nor can it run all that it builds
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
    if (!timer_) return 0;
    const double first = median_time(plan, 1);
    return !best_.empty() && first > 1.5 * best_.front()->facts.microseconds ? first : median_time(plan, 5);
  }

  /// Steps are asked for that pass NaN on; what an engine does is seen where the weight, or an operand of the epilogue, has nothing else.
  bool drops_nan(const ConvolutionPlan& plan) {
    ConvolutionOperands operands = operands_;
    const auto drops = [&](Tensor& tensor) {
      const Tensor before = tensor;
      tensor = Tensor::empty(before.shape(), key_.dtype, device_, key_.layout);
      tensor.fill(std::nan(""));
      start(plan, operands, workspace_.raw(), handle(), cuda::compute_stream(key_.device));
      tensor = before;
      return has_number(operands);
    };
    return drops(operands.weight) || std::any_of(operands.others.begin(), operands.others.end(), drops);
  }

  /// Whether some channel of a pixel is not NaN.
  bool has_number(const ConvolutionOperands& operands) const {
    Tensor pixel = operands.result(key_.kind).slice(0, 0, 1);
    for (int axis = 2; axis < pixel.rank(); ++axis) pixel = pixel.slice(axis, pixel.dim(axis) / 2, pixel.dim(axis) / 2 + 1);
    const std::vector<double> values = pixel.contiguous().to(Device::cpu()).to_vector<double>();
    return std::any_of(values.begin(), values.end(), [](double value) { return !std::isnan(value); });
  }

  double median_time(const ConvolutionPlan& plan, int runs) {
    for (int run = 0; run < runs; ++run) timer_->time([&] { work(plan); });
    return quantile(timer_->take(), 0.5);
  }

  void work(const ConvolutionPlan& plan) { start(plan, operands_, workspace_.raw(), handle(), cuda::compute_stream(key_.device)); }

  /// A few runs do not tell neighbours apart.
  void time_best_again() {
    for (const auto& plan : best_) plan->facts.microseconds = median_time(*plan, 25);
    const auto faster = [](const auto& a, const auto& b) { return a->facts.microseconds < b->facts.microseconds; };
    std::stable_sort(best_.begin(), best_.end(), faster);
  }

  const ConvolutionKey& key_;
  const Finish& finish_;
  std::span<const cudnnHandle_t> handles_;
  Device device_;
  Trial trial_;
  ConvolutionOperands operands_;  ///< undefined where there is no memory to try plans on
  Tensor workspace_;
  std::optional<Timer> timer_;
  std::vector<std::unique_ptr<ConvolutionPlan>> best_;  ///< the fastest first
  std::vector<ops::LibraryPlan> tried_;
  std::optional<std::int64_t> least_beyond_limit_;
  Seconds building_{};
};

std::string cache_key(const ConvolutionKey& key) { return concat(build_name(), ", ", problem_text(key)); }

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

// None either if cuDNN does not offer or build it any more.
std::unique_ptr<ConvolutionPlan> remembered_plan(const ConvolutionKey& key, const Finish& finish, cudnnHandle_t handle) try {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_ptr<ConvolutionPlan> plan;
  const auto entry = key.deterministic ? std::nullopt : plan_cache().find<ops::LibraryPlan>(cache_key(key));
  if (!entry || (entry->fused_bias && !key.bias) || (entry->fused_epilogue && !fuses_epilogue(key))) return plan;
  for_each_configuration(key, {entry->fused_bias, entry->fused_epilogue}, handle, [&](Configuration configuration) {
    if (!configuration.plan.is_same_algorithm(*entry)) return true;
    plan = std::make_unique<ConvolutionPlan>(key, finish, std::move(configuration), handle);
    return false;
  });
  if (!plan || static_cast<std::size_t>(plan->facts.workspace) > key.workspace_limit) return nullptr;
  plan->facts.microseconds = entry->microseconds;
  const double seconds = seconds_since(begin);
  ops::note_plan_choice({problem_text(key), "from the plan cache", seconds, seconds, {plan->facts}});
  return plan;
} catch (const Error&) {
  return nullptr;
}

std::unique_ptr<ConvolutionPlan> search_plan(const ConvolutionKey& key, const Finish& finish, std::span<const cudnnHandle_t> handles) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string problem = problem_text(key);
  Search search(key, finish, handles);
  std::unique_ptr<ConvolutionPlan> plan = search.run();
  if (!plan && search.least_beyond_limit()) {
    fail(ErrorKind::device, "no plan fits the workspace limit of ", bytes_text(key.workspace_limit), ", one needs ",
         *search.least_beyond_limit(), " bytes; ", problem);
  }
  if (!plan) return plan;
  ops::PlanChoice choice{
      problem, search.timed() ? "by time" : "by heuristic", seconds_since(begin), search.building_seconds(), {plan->facts}};
  for (const ops::LibraryPlan& tried : search.tried()) {
    if (!tried.is_same_algorithm(plan->facts)) choice.plans.push_back(tried);
  }
  ops::note_plan_choice(std::move(choice));
  if (search.timed()) plan_cache().insert(cache_key(key), plan->facts);
  return plan;
}

}  // namespace frit::cudnn

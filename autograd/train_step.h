#pragma once

#include <array>
#include <concepts>
#include <optional>

#include "frit/autograd/optimizer.h"
#include "frit/autograd/schedule.h"
#include "frit/core/communication/communicator.h"
#include "frit/graph/program.h"

namespace frit {

struct TrainOptions {
  std::uint64_t seed = 0;                ///< of the variables' initialisation
  std::optional<double> clip_norm = {};  ///< scale the gradients down to this global norm, above 0
  /// What activations and their gradients are stored in (see graph::lower_precision). f32: in what the model says. In f16 the loss is
  /// multiplied by a number that moves with the gradients' size, and steps whose gradients are not finite update nothing but that number.
  DType precision = DType::f32;
  Schedule schedule = {};                ///< of the learning rate
  std::int64_t accumulate = 1;           ///< batches whose gradients' mean makes one update
  std::vector<std::string> freeze = {};  ///< parameters that are left as they are, by name (see matches_pattern)
  /// Watches the norm of the gradients (see gradient_norm). Unless halves of f16 are at work, a step whose loss or gradients are not finite
  /// then changes no parameter and nothing that the optimizer keeps, nor does any step after it: see return_to.
  bool guarded = false;
  /// What these parameters have instead of the step's optimizer: that of the first group which fits. Each must fit some.
  std::vector<ParameterGroup> groups = {};
  /// Below 1: keeps an exponential moving average of each parameter, average = decay * average + (1 - decay) * parameter after each update,
  /// beginning with what the first gave (torch.optim.swa_utils.get_ema_multi_avg_fn). See TrainStep::averaged.
  std::optional<double> average_decay = {};
  /// Other processes that train the same model, each on as many examples of its own a batch: the loss and the gradients are the means over
  /// all of them, and every variable begins as that of the first process, but that each draws its own random numbers. All processes run
  /// their steps in the same order.
  std::shared_ptr<Communicator> communicator = {};
  /// With several processes each updates a part of every parameter and then gives it to the others, so that what the optimizer keeps of a
  /// parameter (its moments) takes each of them but that share of the memory. For a step without a name, and optimizers that take parts.
  bool shards_optimizer = false;
  bool reduces_halves = true;  ///< gradients that come in halves travel so; else in float32
  /// Of several processes: batch norms normalise by the examples of all of them, and keep the same running statistics, as
  /// torch.nn.SyncBatchNorm does. Else each process has its own. Inputs then have the same shapes in all processes, step by step, and more
  /// than one value for each channel in each.
  bool sync_batch_norm = false;
  /// Tells steps apart that share a State: what the optimizer keeps is "optimizer.<name>/...". Has no '/' itself.
  std::string name = {};
};

/// No training counts further: numbers that a double has too.
inline constexpr std::int64_t most_counted = std::int64_t{1} << 53;

/// How far a training is, besides its variables.
struct TrainPosition {
  std::int64_t batches = 0;   ///< steps that were run
  double learning_rate = 0;   ///< that the schedule's factor multiplies
  PlateauState plateau = {};  ///< of the schedule

  void fields(FieldVisitor& v);
  /// Throws ErrorKind::argument for numbers that no training has come to.
  void check() const;
};

/// One step of training: forward, gradient, update of every trainable variable that the loss depends on, compiled for each set of input
/// shapes.
class TrainStep {
 public:
  /// `loss` has one element; its graph is copied. Throws ErrorKind::argument if no trainable variable has a gradient of it, or an option is
  /// out of its range.
  TrainStep(Value loss, const Optimizer& optimizer, Device device = Device::best(), const TrainOptions& options = {});
  /// Likewise with the variables of another step, or of inference: the two networks of a GAN, one network in two graphs. Several steps of
  /// one State have names of their own; each trains what its own graph calls trainable, and does not freeze. A zero gradient, as of what
  /// stop_gradient cuts off, still decays a parameter or moves it on: freeze what another step trains.
  template <std::same_as<std::shared_ptr<State>> Shared>  // {} is a device
  TrainStep(Value loss, const Optimizer& optimizer, const Shared& state, const TrainOptions& options = {})
      : TrainStep(state, loss, optimizer, options) {}

  /// Runs a step and returns the loss before the update. Throws ErrorKind::argument for inputs that do not fit the graph.
  double operator()(const Bindings& inputs);
  /// Likewise, but waits for nothing: returns where the loss will lie until the next step (see Readback).
  const Tensor& start(const Bindings& inputs);
  /// A named output of the last step (see Graph::output).
  const Tensor& output(std::string_view name) const;
  /// Of a guarded step: the norm of the gradients of the last batch, before they are clipped.
  const Tensor& gradient_norm() const;

  /// Whether a guarded step with this loss and norm went well. In f16 gradients may overflow: the loss scale is halved then.
  bool finite(double loss, double norm) const;

  /// The rate that the schedule's factor multiplies.
  void set_learning_rate(double rate);
  double learning_rate() const;  ///< of the next update
  /// Gives the schedule a loss, best that on a validation set after an epoch; only Schedule::Kind::plateau takes note.
  void observe(double loss);
  std::int64_t steps() const;  ///< updates done so far

  const TrainPosition& position() const { return position_; }
  /// Goes on from there; the variables are the caller's to set (see restore_training). Throws ErrorKind::argument, see
  /// TrainPosition::check.
  void set_position(const TrainPosition& position);
  /// After a guarded step was not finite: makes everything as it was before that step, `batch` of those before it. It must be one of the
  /// last two.
  void return_to(std::int64_t batch);

  /// The variables as they are now, but with the parameters' averages, for inference or save_checkpoint: needs average_decay. Before the
  /// first update these are the parameters.
  std::shared_ptr<State> averaged() const;
  /// Likewise into variables that are there, as those of a program that measures the averages.
  void copy_averages(State& result) const;

  /// After variables were set: gives all processes those of the first, as in the beginning, but for shards, which each process sets by
  /// itself. Without a communicator it does nothing.
  void share_variables();
  /// Before a checkpoint is written: of gradients that are summed up (accumulate), each process has its own. Makes them the means over all,
  /// which changes nothing in what the update will be. All processes call it.
  void share_sums();
  /// Before a checkpoint is written of a step that shards its optimizer: gives the first process, or all, what every one keeps, on the CPU,
  /// until the next step. All processes call it; without shards it does nothing.
  void gather_shards(bool to_all = false);
  /// All variables as checkpoints have them, each whole. Throws ErrorKind::argument if shards were not gathered after the last step.
  std::map<std::string, Tensor> whole_variables() const;
  /// Sets a variable from what a checkpoint has; a process takes its part.
  void set_whole(const std::string& name, const Tensor& value);
  bool has_shards() const { return !shards_.empty(); }  ///< of what the optimizer keeps, with other processes
  /// Of a variable of the State, in a checkpoint.
  Shape whole_shape(const std::string& name) const;

  /// Before a network is measured: without sync_batch_norm each process takes the running statistics of its own examples. Makes them those
  /// of the first. All processes call it.
  void share_statistics();
  /// Throws ErrorKind::diverged in all processes, naming the parameter and a process that does not have the bits of most, if there is one.
  /// All processes call it: to be sure of what is kept, as before a checkpoint. It reads all parameters.
  void require_same_parameters() const;

  State& state() const { return program_.state(); }
  const std::shared_ptr<State>& shared_state() const { return program_.shared_state(); }
  const Optimizer& optimizer() const { return optimizer_; }
  const TrainOptions& options() const { return options_; }
  /// The forward graph as it was given.
  const Graph& graph() const { return program_.graph(); }
  /// The whole step as it runs for these inputs; with `accumulate`, without the updates.
  graph::Executable& compile(const std::map<std::string, TensorType>& inputs) { return program_.compile(inputs); }

  /// The same graph, for a kind of device that need not be there (see Program::optimised).
  Graph optimised(const std::map<std::string, TensorType>& inputs, DeviceKind kind) const { return program_.optimised(inputs, kind); }

  /// The memory that such a step would take besides the variables (see Program::plan).
  graph::MemoryPlan plan(const std::map<std::string, TensorType>& inputs) const { return program_.plan(inputs); }
  /// Likewise the bytes that the programs after it take, in arenas of their own: with `accumulate` the updates, with averages these.
  std::int64_t later_bytes() const;

 private:
  TrainStep(std::shared_ptr<State> state, Value loss, const Optimizer& optimizer, const TrainOptions& options);
  void set_rate();
  void keep_what_runs_change();
  /// With other processes, before the first run for these inputs.
  void compare_calls(const Bindings& inputs);

  Optimizer optimizer_;
  TrainOptions options_;
  Program program_;
  std::optional<Program> update_;   // of accumulated gradients
  std::optional<Program> average_;  // of the parameters
  const graph::Executable* last_ = nullptr;
  std::vector<std::map<std::string, TensorType>> compared_;  // inputs whose calls are those of all processes
  TrainPosition position_;
  std::optional<double> rate_;              // as the device has it
  bool shared_ = false;                     // the variables, by the first step if not before
  std::map<std::string, Shape> shards_;     // variables of which each process has a part: the whole's shapes
  std::map<std::string, Tensor> gathered_;  // the wholes
  /// What the operators of a forward pass update (running statistics, counters of random numbers), as it was before the last two steps.
  std::array<std::map<std::string, Tensor>, 2> before_;
};

}  // namespace frit

// Training on several processes, each with its part of every batch, is training on one with all of it.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <thread>

#include "autograd/trained_together.h"
#include "frit/autograd/train_step.h"
#include "frit/core/cuda/device.h"
#include "frit/models/nn.h"
#include "frit/models/training/checkpoint.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/reduction/reduction.h"

namespace frit {
namespace {

struct ConvNet {
  Graph graph;
  Value loss;

  explicit ConvNet(DType dtype = DType::f64, double dropped = 0) {
    Scope scope(graph, "net", dtype);
    const Value image = graph.input("image", {batch_size, 2, 6, 6}, dtype), target = graph.input("target", {batch_size, 3}, dtype);
    Value y = nn::conv2d(scope / "conv1", image, {.out_channels = 8, .kernel_size = 3, .padding = 1});
    y = relu(nn::group_norm(scope / "norm", y, 2));
    y = nn::conv2d(scope / "conv2", y, {.out_channels = 4, .kernel_size = 3});
    if (dropped > 0) y = nn::dropout(scope / "dropout", y, dropped);
    y = nn::linear(scope / "head", mean(y, {2, 3}), 3);
    loss = mean_squared_error(y, target);
  }
};

/// Examples [first, first + count) of batch number `number`.
Bindings batch(std::int64_t number, std::int64_t first, std::int64_t count, DType dtype = DType::f64) {
  const auto seed = static_cast<std::uint64_t>(number);
  return {{"image", drawn({batch_size, 2, 6, 6}, dtype, seed).slice(0, first, first + count).clone()},
          {"target", drawn({batch_size, 3}, dtype, seed + 1000).slice(0, first, first + count).clone()}};
}
Bindings own_part(const Communicator& communicator, std::int64_t number, DType dtype = DType::f64) {
  const std::int64_t count = batch_size / communicator.size();
  return batch(number, communicator.rank() * count, count, dtype);
}

void expect_same_bits(Communicator& communicator, TrainStep& step) {
  communicator.require_same("the bits of all variables", bits_of(step));
}

/// Of a parameter each process keeps an equal share, but for a few elements.
void expect_share_of_memory(const TrainStep& step) {
  std::int64_t bytes = 0, whole_bytes = 0, parameters = 0;
  const int processes = step.options().shards_optimizer ? step.options().communicator->size() : 1;
  for (const auto& [name, tensor] : step.state().tensors()) {
    if (!name.ends_with("moment") && !name.ends_with("momentum")) continue;
    bytes += tensor.bytes();
    whole_bytes += element_count(step.whole_shape(name)) * tensor.bytes() / std::max<std::int64_t>(tensor.elements(), 1);
    ++parameters;
  }
  EXPECT_GT(parameters, 0);
  EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(whole_bytes) / processes,
              static_cast<double>(parameters * 8 * 8 * processes));
}

/// Trains by the options in all processes, and in each by itself on whole batches.
void expect_as_one(Device device, const Optimizer& optimizer, TrainOptions options) {
  options.seed = 3;
  const ConvNet network;
  device = Communicator::local_device(device);
  TrainStep reference(network.loss, optimizer, device, options);
  options.communicator = Communicator::from_environment(device);
  ASSERT_TRUE(options.communicator);
  options.seed = static_cast<std::uint64_t>(3 + options.communicator->rank());  // all begin as the first does
  TrainStep step(network.loss, optimizer, device, options);
  for (std::int64_t i = 0; i < 20; ++i) {
    const double loss = step(own_part(*options.communicator, i)), expected = reference(batch(i, 0, batch_size));
    EXPECT_NEAR(loss, expected, 1e-10 * std::abs(expected)) << "batch " << i;
  }
  EXPECT_EQ(step.steps(), 20 / options.accumulate);
  EXPECT_LE(largest_difference(variables_of(step), reference.state()), 1e-10);
  expect_same_bits(*options.communicator, step);
  expect_share_of_memory(step);
}

TEST(SeveralProcesses, TwoTrainAsOne) {
  if (!in_several_processes(2)) return;
  expect_as_one(Device::cpu(), Sgd{.learning_rate = 0.05, .momentum = 0.9}, {});
}

TEST(SeveralProcesses, FourTrainAsOneWithGuardClippingAndAverages) {
  if (!in_several_processes(4)) return;
  expect_as_one(Device::cpu(), Adam{.learning_rate = 1e-3}, {.clip_norm = 0.1, .guarded = true, .average_decay = 0.9});
}

TEST(SeveralProcesses, SumsUpGradientsOfSeveralBatches) {
  if (!in_several_processes(2)) return;
  expect_as_one(Device::cpu(), AdamW{.learning_rate = 1e-3}, {.clip_norm = 0.1, .accumulate = 4, .guarded = true});
}

TEST(SeveralProcesses, AllSkipAnUpdateThatOneCannotMake) {
  if (!in_several_processes(2)) return;
  for (const auto& [accumulate, sharded] : {std::pair(1, false), {2, false}, {1, true}, {2, true}}) {
    const auto communicator = Communicator::from_environment(Device::cpu());
    ConvNet network;
    TrainStep step(network.loss, Sgd{.learning_rate = 0.05, .momentum = 0.9}, Device::cpu(),
                   {.accumulate = accumulate, .guarded = true, .communicator = communicator, .shards_optimizer = sharded});
    step(own_part(*communicator, 0));
    const std::map<std::string, std::vector<std::byte>> before = kept_bits(step.state());
    Bindings broken = own_part(*communicator, 1);
    if (communicator->rank() == 1) broken["image"].fill(std::numeric_limits<double>::quiet_NaN());
    const double loss = step(broken);
    EXPECT_TRUE(std::isnan(loss)) << "in each process";
    EXPECT_FALSE(step.finite(loss, step.gradient_norm().item()));
    std::map<std::string, std::vector<std::byte>> after = kept_bits(step.state());
    after["optimizer.failures"] = before.at("optimizer.failures");
    EXPECT_EQ(after, before);
    expect_same_bits(*communicator, step);
  }
}

TEST(SeveralProcesses, HalvesTravelAsTheyAre) {
  if (!in_several_processes(2)) return;
  for (const bool halves : {true, false}) {
    const auto communicator = Communicator::from_environment(Device::cpu());
    ConvNet network(DType::f32);
    TrainStep step(network.loss, Sgd{.learning_rate = 0.05}, Device::cpu(),
                   {.precision = DType::bf16, .communicator = communicator, .reduces_halves = halves});
    const Graph& graph =
        step.compile({{"image", {DType::f32, {batch_size / 2, 2, 6, 6}}}, {"target", {DType::f32, {batch_size / 2, 3}}}}).graph();
    bool travel = false;
    for (const graph::Node* node : graph.all(graph::NodeKind::operation)) {
      if (!node->op->collective) continue;
      travel = travel || std::any_of(node->inputs.begin(), node->inputs.end(), [&](int id) { return is_half(graph.type(id).dtype); });
    }
    EXPECT_EQ(travel, halves);
    double first = 0, last = 0;
    for (int i = 0; i < 10; ++i) (i == 0 ? first : last) = step(own_part(*communicator, 0, DType::f32));
    EXPECT_LT(last, first);
    expect_same_bits(*communicator, step);
  }
}

TEST(SeveralProcesses, EachDrawsItsOwnRandomNumbers) {
  if (!in_several_processes(2)) return;
  const auto communicator = Communicator::from_environment(Device::cpu());
  const ConvNet network(DType::f64, 0.5);
  TrainStep step(network.loss, Sgd{.learning_rate = 0}, Device::cpu(), {.communicator = communicator});
  for (int i = 0; i < 3; ++i) {
    step(batch(0, 0, 4));
    const std::vector<std::string> losses = communicator->all_gather(concat(step.output("loss").item()));
    EXPECT_NE(losses[0], losses[1]) << "of the same examples, under other masks";
  }
  step.share_variables();
  const std::vector<std::string> draws =
      communicator->all_gather(concat(static_cast<std::int64_t>(step.state().at("net.dropout.counter").item())));
  EXPECT_EQ(draws, (std::vector<std::string>{"3", "1099511627779"}));
}

/// A process changes a parameter of its own between two steps, as a program might by mistake, or a device that computes wrongly.
void expect_divergence_found(Device device) {
  device = Communicator::local_device(device);
  const auto communicator = Communicator::from_environment(device);
  for (const int broken : {0, communicator->size() - 1}) {
    const ConvNet network;
    TrainStep step(network.loss, Adam{.learning_rate = 1e-3}, device, {.communicator = communicator});
    step(own_part(*communicator, 0));
    step.require_same_parameters();
    if (communicator->rank() == broken) {
      Tensor weight = step.state().at("net.conv2.weight").to(Device::cpu()).clone();
      double& value = weight.data<double>()[5];
      value = std::nextafter(value, 2.0);  // the last bit of one number
      step.state().set("net.conv2.weight", weight);
    }
    step(own_part(*communicator, 1));
    std::string error;
    try {
      step.require_same_parameters();
    } catch (const Error& thrown) {
      EXPECT_EQ(thrown.kind(), ErrorKind::diverged);
      error = thrown.what();
    }
    // Of two processes nobody can say which one it is.
    const int reference = broken == 0 && communicator->size() > 2 ? 1 : 0, other = communicator->size() > 2 ? broken : 1;
    EXPECT_NE(error.find(concat("process ", other, "'s parameter \"net.")), std::string::npos) << error;
    EXPECT_NE(error.find(concat("\" differs from process ", reference, "'s after step 2")), std::string::npos) << error;
  }
}

TEST(SeveralProcesses, FindOutWhoseParametersDiffer) {
  if (!in_several_processes(3)) return;
  expect_divergence_found(Device::cpu());
}

TEST(ShardedOptimizer, OfTwoTrainsAsOne) {
  if (!in_several_processes(2)) return;
  expect_as_one(Device::cpu(), Adam{.learning_rate = 1e-3}, {.clip_norm = 0.1, .guarded = true, .shards_optimizer = true});
}

TEST(ShardedOptimizer, OfThreeTrainsAsOne) {
  if (!in_several_processes(3)) return;
  expect_as_one(Device::cpu(), Sgd{.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 1e-3},
                {.freeze = {"net.conv1.bias"}, .average_decay = 0.9, .shards_optimizer = true});
}

TEST(ShardedOptimizer, OfFourTrainsAsOneWithSumsAndGroups) {
  if (!in_several_processes(4)) return;
  const ParameterGroup slow{.names = "net.conv*", .optimizer = AdamW{.learning_rate = 1e-4}};
  expect_as_one(Device::cpu(), AdamW{.learning_rate = 1e-3},
                {.clip_norm = 0.1, .accumulate = 4, .guarded = true, .groups = {slow}, .shards_optimizer = true});
}

/// Gradient descent with momentum whose steps get smaller with the number of each parameter's own updates, which it counts by itself.
Optimizer counting_optimizer() {
  const auto update = [](const UpdateSite& site) {
    const auto number = [&](double value, const Shape& shape, DType dtype) {
      return site.graph.constant(Tensor::full(shape, value, dtype));
    };
    const DType dtype = site.parameter.dtype();
    const Value count = site.graph.variable(site.prefix + site.name + ".count", {dtype, {1}}, init::zeros());
    ops::sgd_update(site.parameter, site.gradient / (count + 1), site.rate, site.step, site.gradient_scale, site.buffer("momentum"),
                    {.momentum = 0.9}, site.part);
    ops::sgd_update(count, number(-1, {1}, dtype), number(1, {}, DType::f64), site.step, number(1, {}, dtype), {}, {});
  };
  return {.name = "counting", .learning_rate = 0.05, .update = update, .takes_parts = true};
}

TEST(ShardedOptimizer, OfAProgramKeepsWholeWhatIsNoBuffer) {
  if (!in_several_processes(3)) return;
  expect_as_one(Device::cpu(), counting_optimizer(), {.shards_optimizer = true});
  const ConvNet network;
  TrainStep step(network.loss, counting_optimizer(), Device::cpu(),
                 {.communicator = Communicator::from_environment(Device::cpu()), .shards_optimizer = true});
  EXPECT_EQ(step.state().at("optimizer.net.head.bias.momentum").shape(), Shape{1});
  EXPECT_EQ(step.whole_shape("optimizer.net.head.bias.momentum"), Shape{3});
  EXPECT_EQ(step.whole_shape("optimizer.net.head.bias.count"), Shape{1}) << "though of the shape of the bias's part";
}

TEST(ShardedOptimizer, OfOneProcessIsAnother) {
  const ConvNet network;
  TrainStep plain(network.loss, Adam{}, Device::cpu()), step(network.loss, Adam{}, Device::cpu(), {.shards_optimizer = true});
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(step(batch(i, 0, batch_size)), plain(batch(i, 0, batch_size)));
  step.gather_shards();
  EXPECT_EQ(largest_difference(step.whole_variables(), plain.state()), 0);
}

/// Of halves, of which some are not finite while the loss scale is too large: with shards as without.
void expect_halves_as_without_shards(Device given) {
  const Device device = Communicator::local_device(given);
  const auto communicator = Communicator::from_environment(device);
  std::vector<std::string> bits;
  for (const bool sharded : {false, true, true}) {
    const ConvNet network(DType::f32);
    TrainStep step(network.loss, Adam{.learning_rate = 1e-3}, device,
                   {.clip_norm = 0.1, .precision = DType::f16, .guarded = true, .communicator = communicator, .shards_optimizer = sharded});
    step.state().set("optimizer.loss_scale", Tensor::full({}, 0x1p30, DType::f32));
    for (int i = 0; i < 30; ++i) step(own_part(*communicator, i, DType::f32));
    EXPECT_LT(step.state().at("optimizer.loss_scale").item(), 0x1p30);
    EXPECT_GT(step.steps(), 0);
    EXPECT_LT(step.steps(), 30);
    bits.push_back(concat(step.steps(), ' ', step.state().at("optimizer.loss_scale").item(), ' '));
    expect_same_bits(*communicator, step);
    if (sharded) bits.back() += bits_of(step);
  }
  EXPECT_EQ(bits[1], bits[2]) << "at every repetition";
  EXPECT_TRUE(bits[1].starts_with(bits[0])) << "as many steps";
}

TEST(ShardedOptimizer, OfHalvesKeepsTheLossScale) {
  if (!in_several_processes(2)) return;
  expect_halves_as_without_shards(Device::cpu());
}

TEST(ShardedOptimizer, LeavesCheckpointsThatAnyNumberOfProcessesTakes) {
  if (!in_several_processes(3)) return;
  const auto communicator = Communicator::from_environment(Device::cpu());
  const ConvNet network;
  const auto make = [&](bool together, bool sharded) {
    return TrainStep(network.loss, Adam{.learning_rate = 1e-3}, Device::cpu(),
                     {.communicator = together ? communicator : nullptr, .shards_optimizer = sharded});
  };
  const std::string path = communicator->all_gather(concat(testing::TempDir(), "sharded-", getpid(), ".safetensors"))[0];
  TrainStep first = make(true, true);
  for (int i = 0; i < 5; ++i) first(own_part(*communicator, i));
  if (communicator->is_first()) {
    EXPECT_THROW(save_training(path, first), Error) << "what others keep is missing";
  }
  first.gather_shards();
  if (communicator->is_first()) save_training(path, first);
  communicator->barrier();
  const TensorFile file = read_training(path);
  TrainStep sharded = make(true, true), whole = make(true, false), alone = make(false, true);
  for (TrainStep* step : {&sharded, &whole, &alone}) restore_training(file, *step);
  for (int i = 5; i < 10; ++i) {
    first(own_part(*communicator, i));
    sharded(own_part(*communicator, i));
    whole(own_part(*communicator, i));
    alone(batch(i, 0, batch_size));
  }
  EXPECT_EQ(bits_of(sharded), bits_of(first));
  EXPECT_LE(largest_difference(variables_of(sharded), whole.state()), 1e-12);
  EXPECT_LE(largest_difference(variables_of(sharded), alone.state()), 1e-10);
  communicator->barrier();
  if (communicator->is_first()) std::filesystem::remove(path);
}

TEST(ShardedOptimizer, RefusesWhatNeedsWholeParameters) {
  if (!in_several_processes(2)) return;
  const auto communicator = Communicator::from_environment(Device::cpu());
  const ConvNet network;
  Optimizer optimizer = Adam{};
  optimizer.takes_parts = false;
  EXPECT_THROW(TrainStep(network.loss, optimizer, Device::cpu(), {.communicator = communicator, .shards_optimizer = true}), Error);
  EXPECT_THROW(TrainStep(network.loss, Adam{}, Device::cpu(), {.communicator = communicator, .shards_optimizer = true, .name = "one"}),
               Error);
}

class SeveralProcessesOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() < 2) GTEST_SKIP() << "fewer than two CUDA devices";
  }
};

TEST_F(SeveralProcessesOnCuda, TwoTrainAsOne) {
  if (!in_several_processes(2)) return;
  expect_as_one({DeviceKind::cuda}, Sgd{.learning_rate = 0.05, .momentum = 0.9}, {});
}

TEST_F(SeveralProcessesOnCuda, TwoTrainAsOneWithGuardClippingAndSums) {
  if (!in_several_processes(2)) return;
  expect_as_one({DeviceKind::cuda}, Adam{.learning_rate = 1e-3}, {.clip_norm = 0.1, .accumulate = 4, .guarded = true});
}

TEST_F(SeveralProcessesOnCuda, FindOutWhoseParametersDiffer) {
  if (!in_several_processes(2)) return;
  expect_divergence_found({DeviceKind::cuda});
}

TEST_F(SeveralProcessesOnCuda, OneNamesTheProcessThatHangs) {
  if (const auto started = start_several_processes(2)) {
    if (IsSkipped()) return;
    EXPECT_FALSE(started->succeeded);
    const std::string message = "process 1 did not come within 2 s to what process 0 waits for";
    const std::size_t place = started->output.find(message);
    EXPECT_NE(place, std::string::npos) << started->output;
    EXPECT_EQ(started->output.find("did not come", place + message.size()), std::string::npos) << started->output;
    return;
  }
  setenv("FRIT_COMMUNICATION_TIMEOUT", "2", 1);  // read when it is first needed
  const Device device = Communicator::local_device({DeviceKind::cuda});
  const auto communicator = Communicator::from_environment(device);
  const ConvNet network;
  TrainStep step(network.loss, Sgd{.learning_rate = 0.05}, device, {.communicator = communicator});
  for (int i = 0; i < 3; ++i) step(own_part(*communicator, i));
  if (communicator->rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
  step(own_part(*communicator, 3));
}

TEST_F(SeveralProcessesOnCuda, ShardedOptimizerOfTwoTrainsAsOne) {
  if (!in_several_processes(2)) return;
  expect_as_one({DeviceKind::cuda}, Adam{.learning_rate = 1e-3}, {.clip_norm = 0.1, .guarded = true, .shards_optimizer = true});
}

TEST_F(SeveralProcessesOnCuda, ShardedOptimizerOfTwoTrainsAsOneWithSums) {
  if (!in_several_processes(2)) return;
  expect_as_one({DeviceKind::cuda}, Sgd{.learning_rate = 0.05, .momentum = 0.9}, {.accumulate = 4, .shards_optimizer = true});
}

TEST_F(SeveralProcessesOnCuda, ShardedOptimizerOfHalvesKeepsTheLossScale) {
  if (!in_several_processes(2)) return;
  expect_halves_as_without_shards({DeviceKind::cuda});
}

TEST_F(SeveralProcessesOnCuda, RunsOfHalvesHaveTheSameBits) {
  if (!in_several_processes(2)) return;
  const Device device = Communicator::local_device({DeviceKind::cuda});
  const auto communicator = Communicator::from_environment(device);
  std::string first;
  for (int run = 0; run < 2; ++run) {
    const ConvNet network(DType::f32);
    TrainStep step(network.loss, Sgd{.learning_rate = 0.05}, device, {.precision = DType::f16, .communicator = communicator});
    for (int i = 0; i < 10; ++i) step(own_part(*communicator, i, DType::f32));
    expect_same_bits(*communicator, step);
    if (run == 0) first = bits_of(step);
    EXPECT_EQ(bits_of(step), first);
  }
}

}  // namespace
}  // namespace frit

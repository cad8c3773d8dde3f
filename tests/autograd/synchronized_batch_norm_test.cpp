// Batch norms over the examples of all processes: training on several is training on one with all of them.

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/trained_together.h"
#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/graph/pipeline.h"
#include "frit/models/nn.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"

namespace frit {
namespace {

/// Batch norms with an activation after them, a sum, or a pool, in two branches.
struct ResidualNet {
  DType dtype;
  Shape image_shape;
  Graph graph;
  Value loss;

  explicit ResidualNet(DType dtype_ = DType::f64, std::int64_t size = 12) : dtype(dtype_), image_shape{batch_size, 3, size, size} {
    Scope scope(graph, "net", dtype);
    const Value image = graph.input("image", image_shape, dtype), target = graph.input("target", {batch_size, 3}, dtype);
    const auto convolved = [](const Scope& part, const Value& x, std::int64_t kernel_size) {
      const Value y = nn::conv2d(part / "conv", x, {.out_channels = 16, .kernel_size = kernel_size, .padding = kernel_size / 2});
      return nn::batch_norm(part / "norm", y);
    };
    const Value x = max_pool2d(relu(convolved(scope / "stem", image, 3)), 2);
    const Value y = convolved(scope / "second", relu(convolved(scope / "first", x, 3)), 3);
    const Value sum = relu(y + convolved(scope / "shortcut", x, 1));
    loss = mean_squared_error(nn::linear(scope / "head", mean(sum, {2, 3}), 3), target);
  }

  /// Examples [first, first + count) of batch number `number`.
  Bindings batch(std::int64_t number, std::int64_t first, std::int64_t count) const {
    const auto part = [&](const Shape& shape, std::int64_t seed) {
      return drawn(shape, dtype, static_cast<std::uint64_t>(seed)).slice(0, first, first + count).clone();
    };
    return {{"image", part(image_shape, number)}, {"target", part({batch_size, 3}, number + 1000)}};
  }
  Bindings own_part(const Communicator& communicator, std::int64_t number) const {
    const std::int64_t count = batch_size / communicator.size();
    return batch(number, communicator.rank() * count, count);
  }
  double measured(const std::shared_ptr<State>& state, const Bindings& examples) const {
    Graph copied = graph;
    copied.output("loss", copied.value(loss.id()));
    Program program(graph::for_inference(copied), state);
    return program.run(examples).output("loss").item();
  }
};

/// Trains in all processes, and in each by itself on whole batches; twice, with the same bits.
void expect_norms_as_one(Device device, const ResidualNet& network, TrainOptions options, double tolerance = 1e-10) {
  device = Communicator::local_device(device);
  Numerics exactly = numerics();
  exactly.deterministic = true;  // the same bits, on a GPU
  set_numerics(exactly);
  options.seed = 3;
  const bool exact = network.dtype == DType::f64;  // otherwise rounding is learnt as well
  const Sgd optimizer{.learning_rate = exact ? 0.05 : 0.01, .momentum = 0.9};
  // A part's gradients overflow before those of all, and one that does is left out.
  const auto begin = [&](TrainStep& step) {
    if (options.precision == DType::f16) step.state().set("optimizer.loss_scale", Tensor::full({}, 64, DType::f32));
  };
  TrainStep reference(network.loss, optimizer, device, options);
  begin(reference);
  std::vector<double> expected;
  for (std::int64_t i = 0; i < 12; ++i) expected.push_back(reference(network.batch(i, 0, batch_size)));
  options.communicator = Communicator::from_environment(device);
  ASSERT_TRUE(options.communicator);
  Communicator& communicator = *options.communicator;
  options.sync_batch_norm = true;
  std::string first;
  for (int repetition = 0; repetition < 2; ++repetition) {
    TrainStep step(network.loss, optimizer, device, options);
    begin(step);
    for (std::int64_t i = 0; i < 12; ++i) {
      const double wanted = expected[static_cast<std::size_t>(i)];
      EXPECT_NEAR(step(network.own_part(communicator, i)), wanted, tolerance * std::abs(wanted)) << "batch " << i;
    }
    if (exact) {
      EXPECT_LE(largest_difference(variables_of(step), reference.state()), tolerance);
    }
    const std::string bits = bits_of(step);
    communicator.require_same("the bits of all variables", bits);
    if (repetition == 0) first = bits;
    EXPECT_EQ(bits, first);
    const Bindings own = network.own_part(communicator, 100);
    const double measured = network.measured(reference.shared_state(), own);
    EXPECT_NEAR(network.measured(step.shared_state(), own), measured, tolerance * std::abs(measured)) << "by running statistics";
  }
}

TEST(SynchronizedBatchNorm, OneProcessIsAsWithout) {
  const ResidualNet network;
  std::string texts[2];
  for (const bool synchronized : {false, true}) {
    TrainStep step(network.loss, Sgd{}, Device::cpu(), {.sync_batch_norm = synchronized});
    std::map<std::string, TensorType> types;
    for (const auto& [name, tensor] : network.batch(0, 0, batch_size)) types[name] = {tensor.dtype(), tensor.shape()};
    texts[synchronized] = graph::to_text(step.compile(types).graph());
  }
  EXPECT_EQ(texts[1], texts[0]);
}

TEST(SynchronizedBatchNorm, TwoTrainAsOne) {
  if (!in_several_processes(2)) return;
  expect_norms_as_one(Device::cpu(), ResidualNet(), {});
  expect_norms_as_one(Device::cpu(), ResidualNet(), {.shards_optimizer = true});
}

TEST(SynchronizedBatchNorm, FourTrainAsOneWithGuardClippingSumsAndShards) {
  if (!in_several_processes(4)) return;
  expect_norms_as_one(Device::cpu(), ResidualNet(), {.clip_norm = 1, .accumulate = 2, .guarded = true, .shards_optimizer = true});
}

TEST(SynchronizedBatchNorm, TwoTrainAsOneInFloatsAndHalves) {
  if (!in_several_processes(2)) return;
  expect_norms_as_one(Device::cpu(), ResidualNet(DType::f32), {}, 1e-4);
  for (const DType half : {DType::f16, DType::bf16}) expect_norms_as_one(Device::cpu(), ResidualNet(DType::f32), {.precision = half}, 0.05);
}

TEST(SynchronizedBatchNorm, IsComputedInChains) {
  if (!in_several_processes(2)) return;
  const auto communicator = Communicator::from_environment(Device::cpu());
  const ResidualNet network;
  TrainStep step(network.loss, Sgd{}, Device::cpu(), {.communicator = communicator, .sync_batch_norm = true});
  std::map<std::string, TensorType> types;
  for (const auto& [name, tensor] : network.own_part(*communicator, 0)) types[name] = {tensor.dtype(), tensor.shape()};
  std::map<std::string, int> calls;
  for (const graph::Node* node : step.compile(types).graph().all(graph::NodeKind::operation)) ++calls[node->op->name];
  EXPECT_EQ(calls["batch_norm"] + calls["batch_norm_backward"] + calls["updating_chain"], 0);
  EXPECT_EQ(calls["synchronized_batch_norm"] + calls["synchronized_updating_chain"], 4);
  EXPECT_EQ(calls["synchronized_batch_norm_backward"] + calls["synchronized_chain"], 4);
  EXPECT_GE(calls["synchronized_updating_chain"], 1);
  EXPECT_GE(calls["synchronized_chain"], 1);
}

TEST(SynchronizedBatchNorm, WithoutItEachProcessHasStatisticsOfItsOwn) {
  if (!in_several_processes(2)) return;
  const auto communicator = Communicator::from_environment(Device::cpu());
  const ResidualNet network;
  TrainStep step(network.loss, Sgd{}, Device::cpu(), {.communicator = communicator});
  step(network.own_part(*communicator, 0));
  const std::vector<std::string> means =
      communicator->all_gather(concat(step.state().at("net.stem.norm.running_mean").to_vector<double>()[0]));
  EXPECT_NE(means[0], means[1]);
}

TEST(SynchronizedBatchNorm, RefusesBatchesOfOtherSizes) {
  if (!in_several_processes(2)) return;
  const auto communicator = Communicator::from_environment(Device::cpu());
  const ResidualNet network;
  TrainStep step(network.loss, Sgd{}, Device::cpu(), {.communicator = communicator, .sync_batch_norm = true});
  step(network.own_part(*communicator, 0));
  try {
    step(network.batch(1, 0, 2 + communicator->rank()));
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    const std::string message = error.what();
    EXPECT_NE(message.find("process 1 has \"image: f64 3x3x12x12\" where process 0 has \"image: f64 2x3x12x12\""), std::string::npos)
        << message;
  }
}

class SynchronizedBatchNormOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() < 2) GTEST_SKIP() << "fewer than two CUDA devices";
  }
};

/// Small images are normalised at once, those of large ones by what reads them.
TEST_F(SynchronizedBatchNormOnCuda, TwoTrainAsOne) {
  if (!in_several_processes(2)) return;
  for (const std::int64_t size : {12, 96}) expect_norms_as_one({DeviceKind::cuda}, ResidualNet(DType::f64, size), {});
}

TEST_F(SynchronizedBatchNormOnCuda, TwoTrainAsOneWithGuardClippingSumsAndShards) {
  if (!in_several_processes(2)) return;
  expect_norms_as_one({DeviceKind::cuda}, ResidualNet(), {.clip_norm = 1, .accumulate = 2, .guarded = true, .shards_optimizer = true});
}

TEST_F(SynchronizedBatchNormOnCuda, TwoTrainAsOneInFloatsAndHalves) {
  if (!in_several_processes(2)) return;
  for (const std::int64_t size : {12, 96}) {
    const ResidualNet network(DType::f32, size);
    expect_norms_as_one({DeviceKind::cuda}, network, {}, 0.02);  // in TF32
    expect_norms_as_one({DeviceKind::cuda}, network, {.precision = DType::f16}, 0.05);
  }
}

}  // namespace
}  // namespace frit

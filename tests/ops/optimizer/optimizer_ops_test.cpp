#include "frit/ops/optimizer/optimizer_ops.h"

#include "frit/core/communication/parts.h"
#include "frit/core/cuda/device.h"
#include "frit/core/io/safetensors.h"
#include "frit/core/random.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/shape/shape_ops.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

/// The variables of one parameter's optimizer.
struct Trained {
  Tensor parameter, rate, step = Tensor::zeros({}, DType::i64);
  Tensor first = {}, second = {};
  double gradient_scale = 1;

  void update(const std::string& op, const ops::Attributes& options, const Tensor& gradient) {
    const Tensor scale = Tensor::full({}, gradient_scale, parameter.dtype());
    std::vector<Tensor> inputs = {parameter, gradient, rate, step, scale};
    for (const Tensor& buffer : {first, second}) {
      if (buffer.defined()) inputs.push_back(buffer);
    }
    ops::run(op, inputs, options);
    ops::run("advance", {step, scale});
  }
};

/// What the operator is told of a parameter that one process has alone.
template <class Options>
ops::Attributes of_whole(const Options& options) {
  return ops::UpdateAttributes<Options>{options, {}};
}

Trained begin(const Tensor& initial, double rate, int buffers) {
  Trained trained{initial.clone(), Tensor::full({}, rate, DType::f64)};
  if (buffers > 0) trained.first = Tensor::zeros(initial.shape(), initial.dtype());
  if (buffers > 1) trained.second = Tensor::zeros(initial.shape(), initial.dtype());
  return trained;
}

int buffers_of(const std::string& op, const std::string& attributes) {
  if (op == "adam_update") return 2;
  return attributes.find("\"momentum\": 0.0") == std::string::npos ? 1 : 0;
}

// Every option of SGD, Adam and AdamW over 20 steps; in f64 to the last digits.
TEST(Optimizers, FollowPyTorch) {
  const TensorFile file = read_safetensors(FRIT_SOURCE_DIR "/tests/golden/optimizers.safetensors");
  const int cases = std::stoi(file.metadata().at("cases"));
  EXPECT_EQ(cases, 24);
  for (int k = 0; k < cases; ++k) {
    const auto text = [&](const char* key) { return file.metadata().at(concat(k, '.', key)); };
    const auto tensor = [&](const char* name) { return file.at(concat(k, '.', name)); };
    const std::string op = text("operator"), attributes = text("attributes");
    const ops::Attributes options = ops::registry().find(op).attributes_from_json(attributes);
    for (const auto& [dtype, tolerance] : {std::pair(DType::f64, 1e-14), std::pair(DType::f32, 4e-6)}) {
      SCOPED_TRACE(concat(op, ' ', attributes, ' ', dtype));
      Trained trained = begin(tensor("initial").to(dtype), std::stod(text("rate")), buffers_of(op, attributes));
      const Tensor gradients = tensor("gradients").to(dtype), parameters = tensor("parameters");
      for (std::int64_t step = 0; step < gradients.dim(0); ++step) {
        trained.update(op, options, gradients.slice(0, step, step + 1).reshape({-1}));
        const std::vector<double> actual = trained.parameter.to_vector<double>(),
                                  expected = parameters.slice(0, step, step + 1).to_vector<double>();
        for (std::size_t i = 0; i < expected.size(); ++i)
          ASSERT_NEAR(actual[i], expected[i], tolerance) << "step " << step << " element " << i;
      }
      EXPECT_EQ(trained.step.item(), 20);
    }
  }
}

/// What three processes make of their parts is what one makes of the whole; each leaves the rest as it is.
TEST(Optimizers, UpdatePartsAsTheWhole) {
  for (const int buffers : {0, 1, 2}) {
    const Tensor initial = Tensor::empty({5, 7}, DType::f64), gradient = Tensor::empty({5, 7}, DType::f64);
    fill_normal(initial, 0, 1, 1, 0);
    fill_normal(gradient, 0, 1, 2, 0);
    const auto updated = [&](const ops::UpdatedPart& part) {
      const Parts parts(35, static_cast<int>(part.processes));
      const auto begin_at = parts.begin(static_cast<int>(part.rank)), end = parts.end(static_cast<int>(part.rank));
      const Tensor parameter = initial.clone(), own = gradient.reshape({35}).slice(0, begin_at, end).clone();
      const Tensor g = part.processes == 1 ? gradient : own;
      std::vector<Tensor> inputs = {parameter, g, Tensor::full({}, 0.1, DType::f64), Tensor::full({}, 3, DType::i64),
                                    Tensor::full({}, 0.5, DType::f64)};
      for (int i = 0; i < buffers; ++i) inputs.push_back(Tensor::full(g.shape(), 0.25, DType::f64));
      if (buffers == 2) ops::run("adam_update", inputs, ops::UpdateAttributes<ops::AdamOptions>{{}, part});
      const ops::SgdOptions sgd{.momentum = 0.9 * buffers};
      if (buffers < 2) ops::run("sgd_update", inputs, ops::UpdateAttributes<ops::SgdOptions>{sgd, part});
      return parameter.to_vector<double>();
    };
    const std::vector<double> whole = updated({}), before = initial.to_vector<double>();
    for (const int rank : {0, 1, 2}) {
      const Parts parts(35, 3);
      const std::vector<double> found = updated({rank, 3});
      for (std::int64_t i = 0; i < 35; ++i) {
        const auto k = static_cast<std::size_t>(i);
        EXPECT_EQ(found[k], i >= parts.begin(rank) && i < parts.end(rank) ? whole[k] : before[k]) << buffers << ' ' << rank << ' ' << i;
      }
    }
  }
}

TEST(Sgd, TakesTheRateFromItsVariable) {
  Trained trained = begin(Tensor::from<double>({1, 2}, {2}), 0.5, 0);
  trained.update("sgd_update", of_whole(ops::SgdOptions{}), Tensor::from<double>({1, -1}, {2}));
  trained.rate.fill(0.25);
  trained.update("sgd_update", of_whole(ops::SgdOptions{}), Tensor::from<double>({1, -1}, {2}));
  EXPECT_EQ(trained.parameter.to_vector<double>(), (std::vector<double>{0.25, 2.75}));
}

TEST(Sgd, BeginsItsMomentumWithTheFirstGradient) {
  Trained trained = begin(Tensor::from<double>({0}, {1}), 1, 1);
  trained.first.fill(nan);  // whatever the buffer held
  trained.update("sgd_update", of_whole(ops::SgdOptions{.momentum = 0.5, .dampening = 0.75}), Tensor::from<double>({2}, {1}));
  EXPECT_EQ(trained.first.item(), 2);
  trained.update("sgd_update", of_whole(ops::SgdOptions{.momentum = 0.5, .dampening = 0.75}), Tensor::from<double>({4}, {1}));
  EXPECT_EQ(trained.first.item(), 2);
  EXPECT_EQ(trained.parameter.item(), -4);
}

TEST(Optimizers, UpdateHalvesWhereTheyLie) {
  Trained trained = begin(Tensor::from<double>({1, 2}, {2}).to(DType::bf16), 0.5, 0);
  trained.update("sgd_update", of_whole(ops::SgdOptions{}), Tensor::from<double>({1, -1}, {2}).to(DType::bf16));
  EXPECT_EQ(trained.parameter.to_vector<double>(), (std::vector<double>{0.5, 2.5}));
}

/// Those of a float32 parameter, exactly as the same numbers in float32.
TEST(Optimizers, TakeGradientsInHalvesOnCudaToo) {
  constexpr std::int64_t elements = 1003;
  const auto updated = [&](const char* op, const ops::Attributes& options, int buffers, DType gradient_dtype, Device device) {
    const auto noise = [&](std::uint64_t stream, DType dtype) {
      const Tensor tensor = Tensor::empty({elements}, dtype);
      fill_normal(tensor, 0, 1, 5, stream);
      return tensor;
    };
    const auto number = [&](double value, DType dtype) { return Tensor::full({}, value, dtype).to(device); };
    const Tensor parameter = noise(1, DType::f32).to(device), gradient = noise(2, DType::f16).to(gradient_dtype).to(device);
    std::vector<Tensor> inputs = {parameter, gradient, number(0.1, DType::f64), number(3, DType::i64), number(0.5, DType::f32)};
    for (int i = 0; i < buffers; ++i) inputs.push_back(Tensor::full({elements}, 0.25, DType::f32).to(device));
    ops::run(op, inputs, options);
    return parameter.to(Device::cpu()).to_vector<double>();
  };
  for (const Device device : {Device::cpu(), Device{DeviceKind::cuda, 0}}) {
    if (device.kind == DeviceKind::cuda && cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    const auto expect_same = [&](const char* op, const ops::Attributes& options, int buffers) {
      EXPECT_EQ(updated(op, options, buffers, DType::f16, device), updated(op, options, buffers, DType::f32, device)) << op << device;
    };
    expect_same("sgd_update", of_whole(ops::SgdOptions{.weight_decay = 0.1}), 0);
    expect_same("sgd_update", of_whole(ops::SgdOptions{.momentum = 0.9}), 1);
    expect_same("adam_update", of_whole(ops::AdamOptions{}), 2);
  }
}

TEST(Optimizers, LeaveOutWhatCastsTheirGradients) {
  Graph graph;
  const auto variable = [&](const char* name, const TensorType& type) {
    return graph.variable(name, type, [](const Tensor& tensor, std::uint64_t) { tensor.fill(0); });
  };
  const Value parameter = variable("w", {DType::f32, {3}}), gradient = cast(graph.input("g", {3}, DType::f16), DType::f32);
  const Value norm = ops::global_norm(std::array{parameter, gradient});
  ops::sgd_update(parameter, gradient, variable("rate", {DType::f64, {}}), variable("step", {DType::i64, {}}), norm, {}, {});
  const Graph absorbed = graph::absorb(graph);
  for (const graph::Node* node : absorbed.all(graph::NodeKind::operation)) EXPECT_NE(node->op->name, "cast");
}

TEST(Optimizers, MultiplyTheGradientByItsScale) {
  Trained plain = begin(Tensor::from<double>({1, 2}, {2}), 0.5, 1), scaled = begin(Tensor::from<double>({1, 2}, {2}), 0.5, 1);
  scaled.gradient_scale = 0.25;
  const ops::Attributes options = of_whole(ops::SgdOptions{.momentum = 0.5, .weight_decay = 0.1});
  for (int i = 0; i < 3; ++i) {
    plain.update("sgd_update", options, Tensor::from<double>({1, -1}, {2}));
    scaled.update("sgd_update", options, Tensor::from<double>({4, -4}, {2}));
  }
  EXPECT_EQ(scaled.parameter.to_vector<double>(), plain.parameter.to_vector<double>());
}

TEST(Optimizers, ChangeNothingWhereTheScaleIsNegative) {
  for (const int buffers : {0, 1, 2}) {
    Trained trained = begin(Tensor::from<double>({1, 2}, {2}), 0.5, buffers);
    trained.gradient_scale = -1;
    const ops::Attributes options =
        buffers == 2 ? of_whole(ops::AdamOptions{.weight_decay = 0.1}) : of_whole(ops::SgdOptions{.momentum = buffers * 0.5});
    trained.update(buffers == 2 ? "adam_update" : "sgd_update", options, Tensor::from<double>({nan, inf}, {2}));
    EXPECT_EQ(trained.parameter.to_vector<double>(), (std::vector<double>{1, 2}));
    for (const Tensor& buffer : {trained.first, trained.second}) {
      if (!buffer.defined()) continue;
      EXPECT_EQ(buffer.to_vector<double>(), (std::vector<double>{0, 0}));
    }
    EXPECT_EQ(trained.step.item(), 0);
  }
}

struct Site {
  Graph graph;
  Value parameter = variable("parameter", {DType::f32, {2, 3}});
  Value gradient = graph.input("gradient", {2, 3});
  Value rate = variable("rate", {DType::f64, {}});
  Value step = variable("step", {DType::i64, {}});
  Value scale = graph.input("scale", {});

  Value variable(const std::string& name, const TensorType& type) { return graph.variable(name, type, {}); }
};

TEST(Optimizers, RefuseWhatPyTorchRefuses) {
  Site s;
  const Value buffer = s.variable("buffer", {DType::f32, {2, 3}});
  const auto sgd = [&](const ops::SgdOptions& options, Value momentum) {
    return message_of([&] { ops::sgd_update(s.parameter, s.gradient, s.rate, s.step, s.scale, momentum, options); });
  };
  EXPECT_EQ(sgd({.nesterov = true}, {}), "sgd_update: nesterov needs a momentum above 0 and no dampening");
  EXPECT_EQ(sgd({.momentum = 0.9, .dampening = 0.1, .nesterov = true}, buffer),
            "sgd_update: nesterov needs a momentum above 0 and no dampening");
  EXPECT_EQ(sgd({.momentum = -0.5}, buffer), "sgd_update: momentum is -0.5, expected a number in [0, inf)");
  EXPECT_EQ(sgd({.weight_decay = nan}, {}), "sgd_update: weight_decay is nan, expected a number in [0, inf)");
  EXPECT_EQ(sgd({.momentum = 0.9}, {}), "sgd_update: momentum_buffer is given exactly with a momentum, which is 0.9");
  EXPECT_EQ(sgd({}, buffer), "sgd_update: momentum_buffer is given exactly with a momentum, which is 0");
  const auto adam = [&](const ops::AdamOptions& options) {
    return message_of([&] { ops::adam_update(s.parameter, s.gradient, s.rate, s.step, s.scale, buffer, buffer, options); });
  };
  EXPECT_EQ(adam({.beta1 = 1}), "adam_update: beta1 is 1, expected a number in [0, 1)");
  EXPECT_EQ(adam({.beta2 = -1}), "adam_update: beta2 is -1, expected a number in [0, 1)");
  EXPECT_EQ(adam({.eps = -1}), "adam_update: eps is -1, expected a number in [0, inf)");
}

TEST(Optimizers, CheckTheirInputs) {
  Site s;
  const Value other = s.graph.input("other", {3, 2});
  EXPECT_EQ(message_of([&] { ops::sgd_update(s.parameter, other, s.rate, s.step, s.scale, {}, {}); }),
            "sgd_update: gradient is f32 3x2, expected f32 2x3");
  EXPECT_EQ(message_of([&] { ops::sgd_update(s.parameter, s.gradient, s.step, s.step, s.scale, {}, {}); }),
            "sgd_update: rate is i64 scalar, expected f64 scalar");
  EXPECT_EQ(message_of([&] { ops::sgd_update(s.parameter, s.gradient, s.rate, s.rate, s.scale, {}, {}); }),
            "sgd_update: step is f64 scalar, expected i64 scalar");
  EXPECT_EQ(message_of([&] { ops::sgd_update(s.gradient, s.gradient, s.rate, s.step, s.scale, {}, {}); }),
            "sgd_update: input \"parameter\" is updated in place and must be a variable");
  const Value narrow = s.variable("narrow", {DType::f32, {2}});
  EXPECT_EQ(message_of([&] { ops::adam_update(s.parameter, s.gradient, s.rate, s.step, s.scale, narrow, narrow, {}); }),
            "adam_update: first_moment is f32 2, expected f32 2x3");
  EXPECT_EQ(message_of([&] {
              ops::advance(s.variable("steps", {DType::i64, {1}}), s.scale);
            }),
            "advance: step is i64 1, expected i64 scalar");
}

}  // namespace
}  // namespace frit

// The generic checks that every registered operator passes, driven by the samples that it declares.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "frit/autograd/gradient.h"
#include "frit/autograd/gradient_check.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/random.h"
#include "frit/core/thread_pool.h"
#include "frit/ops/run.h"

namespace frit {
namespace {

using ops::Operator;
using ops::Sample;

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor left = a.contiguous(), right = b.contiguous();
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (left.bytes() == 0 || std::memcmp(left.raw(), right.raw(), static_cast<std::size_t>(left.bytes())) == 0);
}

/// Bit-equal but for the payload of NaNs.
testing::AssertionResult same(const Tensor& a, const Tensor& b) {
  if (same_bits(a, b)) return testing::AssertionSuccess();
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return testing::AssertionFailure() << a << " is not " << b;
  const std::vector<double> left = a.to_vector<double>(), right = b.to_vector<double>();
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
    return testing::AssertionFailure() << "element " << i << ": " << left[i] << " is not " << right[i];
  }
  return testing::AssertionSuccess();
}

double largest_finite(const Tensor& tensor) {
  double largest = 0;
  for (const double value : tensor.to_vector<double>()) largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  return largest;
}

/// Within `tolerance` of `largest`, NaN and infinite values in the same places.
testing::AssertionResult near(const Tensor& a, const Tensor& b, double tolerance, double largest) {
  if (!(a.shape() == b.shape())) return testing::AssertionFailure() << a.shape() << " is not " << b.shape();
  const std::vector<double> left = a.to_vector<double>(), right = b.to_vector<double>();
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
    if (!(std::abs(left[i] - right[i]) <= tolerance * largest)) {
      return testing::AssertionFailure() << "element " << i << ": " << left[i] << " is not near " << right[i] << " (largest " << largest
                                         << ')';
    }
  }
  return testing::AssertionSuccess();
}

std::vector<Tensor> clones(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.push_back(tensor.clone());
  return result;
}

std::vector<TensorType> types_of(const std::vector<Tensor>& tensors) {
  std::vector<TensorType> types;
  for (const Tensor& tensor : tensors) types.push_back({tensor.dtype(), tensor.shape()});
  return types;
}

bool mutates(const Operator& op, std::size_t input) {
  return std::find(op.mutates.begin(), op.mutates.end(), static_cast<int>(input)) != op.mutates.end();
}

/// The results, and after them what became of the inputs that are updated in place.
std::vector<Tensor> run_with_updates(const Operator& op, std::vector<Tensor> inputs, const ops::Attributes& attributes) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (mutates(op, i)) inputs[i] = inputs[i].clone();
  }
  std::vector<Tensor> results = ops::run(op, inputs, attributes);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (mutates(op, i)) results.push_back(inputs[i]);
  }
  return results;
}

/// The names of the operators for which `holds`.
template <class Predicate>
std::vector<std::string> operators(const Predicate& holds) {
  std::vector<std::string> names;
  for (const Operator* op : ops::registry().all()) {
    if (holds(*op)) names.push_back(op->name);
  }
  return names;
}

class OperatorSuite : public testing::TestWithParam<std::string> {
 protected:
  const Operator& op() const { return ops::registry().find(GetParam()); }

  template <class Body>
  void for_each_sample(DType dtype, const Body& body) const {
    const std::vector<Sample> samples = op().samples();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      SCOPED_TRACE(concat(op().name, " sample ", i, " {", samples[i].attributes.text(), "} ", dtype));
      body(samples[i], sample_tensors(samples[i], dtype, i));
    }
  }
  std::vector<DType> float_dtypes() const {
    std::vector<DType> result;
    for (const DType dtype : op().dtypes) {
      if (dtype == DType::f64 || dtype == DType::f32) result.push_back(dtype);
    }
    return result.empty() ? std::vector<DType>{DType::f64} : result;
  }
};

class InPlaceOperator : public OperatorSuite {};
class DifferentiableOperator : public OperatorSuite {};
class FusedOperator : public OperatorSuite {};

TEST_P(OperatorSuite, IsDescribed) {
  EXPECT_FALSE(op().summary.empty());
  EXPECT_GE(op().samples().size(), 4u) << "an operator declares four samples or more";
  EXPECT_EQ(op().attributes_from_json("{}"), op().default_attributes);
}

TEST_P(OperatorSuite, InferredTypesAreTheActualOnes) {
  for (const DType dtype : float_dtypes()) {
    for_each_sample(dtype, [&](const Sample& sample, const std::vector<Tensor>& inputs) {
      const std::vector<TensorType> inferred = op().infer_types(types_of(inputs), sample.attributes);
      EXPECT_EQ(types_of(ops::run(op(), clones(inputs), sample.attributes)), inferred);
    });
  }
}

TEST_P(OperatorSuite, WritesEveryElementAndSkipsUnreadOutputs) {
  if (op().view) return;  // runs no kernel
  for_each_sample(float_dtypes()[0], [&](const Sample& sample, const std::vector<Tensor>& given) {
    const std::vector<TensorType> types = op().infer_types(types_of(given), sample.attributes);
    const std::size_t scratch_size = ops::scratch_bytes(op(), types_of(given), types, sample.attributes);
    const auto run = [&](double fill, std::size_t unread) {
      std::vector<Tensor> outputs;
      for (std::size_t i = 0; i < types.size(); ++i) {
        outputs.push_back(i == unread ? Tensor() : Tensor::full(types[i].shape, fill, types[i].dtype));
      }
      const Tensor scratch = Tensor::full({static_cast<std::int64_t>(scratch_size)}, fill == 0 ? 0 : 255, DType::u8);
      ops::invoke(op(), sample.attributes, clones(given), outputs, {static_cast<std::byte*>(scratch.raw()), scratch_size});
      return outputs;
    };
    const std::vector<Tensor> expected = run(0, types.size());
    const std::vector<Tensor> poisoned = run(77, types.size());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same(poisoned[i], expected[i])) << "output " << i;
    for (std::size_t unread = 0; types.size() > 1 && unread < types.size(); ++unread) {
      const std::vector<Tensor> partial = run(0, unread);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (i == unread) continue;
        EXPECT_TRUE(same(partial[i], expected[i])) << "output " << i << " without " << unread;
      }
    }
  });
}

TEST_P(OperatorSuite, RepeatsBitForBitOnAnyNumberOfThreads) {
  const int threads = thread_count();
  for (const DType dtype : float_dtypes()) {
    for_each_sample(dtype, [&](const Sample& sample, const std::vector<Tensor>& inputs) {
      set_thread_count(1);
      const std::vector<Tensor> expected = run_with_updates(op(), inputs, sample.attributes);
      for (const int count : {1, 2, 3}) {
        set_thread_count(count);
        const std::vector<Tensor> results = run_with_updates(op(), inputs, sample.attributes);
        for (std::size_t i = 0; i < expected.size(); ++i)
          EXPECT_TRUE(same_bits(results[i], expected[i])) << count << " threads, result " << i;
      }
    });
  }
  set_thread_count(threads);
}

/// The same values in other memory: axes stored in another order, every second element of a longer axis, an offset of one element.
Tensor strided_copy(const Tensor& tensor, std::uint64_t seed) {
  if (tensor.rank() == 0) return tensor;
  const std::vector<std::int64_t> order = permutation(tensor.rank(), seed, 1);
  const std::uint32_t choice = philox(seed, 2, 0)[0];
  Shape stored;
  Dims inverse = Dims::filled(tensor.rank(), 0);
  for (int i = 0; i < tensor.rank(); ++i) {
    const int axis = static_cast<int>(order[static_cast<std::size_t>(i)]);
    stored.push_back(tensor.shape()[axis]);
    inverse[axis] = i;
  }
  const int stretched = static_cast<int>(choice % static_cast<std::uint32_t>(tensor.rank()));
  const std::int64_t step = 1 + (choice >> 8) % 2, offset = (choice >> 16) % 2;
  const std::int64_t size = stored[stretched];
  stored[stretched] = size * step + offset;
  const Tensor memory = Tensor::full(stored, 99, tensor.dtype());
  const Tensor view = memory.slice(stretched, offset, offset + size * step, step).permute(inverse);
  copy(view, tensor);
  return view;
}

/// One axis repeats its first element with stride 0.
Tensor repeated_axis(const Tensor& tensor, std::uint64_t seed) {
  if (tensor.elements() == 0 || tensor.rank() == 0) return tensor;
  const int axis = static_cast<int>(philox(seed, 3, 0)[0] % static_cast<std::uint32_t>(tensor.rank()));
  return tensor.slice(axis, 0, 1).expand(tensor.shape());
}

TEST_P(OperatorSuite, ViewsGiveTheBitsOfContiguousTensors) {
  constexpr std::uint64_t views = 200;
  const std::vector<Sample> samples = op().samples();
  for (std::uint64_t v = 0; v < views; ++v) {
    const Sample& sample = samples[v % samples.size()];
    SCOPED_TRACE(concat(op().name, " sample ", v % samples.size(), " view ", v));
    std::vector<Tensor> viewed = sample_tensors(sample, float_dtypes()[0], v % samples.size());
    std::vector<Tensor> dense;
    for (std::size_t i = 0; i < viewed.size(); ++i) {
      const std::uint64_t seed = v * 16 + i;
      if (!mutates(op(), i)) viewed[i] = v % 4 == 3 ? repeated_axis(viewed[i], seed) : strided_copy(viewed[i], seed);
      dense.push_back(viewed[i].contiguous());
    }
    const std::vector<Tensor> expected = run_with_updates(op(), dense, sample.attributes);
    const std::vector<Tensor> results = run_with_updates(op(), viewed, sample.attributes);
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_TRUE(same_bits(results[i], expected[i])) << "result " << i;
  }
}

TEST_P(InPlaceOperator, InPlaceEqualsOutOfPlace) {
  for_each_sample(float_dtypes()[0], [&](const Sample& sample, const std::vector<Tensor>& inputs) {
    const std::vector<TensorType> types = op().infer_types(types_of(inputs), sample.attributes);
    const std::vector<Tensor> expected = ops::run(op(), clones(inputs), sample.attributes);
    const Tensor scratch =
        Tensor::empty({static_cast<std::int64_t>(ops::scratch_bytes(op(), types_of(inputs), types, sample.attributes))}, DType::u8);
    for (const auto& [output, input] : op().in_place) {
      if (static_cast<std::size_t>(input) >= inputs.size()) continue;
      std::vector<Tensor> own = clones(inputs), outputs;
      const Tensor& reused = own[static_cast<std::size_t>(input)];
      if (!(types[static_cast<std::size_t>(output)] == TensorType{reused.dtype(), reused.shape()})) continue;
      for (const TensorType& type : types) outputs.push_back(Tensor::empty(type.shape, type.dtype));
      outputs[static_cast<std::size_t>(output)] = reused;
      ops::invoke(op(), sample.attributes, own, outputs,
                  {static_cast<std::byte*>(scratch.raw()), static_cast<std::size_t>(scratch.bytes())});
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(same(outputs[i], expected[i])) << "output " << i << " over input " << input;
    }
  });
}

TEST_P(OperatorSuite, HalfComputesInFloat32) {
  for (const DType half : {DType::f16, DType::bf16}) {
    if (std::find(op().dtypes.begin(), op().dtypes.end(), half) == op().dtypes.end()) continue;
    for_each_sample(half, [&](const Sample& sample, const std::vector<Tensor>& inputs) {
      std::vector<Tensor> wide;
      for (const Tensor& input : inputs) wide.push_back(is_half(input.dtype()) ? input.to(DType::f32) : input);
      const std::vector<Tensor> results = run_with_updates(op(), inputs, sample.attributes);
      const std::vector<Tensor> expected = run_with_updates(op(), wide, sample.attributes);
      for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same(results[i], expected[i].to(results[i].dtype()))) << "result " << i;
    });
  }
}

/// The sample as a graph: inputs "0", "1", ... (variables where they are updated in place), every result an output.
struct SampleGraph {
  Graph graph;
  Values inputs, results;
  Bindings bindings;
  std::shared_ptr<State> state = std::make_shared<State>();
};

std::unique_ptr<SampleGraph> graph_of(const Operator& op, const Sample& sample, const std::vector<Tensor>& tensors, bool decomposed) {
  auto built = std::make_unique<SampleGraph>();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = concat(i);
    if (mutates(op, i)) {
      const auto initialize = [value = tensors[i]](const Tensor& variable, std::uint64_t) { copy(variable, value); };
      built->inputs.push_back(built->graph.variable(name, {tensors[i].dtype(), tensors[i].shape()}, initialize));
    } else {
      built->inputs.push_back(built->graph.input(name, tensors[i].shape(), tensors[i].dtype()));
      built->bindings[name] = tensors[i];
    }
  }
  built->results =
      decomposed ? op.decompose(built->graph, built->inputs, sample.attributes) : built->graph.emit(op, built->inputs, sample.attributes);
  return built;
}

TEST_P(DifferentiableOperator, GradientEqualsFiniteDifferences) {
  int smooth = 0;
  for_each_sample(DType::f64, [&](const Sample& sample, const std::vector<Tensor>& tensors) {
    if (!sample.smooth) return;
    ++smooth;
    const auto built = graph_of(op(), sample, tensors, /*decomposed=*/false);
    built->graph.output("result", built->results[0]);
    built->state->prepare(built->graph);
    for (const GradientCheckResult& result : check_gradients(built->graph, built->bindings, built->state)) {
      EXPECT_TRUE(result.passed()) << "input " << result.name << ": " << result.failed << " of " << result.checked << " failed, "
                                   << result.first_failure;
      EXPECT_EQ(result.kinks, 0) << "input " << result.name << ": a smooth sample has no kinks";
    }
  });
  EXPECT_GT(smooth, 0) << "a differentiable operator needs a smooth sample";
}

/// Outputs and gradients, the gradients seeded with fixed random numbers, run twice.
std::vector<Tensor> forward_and_gradients(const Operator& op, const Sample& sample, const std::vector<Tensor>& tensors, bool decomposed) {
  const auto built = graph_of(op, sample, tensors, decomposed);
  const Value result = built->results[0];
  built->graph.output("result", result);
  std::vector<std::string> outputs = {"result"};
  if (is_floating(result.dtype()) && op.gradient) {
    const Tensor seed = Tensor::empty(result.shape(), result.dtype());
    fill_normal(seed, 0, 1, 5, 5);
    const Value seed_value = built->graph.constant(seed);
    Values with_respect_to;
    for (const Value& input : built->inputs) {
      if (is_floating(input.dtype()) && built->bindings.contains(built->graph.producer(input.id()).name)) with_respect_to.push_back(input);
    }
    const Values gradients = gradient(std::span(&result, 1), std::span(&seed_value, 1), with_respect_to);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      outputs.push_back(concat("gradient ", i));
      built->graph.output(outputs.back(), gradients[i]);
    }
  }
  std::vector<Tensor> first;
  for (int pass = 0; pass < 2; ++pass) {
    graph::Executable executable(built->graph, *built->state);
    executable.run(built->bindings);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Tensor tensor = executable.output(outputs[i]).clone();
      if (pass == 0) {
        first.push_back(tensor);
      } else if (op.mutates.empty()) {
        EXPECT_TRUE(same_bits(tensor, first[i])) << outputs[i] << " differs when repeated";
      }
    }
  }
  return first;
}

TEST_P(OperatorSuite, ForwardAndBackwardRepeatBitForBit) {
  if (op().outputs.empty()) return;  // only updates variables, which RepeatsBitForBitOnAnyNumberOfThreads compares
  for (const DType dtype : float_dtypes()) {
    for_each_sample(dtype, [&](const Sample& sample, const std::vector<Tensor>& tensors) {
      forward_and_gradients(op(), sample, tensors, /*decomposed=*/false);
    });
  }
}

TEST_P(FusedOperator, FusedEqualsDecomposed) {
  for (const DType dtype : float_dtypes()) {
    for_each_sample(dtype, [&](const Sample& sample, const std::vector<Tensor>& tensors) {
      const std::vector<Tensor> fused = forward_and_gradients(op(), sample, tensors, /*decomposed=*/false);
      const std::vector<Tensor> decomposed = forward_and_gradients(op(), sample, tensors, /*decomposed=*/true);
      ASSERT_EQ(fused.size(), decomposed.size());
      // A gradient may be all but cancelled (a scale in front of a norm): it is held to the largest gradient of the call.
      double largest_gradient = 0;
      for (std::size_t i = 1; i < fused.size(); ++i) largest_gradient = std::max(largest_gradient, largest_finite(decomposed[i]));
      for (std::size_t i = 0; i < fused.size(); ++i) {
        const double largest = i == 0 ? largest_finite(decomposed[i]) : largest_gradient;
        EXPECT_TRUE(near(fused[i], decomposed[i], dtype == DType::f64 ? 1e-10 : 2e-5, largest)) << "result or gradient " << i;
      }
    });
  }
}

std::string name_of_test(const testing::TestParamInfo<std::string>& tested) { return tested.param; }

INSTANTIATE_TEST_SUITE_P(All, OperatorSuite, testing::ValuesIn(operators([](const Operator&) { return true; })), name_of_test);
INSTANTIATE_TEST_SUITE_P(All, InPlaceOperator, testing::ValuesIn(operators([](const Operator& op) { return !op.in_place.empty(); })),
                         name_of_test);
INSTANTIATE_TEST_SUITE_P(All, DifferentiableOperator,
                         testing::ValuesIn(operators([](const Operator& op) { return static_cast<bool>(op.gradient); })), name_of_test);
INSTANTIATE_TEST_SUITE_P(All, FusedOperator,
                         testing::ValuesIn(operators([](const Operator& op) { return static_cast<bool>(op.decompose); })), name_of_test);

}  // namespace
}  // namespace frit

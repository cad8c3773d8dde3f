// What every registered operator must hold on a CUDA device, driven by the samples that it declares: the CPU's results, whatever the
// strides, the layout and the dtype, and the same bits at every run.

#include <gtest/gtest.h>

#include <iostream>
#include <utility>

#include "first_gpu.h"
#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/ops/chain/chain_attributes.h"
#include "ops/layout_checks.h"

namespace frit {
namespace {

std::vector<Tensor> moved(const std::vector<Tensor>& tensors, Device device) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.push_back(tensor.defined() ? tensor.to(device) : tensor);
  return result;
}

/// torch.testing.assert_close's table, but for f64, which is stricter. Its absolute part is of the largest value, where that is above 1.
struct Tolerance {
  DType dtype;
  double absolute, relative;
  double mean_square;  ///< of the differences, by that of the values
};
constexpr Tolerance tolerances[] = {
    {DType::f64, 1e-10, 1e-10, 1e-20},
    {DType::f32, 1e-5, 1.3e-6, 1e-10},
    {DType::f16, 1e-5, 1e-3, 1e-6},
    {DType::bf16, 1e-5, 1.6e-2, 1e-4},
    {DType::i64, 0, 0, 0},
    {DType::i32, 0, 0, 0},
    {DType::u8, 0, 0, 0},
};

/// NaN and infinite values must have the same places; with `any_special` one may stand for the other.
testing::AssertionResult close(const Tensor& found, const Tensor& expected, const Tolerance& tolerance, bool any_special) {
  if (found.dtype() != expected.dtype() || !(found.shape() == expected.shape())) {
    return testing::AssertionFailure() << found.dtype() << ' ' << found.shape() << " is not " << expected.dtype() << ' '
                                       << expected.shape();
  }
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  const double absolute = is_floating(expected.dtype()) ? tolerance.absolute * std::max(1.0, largest_finite(expected)) : 0;
  const double relative = is_floating(expected.dtype()) ? tolerance.relative : 0;
  double difference = 0, square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) || (any_special && !std::isfinite(a[i]) && !std::isfinite(b[i]))) {
      square += std::isfinite(b[i]) ? b[i] * b[i] : 0;
      continue;
    }
    if (!(std::isfinite(b[i]) && std::abs(a[i] - b[i]) <= absolute + relative * std::abs(b[i]))) {
      return testing::AssertionFailure() << "element " << i << ": " << a[i] << " is not near " << b[i];
    }
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    square += b[i] * b[i];
  }
  // Of values that are zero but for rounding, the differences are no smaller: they are measured by 0.1.
  const double floor = 0.01 * static_cast<double>(a.size());
  if (difference > tolerance.mean_square * std::max(square, floor)) {
    return testing::AssertionFailure() << "the mean square of the differences is " << difference / std::max(square, floor)
                                       << " of the values'";
  }
  return testing::AssertionSuccess();
}

bool all_finite(const Tensor& tensor) {
  const std::vector<double> values = tensor.to_vector<double>();
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

class CudaOperator : public testing::TestWithParam<std::string> {
 protected:
  /// Results of one call that were compared with the CPU's, and their elements.
  static inline std::int64_t compared_results = 0, compared_elements = 0;
  static inline std::size_t compared_operators = 0;

  static void TearDownTestSuite() {
    if (compared_results == 0) return;
    std::cout << compared_results << " results of " << compared_operators << " operators, " << compared_elements
              << " elements, were compared with the CPU's\n";
    if (compared_operators == ops::registry().all().size()) {
      EXPECT_GE(compared_results, 10'000);
    }
  }

  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    set_numerics({.tf32 = false, .deterministic = true});
  }
  void TearDown() override { set_numerics({}); }

  const Operator& op() const { return ops::registry().find(GetParam()); }
  bool takes(DType dtype) const { return std::find(op().dtypes.begin(), op().dtypes.end(), dtype) != op().dtypes.end(); }

  /// The same tensors for the same round.
  template <class Body>
  void for_each_sample(DType dtype, const Body& body, std::uint64_t round = 0) const {
    const std::vector<Sample> samples = op().samples();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      SCOPED_TRACE(concat(op().name, " sample ", i, " {", samples[i].attributes.text(), "} ", dtype, ", round ", round));
      body(samples[i], sample_tensors(samples[i], dtype, 1000 * round + i));
    }
  }

  /// Convolutions take other ways than the CPU's: they may multiply the zeros of a padding that it leaves out, and in halves round before
  /// the bias is added as well as after.
  bool convolves(const Sample& sample) const {
    const Operator& computing = op().name == "chain" ? *sample.attributes.as<ops::ChainAttributes>().call.centre.op : op();
    return computing.cuda.library && computing.cuda.library().starts_with("cuDNN");
  }

  void compare_with_cpu(const Sample& sample, const std::vector<Tensor>& inputs, Tolerance tolerance, bool special = false) const {
    if (convolves(sample) && is_half(tolerance.dtype)) {
      tolerance.absolute = tolerance.relative / 2;
      tolerance.mean_square *= 4;
    }
    const std::vector<Tensor> found = moved(run_with_updates(op(), moved(inputs, first_gpu), sample.attributes), Device::cpu());
    const std::vector<Tensor> expected = run_with_updates(op(), inputs, sample.attributes);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (special && convolves(sample)) {
        if (op().outputs[i] == std::string_view("argmax_input")) continue;  // any element, where all that is made of them is NaN
        EXPECT_EQ(all_finite(found[i]), all_finite(expected[i])) << "result " << i;
      } else {
        // Sums in another order may make a NaN of what is infinite.
        EXPECT_TRUE(close(found[i], expected[i], tolerance, special && !op().elementwise)) << "result " << i;
      }
      ++compared_results;
      compared_elements += expected[i].elements();
    }
  }
};

TEST_P(CudaOperator, HasAKernel) { EXPECT_TRUE(op().view || op().cuda) << op().name; }

TEST_P(CudaOperator, AgreesWithTheCpu) {
  constexpr std::uint64_t rounds = 8;
  for (const Tolerance& tolerance : tolerances) {
    if (!takes(tolerance.dtype)) continue;
    const auto compare = [&](const Sample& sample, const std::vector<Tensor>& inputs) {
      if (sample.in_halves || !is_half(tolerance.dtype)) compare_with_cpu(sample, inputs, tolerance);
    };
    for (std::uint64_t round = 0; round < rounds; ++round) for_each_sample(tolerance.dtype, compare, round);
  }
  ++compared_operators;
}

TEST_P(CudaOperator, NanAndInfiniteValuesGoWhereTheCpuHasThem) {
  const Tolerance& tolerance =
      *std::find_if(std::begin(tolerances), std::end(tolerances), [](const Tolerance& t) { return t.dtype == DType::f32; });
  if (!takes(DType::f32)) return;
  std::uint64_t place = 0;
  for (const double special : {std::nan(""), static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
    for_each_sample(DType::f32, [&](const Sample& sample, const std::vector<Tensor>& inputs) {
      // What a backward operator takes from the forward pass does not have special values by itself.
      const bool only_gradient = op().name.ends_with("_backward") && !op().elementwise;
      for (const Tensor& input : std::span(inputs).first(only_gradient ? 1 : inputs.size())) {
        if (input.elements() == 0 || input.dtype() != DType::f32) continue;
        const std::uint64_t element = philox(7, 1, place++)[0] % static_cast<std::uint64_t>(input.elements());
        const float before = std::exchange(input.span<float>()[element], static_cast<float>(special));
        compare_with_cpu(sample, inputs, tolerance, /*special=*/true);
        input.span<float>()[element] = before;
      }
    });
  }
}

TEST_P(CudaOperator, RepeatsBitForBit) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    if (!takes(dtype)) continue;
    for_each_sample(dtype, [&](const Sample& sample, const std::vector<Tensor>& given) {
      const std::vector<Tensor> inputs = moved(given, first_gpu);
      const std::vector<Tensor> expected = moved(run_with_updates(op(), inputs, sample.attributes), Device::cpu());
      for (int run = 0; run < 3; ++run) {
        const std::vector<Tensor> results = moved(run_with_updates(op(), inputs, sample.attributes), Device::cpu());
        for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same_bits(results[i], expected[i])) << "result " << i;
      }
    });
  }
}

/// They may come from a file, and nobody waits for the device to have looked at them first.
TEST_P(CudaOperator, ReadsAndWritesNothingWhereIndicesNameNothing) {
  for_each_sample(takes(DType::f32) ? DType::f32 : op().dtypes[0], [&](const Sample& sample, const std::vector<Tensor>& inputs) {
    for (const ops::IndexInput& declared : op().index_inputs) {
      const auto place = static_cast<std::size_t>(declared.input);
      const std::int64_t count = declared.count({op(), types_of(inputs), sample.attributes});
      for (const Tensor& indices : naming_nothing(inputs[place], declared.least, count)) {
        std::vector<Tensor> given = moved(inputs, first_gpu);
        given[place] = indices.to(first_gpu);
        EXPECT_NO_THROW(moved(ops::run(op(), given, sample.attributes), Device::cpu()));  // a fault shows when the results are read
      }
    }
  });
}

TEST_P(CudaOperator, WritesEveryElementAndSkipsUnreadOutputs) {
  if (op().view) return;
  const DType dtype = takes(DType::f32) ? DType::f32 : op().dtypes[0];
  for_each_sample(dtype, [&](const Sample& sample, const std::vector<Tensor>& given) {
    const std::vector<TensorType> types = op().infer_types(types_of(given), sample.attributes);
    const std::size_t scratch_size = ops::scratch_bytes(op(), types_of(given), types, sample.attributes, first_gpu);
    const auto run = [&](double fill, std::size_t unread) {
      std::vector<Tensor> outputs;
      for (std::size_t i = 0; i < types.size(); ++i) {
        outputs.push_back(i == unread ? Tensor() : Tensor::full(types[i].shape, fill, types[i].dtype, first_gpu));
      }
      const Tensor scratch = Tensor::full({static_cast<std::int64_t>(scratch_size)}, fill == 0 ? 0 : 255, DType::u8, first_gpu);
      ops::invoke(op(), sample.attributes, moved(clones(given), first_gpu), outputs,
                  {static_cast<std::byte*>(scratch.raw()), scratch_size});
      return moved(outputs, Device::cpu());
    };
    const std::vector<Tensor> expected = run(0, types.size()), poisoned = run(77, types.size());
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

TEST_P(CudaOperator, ViewsGiveTheBitsOfContiguousTensors) {
  constexpr std::uint64_t views = 40;
  const DType dtype = takes(DType::f32) ? DType::f32 : op().dtypes[0];
  const std::vector<Sample> samples = op().samples();
  for (std::uint64_t v = 0; v < views; ++v) {
    const Sample& sample = samples[v % samples.size()];
    SCOPED_TRACE(concat(op().name, " sample ", v % samples.size(), " view ", v));
    std::vector<Tensor> viewed = moved(sample_tensors(sample, dtype, v % samples.size()), first_gpu), dense;
    for (std::size_t i = 0; i < viewed.size(); ++i) {
      const std::uint64_t seed = v * 16 + i;
      if (!mutates(op(), i)) viewed[i] = view_of(viewed[i], seed);
      dense.push_back(viewed[i].clone());
    }
    const std::vector<Tensor> expected = moved(run_with_updates(op(), dense, sample.attributes), Device::cpu());
    const std::vector<Tensor> results = moved(run_with_updates(op(), viewed, sample.attributes), Device::cpu());
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_TRUE(same_bits(results[i], expected[i])) << "result " << i;
  }
}

TEST_P(CudaOperator, TakesTheLayoutsThatItSays) {
  for (const DType dtype : {DType::f32, DType::f16}) {  // whose vectors are longer
    if (is_half(dtype) && !((op().cuda.one_layout || op().cuda.strided) && takes(dtype))) continue;
    for_each_sample(dtype, [&](const Sample& sample, const std::vector<Tensor>& given) {
      if (is_half(dtype) && mixes_layouts(op().cuda, sample.attributes)) return;
      const testing::AssertionResult first = takes_its_layouts(op(), sample.attributes, given, first_gpu);
      if (first) return;
      // One of ten thousand values may lie where rounding decides a comparison; of others none will at the same place.
      const std::vector<Tensor> others = sample_tensors(sample, dtype, 77'777);
      EXPECT_TRUE(takes_its_layouts(op(), sample.attributes, others, first_gpu)) << "and before it " << first.message();
    });
  }
}

TEST_P(CudaOperator, TakesThePartsThatItSays) {
  int taken = 0;
  for (const DType dtype : {DType::f32, DType::f16}) {
    if (!takes(dtype)) continue;
    for_each_sample(dtype, [&](const Sample& sample, const std::vector<Tensor>& given) {
      EXPECT_TRUE(takes_its_parts(op(), sample.attributes, given, first_gpu, taken));
    });
  }
  if (op().name == "concatenate" || op().name == "elementwise") {
    EXPECT_GE(taken, 2);
  }
}

TEST_P(CudaOperator, InPlaceEqualsOutOfPlace) {
  const DType dtype = takes(DType::f32) ? DType::f32 : op().dtypes[0];
  for_each_sample(dtype, [&](const Sample& sample, const std::vector<Tensor>& given) {
    const std::vector<TensorType> types = op().infer_types(types_of(given), sample.attributes);
    const std::vector<Tensor> expected = moved(ops::run(op(), moved(given, first_gpu), sample.attributes), Device::cpu());
    const std::size_t bytes = op().view ? 0 : ops::scratch_bytes(op(), types_of(given), types, sample.attributes, first_gpu);
    const Tensor scratch = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8, first_gpu);
    for (const auto& [output, input] : op().in_place) {
      if (static_cast<std::size_t>(input) >= given.size() || static_cast<std::size_t>(output) >= types.size()) continue;
      std::vector<Tensor> own = moved(clones(given), first_gpu), outputs;
      const Tensor& reused = own[static_cast<std::size_t>(input)];
      if (!(types[static_cast<std::size_t>(output)] == TensorType{reused.dtype(), reused.shape()})) continue;
      for (const TensorType& type : types) outputs.push_back(Tensor::empty(type.shape, type.dtype, first_gpu));
      outputs[static_cast<std::size_t>(output)] = reused;
      ops::invoke(op(), sample.attributes, own, outputs, {static_cast<std::byte*>(scratch.raw()), bytes});
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(same(outputs[i].to(Device::cpu()), expected[i])) << "output " << i << " over input " << input;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, CudaOperator, testing::ValuesIn(operators([](const Operator&) { return true; })),
                         [](const testing::TestParamInfo<std::string>& tested) { return tested.param; });

}  // namespace
}  // namespace frit

// What all four norms owe on data that is hard for float32: offsets, constants, tiny and huge values, infinities and NaN.

#include "frit/core/random.h"
#include "frit/eigen.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "ops/elementwise/evaluation.h"
#include "ops/operator_checks.h"

namespace frit {
namespace {

struct Norm {
  const char* name;
  std::int64_t slices;                     ///< of the input (2, 4, 7, 9, 5)
  std::int64_t (*slice_of)(std::int64_t);  ///< an element
  Value (*apply)(Value x);
};

Value variable(Value x, const char* name, double value) {
  const auto fill = [value](const Tensor& tensor, std::uint64_t) { tensor.fill(value); };
  return Graph::of(x).variable(name, {x.dtype(), {x.dim(1)}}, fill);
}

constexpr std::int64_t plane = 7 * 9 * 5;

const Norm norms[] = {
    {"instance_norm", 8, [](std::int64_t i) { return i / plane; }, [](Value x) { return instance_norm(x); }},
    {"group_norm", 4, [](std::int64_t i) { return i / (2 * plane); }, [](Value x) { return group_norm(x, 2); }},
    {"layer_norm", 8, [](std::int64_t i) { return i / plane; }, [](Value x) { return layer_norm(x, 3); }},
    {"batch_norm", 4, [](std::int64_t i) { return i / plane % 4; },
     [](Value x) {
       return batch_norm(x, variable(x, "weight", 1), variable(x, "bias", 0), variable(x, "mean", 0), variable(x, "variance", 1));
     }},
};

void PrintTo(const Norm& norm, std::ostream* out) { *out << norm.name; }

class NormAccuracy : public testing::TestWithParam<Norm> {
 protected:
  static Tensor normal(double mean, double deviation) {
    const Tensor x = Tensor::empty({2, 4, 7, 9, 5});
    fill_normal(x, mean, deviation, 1, 1);
    return x;
  }

  /// Of the sum of the result times fixed random numbers.
  static Evaluation run(const Tensor& x) {
    const Tensor cotangent = Tensor::empty(x.shape(), DType::f64);
    fill_normal(cotangent, 0, 1, 2, 2);
    const auto norm = [&](const Values& v) { return GetParam().apply(v[0]) * Graph::of(v[0]).constant(cotangent.to(x.dtype())); };
    return {evaluate([](const Values& v) { return GetParam().apply(v[0]); }, {x}).output, evaluate(norm, {x}).gradients};
  }

  static double largest(const std::vector<double>& values) {
    double result = 0;
    for (const double value : values) result = std::max(result, std::abs(value));
    return result;
  }
  static double largest_difference(std::vector<double> a, const std::vector<double>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
    return largest(a);
  }
};

TEST_P(NormAccuracy, IsExactAtEveryOffset) {
  for (const double offset : {0.0, 1e3, 1e4, 1e5, 1e6, 1e7}) {
    SCOPED_TRACE(offset);
    const Tensor x = normal(offset, 1);
    const Evaluation found = run(x), exact = run(x.to(DType::f64));
    EXPECT_LE(largest_difference(found.output, exact.output), 1e-6);
    EXPECT_LE(largest_difference(found.gradients[0], exact.gradients[0]), 1e-6 * largest(exact.gradients[0]));
  }
}

/// A slice's mean is taken from its values, which are divided by the root of its variance and eps.
TEST_P(NormAccuracy, EqualsItsDefinition) {
  const bool of_batch = GetParam().name == std::string("batch_norm");  // a channel's elements lie apart
  const Tensor x = normal(3, 2).to(DType::f64), slices = of_batch ? x.transpose(0, 1) : x;
  const Tensor rows = slices.clone().reshape({GetParam().slices, -1});
  Eigen::ArrayXXd expected = eigen_matrix<double>(rows);
  expected.colwise() -= expected.rowwise().mean().eval();
  expected.colwise() /= (expected.square().rowwise().mean() + 1e-5).sqrt().eval();
  const Tensor found = Tensor::from(run(x).output, x.shape());
  const Tensor in_rows = (of_batch ? found.transpose(0, 1) : found).clone().reshape({GetParam().slices, -1});
  EXPECT_LE((eigen_matrix<double>(in_rows).array() - expected).abs().maxCoeff(), 1e-13);
}

TEST_P(NormAccuracy, ConstantInputGivesZeroExactly) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const double value : {3.0, 0.1, -1e7, 1e30}) {
      const Tensor x = Tensor::full({2, 4, 7, 9, 5}, value, dtype);
      EXPECT_EQ(largest(run(x).output), 0) << value << ' ' << dtype;
    }
  }
}

TEST_P(NormAccuracy, TinyAndHugeValuesStayFinite) {
  for (const double scale : {1e-30, 1e30, 1e38}) {
    SCOPED_TRACE(scale);
    const Tensor x = Tensor::empty({2, 4, 7, 9, 5});
    fill_uniform(x, -3 * scale, 3 * scale, 1, 1);
    const Evaluation found = run(x), exact = run(x.to(DType::f64));
    EXPECT_LE(largest_difference(found.output, exact.output), 1e-6 * largest(exact.output));
    EXPECT_GT(largest(found.output), 0);
    for (const double y : found.output) ASSERT_TRUE(std::isfinite(y));
    for (const double g : found.gradients[0]) ASSERT_TRUE(std::isfinite(g));
  }
}

TEST_P(NormAccuracy, InfinityAndNaNSpoilTheirSliceAlone) {
  for (const double bad : {inf, -inf, nan}) {
    const Tensor x = normal(0, 1);
    const std::int64_t place = 3 * plane + 11;
    x.data<float>()[place] = static_cast<float>(bad);
    const Evaluation found = run(x);
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const bool spoilt = GetParam().slice_of(i) == GetParam().slice_of(place);
      ASSERT_EQ(std::isnan(found.output[static_cast<std::size_t>(i)]), spoilt) << bad << " element " << i;
      ASSERT_EQ(std::isnan(found.gradients[0][static_cast<std::size_t>(i)]), spoilt) << bad << " element " << i;
    }
  }
}

/// A number added to a whole slice changes nothing, so the gradient sums to 0 there.
TEST_P(NormAccuracy, GradientOfASliceSumsToZero) {
  const std::vector<double> gradient = run(normal(5, 3)).gradients[0];
  std::vector<double> sums(static_cast<std::size_t>(GetParam().slices)), terms = sums;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const std::size_t slice = static_cast<std::size_t>(GetParam().slice_of(static_cast<std::int64_t>(i)));
    sums[slice] += gradient[i];
    terms[slice] += std::abs(gradient[i]);
  }
  for (std::size_t slice = 0; slice < sums.size(); ++slice) EXPECT_LE(std::abs(sums[slice]), 1e-5 * terms[slice]) << "slice " << slice;
}

TEST_P(NormAccuracy, HalfDataMayBeFarFromZero) {
  Tensor x = Tensor::empty({2, 4, 7, 9, 5});
  fill_normal(x, 1000, 50, 1, 1);  // the sum of a slice is beyond the largest f16
  for (const DType half : {DType::f16, DType::bf16}) {
    const Tensor rounded = x.to(half);
    EXPECT_LE(largest_difference(run(rounded).output, run(rounded.to(DType::f64)).output), half == DType::f16 ? 2e-3 : 2e-2);
  }
}

/// (x - reference) * scale + shift, far from zero too.
TEST(NormCoefficients, GiveTheResult) {
  const std::pair<DType, double> cases[] = {{DType::f64, 1e-12}, {DType::f32, 2e-6}, {DType::f16, 1e-3}, {DType::bf16, 1e-2}};
  for (const char* const name : {"batch_norm", "group_norm", "instance_norm"}) {
    for (const auto& [dtype, tolerance] : cases) {
      const std::vector<Sample> samples = ops::registry().find(name).samples();
      for (std::size_t i = 0; i < samples.size(); ++i) {
        SCOPED_TRACE(concat(name, " sample ", i, ' ', dtype));
        std::vector<Tensor> inputs = sample_tensors(samples[i], dtype, i);
        for (const double offset : {0.0, is_half(dtype) ? 8.0 : 1e4}) {
          inputs[0] = ops::run("add", {inputs[0], Tensor::full({}, offset, dtype)})[0];
          const std::vector<Tensor> found = ops::run(name, clones(inputs), samples[i].attributes);
          const DType computed = dtype == DType::f64 ? DType::f64 : DType::f32;
          for (std::size_t k = 3; k < 6; ++k) ASSERT_EQ(found[k].dtype(), computed);
          const Tensor difference = ops::run("subtract", {inputs[0].to(computed), found[3]})[0];
          const Tensor result = ops::run("add", {ops::run("multiply", {difference, found[4]})[0], found[5]})[0];
          EXPECT_TRUE(near(result, found[0], tolerance, std::max(1.0, largest_finite(found[0]))));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, NormAccuracy, testing::ValuesIn(norms), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace frit

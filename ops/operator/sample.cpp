#include "frit/ops/operator/sample.h"

#include "frit/core/random.h"

namespace frit::ops {
namespace {

std::vector<double> draw(const SampleInput& input, std::uint64_t seed, std::uint64_t stream) {
  const std::int64_t count = element_count(input.shape);
  Tensor values = Tensor::empty(input.shape, DType::f64);
  switch (input.fill) {
    case Fill::normal: fill_normal(values, 0, 1, seed, stream); break;
    case Fill::positive: fill_uniform(values, 0.5, 2, seed, stream); break;
    case Fill::unit: fill_uniform(values, 0.05, 0.95, seed, stream); break;
    case Fill::nonzero:
      fill_uniform(values, -1.5, 1.5, seed, stream);
      for (double& value : values.span<double>()) value += value < 0 ? -0.5 : 0.5;
      break;
    case Fill::distinct: {
      const std::vector<std::int64_t> order = permutation(count, seed, stream);
      const double step = 4.0 / static_cast<double>(std::max<std::int64_t>(count, 1));
      double* const value = values.data<double>();
      for (std::int64_t i = 0; i < count; ++i) {
        value[i] = (static_cast<double>(order[static_cast<std::size_t>(i)]) + 0.37) * step - 2;
      }
      break;
    }
    case Fill::ones: values.fill(1); break;
    case Fill::zeros: values.fill(0); break;
    case Fill::integers:
      for (std::int64_t i = 0; i < count; ++i) {
        values.data<double>()[i] =
            static_cast<double>(philox(seed, stream, static_cast<std::uint64_t>(i))[0] % static_cast<std::uint64_t>(input.upper));
      }
      break;
  }
  return values.to_vector<double>();
}

}  // namespace

SampleInput SampleInput::of(DType dtype, Shape shape, Fill fill) {
  SampleInput input(std::move(shape), fill);
  input.floating = false;
  input.dtype = dtype;
  return input;
}

SampleInput SampleInput::integers(Shape shape, std::int64_t upper, DType dtype) {
  SampleInput input = of(dtype, std::move(shape), Fill::integers);
  input.upper = upper;
  return input;
}

SampleInput SampleInput::indices(Shape shape, DType dtype) { return integers(std::move(shape), 0, dtype); }

std::vector<Tensor> sample_tensors(const Sample& sample, DType dtype, std::uint64_t seed) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    const SampleInput& input = sample.inputs[i];
    tensors.push_back(Tensor::from(draw(input, seed, i), input.shape).to(input.floating ? dtype : input.dtype));
  }
  return tensors;
}

}  // namespace frit::ops

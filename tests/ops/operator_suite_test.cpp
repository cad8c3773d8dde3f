// The generic checks that every registered operator passes, driven by the samples that it declares.

#include <gtest/gtest.h>

#include <bit>

#include "frit/autograd/gradient_check.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/random.h"
#include "frit/core/thread_pool.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/operator/run.h"
#include "ops/layout_checks.h"
#include "ops/sample_graph.h"

namespace frit {
namespace {

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
class IndexedOperator : public OperatorSuite {};

TEST_P(OperatorSuite, IsDescribed) {
  EXPECT_FALSE(op().summary.empty());
  EXPECT_GE(op().samples().size(), 4u) << "an operator declares four samples or more";
  EXPECT_EQ(op().attributes_from_json("{}"), op().default_attributes);
  const Sample& typical = op().typical;
  if (typical.inputs.empty()) return;
  const std::vector<TensorType> types = types_of(sample_tensors(typical, float_dtypes()[0], 0));
  const std::vector<TensorType> outputs = op().infer_types(types, typical.attributes);
  EXPECT_GT(op().multiplications({op(), types, typical.attributes}, outputs.at(0)), 0);
}

TEST_P(OperatorSuite, RefusesDtypesThatItCannotCompute) {
  for_each_sample(float_dtypes()[0], [&](const Sample& sample, const std::vector<Tensor>& inputs) {
    const std::vector<TensorType> types = types_of(inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      for (const DType dtype : all_dtypes) {
        std::vector<Tensor> others = clones(inputs);  // inputs of one type often belong together
        for (std::size_t k = 0; k < inputs.size(); ++k) {
          if (types[k] == types[i]) others[k] = Tensor::zeros(types[k].shape, dtype);
        }
        try {
          ops::run(op(), others, sample.attributes);
        } catch (const Error& error) {
          EXPECT_NE(error.kind(), ErrorKind::bug) << "input " << i << " in " << dtype << ": " << error.what();
        }
      }
    }
  });
}

TEST_P(OperatorSuite, InferredTypesAreTheActualOnes) {
  for (const DType dtype : float_dtypes()) {
    for_each_sample(dtype, [&](const Sample& sample, const std::vector<Tensor>& inputs) {
      const std::vector<TensorType> inferred = op().infer_types(types_of(inputs), sample.attributes);
      EXPECT_EQ(types_of(ops::run(op(), clones(inputs), sample.attributes)), inferred);
    });
  }
}

TEST_P(OperatorSuite, RunsInEveryDtypeThatItSays) {
  for (const DType dtype : op().dtypes) {
    for_each_sample(dtype, [&](const Sample& sample, const std::vector<Tensor>& inputs) {
      if (sample.inputs[0].floating || inputs[0].dtype() == dtype) {
        EXPECT_NO_THROW(run_with_updates(op(), inputs, sample.attributes));
      }
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

TEST_P(OperatorSuite, TakesTheLayoutsThatItSays) {
  for (const DType dtype : float_dtypes()) {
    for_each_sample(dtype, [&](const Sample& sample, const std::vector<Tensor>& given) {
      EXPECT_TRUE(takes_its_layouts(op(), sample.attributes, given, Device::cpu()));
    });
  }
}

TEST_P(OperatorSuite, TakesThePartsThatItSays) {
  int taken = 0;
  for (const DType dtype : float_dtypes()) {
    for_each_sample(dtype, [&](const Sample& sample, const std::vector<Tensor>& given) {
      EXPECT_TRUE(takes_its_parts(op(), sample.attributes, given, Device::cpu(), taken));
    });
  }
  const bool has_images = op().name == "chain" || op().name == "conv3d" || op().name == "elementwise" || op().name == "concatenate";
  if (has_images) {
    EXPECT_GE(taken, 4);
  }
}

TEST_P(OperatorSuite, GivesTheSameOfImagesWithOneRow) {
  if (!op().with_unit_axis) return;
  std::size_t of_lines = 0;
  for_each_sample(float_dtypes()[0], [&](const Sample& sample, const std::vector<Tensor>& given) {
    if (given[0].rank() != 3) return;
    ++of_lines;
    const std::vector<Tensor> expected = run_with_updates(op(), given, sample.attributes);
    std::vector<Tensor> images = clones(given);
    for (Tensor& image : images) {
      if (image.rank() == 3) image = image.reshape({image.dim(0), image.dim(1), 1, image.dim(2)});
    }
    const std::vector<Tensor> results = run_with_updates(op(), images, op().with_unit_axis(sample.attributes));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(results[i].elements(), expected[i].elements()) << "result " << i;
      EXPECT_TRUE(near(results[i].reshape(expected[i].shape()), expected[i], 1e-12, largest_finite(expected[i]))) << "result " << i;
    }
  });
  EXPECT_GT(of_lines, 0u) << "an operator that takes lines has samples of such";
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
      if (!mutates(op(), i)) viewed[i] = view_of(viewed[i], seed);
      dense.push_back(viewed[i].clone());
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
      if (static_cast<std::size_t>(input) >= inputs.size() || static_cast<std::size_t>(output) >= types.size()) continue;
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

TEST_P(IndexedOperator, RefusesIndicesThatNameNothing) {
  int refused = 0;
  for_each_sample(float_dtypes()[0], [&](const Sample& sample, const std::vector<Tensor>& inputs) {
    for (const ops::IndexInput& declared : op().index_inputs) {
      const auto place = static_cast<std::size_t>(declared.input);
      const std::int64_t count = declared.count({op(), types_of(inputs), sample.attributes});
      for (const Tensor& indices : naming_nothing(inputs[place], declared.least, count)) {
        std::vector<Tensor> given = inputs;
        given[place] = indices;
        const std::int64_t last = indices.elements() - 1;
        try {
          ops::run(op(), given, sample.attributes);
          ADD_FAILURE() << indices.to_vector<double>().back() << " was taken";
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::argument);
          const std::string message = error.what();
          EXPECT_TRUE(message.starts_with(concat(op().name, ": input \"", op().inputs[place].name, "\" has "))) << message;
          EXPECT_TRUE(message.ends_with(concat(" at element ", last, ", expected an index in [", declared.least, ", ", count, ')')))
              << message;
        }
        ++refused;
      }
    }
  });
  EXPECT_GT(refused, 0);
}

/// Flags and counters are no indices: the suite under AddressSanitizer sees that nothing is looked up with them.
TEST_P(OperatorSuite, TakesAnyIntegersThatAreNoIndices) {
  for_each_sample(float_dtypes()[0], [&](const Sample& sample, const std::vector<Tensor>& inputs) {
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      const auto& indexed = op().index_inputs;
      const bool is_index = std::any_of(indexed.begin(), indexed.end(), [&](const auto& d) { return d.input == static_cast<int>(i); });
      if (is_index || is_floating(inputs[i].dtype()) || mutates(op(), i)) continue;
      for (const Tensor& integers : naming_nothing(inputs[i], 0, 1)) {
        std::vector<Tensor> given = inputs;
        given[i] = integers;
        EXPECT_NO_THROW(ops::run(op(), given, sample.attributes)) << "input " << i;
      }
    }
  });
}

/// With as many rows as asked for of the inputs that hold one an example: the fewest with which the result has as many. None where no such
/// inputs are.
std::vector<std::size_t> inputs_by_example(const Operator& op, const Sample& sample, const std::vector<TensorType>& types) {
  const auto result_rows = [&](const std::vector<TensorType>& given) -> std::int64_t {
    try {
      const Shape result = op.infer_types(given, sample.attributes).at(0).shape;
      return result.empty() ? -1 : result[0];
    } catch (const Error&) {
      return -1;
    }
  };
  // What indices name is no batch.
  const auto named = [&](const std::vector<TensorType>& given) {
    std::int64_t all = 0;
    for (const ops::IndexInput& declared : op.index_inputs) all += declared.count({op, given, sample.attributes});
    return all;
  };
  if (op.outputs.empty() || types[0].shape.empty()) return {};
  std::vector<std::size_t> best;
  for (unsigned chosen = 1; chosen < 1u << types.size(); chosen += 2) {
    std::vector<TensorType> one = types, many = types;
    std::vector<std::size_t> inputs;
    for (std::size_t i = 0; i < types.size(); ++i) {
      if ((chosen >> i & 1) == 0) continue;
      inputs.push_back(i);
      if (types[i].shape.empty() || mutates(op, i)) break;
      one[i].shape[0] = 1;
      many[i].shape[0] = 17;
    }
    const bool whole = inputs.size() == static_cast<std::size_t>(std::popcount(chosen)) && !types[inputs.back()].shape.empty();
    const bool by_example = whole && result_rows(one) == 1 && result_rows(many) == 17 && named(one) == named(many);
    if (by_example && (best.empty() || inputs.size() < best.size())) best = inputs;
  }
  return best;
}

/// Results of a batch that are those of its examples but for rounding are those of its examples, bit for bit. Where they are others (the
/// statistics of a batch, the mean of a loss), rows are no examples.
TEST_P(OperatorSuite, AnExampleHasTheSameBitsInAnyBatch) {
  for (const DType dtype : op().dtypes) {
    if (!is_floating(dtype)) continue;
    for_each_sample(dtype, [&](Sample sample, const std::vector<Tensor>& tensors) {
      const std::vector<std::size_t> by_example = inputs_by_example(op(), sample, types_of(tensors));
      if (by_example.empty()) return;
      for (const std::size_t i : by_example) sample.inputs[i].shape[0] = 17;
      const std::vector<Tensor> all = sample_tensors(sample, dtype, 3);
      const auto results_of = [&](std::int64_t first, std::int64_t end) {
        std::vector<Tensor> inputs = clones(all);
        for (const std::size_t i : by_example) inputs[i] = all[i].slice(0, first, end).contiguous();
        return ops::run(op(), inputs, sample.attributes)[0];
      };
      for (const std::int64_t rows : {2, 3, 5, 8, 17}) {
        const Tensor batch = results_of(0, rows);
        for (std::int64_t row = 0; row < rows; ++row) {
          const Tensor alone = results_of(row, row + 1), within = batch.slice(0, row, row + 1);
          if (same_bits(within, alone)) continue;
          EXPECT_FALSE(near(within, alone, 1e-3, std::max(1e-6, largest_finite(alone)))) << "row " << row << " of " << rows;
          return;
        }
      }
    });
  }
}

/// Where an operator says that it computes samples one independently of the other, parts of a batch give the bits of the whole.
TEST_P(OperatorSuite, PartsOfABatchGiveTheBitsOfAll) {
  for_each_sample(float_dtypes().back(), [&](const Sample& sample, const std::vector<Tensor>& inputs) {
    const std::vector<bool> with_samples = op().inputs_with_samples(types_of(inputs), sample.attributes);
    const auto first = std::find(with_samples.begin(), with_samples.end(), true);
    if (first == with_samples.end()) return;
    ASSERT_EQ(with_samples.size(), inputs.size());
    const std::int64_t samples = inputs[static_cast<std::size_t>(first - with_samples.begin())].dim(0);
    const std::vector<Tensor> whole = ops::run(op(), clones(inputs), sample.attributes);
    for (std::int64_t n = 0; n < samples; ++n) {
      std::vector<Tensor> part = clones(inputs);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (!with_samples[i]) continue;
        ASSERT_EQ(inputs[i].dim(0), samples);
        part[i] = inputs[i].slice(0, n, n + 1).contiguous();
      }
      const std::vector<Tensor> alone = ops::run(op(), part, sample.attributes);
      for (std::size_t i = 0; i < whole.size(); ++i) {
        const std::int64_t share = whole[i].dim(0) / samples;
        ASSERT_EQ(whole[i].dim(0), samples * share) << "output " << i;
        EXPECT_TRUE(same_bits(whole[i].slice(0, n * share, (n + 1) * share), alone[i])) << "output " << i << ", sample " << n;
      }
    }
  });
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

/// Outputs and gradients, run twice.
std::vector<Tensor> forward_and_gradients(const Operator& op, const Sample& sample, const std::vector<Tensor>& tensors, bool decomposed) {
  const auto built = graph_of(op, sample, tensors, decomposed);
  const Value result = built->results[0];
  built->graph.output("result", result);
  std::vector<std::string> outputs = {"result"};
  for (const Value& gradient : gradients_of(op, *built)) {
    outputs.push_back(concat("gradient ", outputs.size() - 1));
    built->graph.output(outputs.back(), gradient);
  }
  std::vector<Tensor> first;
  for (int pass = 0; pass < 2; ++pass) {
    State state;                                                                 // a new one each time: some operators update it
    graph::Executable executable(graph::remove_dead_code(built->graph), state);  // what only other results need
    executable.run(built->bindings);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Tensor tensor = executable.output(outputs[i]).clone();
      if (pass == 0)
        first.push_back(tensor);
      else
        EXPECT_TRUE(same_bits(tensor, first[i])) << outputs[i] << " differs when repeated";
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
      // A decomposition may store between its steps in halves what the fused operator only ends in.
      const double tolerance = is_half(fused[0].dtype()) ? 2e-3 : dtype == DType::f64 ? 1e-10 : 2e-5;
      // A gradient may be all but cancelled (a scale in front of a norm): it is held to the largest gradient of the call.
      double largest_gradient = 0;
      for (std::size_t i = 1; i < fused.size(); ++i) largest_gradient = std::max(largest_gradient, largest_finite(decomposed[i]));
      for (std::size_t i = 0; i < fused.size(); ++i) {
        const double largest = i == 0 ? largest_finite(decomposed[i]) : largest_gradient;
        EXPECT_TRUE(near(fused[i], decomposed[i], tolerance, largest)) << "result or gradient " << i;
      }
    });
  }
}

std::string name_of_test(const testing::TestParamInfo<std::string>& tested) { return tested.param; }

INSTANTIATE_TEST_SUITE_P(All, OperatorSuite, testing::ValuesIn(operators([](const Operator&) { return true; })), name_of_test);
INSTANTIATE_TEST_SUITE_P(All, InPlaceOperator, testing::ValuesIn(operators([](const Operator& op) { return !op.in_place.empty(); })),
                         name_of_test);
INSTANTIATE_TEST_SUITE_P(All, IndexedOperator, testing::ValuesIn(operators([](const Operator& op) { return !op.index_inputs.empty(); })),
                         name_of_test);
INSTANTIATE_TEST_SUITE_P(All, DifferentiableOperator,
                         testing::ValuesIn(operators([](const Operator& op) { return static_cast<bool>(op.gradient); })), name_of_test);
INSTANTIATE_TEST_SUITE_P(All, FusedOperator,
                         testing::ValuesIn(operators([](const Operator& op) { return static_cast<bool>(op.decompose); })), name_of_test);

}  // namespace
}  // namespace frit

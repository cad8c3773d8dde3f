// What operators declare of sums over channels, on their samples.

#include <gtest/gtest.h>

#include <set>

#include "ops/sample_graph.h"

namespace frit {
namespace {

/// What a graph's operations say of sums over all axes but the channels', as pairs (sum, of what).
std::vector<std::pair<Value, Value>> declared_channel_sums(Graph& graph, std::set<std::string>& found) {
  std::vector<std::pair<Value, Value>> result;
  for (const graph::Node* node : graph.all(graph::NodeKind::operation)) {
    for (const auto& [sum, of] : node->op->channel_sums) {
      found.insert(node->op->name);
      result.emplace_back(Value(graph, node->outputs[static_cast<std::size_t>(sum)]),
                          Value(graph, node->outputs[static_cast<std::size_t>(of)]));
    }
  }
  return result;
}

/// The sums of a tensor (N, C, ...) over all axes but the channels', and the largest sum of magnitudes.
std::pair<Tensor, double> channel_sums(const Tensor& tensor) {
  const std::vector<double> values = tensor.to_vector<double>();
  const std::int64_t channels = tensor.shape()[1], pixels = values.empty() ? 1 : tensor.elements() / tensor.shape()[0] / channels;
  std::vector<double> sums(static_cast<std::size_t>(channels), 0.0), magnitudes = sums;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t c = i / static_cast<std::size_t>(pixels) % sums.size();
    sums[c] += values[i];
    magnitudes[c] += std::isfinite(values[i]) ? std::abs(values[i]) : 0;
  }
  return {Tensor::from(sums, {channels}), *std::max_element(magnitudes.begin(), magnitudes.end())};
}

/// An operator may name an output as the sum of another only where calls that belong together make it so: in a gradient's graph.
TEST(ChannelSums, EqualTheSumsOfWhatTheyAreDeclaredOf) {
  std::set<std::string> found;
  for (const Operator* op : ops::registry().all()) {
    const std::vector<Sample> samples = op->gradient ? op->samples() : std::vector<Sample>{};
    for (std::size_t i = 0; i < samples.size(); ++i) {
      for (const DType dtype : {DType::f64, DType::f32}) {
        if (std::find(op->dtypes.begin(), op->dtypes.end(), dtype) == op->dtypes.end()) continue;
        SCOPED_TRACE(concat(op->name, " sample ", i, ' ', dtype));
        const std::vector<Tensor> tensors = sample_tensors(samples[i], dtype, i);
        const auto run = [&](bool with_whole) {
          const auto built = graph_of(*op, samples[i], tensors, /*decomposed=*/false);
          gradients_of(*op, *built);
          const auto declared = declared_channel_sums(built->graph, found);
          for (std::size_t k = 0; k < declared.size(); ++k) {
            built->graph.output(concat("sum ", k), declared[k].first);
            if (with_whole) built->graph.output(concat("whole ", k), declared[k].second);
          }
          std::vector<Tensor> results;
          if (declared.empty()) return results;
          built->state->prepare(built->graph);
          graph::Executable executable(graph::remove_dead_code(built->graph), *built->state);  // what only other gradients need
          executable.run(built->bindings);
          for (std::size_t k = 0; k < declared.size(); ++k) {
            results.push_back(executable.output(concat("sum ", k)).clone());
            if (with_whole) results.push_back(executable.output(concat("whole ", k)).clone());
          }
          return results;
        };
        const std::vector<Tensor> both = run(true), alone = run(false);
        for (std::size_t k = 0; k < alone.size(); ++k) {
          const auto [expected, largest] = channel_sums(both[2 * k + 1]);
          EXPECT_TRUE(near(both[2 * k], expected, dtype == DType::f64 ? 1e-10 : 1e-6, largest)) << "sum " << k;
          EXPECT_TRUE(same(alone[k], both[2 * k])) << "sum " << k << " alone";
        }
      }
    }
  }
  const std::vector<std::string> declaring = operators([](const Operator& op) { return !op.channel_sums.empty(); });
  EXPECT_EQ(found, std::set<std::string>(declaring.begin(), declaring.end())) << "each must come of some sample";
}

}  // namespace
}  // namespace frit

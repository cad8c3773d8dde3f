// Functions that are made of several operators, in graphs that run with other sizes than those that they were made for.

#include <gtest/gtest.h>

#include "frit/core/random.h"
#include "frit/graph/program.h"
#include "frit/models/runtime.h"

namespace frit {
namespace {

using OfOne = std::function<Value(Value)>;

/// What the function gives of a graph that was made for other sizes is what it gives of one that was made for these.
void expect_to_follow(const char* name, const OfOne& function, const Shape& made_for, const Shape& run_with) {
  const Tensor x = Tensor::empty(run_with, DType::f64);
  fill_normal(x, 0, 1, /*seed=*/3, /*stream=*/0);
  std::vector<Tensor> results;
  for (const Shape& shape : {made_for, run_with}) {
    Graph graph;
    graph.output("y", function(graph.input("x", shape, DType::f64)));
    Program program(graph, std::make_shared<State>());
    results.push_back(program.run({{"x", x}}).output("y").clone());
  }
  EXPECT_EQ(results[0].shape(), results[1].shape()) << name;
  EXPECT_EQ(results[0].to_vector<double>(), results[1].to_vector<double>()) << name;
}

TEST(FunctionsSizes, FollowTheBatch) {
  const auto labels = [](Value x) { return argmax(x, 1); };
  const std::vector<std::pair<const char*, OfOne>> functions = {
      {"unsqueeze", [](Value x) { return unsqueeze(x, 2); }},
      {"squeeze", [](Value x) { return squeeze(mean(x, 1, true), 1); }},
      {"tile", [](Value x) { return tile(x, {1, 2, 1}); }},
      {"flip", [](Value x) { return flip(x, 2); }},
      {"roll", [](Value x) { return roll(x, 2, -1); }},
      {"resize", [](Value x) { return resize(x, {.size = 9, .mode = ResizeMode::linear}); }},
      {"nearest", [](Value x) { return resize(x, {.scale_factor = {2.0}}); }},
      {"adaptive", [](Value x) { return adaptive_avg_pool(x, 4); }},
      {"pool", [](Value x) { return max_pool1d(x, 2); }},
      {"reflect", [](Value x) { return pad(x, {0, 2, 2}, {0, 0, 3}, PaddingMode::reflect); }},
      {"replicate", [](Value x) { return pad(x, {0, 0, 2}, {0, 0, 1}, PaddingMode::replicate); }},
      {"circular", [](Value x) { return pad(x, {0, 1, 2}, {0, 3, 6}, PaddingMode::circular); }},
      {"variance", [](Value x) { return variance(x, {0, 2}); }},
      {"top_k", [](Value x) { return top_k(x, 2, 1).values; }},
      {"one_hot", [&](Value x) { return one_hot(labels(x), 3, DType::f64); }},
      {"gather", [](Value x) { return gather(x, 2, argmax(x, 2, true)); }},
      {"embedding", [&](Value x) { return embedding(labels(x), squeeze(slice(permute(x, {1, 0, 2}), 1, 0, 1), 1)); }},
      {"grid_sample", [](Value x) { return grid_sample(x, slice(x, 2, 0, 1)); }},
      {"index_select", [&](Value x) { return index_select(x, 2, labels(slice(x, 0, 0, 1))); }},
      {"sort", [](Value x) { return sort(x, 0).values; }},
      {"cumulative_sum", [](Value x) { return cumulative_sum(x, 2); }},
      {"class weights",
       [&](Value x) {
         const Value weights = x.emitter().constant(Tensor::from({1.0, 2.0, 3.0}, {3}));
         return cross_entropy(x, labels(x), {.class_weights = weights});
       }},
      {"attention", [](Value x) { return nn::multi_head_attention(Scope(Graph::of(x), "a", DType::f64), x, {.num_heads = 2}); }},
  };
  for (const auto& [name, function] : functions) expect_to_follow(name, function, {2, 3, 6}, {4, 3, 6});
}

TEST(FunctionsSizes, FollowTheLength) {
  const std::vector<std::pair<const char*, OfOne>> functions = {
      {"unsqueeze", [](Value x) { return unsqueeze(x, 2); }},
      {"pool", [](Value x) { return max_pool1d(x, 2); }},
      {"variance", [](Value x) { return variance(x, 2); }},
      {"gather", [](Value x) { return gather(x, 1, argmax(x, 1, true)); }},
      {"sort", [](Value x) { return sort(x).values; }},
      {"cumulative_sum", [](Value x) { return cumulative_sum(x, 2); }},
  };
  for (const auto& [name, function] : functions) expect_to_follow(name, function, {2, 3, 6}, {2, 3, 12});
  const auto attention = [](Value x) { return nn::multi_head_attention(Scope(Graph::of(x), "a", DType::f64), x, {.num_heads = 2}); };
  expect_to_follow("attention", attention, {2, 3, 6}, {2, 6, 6});
  // What holds for one length alone says so, and does not take two lengths for two images.
  Graph graph;
  graph.output("y", flip(graph.input("x", {2, 3, 6}), 2));
  Program program(graph, std::make_shared<State>());
  EXPECT_THROW(program.run({{"x", Tensor::zeros({2, 3, 12})}}), Error);
}

}  // namespace
}  // namespace frit

// Functions that are made of several operators, and layers, on golden files: see tests/golden/make_functions.py, which has the same cases
// in PyTorch.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "frit/autograd/gradient.h"
#include "frit/core/cuda/device.h"
#include "frit/core/io/safetensors.h"
#include "frit/graph/program.h"
#include "frit/models/runtime.h"

namespace frit {
namespace {

/// What a case calls, from its inputs; parameters that it makes have the file's values.
using Function = std::function<Value(const Scope&, const Values&)>;
using Functions = std::map<std::string, Function>;

/// Of inputs alone.
Function of(std::function<Value(const Values&)> function) {
  return [=](const Scope&, const Values& v) { return function(v); };
}
Function first(std::function<Value(Value)> function) {
  return [=](const Scope&, const Values& v) { return function(v[0]); };
}

Functions shape() {
  Functions all = {
      {"split", first([](Value x) {
         Values parts = split(x, 3, 2);
         for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = parts[i] * static_cast<double>(i + 1);
         return concatenate(parts, 2);
       })},
      {"split_sizes", first([](Value x) {
         return split(x, {1, 2}, 1)[1];
       })},
      {"stack", of([](const Values& v) { return stack(v, 1); })},
      {"stack_last", of([](const Values& v) { return stack(v, -1); })},
      {"squeeze", first([](Value x) { return squeeze(x); })},
      {"squeeze_axis", first([](Value x) { return squeeze(x, {-2}); })},
      {"unsqueeze", first([](Value x) { return unsqueeze(x, -2); })},
      {"select", first([](Value x) { return select(x, 1, 2); })},
      {"select_back", first([](Value x) { return select(x, 2, -3); })},
      {"tile", first([](Value x) {
         return tile(x, {2, 1, 3});
       })},
      {"flip_last", first([](Value x) { return flip(x, -1); })},
      {"roll", first([](Value x) { return roll(x, 3, 2); })},
      {"roll_back", first([](Value x) { return roll(x, -5, 1); })},
      {"stop_gradient", first([](Value x) { return x * stop_gradient(x); })},
  };
  for (const char* size : {"1", "2", "5", "6", "7", "12"}) all[concat("flip_", size)] = first([](Value x) { return flip(x, 1); });
  return all;
}

Functions padding() {
  return {
      {"reflect", first([](Value x) {
         return pad(x, {0, 0, 4, 3}, {0, 0, 0, 1}, PaddingMode::reflect);
       })},
      {"replicate", first([](Value x) {
         return pad(x, {0, 0, 0, 6}, {0, 0, 2, 1}, PaddingMode::replicate);
       })},
      {"circular", first([](Value x) {
         return pad(x, {0, 0, 0, 4}, {0, 0, 5, 1}, PaddingMode::circular);
       })},
      {"reflect_3d", first([](Value x) {
         return pad(x, {0, 0, 2, 1, 1}, {0, 0, 0, 1, 3}, PaddingMode::reflect);
       })},
  };
}

Functions mathematics() {
  const auto two = [](Value (*function)(Value, Value)) { return of([=](const Values& v) { return function(v[0], v[1]); }); };
  return {
      {"prelu", two(prelu)},
      {"prelu_one", two(prelu)},
      {"logical_not", first(logical_not)},
      {"logical_and", two(logical_and)},
      {"logical_or", two(logical_or)},
      {"logical_xor", two(logical_xor)},
      {"less", first([](Value x) { return less(x, 0.25); })},
      {"greater_equal", first([](Value x) { return greater_equal(x, 4); })},
      {"where_number", of([](const Values& v) { return where(v[0], v[1], 2.5); })},
  };
}

Functions reduction() {
  Functions all = {
      {"variance", first([](Value x) { return variance(x); })},
      {"variance_axes", first([](Value x) {
         return variance(x, {0, 2}, true, 0);
       })},
      {"variance_far", first([](Value x) { return variance(x, {-1}); })},
      {"standard_deviation", first([](Value x) { return standard_deviation(x, {1}); })},
      {"standard_deviation_zero", first([](Value x) { return standard_deviation(x, {1}); })},
      {"l2_norm", first([](Value x) {
         return l2_norm(x, {1, 2});
       })},
      {"l2_norm_zero", first([](Value x) { return l2_norm(x, {1}, true); })},
      {"argmin", first([](Value x) { return argmin(x, 1); })},
      {"one_hot", first([](Value x) { return one_hot(x, 4); })},
      {"one_hot_axis", first([](Value x) { return one_hot(x, 5, DType::f64, 1); })},
      {"gather", of([](const Values& v) { return gather(v[0], 1, v[1]); })},
      {"gather_repeated", of([](const Values& v) { return gather(v[0], -1, v[1]); })},
      {"top_k", first([](Value x) { return top_k(x, 3, 1).values; })},
      {"top_k_indices", first([](Value x) { return top_k(x, 5).indices; })},
      {"embedding", of([](const Values& v) { return embedding(v[0], v[1]); })},
  };
  for (const char* lines : {"1", "2", "7", "8", "integers"}) {
    all[concat("cumulative_sum_", lines)] = first([](Value x) { return cumulative_sum(x, 1); });
  }
  return all;
}

Functions indexing() {
  return {
      {"index_select", of([](const Values& v) { return index_select(v[0], 1, v[1]); })},
      {"index_select_of_rank_2", of([](const Values& v) { return index_select(v[0], -2, v[1]); })},
      {"index_select_one", of([](const Values& v) { return index_select(v[0], 2, v[1]); })},
      {"gather_more", of([](const Values& v) { return gather(v[0], 1, v[1]); })},
      {"sort", first([](Value x) { return sort(x, 1).values; })},
      {"argsort", first([](Value x) { return argsort(x); })},
      {"argsort_descending", first([](Value x) { return argsort(x, 1, /*descending=*/true); })},
      {"argsort_first_axis", first([](Value x) { return argsort(x, 0); })},
      {"least_k", first([](Value x) { return top_k(x, 2, -2, /*largest=*/false).values; })},
      {"least_k_indices", first([](Value x) { return top_k(x, 4, 1, /*largest=*/false).indices; })},
      {"cumulative_product_of_sums", first([](Value x) { return cumulative_sum(x, 0) * cumulative_sum(x, -1, false, /*reverse=*/true); })},
  };
}

Functions one_axis() {
  const auto batch_norm = [](const Scope& s, const Values& v) { return nn::batch_norm(s, v[0]); };
  return {
      {"conv1d", of([](const Values& v) { return conv1d(v[0], v[1], v[2]); })},
      {"conv1d_options",
       of([](const Values& v) { return conv1d(v[0], v[1], {}, {.stride = {2}, .padding = {3}, .dilation = {2}, .groups = 2}); })},
      {"conv_transpose1d", of([](const Values& v) { return conv_transpose1d(v[0], v[1], v[2]); })},
      {"conv_transpose1d_options", of([](const Values& v) {
         return conv_transpose1d(v[0], v[1], {}, {.stride = {3}, .padding = {1}, .output_padding = {1}, .groups = 2});
       })},
      {"max_pool1d", first([](Value x) { return max_pool1d(x, {.kernel_size = {3}, .stride = {2}, .padding = {1}}); })},
      {"avg_pool1d", first([](Value x) { return avg_pool1d(x, {.kernel_size = {2}}); })},
      {"group_norm", of([](const Values& v) { return group_norm(v[0], 2, v[1], v[2]); })},
      {"instance_norm", of([](const Values& v) { return instance_norm(v[0], v[1], v[2]); })},
      {"batch_norm", batch_norm},
      {"batch_norm_of_rank_2", batch_norm},
  };
}

/// By names such as "linear_border_2d_corners".
Functions grid_sample_named(const std::vector<std::string>& names) {
  const auto has = [](const std::string& name, const char* part) { return name.find(part) != std::string::npos; };
  using Padding = GridSampleOptions::Padding;
  Functions all;
  for (const std::string& name : names) {
    const GridSampleOptions options{.mode = has(name, "nearest") ? ResizeMode::nearest
                                            : has(name, "cubic") ? ResizeMode::cubic
                                                                 : ResizeMode::linear,
                                    .padding = has(name, "zeros")    ? Padding::zeros
                                               : has(name, "border") ? Padding::border
                                                                     : Padding::reflection,
                                    .align_corners = has(name, "corners")};
    all[name] = of([options](const Values& v) { return grid_sample(v[0], v[1], options); });
  }
  return all;
}

/// By names such as "linear_corners_size_7x3" and "cubic_factor2_1.7".
Functions resize_named(const std::vector<std::string>& names) {
  Functions all;
  for (const std::string& name : names) {
    ResizeOptions options{.mode = name.starts_with("nearest")  ? ResizeMode::nearest
                                  : name.starts_with("linear") ? ResizeMode::linear
                                                               : ResizeMode::cubic,
                          .align_corners = name.find("corners") != std::string::npos};
    std::istringstream numbers(name.substr(name.rfind('_') + 1));
    if (name.find("factor") != std::string::npos) {
      numbers >> options.scale_factor.emplace_back();
    } else {
      for (std::string size; std::getline(numbers, size, 'x');) options.size.push_back(std::stoll(size));
    }
    all[name] = first([options](Value x) { return resize(x, options); });
  }
  return all;
}

Functions adaptive() {
  const std::map<std::string, Dims> sizes = {{"1d", {3}},           {"2d_equal", {3, 5}}, {"2d", {4, 3}},
                                             {"2d_larger", {6, 8}}, {"3d", {2}},          {"ties", {3}}};
  Functions all;
  for (const auto& [name, size] : sizes) {
    all["max_" + name] = first([wanted = size](Value x) { return adaptive_max_pool(x, wanted); });
    if (name != "ties") all["avg_" + name] = first([wanted = size](Value x) { return adaptive_avg_pool(x, wanted); });
  }
  return all;
}

Functions loss() {
  const auto classes = [](const ClassLossOptions& options, bool log_probabilities = false) {
    return of([=](const Values& v) {
      ClassLossOptions given = options;
      if (v.size() > 2) given.class_weights = stop_gradient(v[2]);
      return log_probabilities ? nll_loss(v[0], v[1], given) : cross_entropy(v[0], v[1], given);
    });
  };
  const auto two = [](std::function<Value(Value, Value)> function) { return of([=](const Values& v) { return function(v[0], v[1]); }); };
  const auto dice = [&](const DiceOptions& options) { return two([=](Value p, Value t) { return dice_loss(p, t, options); }); };
  const ClassLossOptions ignoring{.ignore_index = -100, .label_smoothing = 0.3};
  ClassLossOptions ignoring_none = ignoring;
  ignoring_none.reduction = Reduction::none;
  return {
      {"weighted", classes({})},
      {"weighted_sum", classes({.reduction = Reduction::sum})},
      {"ignored", classes({.ignore_index = -100})},
      {"ignored_class", classes({.ignore_index = 2, .reduction = Reduction::none})},
      {"smoothed", classes({.label_smoothing = 0.1})},
      {"all_options", classes(ignoring)},
      {"all_options_none", classes(ignoring_none)},
      {"nll", classes({}, true)},
      {"nll_options", classes({.ignore_index = -100}, true)},
      {"kl_divergence", two([](Value p, Value t) { return kl_divergence(p, t); })},
      {"kl_divergence_zeros", two([](Value p, Value t) { return kl_divergence(p, stop_gradient(t), Reduction::sum); })},
      {"huber", two([](Value p, Value t) { return huber_loss(p, t, 0.7); })},
      {"huber_none", two([](Value p, Value t) { return huber_loss(p, t, 1, Reduction::none); })},
      {"smooth_l1", two([](Value p, Value t) { return smooth_l1_loss(p, t, 0.6); })},
      {"smooth_l1_zero", two([](Value p, Value t) { return smooth_l1_loss(p, t, 0, Reduction::sum); })},
      {"focal", two([](Value p, Value t) { return focal_loss(p, t); })},
      {"focal_plain", two([](Value p, Value t) { return focal_loss(p, t, {.alpha = -1, .gamma = 1.5, .reduction = Reduction::sum}); })},
      {"dice", dice({})},
      {"dice_sigmoid", dice({.activation = DiceActivation::sigmoid, .smooth = 1e-5, .reduction = Reduction::none})},
      {"dice_batch", dice({.activation = DiceActivation::none, .smooth = 0.5, .over_batch = true, .reduction = Reduction::sum})},
  };
}

Functions attention() {
  const auto masked = of([](const Values& v) { return scaled_dot_product_attention(v[0], v[1], v[2], {.mask = v[3]}); });
  return {
      {"attention", of([](const Values& v) { return scaled_dot_product_attention(v[0], v[1], v[2]); })},
      {"attention_causal", of([](const Values& v) { return scaled_dot_product_attention(v[0], v[1], v[2], {.causal = true}); })},
      {"attention_mask", masked},
      {"attention_bias", masked},
      {"self_attention", [](const Scope& s, const Values& v) { return nn::multi_head_attention(s, v[0], {.num_heads = 2}); }},
      {"cross_attention",
       [](const Scope& s, const Values& v) { return nn::multi_head_attention(s, v[0], v[1], v[2], {.num_heads = 2, .bias = false}); }},
  };
}

Functions layers() {
  const auto convolution = [](Value (*layer)(const Scope&, Value, const nn::Convolution&), const nn::Convolution& options) -> Function {
    return [=](const Scope& s, const Values& v) { return layer(s, v[0], options); };
  };
  return {
      {"same", convolution(nn::conv2d, {.out_channels = 2, .kernel_size = {2, 3}, .dilation = {3, 1}, .same_padding = true})},
      {"same_reflect",
       convolution(nn::conv2d, {.out_channels = 2, .kernel_size = {4}, .same_padding = true, .padding_mode = PaddingMode::reflect})},
      {"circular",
       convolution(nn::conv2d,
                   {.out_channels = 2, .kernel_size = {3}, .stride = {2}, .padding = {1, 2}, .padding_mode = PaddingMode::circular})},
      {"conv1d_same", convolution(nn::conv1d, {.out_channels = 3, .kernel_size = {4}, .same_padding = true})},
      {"conv_transpose1d", convolution(nn::conv_transpose1d, {.out_channels = 3, .kernel_size = {4}, .stride = {2}})},
      {"embedding", [](const Scope& s, const Values& v) { return nn::embedding(s, v[0], {.num_embeddings = 5, .embedding_dim = 3}); }},
      {"prelu", [](const Scope& s, const Values& v) { return nn::prelu(s, v[0], 2); }},
  };
}

/// Equal but for rounding, relative to the largest number expected.
void expect_close(const Tensor& actual, const Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  const std::vector<double> got = actual.to_vector<double>(), wanted = expected.to_vector<double>();
  double largest = 1e-3;
  for (const double number : wanted) largest = std::max(largest, std::abs(number));
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tolerance * largest) << what << ", element " << i;
}

void expect_case(const TensorFile& file, const std::string& name, const Function& function, DType dtype, double tolerance, Device device) {
  const auto at = [&](const std::string& what) { return file.at(name + "." + what); };
  const auto typed = [&](const Tensor& tensor) { return is_floating(tensor.dtype()) ? tensor.to(dtype) : tensor; };
  Graph graph;
  Bindings bindings;
  Values inputs;
  std::map<std::string, Value> wanted;
  for (int i = 0; file.find(concat(name, ".input.", i)); ++i) {
    const Tensor tensor = typed(at(concat("input.", i)));
    inputs.push_back(graph.input(concat(i), tensor.shape(), tensor.dtype()));
    bindings[concat(i)] = tensor;
    if (is_floating(tensor.dtype())) wanted[concat(i)] = inputs.back();
  }
  const Value output = function(Scope(graph, "", dtype), inputs);
  graph.output("output", output);
  auto state = std::make_shared<State>(device);
  state->prepare(graph);
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) {
    if (!node->trainable) continue;
    state->set(node->name, typed(at("param." + node->name)));
    wanted[node->name] = graph.value(node->outputs[0]);
  }
  if (file.find(name + ".cotangent")) {
    const Value seed = graph.constant(typed(at("cotangent")));
    for (const auto& [key, value] : wanted)
      graph.output("grad." + key, gradient(std::span(&output, 1), std::span(&seed, 1), std::span(&value, 1))[0]);
  }
  Program program(std::move(graph), state);
  const graph::Executable& run = program.run(bindings);
  expect_close(run.output("output").to(Device::cpu()), at("output"), tolerance, name);
  for (const auto& [key, value] : wanted) {
    if (file.find(name + ".cotangent"))
      expect_close(run.output("grad." + key).to(Device::cpu()), at("grad." + key), tolerance, concat(name, " grad.", key));
  }
}

class GoldenFunctions : public testing::TestWithParam<std::string> {
 protected:
  GoldenFunctions()
      : file_(read_safetensors(
            (std::filesystem::path(FRIT_SOURCE_DIR) / "tests/golden/functions" / (GetParam() + ".safetensors")).string())) {
    std::istringstream text(file_.metadata().at("cases"));
    for (std::string name; text >> name;) names_.push_back(name);
  }

  Functions functions() const {
    const std::map<std::string, Functions (*)()> families = {
        {"shape", shape},       {"padding", padding}, {"mathematics", mathematics}, {"reduction", reduction}, {"one_axis", one_axis},
        {"adaptive", adaptive}, {"loss", loss},       {"attention", attention},     {"layers", layers},       {"indexing", indexing}};
    if (GetParam() == "grid_sample") return grid_sample_named(names_);
    return GetParam() == "resize" ? resize_named(names_) : families.at(GetParam())();
  }

  void expect_agreement(DType dtype, double tolerance, Device device = {}) const {
    const Functions all = functions();
    EXPECT_EQ(all.size(), names_.size());
    for (const std::string& name : names_) {
      if (dtype == DType::f64 || name.find("far") == std::string::npos) expect_case(file_, name, all.at(name), dtype, tolerance, device);
    }
  }

  TensorFile file_;
  std::vector<std::string> names_;
};

TEST_P(GoldenFunctions, AgreeInFloat64) { expect_agreement(DType::f64, 1e-10); }
TEST_P(GoldenFunctions, AgreeInFloat32) { expect_agreement(DType::f32, 1e-5); }
TEST_P(GoldenFunctions, AgreeOnCuda) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  expect_agreement(DType::f64, 1e-10, {DeviceKind::cuda, 0});
}

INSTANTIATE_TEST_SUITE_P(Family, GoldenFunctions,
                         testing::Values("shape", "padding", "mathematics", "reduction", "one_axis", "resize", "adaptive", "loss",
                                         "attention", "layers", "indexing", "grid_sample"),
                         [](const testing::TestParamInfo<std::string>& family) { return family.param; });

}  // namespace
}  // namespace frit

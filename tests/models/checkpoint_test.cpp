#include "frit/models/training/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "frit/ops/loss/loss.h"

namespace frit {
namespace {

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() : path_(std::filesystem::temp_directory_path() / concat("frit_checkpoint_", ::getpid(), ".safetensors")) {}
  ~Checkpoint() override { std::filesystem::remove(path_); }

  static void build(Graph& graph, const Model& model) { model.add_to(Scope(graph), model.small_input).at("output"); }

  std::string restore_error(const TensorMap& tensors, const Metadata& metadata = {}) {
    write_safetensors(path_, tensors, metadata);
    State state;
    state.prepare(graph_);
    const std::vector<double> before = state.at("multiplier").to_vector<double>();
    try {
      restore(read_safetensors(path_), graph_, state);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::format);
      EXPECT_EQ(state.at("multiplier").to_vector<double>(), before) << "half a model was loaded";
      return error.what();
    }
    return "no error";
  }

  std::string path_;
  Model model_ = make_model("conv3d-instnorm-max", R"({"in_channels": 1, "out_channels": 2, "kernel_size": 2})");
  Graph graph_;
};

TEST_F(Checkpoint, RoundTrips) {
  build(graph_, model_);
  State saved(Device::cpu(), 1), loaded(Device::cpu(), 2);
  saved.prepare(graph_);
  loaded.prepare(graph_);
  save_checkpoint(path_, graph_, saved, checkpoint_metadata(model_));
  const TensorFile file = read_safetensors(path_);
  EXPECT_EQ(model_of(file).config, model_.config);
  EXPECT_TRUE(restore(file, graph_, loaded).empty());
  for (const auto& [name, tensor] : saved.tensors()) EXPECT_EQ(loaded.at(name).to_vector<double>(), tensor.to_vector<double>()) << name;
}

TEST_F(Checkpoint, HoldsTheModelNotTheOptimizer) {
  const Value output = model_.add_to(Scope(graph_), model_.small_input).at("output");
  TrainStep step(mean_squared_error(output, graph_.input("target", output.shape())), Adam{});
  save_checkpoint(path_, step, checkpoint_metadata(model_));
  const SafetensorsHeader header = read_safetensors_header(path_);
  ASSERT_EQ(header.size(), 3u);
  EXPECT_EQ(header.entry(0).name, "conv.bias");
  EXPECT_EQ(header.entry(1).name, "conv.weight");
  EXPECT_EQ(header.entry(2).name, "multiplier");
}

TEST_F(Checkpoint, NamesAllThatDoesNotFit) {
  build(graph_, model_);
  const std::string message = restore_error({{"conv.weight", Tensor::zeros({1, 2, 2, 2, 2})}, {"conv.other", Tensor::zeros({2})}},
                                            {{"model", "convt3d-logsumexp"}});
  EXPECT_NE(message.find("missing: \"multiplier\" (2x1x1x1), \"conv.bias\" (2)"), std::string::npos) << message;
  EXPECT_NE(message.find("\"conv.weight\" expected 2x1x2x2x2, got 1x2x2x2x2 (the sizes are permuted"), std::string::npos) << message;
  EXPECT_NE(message.find("unexpected: \"conv.other\""), std::string::npos) << message;
  EXPECT_NE(message.find("the file says it is of model \"convt3d-logsumexp\""), std::string::npos) << message;
}

TEST_F(Checkpoint, NamesEverythingThatIsMissingAndTheFirstOfWhatIsUnexpected) {
  build(graph_, model_);
  TensorMap strangers;
  for (char c = 'a'; c <= 'l'; ++c) {
    graph_.variable({'p', c}, {DType::f32, {2}}, [](const Tensor&, std::uint64_t) {});
    strangers[{'s', c}] = Tensor::zeros({1});
  }
  const std::string message = restore_error(strangers, {});
  EXPECT_NE(message.find("\"pj\" (2), \"pk\" (2), \"pl\" (2); unexpected: \"sa\", "), std::string::npos) << message;
  EXPECT_TRUE(message.ends_with("\"si\", \"sj\" and 2 more")) << message;
}

TEST_F(Checkpoint, ConvertsAndRemarksOnWhatIsNotFinite) {
  build(graph_, model_);
  State state;
  state.prepare(graph_);
  write_safetensors(path_, {{"multiplier", Tensor::from<double>({1, NAN}, {2, 1, 1, 1})},
                            {"conv.weight", Tensor::zeros({2, 1, 2, 2, 2})},
                            {"conv.bias", Tensor::zeros({2})},
                            {"extra", Tensor::zeros({1})}});
  const std::vector<std::string> remarks = restore(read_safetensors(path_), graph_, state, {.allow_extra = true});
  ASSERT_EQ(remarks.size(), 2u);
  EXPECT_EQ(remarks[0], "1 tensor converted from f64 to f32: \"multiplier\"");
  EXPECT_EQ(remarks[1], "tensor \"multiplier\" has 1 values that are NaN or infinite, the first at 1");
}

TEST_F(Checkpoint, TheModelIsThatOfTheTensors) {
  const auto message = [&](const Shape& multiplier, const std::string& prefix) -> std::string {
    write_safetensors(path_,
                      {{"a.multiplier", Tensor::zeros(multiplier)},
                       {"a.conv.weight", Tensor::zeros({2, 1, 2, 2, 2})},
                       {"a.conv.bias", Tensor::zeros({2})},
                       {"input", Tensor::zeros({1})}},
                      checkpoint_metadata(model_));
    try {
      return model_of(read_safetensors_header(path_), prefix).config;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::format);
      return error.what();
    }
  };
  EXPECT_EQ(message({2, 1, 1, 1}, "a."), model_.config);
  EXPECT_NE(message({3, 1, 1, 1}, "a.").find("wrong shape: \"a.multiplier\" expected 2x1x1x1, got 3x1x1x1; unexpected: \"input\""),
            std::string::npos);
  EXPECT_NE(message({2, 1, 1, 1}, "").find("missing: \"multiplier\" (2x1x1x1), "), std::string::npos);
}

}  // namespace
}  // namespace frit

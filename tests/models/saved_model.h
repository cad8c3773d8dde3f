#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "frit/core/random.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/models/checkpoint.h"

namespace frit {

/// A model with fresh parameters, their checkpoint, and what it computes.
class SavedModel : public testing::Test {
 protected:
  explicit SavedModel(Model model)
      : path_(std::filesystem::temp_directory_path() / concat("frit_saved_model_", ::getpid(), ".safetensors")), model_(std::move(model)) {
    build(graph_, model_.ample_input());
    state_->prepare(graph_);
    save_checkpoint(path_, graph_, *state_, checkpoint_metadata(model_));
  }
  ~SavedModel() override { std::filesystem::remove(path_); }

  static Tensor input(const Shape& shape, std::uint64_t seed) {
    const Tensor tensor = Tensor::empty(shape);
    fill_normal(tensor, 0, 1, seed, 0);
    return tensor;
  }

  std::vector<float> expected(const Tensor& input) const {
    Graph graph;
    build(graph, input.shape());
    Program program(graph::for_inference(graph), state_);
    return program.run({{"input", input}}).output("output").to_vector<float>();
  }

  std::string path_;
  Model model_;

 private:
  void build(Graph& graph, const Shape& shape) const { graph.output("output", model_.add_to(Scope(graph), shape).at("output")); }

  Graph graph_;
  std::shared_ptr<State> state_ = std::make_shared<State>(Device::cpu(), 7);
};

}  // namespace frit

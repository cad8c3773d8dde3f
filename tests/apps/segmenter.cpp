// frit's program with two networks that say of each pixel what it is, one by the image alone.

#include "frit/command_line.h"
#include "frit/frit.h"

using namespace frit;

namespace {

struct Segmenter {
  std::int64_t width = 8;

  void fields(FieldVisitor& v) { v.field("width", width); }
};

Value segmenter(const Scope& scope, Value image, const Segmenter& config) {
  const Value x = relu(nn::conv2d(scope / "conv", image, {.out_channels = config.width, .kernel_size = {3}, .padding = {1}}));
  return nn::conv2d(scope / "head", x, {.out_channels = 2, .kernel_size = {1}});
}

Model describe(const Segmenter&) { return {.task = Model::Task::segmentation, .small_input = {2, 1, 6, 6}, .full_input = {16, 1, 64, 64}}; }

struct Patient {
  std::int64_t width = 8;
  bool before = false;  ///< there is an earlier image

  void fields(FieldVisitor& v) {
    v.field("width", width);
    v.field("before", before);
  }
};

/// Reads an image, age and weight, and which of three scanners it was; gives a mask and a diagnosis.
NamedValues patient(const Scope& scope, const NamedValues& inputs, const Patient& config) {
  const Value facts = nn::linear(scope / "facts", inputs.at("facts"), {.out_features = config.width});
  const Value scanner = nn::embedding(scope / "scanner", inputs.at("scanner"), {.num_embeddings = 3, .embedding_dim = config.width});
  const nn::Convolution layer{.out_channels = config.width, .kernel_size = {3}, .padding = {1}};
  Value x = nn::conv2d(scope / "conv", inputs.at("input"), layer) + reshape(facts + scanner, {-1, config.width, 1, 1});
  if (config.before) x = x + nn::conv2d(scope / "before", inputs.at("before"), layer);
  x = relu(x);
  return {{"output", nn::conv2d(scope / "head", x, {.out_channels = 2, .kernel_size = {1}})},
          {"diagnosis", nn::linear(scope / "diagnosis", mean(x, {2, 3}), {.out_features = 3})}};
}

Model describe_patient(const Patient& config) {
  Model model = describe({});
  model.side_inputs = {{"facts", {2}}, {"scanner", {}, DType::i64}};
  if (config.before) model.side_inputs.push_back({"before", {1, -1, -1}});
  model.heads = {{"diagnosis", Model::Task::classification, 0.5}};
  return model;
}

}  // namespace

int main(int argc, char** argv) {
  add_model("segmenter", segmenter, describe);
  add_model("patient", patient, describe_patient);
  return run_command_line(argc, argv);
}

// frit's program with one network more: a small residual one that classifies images.

#include <frit/command_line.h>
#include <frit/frit.h>

using namespace frit;

namespace {

/// What `--model-config '{"width": 32}'` sets.
struct Residual {
  std::int64_t width = 16;
  std::int64_t blocks = 2;
  std::int64_t classes = 10;

  void fields(FieldVisitor& v) {
    v.field("width", width);
    v.field("blocks", blocks);
    v.field("classes", classes);
  }
};

Value block(const Scope& scope, Value x) {
  const nn::Convolution layer{.out_channels = x.dim(1), .kernel_size = {3}, .padding = {1}, .bias = false};
  const Value y = relu(nn::batch_norm(scope / "bn1", nn::conv2d(scope / "conv1", x, layer)));
  return relu(nn::batch_norm(scope / "bn2", nn::conv2d(scope / "conv2", y, layer)) + x);
}

/// (N, 1, H, W) -> logits (N, classes), for images of any size.
Value residual(const Scope& scope, Value image, const Residual& config) {
  Value x = nn::conv2d(scope / "stem", image, {.out_channels = config.width, .kernel_size = {3}, .stride = {2}, .padding = {1}});
  for (std::int64_t i = 0; i < config.blocks; ++i) x = block(scope / "blocks" / std::to_string(i), x);
  return nn::linear(scope / "head", mean(x, {2, 3}), {.out_features = config.classes});
}

Model describe(const Residual&) {
  return {.task = Model::Task::classification, .small_input = {2, 1, 6, 6}, .full_input = {128, 1, 28, 28}};
}

}  // namespace

int main(int argc, char** argv) {
  add_model("residual", residual, describe);
  return run_command_line(argc, argv);
}

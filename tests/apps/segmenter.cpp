// frit's program with a network that says of each pixel what it is.

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

}  // namespace

int main(int argc, char** argv) {
  add_model("segmenter", segmenter, describe);
  return run_command_line(argc, argv);
}

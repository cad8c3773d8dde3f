// Runs a model forward with nothing but frit::runtime, and leaves the checkpoint, the input and the output for infer.c and infer.py.

#include <frit/runtime.h>

#include <cstdio>
#include <fstream>

namespace {

void write(const char* path, const frit::Tensor& tensor) {
  std::ofstream(path, std::ios::binary).write(static_cast<const char*>(tensor.raw()), tensor.bytes());
}

/// What of a graph a GPU would run, which need not be there: the operators after the choice of lowerings, and which are computed once.
void explain(const frit::Graph& graph) {
  const frit::Graph lowered = frit::graph::apply_likely_lowerings(graph);
  const std::vector<bool> prepared = frit::graph::find_preparation(lowered);
  for (std::size_t n = 0; n < prepared.size(); ++n) {
    const frit::graph::Node& node = lowered.nodes()[n];
    if (node.op != nullptr) std::printf("%s%s\n", frit::graph::to_text(lowered, node).c_str(), prepared[n] ? ", once" : "");
  }
}

}  // namespace

int main() {
  using namespace frit;
  const Model model = make_model("conv2d-groupnorm-pool");
  Graph graph;
  graph.output("output", model.add_to(Scope(graph), model.small_input).at("output"));
  const auto state = std::make_shared<State>(Device::cpu());
  Program program(graph::for_inference(graph), state);
  explain(program.graph());
  const Tensor input = Tensor::empty(model.small_input);
  fill_normal(input, 0, 1, 0, 0);
  const Tensor& output = program.run({{"input", input}}).output("output");
  save_checkpoint("model.safetensors", graph, *state, checkpoint_metadata(model));
  write("input.bin", input);
  write("output.bin", output);
  float largest = 0;
  for (const float value : output.span<float>()) largest = value > largest ? value : largest;
  std::printf("largest %g of %lld\n", static_cast<double>(largest), static_cast<long long>(output.elements()));
  return largest > 0 && largest <= 1 ? 0 : 1;  // the model clamps to [0, 1]
}

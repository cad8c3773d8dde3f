#include <algorithm>
#include <span>

#include "frit/core/text.h"
#include "frit/models/model.h"
#include "frit/models/onnx/onnx_model.h"

namespace frit {
namespace {

/// What `frit` takes where the file leaves the image's size open.
Dims usual_image(int rank) { return Dims::filled(rank, rank == 1 ? 1024 : rank == 2 ? 224 : 32); }

std::string sizes_text(const OnnxPort& port) {
  std::string text;
  for (const std::int64_t size : port.sizes) text += concat(text.empty() ? "" : ", ", size < 0 ? "any" : std::to_string(size));
  return concat(port.dtype, " [", text, "]");
}

/// The first of the inputs that is of images.
const OnnxPort& image_input(const OnnxModel& onnx) {
  std::string found;
  for (const OnnxPort& input : onnx.inputs()) {
    if (input.dtype == DType::f32 && input.sizes.size() >= 3 && input.sizes[1] >= 1) return input;
    found += (found.empty() ? "" : ", ") + sizes_text(input);
  }
  fail(ErrorKind::format, onnx.name(), ": expected an input of images, f32 [N, C, ...], found ", found.empty() ? "no inputs" : found,
       "; import_onnx() takes any");
}

/// The others, which keep their names.
std::vector<Model::SideInput> side_inputs(const OnnxModel& onnx, const OnnxPort& image) {
  std::vector<Model::SideInput> sides;
  for (const OnnxPort& input : onnx.inputs()) {
    if (input.name == image.name) continue;
    bool fits = !input.sizes.empty() && (!is_floating(input.dtype) || input.dtype == DType::f32);
    for (std::size_t axis = 0; axis < input.sizes.size(); ++axis) {
      const bool open = input.sizes[axis] < 0, follows = axis >= 2 && input.sizes.size() == image.sizes.size();
      fits = fits && (axis == 0 ? open || input.sizes[0] == image.sizes[0] : !open || follows);
    }
    if (!fits) {
      fail(ErrorKind::format, onnx.name(), ": input \"", printable(input.name),
           "\": expected f32 or integers [N, ...] of known sizes, found ", sizes_text(input), "; import_onnx() takes any");
    }
    sides.push_back({input.name, Shape(std::span(input.sizes).subspan(1)), input.dtype});
  }
  return sides;
}

/// The outputs besides the first that are of a batch, and may be called so. Which task they have the file does not say, so they are not
/// learnt.
std::vector<Model::Head> heads(const OnnxModel& onnx, const OnnxPort& image, const Model& model) {
  std::vector<Model::Head> heads;
  for (const OnnxPort& output : std::span(onnx.outputs()).subspan(1)) {
    const bool batch = !output.sizes.empty() && (output.sizes[0] < 0 || output.sizes[0] == image.sizes[0]);
    if (batch && output.dtype == DType::f32 && model.has_free(output.name)) heads.push_back({.name = output.name, .weight = 0});
  }
  return heads;
}

/// The image's size, if the file fixes it.
Dims fixed_image(const OnnxModel& onnx, const OnnxPort& input) {
  Dims image;
  for (std::size_t i = 2; i < input.sizes.size(); ++i) {
    if (input.sizes[i] >= 0) image.push_back(input.sizes[i]);
  }
  if (!image.empty() && image.rank() + 2 != static_cast<int>(input.sizes.size())) {
    fail(ErrorKind::format, onnx.name(), ": its input's size is fixed along some of the image's axes alone; import_onnx() takes any");
  }
  return image;
}

NamedValues build(const OnnxModel& onnx, const std::string& image, const std::vector<Model::Head>& heads, const Scope& scope,
                  NamedValues inputs) {
  const Value input = inputs.at("input");
  auto node = inputs.extract("input");
  node.key() = image;  // as the file calls it
  inputs.insert(std::move(node));
  const Values results = onnx.add_to(scope, inputs);
  NamedValues outputs = {{"output", results.at(0)}};
  for (std::size_t i = 1; i < results.size(); ++i) {
    const bool named = std::any_of(heads.begin(), heads.end(), [&](const auto& head) { return head.name == onnx.outputs()[i].name; });
    if (named) outputs[onnx.outputs()[i].name] = results[i];
  }
  // What was exported for one batch size may have it in a reshape.
  const Shape& shape = outputs.at("output").shape();
  const bool fits = shape.rank() > 0 && shape[0] == input.dim(0);
  if (!fits) fail(ErrorKind::format, onnx.name(), ": a batch of ", input.dim(0), " gives an output of shape ", shape);
  return outputs;
}

/// Leaves out heads that are found not to be of a batch.
void keep_heads_of_batches(Model& model) {
  if (model.heads.empty()) return;
  const Shape& input = model.small_input;
  Graph graph;
  const Scope scope(graph);
  const NamedValues outputs = model.build(scope, model.add_inputs(scope, input));
  std::erase_if(model.heads, [&](const Model::Head& head) {
    const Shape& shape = outputs.at(head.name).shape();
    return shape.rank() == 0 || shape[0] != input[0];
  });
}

Model model_of_onnx(const std::string& path) {
  const OnnxModel onnx(path);
  if (onnx.outputs().empty()) fail(ErrorKind::format, onnx.name(), ": it has no output");
  const OnnxPort& input = image_input(onnx);
  Model model;
  model.image_size = fixed_image(onnx, input);
  const int rank = static_cast<int>(input.sizes.size()) - 2;
  const auto images = [&](std::int64_t batch) {
    Shape shape = {input.sizes[0] > 0 ? input.sizes[0] : batch, input.sizes[1]};
    for (const std::int64_t size : model.image_size.empty() ? usual_image(rank) : model.image_size) shape.push_back(size);
    return shape;
  };
  model.small_input = images(2);  // a batch norm that trains on pooled images refuses one example
  model.full_input = images(32);
  model.has_parameters = true;
  model.follows_shapes = false;
  model.side_inputs = side_inputs(onnx, input);
  model.heads = heads(onnx, input, model);
  const auto build_with = [&](const std::vector<Model::Head>& all) {
    return
        [onnx, image = input.name, all](const Scope& scope, const NamedValues& inputs) { return build(onnx, image, all, scope, inputs); };
  };
  model.build = build_with(model.heads);
  keep_heads_of_batches(model);
  model.build = build_with(model.heads);
  const bool logits = onnx.outputs()[0].sizes.size() == 2;
  if (logits) model.task = Model::Task::classification;
  return model;
}

}  // namespace

void add_onnx_format() {
  if (!names_model_file(".onnx")) add_model_format(".onnx", model_of_onnx);
}

}  // namespace frit

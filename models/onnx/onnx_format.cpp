#include "frit/core/text.h"
#include "frit/models/model.h"
#include "frit/models/onnx/onnx_model.h"

namespace frit {
namespace {

/// What `frit` takes where the file leaves the image's size open.
Dims usual_image(int rank) { return Dims::filled(rank, rank == 1 ? 1024 : rank == 2 ? 224 : 32); }

const OnnxPort& image_input(const OnnxModel& onnx) {
  const auto refuse = [&](const auto&... found) {
    fail(ErrorKind::format, onnx.name(), ": expected one input of images, f32 [N, C, ...], found ", found...);
  };
  if (onnx.inputs().size() != 1) refuse(onnx.inputs().size(), " inputs; import_onnx() takes any");
  const OnnxPort& input = onnx.inputs()[0];
  std::string sizes;
  for (const std::int64_t size : input.sizes) sizes += concat(sizes.empty() ? "" : ", ", size < 0 ? "any" : std::to_string(size));
  if (input.dtype != DType::f32 || input.sizes.size() < 3 || input.sizes[1] < 1)
    refuse(input.dtype, " [", sizes, "]; import_onnx() takes any");
  return input;
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

Value build(const OnnxModel& onnx, const Scope& scope, Value input) {
  const Value output = onnx.add_to(scope, {{onnx.inputs()[0].name, input}}).at(0);
  // What was exported for one batch size may have it in a reshape.
  const bool fits = output.rank() > 0 && output.dim(0) == input.dim(0);
  if (!fits) fail(ErrorKind::format, onnx.name(), ": a batch of ", input.dim(0), " gives an output of shape ", output.shape());
  return output;
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
  model.build = [onnx](const Scope& scope, Value image) { return build(onnx, scope, image); };
  const bool logits = onnx.outputs()[0].sizes.size() == 2;
  if (logits) model.task = Model::Task::classification;
  return model;
}

}  // namespace

void add_onnx_format() {
  if (!names_model_file(".onnx")) add_model_format(".onnx", model_of_onnx);
}

}  // namespace frit

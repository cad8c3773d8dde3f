#include "frit/models/onnx/onnx_model.h"
#include "fuzz/fuzzing.h"

namespace frit {

FRIT_FUZZ_TARGET(onnx) {
  const OnnxModel model(std::as_bytes(std::span(bytes)), "input");
  const Graph graph = import_onnx(model);
  graph::verify(graph);
  // For other sizes where the file leaves them open.
  OnnxOptions options;
  for (const OnnxPort& input : model.inputs()) {
    Shape shape;
    for (const std::int64_t size : input.sizes) shape.push_back(size < 0 ? 3 : size);
    if (input.has_shape) options.shapes[input.name] = shape;
  }
  graph::verify(import_onnx(model, options));
}

}  // namespace frit

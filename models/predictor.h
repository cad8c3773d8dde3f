#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frit/graph/program.h"
#include "frit/models/model.h"

namespace frit {

struct PredictorOptions {
  Device device = Device::best();
  /// f32 or f64: of parameters and computation; f16 or bf16: f32 with activations stored in halves (see graph::lower_precision).
  DType precision = DType::f32;
};

/// A checkpoint's model, or a file's of another format (see add_model_format), ready to run forward:
///   Predictor classify("weights.safetensors");
///   Tensor logits = classify(images);
/// The first call for other sizes than before compiles, and keeps memory for them. One call at a time.
class Predictor {
 public:
  /// Throws ErrorKind::file_system and ErrorKind::format for what cannot be read, ErrorKind::argument for another precision.
  explicit Predictor(const std::string& checkpoint, const PredictorOptions& options = {});

  const Model& model() const { return model_; }
  /// Of inputs and outputs: f32, or f64. Side inputs of integers keep their dtype.
  DType dtype() const { return dtype_; }
  /// Of "output". Throws ErrorKind::argument unless the model takes an "input" (N, C, ...) of this shape.
  Shape output_shape(const Shape& input) { return output_shapes(input).at("output"); }
  /// "output", on the CPU, of a model that reads nothing besides its image. The input may lie on any device, and is converted to `dtype()`.
  /// Throws ErrorKind::argument as output_shape does, and naming the other inputs of a model that has some.
  Tensor operator()(const Tensor& input) { return (*this)(Bindings{{"input", input}}).at("output"); }
  /// All outputs by name, likewise, of all inputs by name.
  Bindings operator()(const Bindings& inputs);

 private:
  using Shapes = std::map<std::string, Shape>;
  const Shapes& output_shapes(const Shape& input);

  Model model_;
  DType dtype_;
  std::unique_ptr<Program> program_;                     ///< serves all sizes
  std::map<std::vector<std::int64_t>, Shapes> outputs_;  ///< by some of the sizes that were asked for
};

}  // namespace frit

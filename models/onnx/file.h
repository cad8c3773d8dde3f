#pragma once

#include "frit/models/onnx/onnx_model.h"
#include "frit/models/onnx/schema.h"

namespace frit::onnx {

/// What an ONNX file holds, checked as far as can be without a graph.
class File {
 public:
  std::string name;    ///< fit to print
  std::string folder;  ///< of external data; empty for a model in memory
  std::int64_t opset = 1;
  ModelProto model;
  std::map<std::string, Tensor> initializers;
  std::vector<OnnxPort> inputs, outputs;
};

}  // namespace frit::onnx

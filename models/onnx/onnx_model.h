#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "frit/models/scope.h"

namespace frit {

namespace onnx {
class File;
}

/// An input or output that an ONNX file declares.
struct OnnxPort {
  std::string name;
  DType dtype = DType::f32;         ///< booleans are u8
  bool has_shape = false;           ///< the file says how many axes there are
  std::vector<std::int64_t> sizes;  ///< -1: any
};

/// An ONNX model (operator sets 7 to 28; much of 1 to 6 too), read and ready to become part of graphs.
///   OnnxModel model("resnet18.onnx");
///   Values logits = model.add_to(Scope(graph), {{"input", graph.input("input", {8, 3, 224, 224})}});
/// Copies share what was read.
class OnnxModel {
 public:
  /// Throws ErrorKind::file_system for a file that cannot be read; ErrorKind::format for one that is not an ONNX model, or whose tensors
  /// are not all there, or lie in files outside of the model's folder.
  explicit OnnxModel(const std::string& path);
  /// From memory: `name` stands in messages. Such a model has no external data.
  OnnxModel(std::span<const std::byte> bytes, const std::string& name);

  const std::string& name() const;              ///< the file's, fit to print
  std::int64_t opset() const;                   ///< version of the standard operators
  const std::vector<OnnxPort>& inputs() const;  ///< those that have no initialiser
  const std::vector<OnnxPort>& outputs() const;
  std::int64_t parameter_count() const;  ///< elements of all floating initialisers

  /// Emits the model's operators on `inputs`, by name, which must be there all; returns its outputs in the file's order. Floating
  /// initialisers of rank 1 and more become parameters of the scope under their own names, running statistics its buffers, and all else
  /// constants; the ones and zeros that exporters give to an instance norm without weight and bias, which have no layer's name with a dot,
  /// are left out. Float32 becomes the scope's dtype. Batch norms and dropout in training mode do so in training alone:
  /// graph::for_inference makes of them what it makes of any network's. What depends on shapes alone is computed here, so a graph holds for
  /// the shapes that it was made with. Throws ErrorKind::format with *all* that is not supported: the node's name, operator and opset, and
  /// why.
  Values add_to(const Scope& scope, const std::map<std::string, Value>& inputs) const;

 private:
  std::shared_ptr<const onnx::File> file_;
};

struct OnnxOptions {
  std::map<std::string, Shape> shapes = {};  ///< of inputs; an axis whose size the file leaves open is 1 if it is not given here
  std::map<std::string, Tensor> values =
      {};                        ///< inputs, as the file declares them, that are constants of the graph, as a Reshape's shape must be
  DType precision = DType::f32;  ///< what float32 becomes: f32 or f64
};

/// A graph of an ONNX model with its inputs and outputs under their names. For inference run it through graph::for_inference; the
/// parameters' values are their initialisers'. Throws as OnnxModel does, and ErrorKind::argument for options that do not fit the model.
Graph import_onnx(const std::string& path, const OnnxOptions& options = {});
Graph import_onnx(const OnnxModel& model, const OnnxOptions& options = {});

/// From then on .onnx files with an input of images, f32 (N, C, ...), are models wherever frit takes a model's name or a checkpoint:
/// Predictor, the C interface, the command line. The first such input is "input"; others keep their names, and need an example's size in
/// the file. The first output is "output", and what is learnt; one of two axes is taken for logits. Others of a batch keep their names. To
/// be called at the start of main; the command line does it itself.
void add_onnx_format();

}  // namespace frit

#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "frit/core/fields.h"
#include "frit/models/scope.h"

namespace frit {

/// A registered model with its configuration chosen: what a checkpoint names and the command line builds.
struct Model {
  enum class Task {
    regression,      ///< mean squared error against a tensor of the output's shape
    classification,  ///< cross entropy of logits (N, classes) against class indices (N)
    segmentation     ///< cross entropy of logits (N, classes, image axes) against class indices (N, image axes)
  };

  /// What the network reads besides its image.
  struct SideInput {
    std::string name;          ///< in the graph and in the data
    Shape shape;               ///< of one example; -1: as long as the image is along that axis, counted from the last
    DType dtype = DType::f32;  ///< floating: what the parameters are of; integers: this

    /// Whether it is as large for every image.
    bool is_fixed() const { return std::find(shape.begin(), shape.end(), -1) == shape.end(); }
  };

  /// What the network gives.
  struct Head {
    std::string name;  ///< of the output
    Task task = Task::regression;
    double weight = 1;  ///< of its loss in the sum; 0: it is given, but not learnt, and has no target

    bool has_classes() const { return task != Task::regression; }
    /// Its name in the data: "target" of "output", otherwise "target.NAME".
    std::string target() const { return name == "output" ? "target" : "target." + name; }
  };

  std::string name = {};
  std::string config = "{}";       ///< JSON object with every field
  std::string normalization = {};  ///< of the input, which `build` applies: what with_normalization() was given, as JSON; empty for none
  Task task = Task::regression;    ///< of "output"
  std::int64_t in_channels = 0;
  int image_rank = 0;
  Dims image_size = {};             ///< empty: any
  std::string small_config = "{}";  ///< with which it is small enough for a gradient check, and
  Shape small_input = {};           ///< an input for that
  Shape full_input = {};            ///< the input of the published measurements, for a benchmark
  std::vector<SideInput> side_inputs = {};
  std::vector<Head> heads = {};  ///< besides "output"
  /// From its inputs by name, of which the image is "input", to its outputs by name. Most callers want add_to.
  std::function<NamedValues(const Scope& scope, const NamedValues& inputs)> build = {};
  bool has_parameters = false;  ///< of a file, which variables are initialised with
  bool follows_shapes = true;   ///< its graph for one input's shape is, specialised, the one for another

  /// Whether the targets of "output" are class indices.
  bool has_classes() const { return task != Task::regression; }
  /// "output" and the heads that have a weight.
  std::vector<Head> learnt() const;
  /// What a data set has for it: "input", "target", the side inputs' names, and the other targets'.
  std::vector<std::string> data_fields() const;
  /// Of targets for an output of this shape. Throws ErrorKind::argument for an output that is not the task's.
  Shape target_shape(const Head& head, const Shape& output) const;
  /// Of a batch whose "input" has this shape.
  Shape side_shape(const SideInput& side, const Shape& input) const;
  /// Adds an input of each name to the scope's graph.
  NamedValues add_inputs(const Scope& scope, const Shape& input) const;
  /// Adds the network to the scope's graph, with its inputs, and returns its outputs by name. Throws ErrorKind::argument for other outputs
  /// than "output" and the heads, or of another batch than the input's, and what `build` throws.
  NamedValues add_to(const Scope& scope, const Shape& input) const;
  /// Whether a further input or output may have the name: it is none's of these, and no word for something else in a graph or its data.
  bool has_free(const std::string& further) const;
  /// An input of one image that `build` takes whatever the configuration is, for a graph that is not run.
  Shape ample_input() const;
  /// Throws ErrorKind::format unless a tensor of this shape can be the input: "expected [N, 3, D, H, W], got ...", or what the
  /// image needs at least.
  void check_input(const Shape& shape) const;
  /// Throws ErrorKind::format, naming all of them, for inputs that are missing, for side inputs that are not of the shapes that go with
  /// "input" or have fractions where integers are wanted, and for what is neither an input nor called a target.
  void check_side_inputs(const std::map<std::string, TensorType>& given) const;
};

/// The model on "input" and its side inputs gives "output" and its heads, with parameters of the dtype.
Graph forward_graph(const Model& model, const Shape& input, DType dtype = DType::f32);

/// What is done to each channel of a model's input before anything else: (x - subtract) / divide. An entry a channel.
struct InputNormalization {
  std::vector<double> subtract, divide;
};
/// The model after a normalisation of its input, which is part of its graph, and of its checkpoints: who runs it later gives the input as
/// it was in training. Throws ErrorKind::argument for another number of channels than the model's, or a division by what is not positive.
Model with_normalization(Model model, const InputNormalization& normalization);
/// Likewise from a checkpoint's text. Throws ErrorKind::format.
Model with_normalization(Model model, std::string_view json);

/// Gives a model with a configuration, a JSON object in which fields may be missing. Throws ErrorKind::format for one that does not fit.
/// The name is set after it, and so are channels and rank, from small_input.
using MakeModel = std::function<Model(std::string_view config_json)>;

/// Of a network that takes a struct of settings, which lists them in fields() and whose defaults are the configuration "{}". `build` reads
/// one Value, or its inputs by name (`const NamedValues&`), and gives one Value, or its outputs by name. `describe` says what else is to be
/// known, small_input and full_input at least.
template <class Config, class Output, class Input>
MakeModel configurable(std::string name, Output (*build)(const Scope&, Input, const Config&), Model (*describe)(const Config&)) {
  return [=](std::string_view json) {
    const auto config = fields_from_json<Config>(json, Config{}, name);
    Model model = describe(config);
    model.config = fields_to_json(config);
    model.build = [build, config](const Scope& scope, const NamedValues& inputs) -> NamedValues {
      const auto outputs = [&] {
        if constexpr (std::is_same_v<Input, Value>)
          return build(scope, inputs.at("input"), config);
        else
          return build(scope, inputs, config);
      };
      if constexpr (std::is_same_v<Output, Value>)
        return {{"output", outputs()}};
      else
        return outputs();
    };
    return model;
  };
}

/// Registers a network of one's own: the command line, checkpoints, Predictor and the C interface then know it by its name. To be called
/// before any of these is used, such as at the start of main. Throws ErrorKind::argument if the name is taken, or could be a file's.
void add_model(std::string name, MakeModel make);
template <class Config, class Output, class Input>
void add_model(const std::string& name, Output (*build)(const Scope&, Input, const Config&), Model (*describe)(const Config&)) {
  add_model(name, configurable(name, build, describe));
}

/// Opens files of a format as models, by their extension, ".onnx": make_model then takes their paths for names. Throws ErrorKind::argument
/// if the extension is taken.
void add_model_format(std::string extension, std::function<Model(const std::string& path)> open);
/// Whether the name is the path of such a file, by its extension.
bool names_model_file(std::string_view name);

/// Throws ErrorKind::argument for an unknown name (with the nearest known one), ErrorKind::format for a configuration that does not fit.
Model make_model(std::string_view name, std::string_view config_json = "{}");
std::vector<std::string> model_names();  ///< frit's own come first

}  // namespace frit

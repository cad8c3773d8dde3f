#include "frit/models/model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "frit/core/data/field_names.h"
#include "frit/core/text.h"
#include "frit/models/networks/convnext_tiny.h"
#include "frit/models/networks/mobilenet_v2.h"
#include "frit/models/networks/resnet.h"
#include "frit/models/networks/unet2d.h"
#include "frit/models/networks/unet3d.h"
#include "frit/models/reference.h"

namespace frit {
namespace {

/// `full_size`: of an image that the model was made for; `small_size`: of one small enough to check gradients on.
Model described(std::int64_t in_channels, const Dims& full_size, std::int64_t small_batch, const Dims& small_size,
                std::int64_t full_batch = 128) {
  Model model;
  const auto input = [&](std::int64_t batch, const Dims& size) {
    Shape shape = {batch, in_channels};
    for (const std::int64_t length : size) shape.push_back(length);
    return shape;
  };
  model.small_input = input(small_batch, small_size);
  model.full_input = input(full_batch, full_size);
  return model;
}

Model classifying(Model model, const char* small_config = "{}") {
  model.task = Model::Task::classification;
  model.small_config = small_config;
  return model;
}

struct Entry {
  std::string name;
  MakeModel make;
};

template <class Config, class Output, class Input>
Entry entry(const char* name, Output (*build)(const Scope&, Input, const Config&), Model (*describe)(const Config&)) {
  return {name, configurable(name, build, describe)};
}

std::vector<Entry> own_models() {
  using namespace models;
  return {
      entry<ConvInstanceNormMax>("conv3d-instnorm-max", conv_instance_norm_max,
                                 [](const auto& c) {
                                   return described(c.in_channels, {16, 32, 32}, 2, {4, 5, 5});
                                 }),
      entry<ConvGroupNormPool>("conv2d-groupnorm-pool", conv_group_norm_pool,
                               [](const auto& c) {
                                 return described(c.in_channels, {128, 128}, 2, {10, 11});
                               }),
      entry<ConvTransposeLogSumExp>("convt3d-logsumexp", conv_transpose_logsumexp,
                                    [](const auto& c) {
                                      return described(c.in_channels, {16, 32, 32}, 2, {2, 3, 2});
                                    }),
      entry<Classifier>("classifier", classifier,
                        [](const auto& c) {
                          Model model = classifying(described(c.block.in_channels, c.image_size, 1, c.image_size));
                          model.image_size = c.image_size;
                          return model;
                        }),
      entry<ResNet>(
          "resnet", resnet,
          [](const auto& c) {
            return classifying(described(c.in_channels, {224, 224}, 2, {33, 33}), R"({"blocks": [1, 1], "width": 4, "num_classes": 3})");
          }),
      entry<MobileNetV2>(
          "mobilenet_v2", mobilenet_v2,
          [](const auto& c) {
            return classifying(described(c.in_channels, {224, 224}, 2, {9, 10}), R"({"blocks": [1, 2], "width": 0.25, "num_classes": 3})");
          }),
      entry<ConvNextTiny>(
          "convnext_tiny", convnext_tiny,
          [](const auto& c) {
            return classifying(described(c.in_channels, {224, 224}, 2, {9, 10}), R"({"blocks": [1, 1], "width": 4, "num_classes": 3})");
          }),
      entry<UNet2d>("unet2d", unet2d,
                    [](const auto& c) {
                      Model model = described(c.in_channels, c.image_size, 1, c.image_size);
                      model.small_config = R"({"channels": [8, 16], "base": 8, "image_size": [4, 6]})";
                      model.image_size = c.image_size;
                      if (c.time_input) model.side_inputs = {{"time", {c.base}}};
                      return model;
                    }),
      entry<UNet3d>("unet3d", unet3d,
                    [](const auto& c) {
                      Model model = described(c.in_channels, {96, 96, 96}, 1, {4, 6, 4}, /*full_batch=*/2);
                      model.small_config = R"({"channels": [2, 3]})";
                      model.task = Model::Task::segmentation;
                      return model;
                    }),
  };
}

/// frit's own, and those that were added.
std::vector<Entry>& entries() {
  static std::vector<Entry> all = own_models();
  return all;
}

struct Format {
  std::string extension;
  std::function<Model(const std::string& path)> open;
};

std::vector<Format>& formats() {
  static std::vector<Format> all;
  return all;
}

const Format* format_of(std::string_view name) {
  for (const Format& format : formats()) {
    if (name.ends_with(format.extension)) return &format;
  }
  return nullptr;
}

/// What the model's operators have against a batch of images of this size; empty for nothing.
std::string refusal(const Model& model, std::int64_t batch, const Dims& image) {
  Shape shape = {batch, model.in_channels};
  for (const std::int64_t size : image) shape.push_back(size);
  try {
    Graph graph;
    model.add_to(Scope(graph), shape);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
    return error.what();
  }
  return {};
}

/// An image that no sensible configuration finds too small.
Dims ample_image(const Model& model) { return model.image_size.empty() ? Dims::filled(model.image_rank, 512) : model.image_size; }

/// For something else: in graphs, in data sets, in folders of arrays.
bool is_reserved(const std::string& name) {
  const char* const words[] = {"", "input", "output", "target", "loss", "inputs", "targets"};
  return name.starts_with("target.") || std::find(std::begin(words), std::end(words), name) != std::end(words);
}

/// Each input, output and target has one name, as a graph and a file want it.
void check_names(const Model& model) {
  std::set<std::string> names;
  const auto take = [&](const std::string& name) {
    const bool free = !is_reserved(name) && names.insert(name).second;
    require(free, model.name, ": an input or output cannot be called \"", printable(name),
            "\": the name is another's, or has another meaning, or is empty");
  };
  for (const Model::SideInput& side : model.side_inputs) take(side.name);
  for (const Model::Head& head : model.heads) {
    take(head.name);
    require(std::isfinite(head.weight) && head.weight >= 0, model.name, ": the weight of \"", printable(head.name),
            "\": expected 0 or more, got ", head.weight);
  }
}

/// Under its name, if it can run.
Model checked(Model model, const std::string& name) {
  model.name = name;
  check_names(model);
  const Shape &small = model.small_input, &full = model.full_input;
  require(small.rank() >= 3 && full.rank() == small.rank(), name, ": a model needs small_input and full_input, (N, C, ...), got ", small,
          " and ", full);
  model.in_channels = small[1];
  model.image_rank = small.rank() - 2;
  if (const std::string reason = refusal(model, small[0], ample_image(model)); !reason.empty()) fail(ErrorKind::format, name, ": ", reason);
  return model;
}

/// What each axis needs besides ample ones.
Dims least_image(const Model& model, std::int64_t batch) {
  Dims least = ample_image(model);
  for (int axis = 0; axis < model.image_rank; ++axis) {
    Dims image = ample_image(model);
    for (image[axis] = 1; image[axis] < least[axis] && !refusal(model, batch, image).empty();) ++image[axis];
    least[axis] = image[axis];
  }
  return least;
}

}  // namespace

void add_model(std::string name, MakeModel make) {
  const std::vector<std::string> names = model_names();
  const bool taken = std::find(names.begin(), names.end(), name) != names.end();
  if (taken) fail(ErrorKind::argument, "add_model: there is a model \"", printable(name), "\" already");
  // The command line tells a model from a checkpoint, and from an option, by these.
  const bool plain = !name.empty() && name.find_first_of("/.@ ") == std::string::npos && name[0] != '-';
  if (!plain) {
    fail(ErrorKind::argument, "add_model: expected a name without '/', '.', '@' and space, and not '-' first, got \"", printable(name),
         '"');
  }
  entries().push_back({std::move(name), std::move(make)});
}

void add_model_format(std::string extension, std::function<Model(const std::string& path)> open) {
  require(extension.starts_with('.') && extension.size() > 1, "add_model_format: expected an extension with its dot, got \"",
          printable(extension), '"');
  require(format_of(extension) == nullptr, "add_model_format: there is a format \"", printable(extension), "\" already");
  formats().push_back({std::move(extension), std::move(open)});
}

bool names_model_file(std::string_view name) { return format_of(name) != nullptr; }

Model make_model(std::string_view name, std::string_view config_json) {
  if (const Format* format = format_of(name)) {
    require(config_json == "{}", printable(name), " has no configuration, got ", printable(config_json));
    return checked(format->open(std::string(name)), std::string(name));
  }
  for (const Entry& entry : entries()) {
    if (entry.name == name) return checked(entry.make(config_json), entry.name);
  }
  const std::vector<std::string> names = model_names();
  std::string list;
  for (const std::string& known : names) list += " " + known;
  fail(ErrorKind::argument, "unknown model \"", printable(name), "\"; models:", list, did_you_mean(name, names));
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.push_back(entry.name);
  return names;
}

Graph forward_graph(const Model& model, const Shape& input, DType dtype) {
  Graph graph;
  const NamedValues outputs = model.add_to(Scope(graph, "", dtype), input);
  graph.output("output", outputs.at("output"));
  for (const Model::Head& head : model.heads) graph.output(head.name, outputs.at(head.name));
  if (!model.follows_shapes) {
    graph.remake_by([=](const auto& inputs) { return forward_graph(model, inputs.at("input").shape, dtype); });
  }
  return graph;
}

std::vector<Model::Head> Model::learnt() const {
  std::vector<Head> learnt = {{"output", task}};
  for (const Head& head : heads) {
    if (head.weight > 0) learnt.push_back(head);
  }
  return learnt;
}

std::vector<std::string> Model::data_fields() const {
  std::vector<std::string> fields = {"input", "target"};
  for (const SideInput& side : side_inputs) fields.push_back(side.name);
  for (const Head& head : heads) {
    if (head.weight > 0) fields.push_back(head.target());
  }
  return fields;
}

Shape Model::target_shape(const Head& head, const Shape& output) const {
  if (!head.has_classes()) return output;
  const bool classifies = head.task == Task::classification;
  const int rank = classifies ? 2 : image_rank + 2;
  require(output.rank() == rank, name, ": the ", head.name == "output" ? "output" : concat("output \"", head.name, '"'), " of ",
          classifies ? "a classifier" : "a segmentation", " has rank ", rank, ", got ", output);
  Shape target = output;
  target.erase(1);
  return target;
}

Shape Model::side_shape(const SideInput& side, const Shape& input) const {
  Shape shape = side.shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const int from = axis + input.rank() - shape.rank();
    if (shape[axis] >= 0) continue;
    require(from >= 2, name, ": the image has no axis for that of the side input \"", side.name, "\", of ", shape);
    shape[axis] = input[from];
  }
  shape.insert(0, input[0]);
  return shape;
}

bool Model::has_free(const std::string& further) const {
  const auto has_it = [&](const auto& other) { return other.name == further; };
  return !is_reserved(further) && std::none_of(side_inputs.begin(), side_inputs.end(), has_it) &&
         std::none_of(heads.begin(), heads.end(), has_it);
}

NamedValues Model::add_inputs(const Scope& scope, const Shape& input) const {
  Graph& graph = scope.graph();
  NamedValues inputs = {{"input", graph.input("input", input, scope.dtype())}};
  for (const SideInput& side : side_inputs) {
    inputs[side.name] = graph.input(side.name, side_shape(side, input), is_floating(side.dtype) ? scope.dtype() : side.dtype);
  }
  return inputs;
}

NamedValues Model::add_to(const Scope& scope, const Shape& input) const {
  NamedValues outputs = build(scope, add_inputs(scope, input));
  std::vector<std::string> expected = {"output"}, found;
  for (const Head& head : heads) expected.push_back(head.name);
  for (const auto& [output, value] : outputs) found.push_back(output);
  if (const std::string fault = difference(expected, found); !fault.empty())
    fail(ErrorKind::argument, "the outputs of ", name, ": ", fault);
  for (const auto& [output, value] : outputs) {
    const bool of_batch = value.rank() > 0 && value.dim(0) == input[0];
    require(of_batch, "the outputs of ", name, ": a batch of ", input[0], " gives \"", printable(output), "\" of shape ", value.shape());
  }
  return outputs;
}

Shape Model::ample_input() const {
  Shape shape = ample_image(*this);
  shape.insert(0, in_channels);
  shape.insert(0, 1);
  return shape;
}

void Model::check_input(const Shape& shape) const {
  bool fits = shape.rank() == image_rank + 2 && shape[1] == in_channels;
  std::string expected = concat("[N, ", in_channels);
  for (int axis = 0; axis < image_rank; ++axis) {
    const bool fixed = !image_size.empty();
    expected += fixed ? concat(", ", image_size[axis]) : concat(", ", "DHW"[axis + 3 - image_rank]);
    fits = fits && (!fixed || shape[axis + 2] == image_size[axis]);
  }
  std::string found;
  for (const std::int64_t size : shape) found += concat(found.empty() ? "" : ", ", size);
  if (!fits) fail(ErrorKind::format, "input of model \"", name, "\": expected ", expected, "], got [", found, "]");
  Dims image;
  for (int axis = 0; axis < image_rank; ++axis) image.push_back(shape[axis + 2]);
  const std::string reason = refusal(*this, shape[0], image);
  if (reason.empty()) return;
  const Dims least = least_image(*this, shape[0]);
  const bool small = !std::equal(least.begin(), least.end(), image.begin(), std::less_equal());
  const std::string need = small ? concat("the image needs at least ", least, ", got ", image, ": ") : "";
  fail(ErrorKind::format, "input of model \"", name, "\": ", need, reason);
}

void Model::check_side_inputs(const std::map<std::string, TensorType>& given) const {
  std::vector<std::string> inputs = {"input"}, found;
  for (const SideInput& side : side_inputs) inputs.push_back(side.name);
  for (const auto& [name_of_it, type] : given) {
    const bool is_target = name_of_it == "target" || name_of_it.starts_with("target.");
    if (!is_target) found.push_back(name_of_it);
  }
  std::string faults = difference(inputs, found);
  const auto image = given.find("input");
  for (const SideInput& side : side_inputs) {
    const auto place = given.find(side.name);
    if (place == given.end() || image == given.end() || image->second.shape.rank() != image_rank + 2) continue;  // see check_input
    const TensorType wanted = {side.dtype, side_shape(side, image->second.shape)};
    const bool fits = place->second.shape == wanted.shape && (is_floating(wanted.dtype) || !is_floating(place->second.dtype));
    if (!fits) faults += concat(faults.empty() ? "\"" : "; \"", side.name, "\": expected ", wanted, ", got ", place->second);
  }
  if (!faults.empty()) fail(ErrorKind::format, "inputs of model \"", name, "\": ", faults);
}

}  // namespace frit

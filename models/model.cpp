#include "frit/models/model.h"

#include <algorithm>
#include <functional>

#include "frit/core/text.h"
#include "frit/models/networks/convnext_tiny.h"
#include "frit/models/networks/mobilenet_v2.h"
#include "frit/models/networks/resnet.h"
#include "frit/models/networks/unet2d.h"
#include "frit/models/networks/unet3d.h"
#include "frit/models/reference.h"

namespace frit {
namespace {

constexpr std::int64_t full_batch = 128;

template <class Config>
Config read(const char* name, std::string_view json) {
  return fields_from_json<Config>(json, Config{}, name);
}

/// `small_size` is that of an image small enough to check gradients on, `full_size` of one that the model was made for.
template <class Config>
Model describe(const char* name, const Config& config, Value (*build)(const Scope&, Value, const Config&), std::int64_t in_channels,
               std::int64_t small_batch, const Dims& small_size, const Dims& full_size) {
  Model model;
  model.name = name;
  model.config = fields_to_json(config);
  model.in_channels = in_channels;
  model.image_rank = small_size.rank();
  model.small_input = {small_batch, in_channels};
  for (const std::int64_t size : small_size) model.small_input.push_back(size);
  model.full_input = {full_batch, in_channels};
  for (const std::int64_t size : full_size) model.full_input.push_back(size);
  model.build = [build, config](const Scope& scope, Value input) { return build(scope, input, config); };
  return model;
}

Model conv_instance_norm_max(const char* name, std::string_view json) {
  const auto config = read<models::ConvInstanceNormMax>(name, json);
  return describe(name, config, models::conv_instance_norm_max, config.in_channels, 2, {4, 5, 5}, {16, 32, 32});
}

Model conv_group_norm_pool(const char* name, std::string_view json) {
  const auto config = read<models::ConvGroupNormPool>(name, json);
  return describe(name, config, models::conv_group_norm_pool, config.in_channels, 2, {10, 11}, {128, 128});
}

Model conv_transpose_logsumexp(const char* name, std::string_view json) {
  const auto config = read<models::ConvTransposeLogSumExp>(name, json);
  return describe(name, config, models::conv_transpose_logsumexp, config.in_channels, 2, {2, 3, 2}, {16, 32, 32});
}

Model classifier(const char* name, std::string_view json) {
  const auto config = read<models::Classifier>(name, json);
  Model model = describe(name, config, models::classifier, config.block.in_channels, 1, config.image_size, config.image_size);
  model.task = Model::Task::classification;
  model.image_size = config.image_size;
  return model;
}

Model resnet(const char* name, std::string_view json) {
  const auto config = read<models::ResNet>(name, json);
  Model model = describe(name, config, models::resnet, config.in_channels, 2, {33, 33}, {224, 224});
  model.small_config = R"({"blocks": [1, 1], "width": 4, "num_classes": 3})";
  model.task = Model::Task::classification;
  return model;
}

Model mobilenet_v2(const char* name, std::string_view json) {
  const auto config = read<models::MobileNetV2>(name, json);
  Model model = describe(name, config, models::mobilenet_v2, config.in_channels, 2, {9, 10}, {224, 224});
  model.small_config = R"({"blocks": [1, 2], "width": 0.25, "num_classes": 3})";
  model.task = Model::Task::classification;
  return model;
}

Model convnext_tiny(const char* name, std::string_view json) {
  const auto config = read<models::ConvNextTiny>(name, json);
  Model model = describe(name, config, models::convnext_tiny, config.in_channels, 2, {9, 10}, {224, 224});
  model.small_config = R"({"blocks": [1, 1], "width": 4, "num_classes": 3})";
  model.task = Model::Task::classification;
  return model;
}

Model unet2d(const char* name, std::string_view json) {
  const auto config = read<models::UNet2d>(name, json);
  Model model = describe<models::UNet2d>(name, config, models::unet2d, config.in_channels, 1, config.image_size, config.image_size);
  model.small_config = R"({"channels": [8, 16], "base": 8, "image_size": [4, 6]})";
  model.image_size = config.image_size;
  return model;
}

Model unet3d(const char* name, std::string_view json) {
  const auto config = read<models::UNet3d>(name, json);
  Model model = describe(name, config, models::unet3d, config.in_channels, 1, {4, 6, 4}, {96, 96, 96});
  model.small_config = R"({"channels": [2, 3]})";
  return model;
}

/// What the model's operators have against a batch of images of this size; empty for nothing.
std::string refusal(const Model& model, std::int64_t batch, const Dims& image) {
  Shape shape = {batch, model.in_channels};
  for (const std::int64_t size : image) shape.push_back(size);
  try {
    Graph graph;
    model.build(Scope(graph), graph.input("input", shape));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
    return error.what();
  }
  return {};
}

/// An image that no sensible configuration finds too small.
Dims ample_image(const Model& model) { return model.image_size.empty() ? Dims::filled(model.image_rank, 512) : model.image_size; }

/// What each axis needs beside ample ones.
Dims least_image(const Model& model, std::int64_t batch) {
  Dims least = ample_image(model);
  for (int axis = 0; axis < model.image_rank; ++axis) {
    Dims image = ample_image(model);
    for (image[axis] = 1; image[axis] < least[axis] && !refusal(model, batch, image).empty();) ++image[axis];
    least[axis] = image[axis];
  }
  return least;
}

struct Entry {
  const char* name;
  Model (*make)(const char* name, std::string_view json);
};

constexpr Entry entries[] = {
    {"conv3d-instnorm-max", conv_instance_norm_max},
    {"conv2d-groupnorm-pool", conv_group_norm_pool},
    {"convt3d-logsumexp", conv_transpose_logsumexp},
    {"classifier", classifier},
    {"resnet", resnet},
    {"mobilenet_v2", mobilenet_v2},
    {"convnext_tiny", convnext_tiny},
    {"unet2d", unet2d},
    {"unet3d", unet3d},
};

}  // namespace

Model make_model(std::string_view name, std::string_view config_json) {
  for (const Entry& entry : entries) {
    if (entry.name != name) continue;
    Model model = entry.make(entry.name, config_json);
    if (const std::string reason = refusal(model, /*batch=*/1, ample_image(model)); !reason.empty())
      fail(ErrorKind::format, name, ": ", reason);
    return model;
  }
  const std::vector<std::string> names = model_names();
  std::string list;
  for (const std::string& known : names) list += " " + known;
  fail(ErrorKind::argument, "unknown model \"", printable(name), "\"; models:", list, did_you_mean(name, names));
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.emplace_back(entry.name);
  return names;
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

}  // namespace frit

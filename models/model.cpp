#include "frit/models/model.h"

#include "frit/core/text.h"
#include "frit/models/reference.h"

namespace frit {
namespace {

template <class Config>
Config read(const char* name, std::string_view json) {
  return fields_from_json<Config>(json, Config{}, name);
}

/// `small_size` is that of an image small enough to check gradients on.
template <class Config>
Model describe(const char* name, const Config& config, Value (*build)(const Scope&, Value, const Config&), std::int64_t in_channels,
               std::int64_t small_batch, const Dims& small_size) {
  Model model;
  model.name = name;
  model.config = fields_to_json(config);
  model.in_channels = in_channels;
  model.image_rank = small_size.rank();
  model.small_input = {small_batch, in_channels};
  for (const std::int64_t size : small_size) model.small_input.push_back(size);
  model.build = [build, config](const Scope& scope, Value input) { return build(scope, input, config); };
  return model;
}

Model conv_instance_norm_max(const char* name, std::string_view json) {
  const auto config = read<models::ConvInstanceNormMax>(name, json);
  return describe(name, config, models::conv_instance_norm_max, config.in_channels, 2, {4, 5, 5});
}

Model conv_group_norm_pool(const char* name, std::string_view json) {
  const auto config = read<models::ConvGroupNormPool>(name, json);
  return describe(name, config, models::conv_group_norm_pool, config.in_channels, 2, {10, 11});
}

Model conv_transpose_logsumexp(const char* name, std::string_view json) {
  const auto config = read<models::ConvTransposeLogSumExp>(name, json);
  return describe(name, config, models::conv_transpose_logsumexp, config.in_channels, 2, {2, 3, 2});
}

Model classifier(const char* name, std::string_view json) {
  const auto config = read<models::Classifier>(name, json);
  Model model = describe(name, config, models::classifier, config.block.in_channels, 1, config.image_size);
  model.task = Model::Task::classification;
  model.image_size = config.image_size;
  return model;
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
};

}  // namespace

Model make_model(std::string_view name, std::string_view config_json) {
  for (const Entry& entry : entries) {
    if (entry.name == name) return entry.make(entry.name, config_json);
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
}

}  // namespace frit

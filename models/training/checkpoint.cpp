#include "frit/models/training/checkpoint.h"

#include <array>

#include "frit/core/io/file.h"
#include "frit/core/io/safetensors_checksums.h"
#include "frit/core/text.h"
#include "frit/models/checkpoint_file.h"

namespace frit {
namespace {

constexpr const char* optimizer_key = "optimizer";

/// The metadata's key of one step.
std::string key_of(const char* key, const TrainStep& step) {
  return step.options().name.empty() ? std::string(key) : concat(key, '/', step.options().name);
}

/// Of a training's checkpoint, which must have the entry.
const std::string& entry(const TensorFile& file, const std::string& key) {
  const auto place = file.metadata().find(key);
  if (place == file.metadata().end()) {
    fail(ErrorKind::format, file.file(), ": the metadata have no \"", key, "\": not a checkpoint that a training can go on from");
  }
  return place->second;
}

/// Of steps, failures, random numbers: all whole numbers of a training's state count something, and go on counting.
void check_count(const TensorFile& file, const std::string& name) {
  for (const std::int64_t count : file.at(name).to_vector<std::int64_t>()) {
    if (count >= 0 && count <= most_counted) continue;
    fail(ErrorKind::format, file.file(), ": \"", printable(name), "\" is ", count, ", expected a count from 0 to ", most_counted);
  }
}

std::string text_of(const Optimizer& optimizer) { return optimizer.name + (optimizer.settings.empty() ? "" : " " + optimizer.settings); }

std::string optimizer_text(const TrainStep& step) {
  std::string text = text_of(step.optimizer());
  for (const ParameterGroup& g : step.options().groups) {
    text += concat("; \"", g.names, "\" of rank ", g.least_rank, " to ", g.most_rank, ": ", text_of(g.optimizer), " rate ",
                   g.optimizer.learning_rate);
  }
  return text;
}

}  // namespace

void save_training(const std::string& path, const TrainStep& step, const Metadata& metadata) {
  save_training(path, std::array{&step}, metadata);
}

void save_training(const std::string& path, std::span<const TrainStep* const> steps, const Metadata& metadata) {
  require(!steps.empty(), "save_training: no step was given");
  TensorMap tensors;
  Metadata all = metadata;
  for (const TrainStep* step : steps) {
    require(&step->state() == &steps[0]->state(), "save_training: the steps do not share their State");
    require(steps.size() == 1 || !step->has_shards(), "save_training: a step with shards_optimizer alone trains its State, and ",
            steps.size(), " steps were given");
    for (const auto& [name, tensor] : step->whole_variables()) tensors.emplace(name, tensor);
    all[key_of(training_key, *step)] = fields_to_json(step->position());
    all[key_of(optimizer_key, *step)] = optimizer_text(*step);
  }
  write_checkpoint(path, std::move(tensors), std::move(all));
}

TensorFile read_training(const std::string& path) { return read_training(FileInput(path, "a .safetensors file")); }

TensorFile read_training(const Input& input) {
  TensorFile file = read_safetensors(input);
  check_version(file);
  if (!is_of_training(file)) entry(file, training_key);
  if (!verify_checksums(file)) fail(ErrorKind::format, file.file(), ": has no checksums: not a checkpoint that a training can go on from");
  return file;
}

void restore_training(const TensorFile& file, TrainStep& step) {
  check_version(file);
  const auto position = fields_from_json<TrainPosition>(entry(file, key_of(training_key, step)), {}, file.file());
  try {
    position.check();
  } catch (const Error& error) {
    fail(ErrorKind::format, file.file(), ": ", error.what());
  }
  verify_checksums(file);
  const std::string &found = entry(file, key_of(optimizer_key, step)), expected = optimizer_text(step);
  if (found != expected) fail(ErrorKind::format, file.file(), ": optimizer: expected ", expected, ", got ", printable(found));
  WantedTensors wanted;
  for (const auto& [name, tensor] : step.state().tensors()) wanted.emplace_back(name, TensorType{tensor.dtype(), step.whole_shape(name)});
  require_tensors(file, wanted, {.exact = true});
  for (const auto& [name, type] : wanted) {
    if (type.dtype == DType::i64) check_count(file, name);
  }
  for (const auto& [name, type] : wanted) step.set_whole(name, file.at(name));
  step.set_position(position);
}

}  // namespace frit

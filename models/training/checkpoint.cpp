#include "frit/models/training/checkpoint.h"

#include "frit/core/io/file.h"
#include "frit/core/io/safetensors_checksums.h"
#include "frit/core/text.h"
#include "frit/models/checkpoint_file.h"

namespace frit {
namespace {

constexpr const char* optimizer_key = "optimizer";

/// Of a training's checkpoint, which must have the entry.
const std::string& entry(const TensorFile& file, const char* key) {
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

std::string optimizer_text(const Optimizer& optimizer) {
  return optimizer.name + (optimizer.settings.empty() ? "" : " " + optimizer.settings);
}

}  // namespace

void save_training(const std::string& path, const TrainStep& step, const Metadata& metadata) {
  TensorMap tensors;
  for (const auto& [name, tensor] : step.state().tensors()) tensors.emplace(name, tensor);
  Metadata all = metadata;
  all[training_key] = fields_to_json(step.position());
  all[optimizer_key] = optimizer_text(step.optimizer());
  write_checkpoint(path, std::move(tensors), std::move(all));
}

TensorFile read_training(const std::string& path) { return read_training(FileInput(path, "a .safetensors file")); }

TensorFile read_training(const Input& input) {
  TensorFile file = read_safetensors(input);
  check_version(file);
  entry(file, training_key);
  if (!verify_checksums(file)) fail(ErrorKind::format, file.file(), ": has no checksums: not a checkpoint that a training can go on from");
  return file;
}

void restore_training(const TensorFile& file, TrainStep& step) {
  check_version(file);
  const auto position = fields_from_json<TrainPosition>(entry(file, training_key), {}, file.file());
  try {
    position.check();
  } catch (const Error& error) {
    fail(ErrorKind::format, file.file(), ": ", error.what());
  }
  verify_checksums(file);
  const std::string &found = entry(file, optimizer_key), expected = optimizer_text(step.optimizer());
  if (found != expected) fail(ErrorKind::format, file.file(), ": optimizer: expected ", expected, ", got ", printable(found));
  WantedTensors wanted;
  for (const auto& [name, tensor] : step.state().tensors()) wanted.emplace_back(name, TensorType{tensor.dtype(), tensor.shape()});
  require_tensors(file, wanted, {.exact = true});
  for (const auto& [name, type] : wanted) {
    if (type.dtype == DType::i64) check_count(file, name);
  }
  for (const auto& [name, type] : wanted) step.state().set(name, file.at(name));
  step.set_position(position);
}

}  // namespace frit

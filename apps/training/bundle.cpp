#include "apps/training/bundle.h"

#include <filesystem>

#include "apps/common/model_source.h"
#include "apps/training/training_graph.h"
#include "frit/core/io/file.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

constexpr const char *state_name = "/state.safetensors", *inputs_name = "/inputs.safetensors";

TrainStep make_step(const Model& model, const TrainSettings& settings, const BatchTypes& batch, Device device) {
  Graph graph;
  const Value loss = build_loss(graph, model, batch, settings.dtype, {settings.ignore_index});
  return TrainStep(loss, settings.make_optimizer(), device, settings.one_step_options());
}

}  // namespace

void write_bundle(const std::string& folder, const TrainStep& step, const Metadata& metadata, const graph::Executable& executable,
                  const Bindings& inputs) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(ErrorKind::file_system, printable(folder), ": cannot be made: ", error.message());
  save_training(folder + state_name, step, metadata);
  write_safetensors(folder + inputs_name, {inputs.begin(), inputs.end()});
  write_text(folder + "/graph.txt", graph::to_text(executable.graph()));
}

std::vector<std::string> bundle_files(const std::string& folder) { return {folder + state_name, folder + inputs_name}; }

Replay read_bundle(const std::string& folder, Device device) {
  const FileInput state(folder + state_name, "a .safetensors file"), inputs(folder + inputs_name, "a .safetensors file");
  return read_bundle(state, inputs, device);
}

Replay read_bundle(const Input& state_file, const Input& inputs_file, Device device) {
  const TensorFile state = read_training(state_file), batch = read_safetensors(inputs_file);
  const auto recorded = state.metadata().find("settings");
  if (recorded == state.metadata().end()) fail(ErrorKind::format, state.file(), ": the metadata have no \"settings\"");
  const auto settings = with_content_of(state.file(), [&] {
    const auto read = fields_from_json<TrainSettings>(recorded->second, {}, "settings");
    read.check();
    return read;
  });
  Model model = model_of(state);
  Bindings inputs;
  for (const std::string& field : model.data_fields()) inputs[field] = batch.at(field);
  TrainStep step = with_content_of(batch.file(), [&] { return make_step(model, settings, tensor_types(inputs), device); });
  restore_training(state, step);
  for (auto& [field, tensor] : inputs) tensor = tensor.to(device);
  return {std::move(model), std::move(step), std::move(inputs)};
}

}  // namespace frit::apps

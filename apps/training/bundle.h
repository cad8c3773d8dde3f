#pragma once

#include "apps/training/train_settings.h"
#include "frit/graph/executable.h"
#include "frit/models/model.h"
#include "frit/models/training/checkpoint.h"

namespace frit::apps {

/// One step of a training in a folder, to be run again: state.safetensors, a training's checkpoint from before it; inputs.safetensors, its
/// batch; graph.txt, what runs. Throws ErrorKind::file_system.
void write_bundle(const std::string& folder, const TrainStep& step, const Metadata& metadata, const graph::Executable& executable,
                  const Bindings& inputs);

/// The files of a bundle that are read.
std::vector<std::string> bundle_files(const std::string& folder);

/// The step of a bundle, ready to run.
struct Replay {
  Model model;
  TrainStep step;
  Bindings inputs;
};
/// Throws ErrorKind::format or ErrorKind::file_system for a folder that is no bundle.
Replay read_bundle(const std::string& folder, Device device);
/// Likewise from its two files.
Replay read_bundle(const Input& state, const Input& inputs, Device device);

}  // namespace frit::apps

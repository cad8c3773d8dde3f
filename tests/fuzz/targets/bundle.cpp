#include "apps/training/bundle.h"

#include "apps/training/training_graph.h"
#include "frit/core/io/file.h"
#include "frit/graph/find_non_finite.h"
#include "fuzz/fuzzing.h"

namespace frit::apps {

/// As `frit replay` takes it; its two files one after another.
FRIT_FUZZ_TARGET(bundle, fuzzing::mutate_two_safetensors) {
  const auto [state, inputs] = fuzzing::two_files(bytes);
  Replay replay = read_bundle(MemoryInput(std::as_bytes(std::span(state)), "state"),
                              MemoryInput(std::as_bytes(std::span(inputs)), "inputs"), Device::cpu());
  graph::find_non_finite(replay.step.compile(tensor_types(replay.inputs)), replay.inputs);
}

}  // namespace frit::apps

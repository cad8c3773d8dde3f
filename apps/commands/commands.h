#pragma once

#include "apps/common/options.h"

namespace frit::apps {

// Each adds its subcommand to `app`; when that one is chosen, parsing sets `action`.
void add_train(CLI::App& app, Action& action);
void add_replay(CLI::App& app, Action& action);
void add_infer(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_gradcheck(CLI::App& app, Action& action);
void add_graph(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_tune(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);  ///< in builds with frit::onnx
void add_completion(CLI::App& app, Action& action);

}  // namespace frit::apps

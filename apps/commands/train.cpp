#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "apps/commands/commands.h"
#include "apps/common/data_options.h"
#include "apps/common/interrupt.h"
#include "apps/common/model_source.h"
#include "apps/common/options.h"
#include "apps/common/text.h"
#include "apps/common/training.h"
#include "frit/core/io/file.h"
#include "frit/core/text.h"
#include "frit/core/thread_pool.h"
#include "frit/models/training/checkpoint.h"

namespace frit::apps {
namespace {

namespace fs = std::filesystem;

struct TrainArguments {
  std::string model, config, data, validation, save;
  std::string optimizer = "adam";
  std::optional<double> rate, momentum, weight_decay, clip_norm;
  std::int64_t epochs = 10;
  std::int64_t batch_size = 128;
  std::uint64_t seed = 0;
  DType dtype = DType::f32, precision = DType::f32;
  bool quiet = false;
  DataOptions input;
  RunOptions run;
};

Optimizer make_optimizer(const TrainArguments& a) {
  require(!a.momentum || a.optimizer == "sgd", "--momentum does not go with --optimizer ", a.optimizer, "; it is sgd's");
  const auto filled = [&](auto optimizer) {
    optimizer.learning_rate = a.rate.value_or(optimizer.learning_rate);
    optimizer.weight_decay = a.weight_decay.value_or(optimizer.weight_decay);
    return optimizer;
  };
  if (a.optimizer == "sgd") return filled(Sgd{.momentum = a.momentum.value_or(0)});
  return a.optimizer == "adam" ? Optimizer(filled(Adam{})) : Optimizer(filled(AdamW{}));
}

bool overwrites(const std::string& save, const std::string& data) {
  if (data.empty()) return false;
  if (same_file(save, data)) return true;
  std::error_code error;
  if (!fs::exists(save, error)) return false;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(data, error)) {
    const bool read = entry.path().extension() != ".safetensors";  // a folder's data come in other formats
    if (read && same_file(save, entry.path())) return true;
  }
  return false;
}

void check_output(const TrainArguments& a) {
  if (a.save.empty()) return;
  require(!overwrites(a.save, a.data), "--save would overwrite the data of --data: ", printable(a.save));
  require(!overwrites(a.save, a.validation), "--save would overwrite the data of --validation: ", printable(a.save));
  require(!is_config_file(a.save, a.config), "--save would overwrite the configuration of --config: ", printable(a.save));
  remove_stale_temporaries(a.save);
  check_writable(a.save);
}

std::shared_ptr<const Dataset> read_validation(const TrainArguments& a) {
  if (!a.validation.empty()) return a.input.validation(a.validation, a.data);
  return has_test_split(a.data) ? a.input.validation(a.data, a.data) : nullptr;
}

void check_parameters_finite(const TrainStep& step) {
  for (const graph::Node* node : step.graph().all(graph::NodeKind::variable)) {
    const std::vector<double> values = step.state().at(node->name).to_vector<double>();
    const bool finite = std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
    if (!finite) fail(ErrorKind::diverged, "parameter \"", node->name, "\" is not finite after step ", step.steps(), "; nothing was saved");
  }
}

/// Returns what to say of it.
std::string save(const TrainArguments& a, const Model& model, const TrainStep& step) {
  if (a.save.empty() || step.steps() == 0) return "nothing was saved";
  check_parameters_finite(step);
  save_checkpoint(a.save, step, checkpoint_metadata(model));
  return "saved " + printable(a.save);
}

void print_score(const TrainArguments& a, const Model& model, const Score& score) {
  const char* const what = !a.validation.empty() ? "validation" : has_test_split(a.data) ? "test" : "training";
  std::cout << what << " loss " << fixed(score.loss(), 4) << '\n';
  if (model.task == Model::Task::classification) std::cout << what << " accuracy " << fixed(score.accuracy(), 2) << " %\n";
}

int run_train(const TrainArguments& a) {
  const Model plain_model = configured_model(a.model, a.config);
  const Optimizer optimizer = make_optimizer(a);
  const Device device = a.run.apply();
  check_output(a);
  const InterruptRequests requests;
  const std::shared_ptr<const Dataset> data = a.input.training(a.data), validation = read_validation(a);
  const Model model = a.input.normalized(plain_model, *data, a.data);
  Training training(model, data, validation, printable(a.data),
                    {.optimizer = optimizer,
                     .step = {.seed = a.seed, .clip_norm = a.clip_norm, .precision = a.precision},
                     .device = device,
                     .dtype = a.dtype,
                     .epochs = a.epochs,
                     .batch_size = a.batch_size,
                     .quiet = a.quiet});
  if (!a.quiet) {
    std::cerr << model.name << ": " << grouped(training.parameter_count()) << " parameters, " << grouped(data->size()) << " examples; "
              << optimizer.name << ", learning rate " << optimizer.learning_rate << "; " << device << ", " << thread_count() << " threads"
              << std::endl;
  }
  training.run();
  const std::string saved = save(a, model, training.step());
  if (interrupt_signal() != 0) {
    fail(ErrorKind::interrupted, "interrupted by ", interrupt_name(), " after step ", training.step().steps(), "; ", saved);
  }
  if (!a.quiet && !a.save.empty()) std::cerr << saved << std::endl;
  print_score(a, model, training.score());
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  CLI::App& command = *app.add_subcommand("train", "Train a model and measure it after each epoch");
  const auto a = std::make_shared<TrainArguments>();
  command.add_option("MODEL", a->model, "A model's name (see `frit info`)")->required()->type_name("");
  add_path(command, "--data", a->data,
           "What to learn: a .safetensors or .npz file with the arrays \"input\" and \"target\"; or a folder: inputs.npy and targets.npy; "
           "MNIST files (IDX, plain or .gz); PNG images in one folder a class; NIfTI volumes inputs.nii and targets.nii, or pairs of "
           "the same name in inputs/ and targets/; or train/ and test/ with any of these. MNIST and test/ are for validation")
      ->required();
  add_path(command, "--validation", a->validation, "What to measure on, likewise");
  a->input.add_to(command);
  add_number<std::int64_t>(command, "--epochs", a->epochs, 1, 1'000'000, "How often to go through the data");
  add_number<std::int64_t>(command, "--batch-size", a->batch_size, 1, 1 << 20, "Examples a step");
  add_choice(command, "--optimizer", a->optimizer, {"sgd", "adam", "adamw"}, "How parameters follow their gradients");
  add_number<double>(command, "--lr", a->rate, 0, 1e6, "Learning rate; the default is 0.01 for sgd and 0.001 for adam and adamw");
  add_number<double>(command, "--momentum", a->momentum, 0, 1, "Of sgd; the default is 0");
  add_number<double>(command, "--weight-decay", a->weight_decay, 0, 1e6, "The default is 0, for adamw 0.01");
  add_number<double>(command, "--clip-norm", a->clip_norm, 1e-30, 1e30, "Scale the gradients down to this global norm");
  add_seed(command, a->seed);
  add_dtype(command, a->dtype, {DType::f32, DType::f64, DType::f16, DType::bf16});
  add_precision(command, a->precision, a->dtype);
  add_config(command, a->config);
  add_path(command, "--save", a->save, "Write the parameters as a .safetensors checkpoint at the end, or when interrupted");
  add_quiet(command, a->quiet);
  a->run.add_to(command);
  command.callback([a, &action] { action = [a] { return run_train(*a); }; });
}

}  // namespace frit::apps

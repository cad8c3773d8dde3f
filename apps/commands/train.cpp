#include <algorithm>
#include <iostream>

#include "apps/commands/commands.h"
#include "apps/common/interrupt.h"
#include "apps/common/model_graph.h"
#include "apps/common/model_source.h"
#include "apps/common/processes.h"
#include "apps/common/text.h"
#include "apps/report/memory_picture.h"
#include "apps/report/run_record.h"
#include "apps/training/dry_run.h"
#include "apps/training/run_folder.h"
#include "apps/training/train_arguments.h"
#include "apps/training/training_graph.h"
#include "frit/core/cuda/device.h"
#include "frit/core/data/fingerprint.h"
#include "frit/core/io/file.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/numerics.h"
#include "frit/core/text.h"
#include "frit/core/thread_pool.h"
#include "frit/core/warning.h"
#include "frit/models/training/checkpoint.h"

namespace frit::apps {
namespace {

constexpr const char* began_with = "weights";  // in a checkpoint's metadata: what --weights said, empty for fresh parameters

std::shared_ptr<const Dataset> read_validation(const TrainArguments& a, const Model& model) {
  if (!a.validation.empty()) return a.input.validation(model, a.validation, a.data);
  return has_test_split(a.data) ? a.input.validation(model, a.data, a.data) : nullptr;
}

/// Returns what to say of it.
std::string save(const TrainArguments& a, const Model& model, const TrainStep& step) {
  if (a.save.empty() || step.position().batches == 0) return {};
  check_parameters_finite(step);
  const std::shared_ptr<State> state = step.options().average_decay ? step.averaged() : step.shared_state();
  save_checkpoint(a.save, step.graph(), *state, checkpoint_metadata(model));
  return "saved " + printable(a.save);
}

/// Gives the arguments the folder that the run writes, empty for none; a new one where the command line says nothing, unless nothing of use
/// is learnt.
std::unique_ptr<NewRunFolder> choose_folder(TrainArguments& a, const std::string& model) {
  std::unique_ptr<NewRunFolder> folder;
  if (a.run_directory == no_folder)
    a.run_directory.clear();
  else if (a.run_directory.empty() && !a.settings.overfit_one_batch)
    a.run_directory = (folder = std::make_unique<NewRunFolder>(model))->path();
  return folder;
}

/// The examples that the last score is of.
const char* measured_on(const TrainArguments& a) {
  const bool validated = !a.settings.overfit_one_batch;
  return validated && !a.validation.empty() ? "validation" : validated && has_test_split(a.data) ? "test" : "training";
}

/// What the bits of a run depend on besides its settings.
std::string arithmetic(Device device) {
  if (device == Device::cpu()) return "cpu";
  const Numerics chosen = numerics();
  return concat(cuda::model(device.index), chosen.tf32 ? ", tf32" : ", strict", chosen.deterministic ? ", deterministic" : "");
}

/// What a checkpoint's metadata say; nothing if the frit that wrote it did not know the entry.
std::optional<std::string> recorded(const TensorFile& checkpoint, const char* key) {
  const auto place = checkpoint.metadata().find(key);
  return place == checkpoint.metadata().end() ? std::nullopt : std::optional(place->second);
}

/// Who writes a checkpoint, for people, and where the run began, which may have been before this process.
Metadata provenance(const TrainArguments& a, Device device, const std::optional<TensorFile>& before) {
  Metadata metadata = {{"provenance", concat("frit ", FRIT_VERSION, ", data ", printable(a.data))}, {"arithmetic", arithmetic(device)}};
  const std::optional<std::string> began = before ? recorded(*before, began_with) : printable(a.weights);
  if (began) metadata[began_with] = *began;
  return metadata;
}

/// Where the run begins: nothing, or the checkpoint that --resume asks for.
std::optional<TensorFile> find_checkpoint(const TrainArguments& a, const CheckpointFolder* checkpoints) {
  const bool in_directory = a.resumes_in_folder();
  if (!a.resume.empty() && !in_directory) return read_training(a.resume);
  const bool fresh = checkpoints == nullptr || checkpoints->entries().empty();
  require(fresh || in_directory, "--run-dir ", printable(a.run_directory),
          " has the checkpoints of a run; --resume auto goes on with it, another folder starts afresh");
  if (!in_directory) return std::nullopt;
  if (fresh) {
    if (!a.quiet) std::cerr << "nothing to resume in " << printable(a.run_directory) << ": a new run" << std::endl;
    return std::nullopt;
  }
  if (a.resume == "auto") {
    try {
      return checkpoints->read_newest();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::format) throw;
      fail(ErrorKind::format, error.what(), "; hint: --resume latest-good goes back to a good one");
    }
  }
  std::vector<std::string> remarks;
  TensorFile file = checkpoints->read_newest_good(remarks);
  for (const std::string& remark : remarks) warn(remark + "; it was renamed to .damaged");
  return file;
}

/// Of a run that goes on: --weights says where it began, as the same line did then, and is not read again.
void check_weights(const TrainArguments& a, const TensorFile& checkpoint) {
  if (a.weights.empty()) return;
  require(a.resumes_in_folder(), "--weights cannot be given with --resume ", printable(a.resume), ", which has parameters of its own");
  const std::optional<std::string> began = recorded(checkpoint, began_with);
  const std::string given = printable(a.weights);
  require(began != "", "--weights ", given, " does not go with --resume ", a.resume, ": the run in ", printable(a.run_directory),
          " began with fresh parameters");
  if (began && *began != given)
    warn(concat("the run began with the weights ", printable(*began), ", not with ", given));
  else if (!a.quiet)
    std::cerr << "the run began with the weights " << given << ", which are not read again" << std::endl;
}

void go_on(const TrainArguments& a, const TensorFile& checkpoint, Training& training, const CheckpointFolder* checkpoints) {
  check_weights(a, checkpoint);
  training.resume(checkpoint);
  const std::int64_t step = training.step().position().batches;
  const std::optional<std::string> before = recorded(checkpoint, "arithmetic");
  const std::string now = arithmetic(training.step().state().device());
  if (before.value_or(now) != now) {
    warn(concat("the run was on ", printable(*before), ", it goes on on ", now, ": with other bits"));
  }
  const std::int64_t later = checkpoints != nullptr ? checkpoints->set_aside_after(step) : 0;
  if (later > 0) warn(concat(later, " checkpoints of later steps were renamed to .aside"));
  if (!a.quiet) std::cerr << "resumed " << checkpoint.file() << " after step " << step << std::endl;
}

/// `checkpoint` is let go as soon as it has been read.
void begin(const TrainArguments& a, Training& training, std::optional<TensorFile> checkpoint, const CheckpointFolder* checkpoints) {
  if (checkpoint) return go_on(a, *checkpoint, training, checkpoints);
  if (a.weights.empty()) return;
  const TensorFile file = read_safetensors(a.weights);
  for (const std::string& remark : restore(file, training.step().graph(), training.step().state())) warn(remark);
}

void begin_record(RunRecord& record, const TrainArguments& a, Training& training, std::int64_t examples) {
  if (a.run_directory.empty()) return;
  const Device device = training.step().state().device();
  const std::shared_ptr<Communicator>& communicator = training.step().options().communicator;
  record.describe(
      concat("Training of ", a.model),
      {{"data", concat(printable(a.data), ", ", grouped(examples), " examples")},
       {"model", concat(a.model, ", ", grouped(training.parameter_count()), " parameters")},
       {"optimizer", concat(a.settings.optimizer, ", learning rate ", training.step().optimizer().learning_rate, ", schedule ",
                            a.settings.schedule, ", batches of ", a.settings.batch_size, ", seed ", a.settings.seed)},
       {"device", concat(communicator ? concat(communicator->description(), ", each ") : "", device, ", ", thread_count(), " threads")},
       {"program", "frit " FRIT_VERSION}});
  record.set_memory_picture(memory_picture(training.compiled_graph(), "", device));
  record.resume_after(training.step().position().batches, training.position().epoch);
}

/// What has come of a run that was interrupted, for the user: what was saved, and how to go on.
std::string left_by(const TrainArguments& a, const std::string& saved, bool has_checkpoint) {
  const std::string kept = has_checkpoint ? concat("--run-dir ", printable(a.run_directory), " --resume auto goes on from there") : "";
  if (saved.empty() && kept.empty()) return "nothing was saved";
  return concat(saved, saved.empty() || kept.empty() ? "" : "; ", kept);
}

/// What a run learns.
struct Problem {
  Model model;
  std::shared_ptr<const Dataset> data, validation;
};

Problem read_problem(const TrainArguments& a) {
  const Model plain_model = configured_model(a.model, a.config);
  (void)a.settings.make_optimizer();
  (void)a.settings.make_groups();  // refuses what is none before any data are read
  if (a.settings.ignore_index) check_ignorable(plain_model);
  if (!a.save.empty()) {
    remove_stale_temporaries(a.save);
    check_writable(a.save);
  }
  Problem problem;
  problem.data = a.input.training(plain_model, a.data);
  if (!a.settings.overfit_one_batch) problem.validation = read_validation(a, plain_model);
  problem.model = a.input.normalized(plain_model, *problem.data, a.data);
  if (a.settings.overfit_one_batch && !a.dry_run) problem.data = one_batch(problem.data, a.settings);
  return problem;
}

/// Throws ErrorKind::argument in all processes of a group that have not read the same.
void check_same_problem(const Problem& problem, TrainingOptions& options) {
  const ProcessGroup& group = options.group;
  if (group.size() == 1) return;
  options.data_fingerprint = fingerprint(*problem.data);
  if (problem.validation != nullptr) options.validation_fingerprint = fingerprint(*problem.validation);
  group.require_same("the model's configuration", problem.model.config);
  group.require_same("the number of examples", concat(problem.data->size()));
  group.require_same("the checksum of the examples", options.data_fingerprint);
  group.require_same("the checksum of the examples to measure on", options.validation_fingerprint);
  group.require_same("the model's normalization", problem.model.normalization);
}

/// What one process of the group takes, as the first one says.
int print_plan(const TrainArguments& a, const Problem& problem, TrainingOptions options) {
  const ProcessGroup group = options.group;
  if (!group.is_first()) return 0;
  options.settings.batch_size /= group.size();
  const auto validation = problem.validation ? share_of(problem.validation, group) : nullptr;
  apps::print_plan(problem.model, *share_of(problem.data, group), validation.get(), printable(a.data), options, a.json);
  return 0;
}

/// What the first process writes a run to.
struct RunFiles {
  std::unique_ptr<NewRunFolder> folder;
  std::optional<CheckpointFolder> checkpoints;
  std::optional<RunRecord> record;

  CheckpointFolder* checkpoint_folder() { return checkpoints ? &*checkpoints : nullptr; }
};

/// Gives the arguments the folder's path.
void open_files(RunFiles& files, TrainArguments& a, const std::string& model) {
  files.folder = choose_folder(a, model);
  if (!a.run_directory.empty()) files.checkpoints.emplace(a.run_directory + "/checkpoints", a.checkpoints_kept());
  if (!a.run_directory.empty() || !a.profile.empty()) files.record.emplace(a.run_directory, a.profile);
}

/// All processes read the checkpoint that the first one finds.
std::optional<TensorFile> find_checkpoint(const TrainArguments& a, RunFiles& files, const ProcessGroup& group) {
  std::optional<TensorFile> checkpoint;
  group.together([&] {
    if (group.is_first()) checkpoint = find_checkpoint(a, files.checkpoint_folder());
  });
  const bool in_directory = checkpoint && a.resumes_in_folder();
  const std::string path = group.of_first(!checkpoint ? "" : in_directory ? files.checkpoints->entries().back().path : a.resume);
  group.together([&] {
    if (!group.is_first() && !path.empty()) checkpoint = read_training(path);
  });
  return checkpoint;
}

void print_beginning(const TrainArguments& a, const Problem& problem, const Training& training, const RunFiles& files) {
  const TrainStep& step = training.step();
  const std::shared_ptr<Communicator>& communicator = step.options().communicator;
  std::cerr << problem.model.name << ": " << grouped(training.parameter_count()) << " parameters, " << grouped(problem.data->size())
            << " examples; " << step.optimizer().name << ", learning rate " << step.optimizer().learning_rate << "; "
            << step.state().device() << ", " << thread_count() << " threads" << std::endl;
  if (communicator) std::cerr << communicator->description() << std::endl;
  if (files.folder) std::cerr << "run folder " << a.run_directory << std::endl;
  std::cerr << lint_text(step.graph(), "note: ") << std::flush;
}

int train(TrainArguments a, Device device, const ProcessGroup& group) {
  a.require_same(device, group);
  Problem problem;
  group.together([&] {
    a.check_folder_flags();
    problem = read_problem(a);
  });
  TrainingOptions options{.settings = a.settings,
                          .data = a.input,
                          .device = device,
                          .group = group,
                          .shards_optimizer = a.shards_optimizer,
                          .prefetch = a.prefetch,
                          .early_stopping = a.early_stopping,
                          .interval = a.checkpoint_interval(),
                          .quiet = a.quiet};
  check_same_problem(problem, options);
  if (a.dry_run) return print_plan(a, problem, options);
  Allocator& allocator = allocator_of(device);
  const std::size_t before = allocator.statistics().in_use;
  RunFiles files;
  group.together([&] {
    if (group.is_first()) open_files(files, a, problem.model.name);
  });
  options.run_directory = a.run_directory = group.of_first(a.run_directory);
  options.saves = !a.run_directory.empty();
  options.checkpoints = files.checkpoint_folder();
  options.record = files.record ? &*files.record : nullptr;
  allocator.reset_peaks();
  std::optional<TensorFile> checkpoint = find_checkpoint(a, files, group);
  options.metadata = provenance(a, device, checkpoint);
  std::optional<Training> training;
  group.together([&] { training.emplace(problem.model, problem.data, problem.validation, printable(a.data), options); });
  group.together([&] { begin(a, *training, std::move(checkpoint), options.checkpoints); });
  training->share();
  if (files.record) begin_record(*files.record, a, *training, problem.data->size());
  if (!a.quiet) print_beginning(a, problem, *training, files);
  training->run();
  if (files.record) files.record->finish();
  std::string saved;
  group.together([&] { saved = save(a, problem.model, training->step()); });
  if (training->interrupted()) {
    const std::int64_t steps = training->step().position().batches;
    throw ErrorOfAll(ErrorKind::interrupted, concat("interrupted by ", interrupt_name(), " after step ", steps, "; ",
                                                    left_by(a, saved, options.saves && steps > 0)));
  }
  if (!a.quiet && !saved.empty()) std::cerr << saved << std::endl;
  if (group.is_first()) {
    const std::size_t memory = allocator.statistics().peak_in_use - before;
    print_score(problem.model, measured_on(a), training->score(), {memory, a.run_directory}, a.json);
  }
  return 0;
}

int run_train(TrainArguments a) {
  const Device device = Communicator::local_device(a.run.apply());
  const ProcessGroup group(Communicator::from_environment(device));
  if (!group.is_first()) {  // the first one's word counts for all
    a.quiet = true;
    a.save.clear();
    a.profile.clear();
    set_warning_handler({});
  }
  const InterruptRequests requests;
  return group.run([&] { return train(std::move(a), device, group); });
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "train", "Train a model and measure it after each epoch");
  const auto a = std::make_shared<TrainArguments>();
  a->add_to(command);
  set_action(command, action,
             [a] { return a->gpus.starts_processes(a->run.device) ? run_processes(own_command_line(), *a->gpus.count) : run_train(*a); });
}

}  // namespace frit::apps

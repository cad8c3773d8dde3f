#include <algorithm>
#include <iostream>

#include "apps/commands/commands.h"
#include "apps/common/interrupt.h"
#include "apps/common/json.h"
#include "apps/common/model_graph.h"
#include "apps/common/model_source.h"
#include "apps/common/options.h"
#include "apps/common/processes.h"
#include "apps/common/text.h"
#include "apps/report/memory_picture.h"
#include "apps/report/run_record.h"
#include "apps/training/data_options.h"
#include "apps/training/dry_run.h"
#include "apps/training/run_folder.h"
#include "apps/training/training.h"
#include "apps/training/training_graph.h"
#include "frit/core/cuda/device.h"
#include "frit/core/io/file.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/numerics.h"
#include "frit/core/random.h"
#include "frit/core/text.h"
#include "frit/core/thread_pool.h"
#include "frit/models/training/checkpoint.h"

namespace frit::apps {
namespace {

constexpr std::int64_t default_keep = 3;
constexpr const char* no_folder = "none";      // of --run-dir
constexpr const char* began_with = "weights";  // in a checkpoint's metadata: what --weights said, empty for fresh parameters

struct TrainArguments {
  std::string model, config, data, validation, save, weights;
  DataOptions input;
  TrainSettings settings;
  std::string run_directory, resume, profile;  ///< run_directory: empty for a new one, "none" for none
  std::optional<CheckpointInterval> interval;
  std::optional<std::int64_t> keep;
  std::int64_t early_stopping = 0, prefetch = 2;
  bool quiet = false, json = false, dry_run = false;
  RunOptions run;
  GpuOption gpus;
};

std::shared_ptr<const Dataset> read_validation(const TrainArguments& a) {
  if (!a.validation.empty()) return a.input.validation(a.validation, a.data);
  return has_test_split(a.data) ? a.input.validation(a.data, a.data) : nullptr;
}

/// Returns what to say of it.
std::string save(const TrainArguments& a, const Model& model, const TrainStep& step) {
  if (a.save.empty() || step.position().batches == 0) return {};
  check_parameters_finite(step);
  const std::shared_ptr<State> state = step.options().average_decay ? step.averaged() : step.shared_state();
  save_checkpoint(a.save, step.graph(), *state, checkpoint_metadata(model));
  return "saved " + printable(a.save);
}

bool resumes_in_folder(const TrainArguments& a) { return a.resume == "auto" || a.resume == "latest-good"; }

/// Throws ErrorKind::argument for a flag that needs the run's folder where there is none.
void check_folder_flags(const TrainArguments& a) {
  const bool named = !a.run_directory.empty() && a.run_directory != no_folder;
  require(named || !resumes_in_folder(a), "--resume ", a.resume, " goes with --run-dir, where it looks for checkpoints");
  const bool overfits = a.run_directory.empty() && a.settings.overfit_one_batch;
  if (a.run_directory != no_folder && !overfits) return;
  const char* const remark = overfits ? "--overfit-one-batch has none without --run-dir" : "--run-dir none writes none";
  require(!a.interval, "--checkpoint-every needs the run's folder; ", remark);
  require(!a.keep, "--keep needs the run's folder; ", remark);
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

/// `memory`: the most bytes that the training had from the allocator, besides its data.
void print_score(const TrainArguments& a, const Model& model, const Score& score, std::size_t memory) {
  const bool validated = !a.settings.overfit_one_batch;
  const char* const what = validated && !a.validation.empty() ? "validation" : validated && has_test_split(a.data) ? "test" : "training";
  if (a.json) {
    Json json = {{"model", model.name}, {"examples", what}, {"loss", score.loss()}};
    if (model.has_classes()) json["accuracy"] = score.accuracy() / 100;
    if (score.top5()) json["top5"] = *score.top5() / 100;
    if (score.dice()) json["dice"] = *score.dice(), json["iou"] = *score.iou();
    json["peak_memory_bytes"] = memory;
    if (!a.run_directory.empty()) json["run_directory"] = a.run_directory;
    return print(std::cout, json);
  }
  std::cout << what << " loss " << fixed(score.loss(), 4) << '\n';
  if (model.has_classes()) std::cout << what << " accuracy " << fixed(score.accuracy(), 2) << " %\n";
  if (score.top5()) std::cout << what << " top-5 " << fixed(*score.top5(), 2) << " %\n";
  if (score.dice()) std::cout << what << " Dice " << fixed(*score.dice(), 4) << ", IoU " << fixed(*score.iou(), 4) << '\n';
}

/// One batch of examples, as often as the data have batches.
std::shared_ptr<const Dataset> one_batch(const std::shared_ptr<const Dataset>& data, const TrainSettings& settings) {
  const std::int64_t size = std::min(settings.batch_size, data->size());
  std::vector<std::int64_t> chosen = permutation(data->size(), settings.seed, 0);
  chosen.resize(static_cast<std::size_t>(size));
  std::vector<std::int64_t> indices;
  for (std::int64_t done = 0; done < data->size(); done += size) indices.insert(indices.end(), chosen.begin(), chosen.end());
  return subset(data, std::move(indices));
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
  const bool in_directory = resumes_in_folder(a);
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
  for (const std::string& remark : remarks) print_warning(remark + "; it was renamed to .damaged");
  return file;
}

/// Of a run that goes on: --weights says where it began, as the same line did then, and is not read again.
void check_weights(const TrainArguments& a, const TensorFile& checkpoint) {
  if (a.weights.empty()) return;
  require(resumes_in_folder(a), "--weights cannot be given with --resume ", printable(a.resume), ", which has parameters of its own");
  const std::optional<std::string> began = recorded(checkpoint, began_with);
  const std::string given = printable(a.weights);
  require(began != "", "--weights ", given, " does not go with --resume ", a.resume, ": the run in ", printable(a.run_directory),
          " began with fresh parameters");
  if (began && *began != given)
    print_warning(concat("the run began with the weights ", printable(*began), ", not with ", given));
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
    print_warning(concat("the run was on ", printable(*before), ", it goes on on ", now, ": with other bits"));
  }
  const std::int64_t later = checkpoints != nullptr ? checkpoints->set_aside_after(step) : 0;
  if (later > 0) print_warning(concat(later, " checkpoints of later steps were renamed to .aside"));
  if (!a.quiet) std::cerr << "resumed " << checkpoint.file() << " after step " << step << std::endl;
}

/// `checkpoint` is let go as soon as it has been read.
void begin(const TrainArguments& a, Training& training, std::optional<TensorFile> checkpoint, const CheckpointFolder* checkpoints) {
  if (checkpoint) return go_on(a, *checkpoint, training, checkpoints);
  if (a.weights.empty()) return;
  const TensorFile file = read_safetensors(a.weights);
  for (const std::string& remark : restore(file, training.step().graph(), training.step().state())) print_warning(remark);
}

void begin_record(RunRecord& record, const TrainArguments& a, Training& training, Device device, std::int64_t examples) {
  if (a.run_directory.empty()) return;
  record.describe(concat("Training of ", a.model),
                  {{"data", concat(printable(a.data), ", ", grouped(examples), " examples")},
                   {"model", concat(a.model, ", ", grouped(training.parameter_count()), " parameters")},
                   {"optimizer", concat(a.settings.optimizer, ", learning rate ", training.step().optimizer().learning_rate, ", schedule ",
                                        a.settings.schedule, ", batches of ", a.settings.batch_size, ", seed ", a.settings.seed)},
                   {"device", concat(device, ", ", thread_count(), " threads")},
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

int run_train(TrainArguments a) {
  check_folder_flags(a);
  const Model plain_model = configured_model(a.model, a.config);
  const Optimizer optimizer = a.settings.make_optimizer();
  (void)a.settings.make_groups();  // refuses what is none before any data are read
  if (a.settings.ignore_index) check_ignorable(plain_model);
  const Device device = a.run.apply();
  if (!a.save.empty()) {
    remove_stale_temporaries(a.save);
    check_writable(a.save);
  }
  const InterruptRequests requests;
  std::shared_ptr<const Dataset> data = a.input.training(a.data);
  const std::shared_ptr<const Dataset> validation = a.settings.overfit_one_batch ? nullptr : read_validation(a);
  const Model model = a.input.normalized(plain_model, *data, a.data);
  TrainingOptions options{.settings = a.settings,
                          .data = a.input,
                          .device = device,
                          .prefetch = a.prefetch,
                          .early_stopping = a.early_stopping,
                          .interval = a.interval.value_or(CheckpointInterval()),
                          .quiet = a.quiet};
  if (a.dry_run) {
    print_plan(model, *data, validation.get(), printable(a.data), options, a.json);
    return 0;
  }
  if (a.settings.overfit_one_batch) data = one_batch(data, a.settings);
  Allocator& allocator = allocator_of(device);
  const std::size_t before = allocator.statistics().in_use;
  const std::unique_ptr<NewRunFolder> folder = choose_folder(a, model.name);
  std::optional<CheckpointFolder> checkpoints;
  if (!a.run_directory.empty()) checkpoints.emplace(a.run_directory + "/checkpoints", a.keep.value_or(default_keep));
  std::optional<RunRecord> record;
  if (!a.run_directory.empty() || !a.profile.empty()) record.emplace(a.run_directory, a.profile);
  options.checkpoints = checkpoints ? &*checkpoints : nullptr;
  options.run_directory = a.run_directory;
  options.record = record ? &*record : nullptr;
  allocator.reset_peaks();
  std::optional<TensorFile> checkpoint = find_checkpoint(a, options.checkpoints);
  options.metadata = provenance(a, device, checkpoint);
  Training training(model, data, validation, printable(a.data), options);
  begin(a, training, std::move(checkpoint), options.checkpoints);
  if (record) begin_record(*record, a, training, device, data->size());
  if (!a.quiet) {
    std::cerr << model.name << ": " << grouped(training.parameter_count()) << " parameters, " << grouped(data->size()) << " examples; "
              << optimizer.name << ", learning rate " << optimizer.learning_rate << "; " << device << ", " << thread_count() << " threads"
              << std::endl;
  }
  if (!a.quiet && folder) std::cerr << "run folder " << folder->path() << std::endl;
  if (!a.quiet) std::cerr << lint_text(training.step().graph(), "note: ") << std::flush;
  training.run();
  if (record) record->finish();
  const std::string saved = save(a, model, training.step());
  if (interrupt_signal() != 0) {
    const std::int64_t steps = training.step().position().batches;
    fail(ErrorKind::interrupted, "interrupted by ", interrupt_name(), " after step ", steps, "; ",
         left_by(a, saved, checkpoints && steps > 0));
  }
  if (!a.quiet && !saved.empty()) std::cerr << saved << std::endl;
  print_score(a, model, training.score(), allocator.statistics().peak_in_use - before);
  return 0;
}

void add_interval(CLI::App& command, std::optional<CheckpointInterval>& interval) {
  const auto take = [&interval](const std::string& text) {
    const bool epochs = text.ends_with('e');
    const auto count = parse_number<std::int64_t>(std::string_view(text).substr(0, text.size() - (epochs ? 1 : 0)));
    if (!count || *count < 1) {
      refuse("--checkpoint-every",
             concat("expected a number of steps, such as 500, or of epochs, such as 2e, got \"", printable(text), '"'));
    }
    interval = {*count, epochs};
  };
  // A default would be in what --print-config writes, and be refused where there is no folder.
  add_option(command, "--checkpoint-every", take,
             "How often to write a checkpoint: after so many steps, or with an e after so many epochs; the default is 1e")
      .type_name("N|Ne");
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "train", "Train a model and measure it after each epoch");
  const auto a = std::make_shared<TrainArguments>();
  add_option(command, "MODEL", a->model, "A model's name (see `frit info`)").required().type_name("");
  add_path(command, "--data", a->data,
           "What to learn: a .safetensors or .npz file with the arrays \"input\" and \"target\"; or a folder: inputs.npy and targets.npy; "
           "MNIST files (IDX, plain or .gz); PNG or JPEG images in one folder a class; such images in images/ and PNG masks of classes in "
           "masks/; NIfTI volumes inputs.nii and targets.nii, or pairs of "
           "the same name in inputs/ and targets/; or train/ and test/ with any of these. MNIST and test/ are for validation")
      .required()
      .reads(dataset_files);
  add_path(command, "--validation", a->validation, "What to measure on, likewise").reads(dataset_files);
  a->input.add_to(command);
  a->settings.add_to(command);
  add_config(command, a->config);
  add_path(command, "--save", a->save, "Write the parameters as a .safetensors checkpoint at the end, or when interrupted").writes();
  add_path(command, "--weights", a->weights, "A checkpoint whose parameters to begin with; of a run that goes on, where it began").reads();
  add_path(command, "--run-dir", a->run_directory,
           "The run's own folder: report.html, metrics as CSV and for TensorBoard, and checkpoints/. The default is a new one, "
           "runs/MODEL-YYYYMMDD-HHMMSS, but for --overfit-one-batch none; none: nothing is written")
      .type_name("PATH|none")
      .writes([](const std::string& word) { return word == no_folder ? std::vector<std::string>() : run_files(word); });
  add_path(command, "--profile", a->profile,
           "Write some of the first steps, operator by operator, as a trace for Perfetto (ui.perfetto.dev)")
      .writes();
  add_interval(command, a->interval);
  add_number<std::int64_t>(command, "--keep", a->keep, 2, 1'000'000,
                           "How many of the newest checkpoints stay, besides the best; the default is 3");
  add_option(command, "--resume", a->resume,
             "Go on with the same bits: auto from the newest checkpoint of --run-dir, if there is one; latest-good likewise, passing "
             "damaged ones over; or from the checkpoint of this path. The data and the other flags must be those of the run")
      .type_name("auto|latest-good|PATH")
      .reads([a](const std::string& word) {
        // The run that goes on may replace the checkpoint where it began, as it does with those of its own that it finds.
        const bool own = resumes_in_folder(*a) || is_checkpoint_of(a->run_directory, word);
        return own ? std::vector<std::string>() : the_path(word);
      });
  add_flag(command, "--dry-run", a->dry_run,
           "Print the parameters, the memory that training takes, and the largest batch that fits; then stop");
  add_number<std::int64_t>(command, "--early-stopping", a->early_stopping, 1, 1'000'000, "Stop after so many epochs without a lower loss");
  add_number<std::int64_t>(command, "--prefetch", a->prefetch, 0, 1024, "Batches that are read ahead");
  add_quiet(command, a->quiet);
  add_json(command, a->json);
  a->gpus.add_to(command);
  a->run.add_to(command);
  set_action(command, action,
             [a] { return a->gpus.starts_processes(a->run.device) ? run_processes(own_command_line(), *a->gpus.count) : run_train(*a); });
}

}  // namespace frit::apps

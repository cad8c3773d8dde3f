#include "apps/training/train_arguments.h"

#include "apps/training/run_folder.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

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

void TrainArguments::add_to(CLI::App& command) {
  add_option(command, "MODEL", model, "A model's name (see `frit info`)").required().type_name("");
  add_path(command, "--data", data,
           "What to learn: a .safetensors or .npz file with the arrays \"input\" and \"target\"; or a folder: inputs.npy and targets.npy; "
           "MNIST files (IDX, plain or .gz); PNG or JPEG images in one folder a class; such images in images/ and PNG masks of classes in "
           "masks/; NIfTI volumes inputs.nii and targets.nii, or pairs of "
           "the same name in inputs/ and targets/; or train/ and test/ with any of these. MNIST and test/ are for validation")
      .required()
      .reads(dataset_files);
  add_path(command, "--validation", validation, "What to measure on, likewise").reads(dataset_files);
  input.add_to(command);
  settings.add_to(command);
  add_config(command, config);
  add_path(command, "--save", save, "Write the parameters as a .safetensors checkpoint at the end, or when interrupted").writes();
  add_path(command, "--weights", weights, "A checkpoint whose parameters to begin with; of a run that goes on, where it began").reads();
  add_path(command, "--run-dir", run_directory,
           "The run's own folder: report.html, metrics as CSV and for TensorBoard, and checkpoints/. The default is a new one, "
           "runs/MODEL-YYYYMMDD-HHMMSS, but for --overfit-one-batch none; none: nothing is written")
      .type_name("PATH|none")
      .writes([](const std::string& word) { return word == no_folder ? std::vector<std::string>() : run_files(word); });
  add_path(command, "--profile", profile, "Write some of the first steps, operator by operator, as a trace for Perfetto (ui.perfetto.dev)")
      .writes();
  add_interval(command, interval);
  add_number<std::int64_t>(command, "--keep", keep, 2, 1'000'000,
                           concat("How many of the newest checkpoints stay, besides the best; the default is ", default_keep));
  add_option(command, "--resume", resume,
             "Go on with the same bits: auto from the newest checkpoint of --run-dir, if there is one; latest-good likewise, passing "
             "damaged ones over; or from the checkpoint of this path. The data and the other flags must be those of the run")
      .type_name("auto|latest-good|PATH")
      .reads([this](const std::string& word) {
        // The run that goes on may replace the checkpoint where it began, as it does with those of its own that it finds.
        const bool own = resumes_in_folder() || is_checkpoint_of(run_directory, word);
        return own ? std::vector<std::string>() : the_path(word);
      });
  add_flag(command, "--dry-run", dry_run,
           "Print the parameters, the memory that training takes, and the largest batch that fits; then stop");
  add_flag(command, "--shard-optimizer", shards_optimizer,
           "Of several processes each updates, and keeps the optimizer's moments of, a part of every parameter: less memory, the same "
           "training");
  add_number<std::int64_t>(command, "--early-stopping", early_stopping, 1, 1'000'000, "Stop after so many epochs without a lower loss");
  add_number<std::int64_t>(command, "--prefetch", prefetch, 0, 1024, "Batches that are read ahead");
  add_quiet(command, quiet);
  add_json(command, json);
  gpus.add_to(command, "Train on so many GPUs of this machine, a process each, that share the examples of each batch");
  run.add_to(command);
}

void TrainArguments::check_folder_flags() const {
  const bool named = !run_directory.empty() && run_directory != no_folder;
  require(named || !resumes_in_folder(), "--resume ", resume, " goes with --run-dir, where it looks for checkpoints");
  const bool overfits = run_directory.empty() && settings.overfit_one_batch;
  if (run_directory != no_folder && !overfits) return;
  const char* const remark = overfits ? "--overfit-one-batch has none without --run-dir" : "--run-dir none writes none";
  require(!interval, "--checkpoint-every needs the run's folder; ", remark);
  require(!keep, "--keep needs the run's folder; ", remark);
}

void TrainArguments::require_same(Device on, const ProcessGroup& group) const {
  group.require_same("frit's version", FRIT_VERSION);
  group.require_same("MODEL", model);
  group.require_same_entries("--", fields_to_json(settings));
  group.require_same_entries("--", fields_to_json(DataOptions(input)));
  group.require_same("--epochs", concat(settings.epochs));
  group.require_same("--early-stopping", concat(early_stopping));
  group.require_same("--checkpoint-every", concat(checkpoint_interval().count, checkpoint_interval().epochs ? "e" : ""));
  group.require_same("--run-dir", run_directory);
  group.require_same("--resume", resume);
  group.require_same("--device", on == Device::cpu() ? "cpu" : "cuda");
  group.require_same("--deterministic", run.deterministic ? "true" : "false");
  group.require_same("--math", run.math);
  group.require_same("--shard-optimizer", shards_optimizer ? "true" : "false");
  group.require_same("--dry-run", dry_run ? "true" : "false");
  if (settings.batch_size % group.size() == 0) return;
  throw ErrorOfAll(ErrorKind::argument, concat("--batch-size ", settings.batch_size, " does not go with ", group.size(),
                                               " processes: each learns an equal part of every batch"));
}

}  // namespace frit::apps

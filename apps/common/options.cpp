#include "apps/common/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <limits>

#include "apps/common/command.h"
#include "frit/core/numerics.h"
#include "frit/core/plan_cache.h"
#include "frit/core/thread_pool.h"

namespace frit::apps {
namespace {

std::string listed(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

Option add_number_format(CLI::App& command, const std::string& name, DType initial, const std::vector<DType>& choices,
                         const std::function<void(DType)>& choose, const std::string& description) {
  std::vector<std::string> names;
  for (const DType choice : choices) names.emplace_back(name_of(choice));
  const auto take = [name, names, choose](const std::string& text) {
    if (std::find(names.begin(), names.end(), text) == names.end()) {
      refuse(name, concat("expected ", listed(names, ", "), ", got \"", printable(text), '"'));
    }
    choose(parse_dtype(text));
  };
  return add_option(command, name, take, description).type_name(listed(names, "|")).default_str(std::string(name_of(initial)));
}

Option with_value(CLI::App& command, CLI::Option* option) {
  option->check([](const std::string& value) { return value.empty() ? empty_value : ""; }, "");
  return Option(command, option);
}

}  // namespace

std::vector<std::string> the_path(const std::string& word) { return {word}; }

CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& description) {
  const auto command = std::make_shared<Command>(description, name);
  command->footer(app.get_footer());
  return *app.add_subcommand(command);
}

void set_action(CLI::App& command, Action& action, Action run) {
  command.callback([&action, run = std::move(run)] { action = run; });
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::default_str(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Option& Option::envname(const std::string& variable) {
  option_->envname(variable);
  return *this;
}

Option& Option::excludes(const std::vector<std::string>& others) {
  for (const std::string& other : others) option_->excludes(command_.get_option(other));
  return *this;
}

Option& Option::reads(FilesOf files) {
  dynamic_cast<Command&>(command_).file_options.push_back({option_, /*written=*/false, std::move(files)});
  return *this;
}

Option& Option::writes(FilesOf files) {
  dynamic_cast<Command&>(command_).file_options.push_back({option_, /*written=*/true, std::move(files)});
  return *this;
}

Option add_option(CLI::App& command, const std::string& name, std::string& value, const std::string& description) {
  return with_value(command, command.add_option(name, value, description));
}

Option add_option(CLI::App& command, const std::string& name, std::optional<std::string>& value, const std::string& description) {
  return with_value(command, command.add_option(name, value, description));
}

Option add_option(CLI::App& command, const std::string& name, std::vector<std::string>& values, const std::string& description) {
  return with_value(command, command.add_option(name, values, description));
}

Option add_option(CLI::App& command, const std::string& name, const std::function<void(const std::string&)>& take,
                  const std::string& description) {
  return with_value(command, command.add_option_function<std::string>(name, take, description));
}

Option add_flag(CLI::App& command, const std::string& name, bool& value, const std::string& description) {
  return Option(command, command.add_flag(name, value, description));
}

void refuse(const std::string& name, const std::string& message) { throw CLI::ValidationError(name, message); }

Option add_choice(CLI::App& command, const std::string& name, std::string& value, const std::vector<std::string>& choices,
                  const std::string& description) {
  const auto take = [name, choices, &value](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      refuse(name, concat("expected ", listed(choices, ", "), ", got \"", printable(text), '"', did_you_mean(text, choices)));
    }
    value = text;
  };
  return add_option(command, name, take, description).type_name(listed(choices, "|")).default_str(value);
}

Option add_dtype(CLI::App& command, DType& dtype, const std::vector<DType>& choices) {
  return add_number_format(
      command, "--dtype", dtype, choices, [&dtype](DType chosen) { dtype = chosen; }, "Number format of parameters and computation");
}

Option add_precision(CLI::App& command, DType& precision, DType& dtype) {
  const auto take = [&](DType chosen) {
    precision = chosen;
    dtype = DType::f32;
  };
  return add_number_format(command, "--precision", precision, {DType::f32, DType::f16, DType::bf16}, take,
                           "Number format of stored activations and their gradients; parameters, sums and losses stay float32")
      .excludes({"--dtype"});
}

Option add_shape(CLI::App& command, const std::string& name, Shape& shape, const std::string& description) {
  const auto take = [name, &shape](const std::string& text) {
    std::vector<std::int64_t> sizes;
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t comma = std::min(text.find(',', begin), text.size());
      const auto size = parse_number<std::int64_t>(std::string_view(text).substr(begin, comma - begin));
      if (!size || *size < 0 || sizes.size() == Dims::max_rank) {
        refuse(name, concat("expected at most 8 sizes such as 4,3,16,16, got \"", printable(text), '"'));
      }
      sizes.push_back(*size);
      begin = comma + 1;
    }
    shape = Shape(std::span<const std::int64_t>(sizes));
  };
  return add_option(command, name, take, description).type_name("N,C,...");
}

Option add_path(CLI::App& command, const std::string& name, std::string& path, const std::string& description) {
  return add_option(command, name, path, description).type_name("PATH");
}

Option add_plan_cache(CLI::App& command, std::optional<std::string>& path) {
  return add_option(
             command, "--plan-cache", path,
             "Where a GPU's fastest plans are kept for other runs; off: nowhere. The default is $FRIT_PLAN_CACHE, or frit/plans.json in "
             "the user's cache folder")
      .type_name("PATH|off")
      .envname("FRIT_PLAN_CACHE")
      .writes([](const std::string& word) { return word == "off" ? std::vector<std::string>() : the_path(word); });
}

void RunOptions::add_to(CLI::App& command, bool with_search) {
  add_option(command, "--device", device, "Where to compute; auto: on a GPU if there is one")
      .type_name("auto|cpu|cuda|cuda:N")
      .default_str(device)
      .envname("FRIT_DEVICE");
  add_number<int>(command, "--threads", threads, 1, 4096, "Threads on the CPU; the default is one for each core").envname("FRIT_THREADS");
  add_flag(command, "--deterministic", deterministic,
           "The same bits at every run; on the CPU every run is so, for any number of threads, and inference in batches of any size")
      .envname("FRIT_DETERMINISTIC");
  add_choice(command, "--math", math, {"tf32", "strict"}, "Convolutions and matrix products in float32 on a GPU").envname("FRIT_MATH");
  add_number<std::int64_t>(command, "--workspace-limit", workspace_limit, 0, std::int64_t{1} << 50,
                           "Bytes of workspace that one convolution or matrix product on a GPU may take")
      .envname("FRIT_WORKSPACE_LIMIT");
  add_plan_cache(command, plan_cache);
  if (!with_search) return;
  add_choice(command, "--search", search, {"heuristic", "exhaustive"},
             "How plans are chosen that a GPU's plan cache does not have: by rule, within seconds, or by running all that there are")
      .envname("FRIT_SEARCH");
}

Device RunOptions::apply() const {
  if (threads) set_thread_count(*threads);
  set_numerics({.tf32 = math == "tf32",
                .deterministic = deterministic,
                .workspace_limit = static_cast<std::size_t>(workspace_limit),
                .search = search == "exhaustive" ? Search::exhaustive : Search::heuristic});
  if (plan_cache) frit::plan_cache().use_file(*plan_cache);
  return Device::parse(device);
}

Option add_ignore_index(CLI::App& command, std::optional<std::int64_t>& index) {
  return add_number<std::int64_t>(command, "--ignore-index", index, -most_ignore_index, most_ignore_index,
                                  "Of a segmentation's masks: places with this number instead of a class count for nothing");
}

Option add_seed(CLI::App& command, std::uint64_t& seed) {
  return add_number<std::uint64_t>(command, "--seed", seed, 0, std::numeric_limits<std::uint64_t>::max(),
                                   "Of the initial parameters and the order of the examples");
}

Option add_quiet(CLI::App& command, bool& quiet) {
  return add_flag(command, "-q,--quiet", quiet, "No progress on stderr").envname("FRIT_QUIET");
}

Option add_json(CLI::App& command, bool& json) {
  return add_flag(command, "--json", json, "Print the result as JSON").envname("FRIT_JSON");
}

Option add_config(CLI::App& command, std::string& config) {
  return add_option(command, "--model-config", config, "The model's configuration as a JSON object, or @ and the path of a file with one")
      .type_name("JSON|@PATH")
      .reads([](const std::string& word) { return word.starts_with('@') ? the_path(word.substr(1)) : std::vector<std::string>(); });
}

}  // namespace frit::apps

#include <zlib.h>

#include <CLI/Version.hpp>
#include <iostream>

#include "apps/commands/commands.h"
#include "apps/common/json.h"
#include "apps/common/model_source.h"
#include "apps/common/options.h"
#include "apps/common/table.h"
#include "apps/common/text.h"
#include "frit/core/cuda/device.h"
#include "frit/core/io/safetensors_checksums.h"
#include "frit/core/plan_cache.h"
#include "frit/core/processor.h"
#include "frit/core/text.h"
#include "frit/core/thread_pool.h"
#include "frit/ops/cpu/bfloat_product.h"
#include "frit/ops/operator/operator.h"

namespace frit::apps {
namespace {

#ifdef __clang__
constexpr const char* compiler = "clang++ " __clang_version__;
#else
constexpr const char* compiler = "g++ " __VERSION__;
#endif

std::string devices_text() {
  std::string text;
  for (const Device& device : available_devices()) {
    text += concat(text.empty() ? "" : "; ", device);
    if (device.kind == DeviceKind::cuda) text += concat(' ', cuda::description(device.index));
  }
  return text;
}

std::string models_text() {
  std::string text;
  for (const std::string& name : model_names()) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string backends(const ops::Operator& op) { return op.view ? "view" : op.cuda && !cuda::version().empty() ? "cpu cuda" : "cpu"; }

std::string dtypes(const ops::Operator& op) {
  std::string text;
  for (const DType dtype : op.dtypes) text += (text.empty() ? "" : " ") + std::string(name_of(dtype));
  return text;
}

/// What multiplies bfloat16 numbers on the CPU.
std::string bfloat_text() {
  switch (ops::bfloat_instructions()) {
    case ops::BfloatInstructions::amx: return "AMX";
    case ops::BfloatInstructions::avx512: return "AVX-512 BF16";
    case ops::BfloatInstructions::none: break;
  }
  return "float32";
}

std::string plan_cache_text() {
  const std::string path = plan_cache().path();
  return path.empty() ? "off" : concat(printable(path), ", ", grouped(static_cast<long long>(plan_cache().size())), " entries");
}

int print_program() {
  Table facts({{"frit"}, {FRIT_VERSION}});
  facts.add({"build", concat(FRIT_BUILD_TYPE, ", ", compiler, ", for ", FRIT_BUILD_NATIVE, ", sanitizers: ", FRIT_BUILD_SANITIZERS)});
  facts.add({"processor", concat("code for ", compiled_processor_level(), ", the machine has ", machine_processor_level(), ", bfloat16 by ",
                                 bfloat_text())});
  facts.add({"devices", devices_text()});
  facts.add({"threads", concat(thread_count())});
  facts.add({"libraries", concat("nlohmann json ", NLOHMANN_JSON_VERSION_MAJOR, '.', NLOHMANN_JSON_VERSION_MINOR, '.',
                                 NLOHMANN_JSON_VERSION_PATCH, ", zlib ", zlibVersion(), ", CLI11 ", CLI11_VERSION, FRIT_CUDA_LIBRARIES)});
  facts.add({"models", models_text()});
  facts.add({"plan cache", plan_cache_text()});
  facts.print(std::cout);

  std::cout << '\n';
  Table operators({{"operator"}, {"backends"}, {"dtypes"}, {"gradient"}, {"meaning"}});
  for (const ops::Operator* op : ops::registry().all()) {
    operators.add({op->name, backends(*op), dtypes(*op), op->gradient ? "yes" : "none: " + op->no_gradient, op->summary});
  }
  operators.print(std::cout);
  return 0;
}

Json program_json() {
  Json devices = Json::array(), operators = Json::array();
  for (const Device& device : available_devices()) {
    devices.push_back({{"device", concat(device)}});
    if (device.kind == DeviceKind::cuda) devices.back()["name"] = cuda::description(device.index);
  }
  for (const ops::Operator* op : ops::registry().all()) {
    operators.push_back({{"name", op->name},
                         {"backends", backends(*op)},
                         {"dtypes", dtypes(*op)},
                         {"gradient", bool(op->gradient)},
                         {"meaning", op->summary}});
  }
  return {{"version", FRIT_VERSION},
          {"build", FRIT_BUILD_TYPE},
          {"compiler", compiler},
          {"processor", {{"code", compiled_processor_level()}, {"machine", machine_processor_level()}, {"bfloat16", bfloat_text()}}},
          {"devices", devices},
          {"threads", thread_count()},
          {"models", model_names()},
          {"plan_cache", plan_cache().path()},
          {"operators", operators}};
}

/// Then all that the file holds is compared with them.
bool has_checksums(const SafetensorsHeader& header, const std::string& path) {
  return header.metadata().contains("checksums") && verify_checksums(read_safetensors(path));
}

Json checkpoint_json(const std::string& path) {
  const SafetensorsHeader file = read_safetensors_header(path);
  const bool checked = has_checksums(file, path);
  Json metadata = Json::object(), tensors = Json::array();
  for (const auto& [key, value] : file.metadata()) metadata[key] = value;
  for (std::size_t i = 0; i < file.size(); ++i) {
    const SafetensorsHeader::Entry entry = file.entry(i);
    tensors.push_back({{"name", entry.name}, {"dtype", name_of(entry.dtype)}, {"shape", shape_json(entry.shape)}});
  }
  return {{"metadata", metadata}, {"tensors", tensors}, {"checksums", checked}};
}

/// The parameters of a model, in the order of its building.
std::vector<std::pair<std::string, TensorType>> parameters_of(const Model& model) {
  Graph graph;
  model.add_to(Scope(graph), model.ample_input());
  std::vector<std::pair<std::string, TensorType>> parameters;
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) parameters.emplace_back(node->name, graph.type(node->outputs[0]));
  return parameters;
}

const char* task_name(Model::Task task) {
  switch (task) {
    case Model::Task::classification: return "classification";
    case Model::Task::segmentation: return "segmentation";
    default: return "regression";
  }
}

Json model_json(const Model& model) {
  Json parameters = Json::array();
  for (const auto& [name, type] : parameters_of(model)) parameters.push_back({{"name", name}, {"shape", shape_json(type.shape)}});
  Json sides = Json::array(), heads = Json::array();
  for (const Model::SideInput& side : model.side_inputs)
    sides.push_back({{"name", side.name}, {"dtype", name_of(side.dtype)}, {"shape", shape_json(side.shape)}});
  for (const Model::Head& head : model.heads)
    heads.push_back({{"name", head.name}, {"task", task_name(head.task)}, {"weight", head.weight}});
  return {{"model", model.name},
          {"config", Json::parse(model.config)},
          {"task", task_name(model.task)},
          {"side_inputs", sides},
          {"heads", heads},
          {"parameters", parameters}};
}

/// Fit to print, with its quotes as they are: metadata are often JSON.
std::string readable(const std::string& text) {
  std::string result = printable(text);
  for (std::size_t place = 0; (place = result.find("\\\"", place)) != std::string::npos; ++place) result.erase(place, 1);
  return result;
}

int print_checkpoint(const std::string& path) {
  const SafetensorsHeader file = read_safetensors_header(path);
  const bool checked = has_checksums(file, path);
  for (const auto& [key, value] : file.metadata()) std::cout << readable(key) << ": " << readable(value) << '\n';
  if (!file.metadata().empty()) std::cout << '\n';
  Table tensors({{"tensor"}, {"dtype"}, {"shape"}, {"elements", Table::Column::right}});
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < file.size(); ++i) {
    const SafetensorsHeader::Entry entry = file.entry(i);
    const std::int64_t count = element_count(entry.shape);
    tensors.add({printable(entry.name), std::string(name_of(entry.dtype)), concat(entry.shape), grouped(count)});
    elements += count;
  }
  tensors.print(std::cout);
  std::cout << '\n'
            << grouped(static_cast<long long>(file.size())) << " tensors, " << grouped(elements) << " elements"
            << (checked ? ", which have the checksums that they were written with\n" : "; there are no checksums\n");
  return 0;
}

int print_model(const Model& model) {
  std::cout << "model: " << model.name << "\nconfig: " << model.config << "\ntask: " << task_name(model.task) << '\n';
  for (const Model::SideInput& side : model.side_inputs)
    std::cout << "side input: " << printable(side.name) << ", " << side.dtype << ' ' << side.shape << " an example\n";
  for (const Model::Head& head : model.heads) {
    std::cout << "output: " << printable(head.name) << ", " << (head.weight > 0 ? task_name(head.task) : "not learnt");
    std::cout << (head.weight > 0 ? concat(", weight ", head.weight, "\n") : "\n");
  }
  std::cout << '\n';
  Table parameters({{"parameter"}, {"shape"}, {"elements", Table::Column::right}});
  std::int64_t elements = 0;
  for (const auto& [parameter, type] : parameters_of(model)) {
    parameters.add({parameter, concat(type.shape), grouped(type.elements())});
    elements += type.elements();
  }
  parameters.print(std::cout);
  std::cout << '\n' << grouped(elements) << " elements\n";
  return 0;
}

struct InfoArguments {
  std::string subject, config;
  std::optional<std::string> plan_cache;
  bool json = false;
};

int run_info(const InfoArguments& a) {
  const bool is_model = !a.subject.empty() && !names_file(a.subject);
  require(a.config.empty() || is_model, "--model-config goes with a model's name; a checkpoint has its own configuration");
  if (a.plan_cache) plan_cache().use_file(*a.plan_cache);
  if (a.json) {
    print(std::cout, a.subject.empty() ? program_json()
                     : is_model        ? model_json(configured_model(a.subject, a.config))
                                       : checkpoint_json(a.subject));
    return 0;
  }
  if (a.subject.empty()) return print_program();
  return is_model ? print_model(configured_model(a.subject, a.config)) : print_checkpoint(a.subject);
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "info", "Describe this program, a checkpoint or a model");
  const auto a = std::make_shared<InfoArguments>();
  add_option(command, "MODEL|CHECKPOINT", a->subject, "A .safetensors file, or a model's name; none: the program itself")
      .type_name("")
      .reads(checkpoint_of);
  add_config(command, a->config);
  add_plan_cache(command, a->plan_cache);
  add_json(command, a->json);
  set_action(command, action, [a] { return run_info(*a); });
}

}  // namespace frit::apps

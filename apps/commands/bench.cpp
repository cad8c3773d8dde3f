#include <cstring>
#include <iostream>

#include "apps/benchmark/benchmark.h"
#include "apps/commands/commands.h"
#include "apps/common/model_source.h"
#include "apps/common/processes.h"
#include "apps/report/trace.h"
#include "apps/scaling/communication.h"
#include "apps/scaling/scaling.h"
#include "frit/core/cuda/device.h"
#include "frit/core/io/file.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/thread_pool.h"
#include "frit/core/timer.h"
#include "frit/ops/cpu/peak.h"

namespace frit::apps {
namespace {

struct BenchArguments : BenchmarkOptions {
  std::string format = "table";
  std::string trace;
  bool per_operator = false, plans = false, json = false, communication = false;
  std::optional<std::int64_t> largest_tensor;
  ScalingOptions scaling;
  GpuOption gpus;

  std::string chosen_format() const { return json ? "json" : format; }
};

std::string text_of(Device device) { return concat(device, on_gpu(device) ? concat(' ', cuda::description(device.index)) : ""); }

/// GB/s of a copy that no cache holds, bytes read and written.
double measure_copy_bandwidth(Device device) {
  const std::int64_t bytes = std::int64_t{1} << (on_gpu(device) ? 30 : 27);
  constexpr std::int64_t grain = 1 << 22;
  const Tensor from = Tensor::zeros({bytes}, DType::u8, device), to = from.clone();
  Timer timer(device);
  const auto run = [&] {
    if (on_gpu(device)) return copy(to, from);
    parallel_for(bytes, grain, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.data<std::uint8_t>() + begin, from.data<std::uint8_t>() + begin, static_cast<std::size_t>(end - begin));
    });
  };
  for (int i = 0; i < 10; ++i) timer.time(run);
  return 2 * static_cast<double>(bytes) / 1e3 / quantile(timer.take(), 0.5);
}

/// What does not go together, before anything is computed.
void check(const BenchArguments& a) {
  const bool csv = a.chosen_format() == "csv";
  require(!a.plans || !csv, "--plans does not go with --format csv");
  require(!a.communication || a.model.empty(), "--communication times no model, and MODEL|OPERATOR is ", printable(a.model));
  require(!a.communication || !a.scaling.asked(), "--communication does not go with --scaling, which measures it too");
  require(a.communication || !a.largest_tensor, "--largest-tensor goes with --communication");
  require(a.communication || !a.model.empty(), "MODEL|OPERATOR is required, or --communication");
  require(!csv || !(a.communication || a.scaling.asked()), "--communication and --scaling do not go with --format csv");
  if (!a.scaling.asked()) return;
  require(!a.sync_batch_norm, "--scaling does not go with --sync-batch-norm: it knows nothing of what batch norms wait for");
  require(names_model(a.model), "--scaling goes with a model, not with an operator");
  require(a.mode == "train" || a.mode == "all", "--scaling is of --mode train");
}

int run_communication(const BenchArguments& a, Device device, Communicator* communicator) {
  require(communicator != nullptr, "--communication is between processes: start several, with mpirun, srun, torchrun or --gpus");
  const Benchmark bench = a.on(device);
  CommunicationReport report{.device = concat(text_of(device), "; ", communicator->description()),
                             .processes = communicator->size(),
                             .machines = communicator->machines(),
                             .repeats = bench.repeats,
                             .calls = {}};
  const std::int64_t most_bytes = a.largest_tensor.value_or(most_communicated(device));
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (CommunicationTimes& times : measure_communication(*communicator, dtype, most_bytes, bench.warmup, bench.repeats))
      report.calls.push_back(std::move(times));
  }
  if (!communicator->is_first()) return 0;
  if (a.chosen_format() == "json")
    print(std::cout, json_of(report));
  else
    print_table(std::cout, report);
  return 0;
}

void print_results(const BenchReport& report, const std::optional<ScalingReport>& scaling, const std::string& format) {
  if (format == "csv") return print_csv(std::cout, report);
  if (format == "json") {
    Json json = json_of(report);
    if (scaling) json["scaling"] = json_of(*scaling);
    return print(std::cout, json);
  }
  print_table(std::cout, report);
  if (scaling) print_table(std::cout, *scaling);
}

int run_bench(const BenchArguments& a) {
  if (!a.trace.empty()) check_writable(a.trace);
  const Device device = Communicator::local_device(a.run.apply());
  const std::shared_ptr<Communicator> communicator = Communicator::from_environment(device);
  if (a.communication) return run_communication(a, device, communicator.get());
  a.scaling.check(communicator.get());
  const Subject subject = a.subject(device);
  Trace trace;
  Benchmark bench = a.on(device);
  bench.per_operator = a.per_operator;
  bench.communicator = communicator;
  if (!a.trace.empty()) bench.trace = &trace;
  const bool in_float32 = a.dtype == DType::f32 && a.precision == DType::f32;
  BenchReport report{.model = a.model,
                     .config = subject.config,
                     .device = concat(text_of(device), communicator ? concat("; ", communicator->description()) : ""),
                     .dtype = std::string(name_of(a.dtype)),
                     .precision = std::string(name_of(a.precision == DType::f32 ? a.dtype : a.precision)),
                     .math = a.run.math,
                     .optimizer = a.optimizer,
                     .search = a.run.search,
                     .input = subject.input,
                     .threads = thread_count(),
                     .deterministic = a.run.deterministic,
                     .repeats = bench.repeats,
                     .copy_bandwidth = measure_copy_bandwidth(device),
                     .peak = in_float32 && !on_gpu(device) ? ops::measured_peak() / 1e9 : 0,
                     .lists_plans = a.plans};
  allocator_of(device).trim();
  for (const std::string& mode : subject.modes) {
    bench.begin = std::chrono::steady_clock::now();
    report.modes.push_back(subject.measure(mode, bench));
  }
  std::optional<ScalingReport> scaling;
  if (a.scaling.asked()) scaling = measure_scaling(a.scaling, subject, bench, report.modes.back().median);
  report.plans = ops::plan_choices();
  const bool is_first = !communicator || communicator->is_first();
  if (!a.trace.empty() && is_first) trace.write(a.trace);
  if (is_first) print_results(report, scaling, a.chosen_format());
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App& command = add_command(
      app, "bench",
      "Time a model's forward pass, gradient and training step, and each of their operators; or one operator; or the links between "
      "processes");
  const auto a = std::make_shared<BenchArguments>();
  a->add_to(command, /*with_search=*/true, /*required=*/false);
  add_choice(command, "--format", a->format, {"table", "csv", "json"}, "Of the result");
  add_json(command, a->json);
  add_path(command, "--trace", a->trace, "Write three runs of each, operator by operator, as a trace for Perfetto (ui.perfetto.dev)")
      .writes();
  add_flag(command, "--per-operator", a->per_operator,
           "Time each operator by itself too, and compare the bytes it must move with the speed of a copy, on the CPU products with the "
           "cores' peak too; apart from these, what is computed once from parameters alone");
  add_flag(command, "--plans", a->plans,
           "List the plans of cuDNN that were tried for each convolution, the chosen one first; with --plan-cache off and --search "
           "exhaustive that is all");
  add_flag(command, "--communication", a->communication,
           "Time, in place of a model, the mean of a tensor over all processes, and the halves of it, for tensors of 4 KiB and more");
  add_number<std::int64_t>(command, "--largest-tensor", a->largest_tensor, 16 << 10, std::int64_t{1} << 36,
                           "Of --communication: its bytes; the default is 256 MiB, on the CPU 16 MiB");
  a->scaling.add_to(command);
  a->gpus.add_to(command, "Start a process for each of so many GPUs of this machine");
  set_action(command, action, [a] {
    check(*a);
    return a->gpus.starts_processes(a->run.device) ? run_processes(own_command_line(), *a->gpus.count) : run_bench(*a);
  });
}

}  // namespace frit::apps

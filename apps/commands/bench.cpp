#include <cstring>
#include <iostream>

#include "apps/commands/commands.h"
#include "apps/common/benchmark.h"
#include "apps/report/trace.h"
#include "frit/core/cuda/device.h"
#include "frit/core/io/file.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/thread_pool.h"
#include "frit/core/timer.h"

namespace frit::apps {
namespace {

struct BenchArguments : BenchmarkOptions {
  std::string format = "table";
  std::string trace;
  bool per_operator = false, plans = false, json = false;
};

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

int run_bench(const BenchArguments& a) {
  const std::string format = a.json ? "json" : a.format;
  require(!a.plans || format != "csv", "--plans does not go with --format csv");
  if (!a.trace.empty()) check_writable(a.trace);
  const Device device = Communicator::local_device(a.run.apply());
  const std::shared_ptr<Communicator> communicator = Communicator::from_environment(device);
  const Subject subject = a.subject(device);
  Trace trace;
  Benchmark bench = a.on(device);
  bench.per_operator = a.per_operator;
  bench.communicator = communicator;
  if (!a.trace.empty()) bench.trace = &trace;
  BenchReport report{.model = a.model,
                     .config = subject.config,
                     .device = concat(device, on_gpu(device) ? concat(' ', cuda::description(device.index)) : "",
                                      communicator ? concat("; ", communicator->description()) : ""),
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
                     .lists_plans = a.plans};
  allocator_of(device).trim();
  for (const std::string& mode : subject.modes) {
    bench.begin = std::chrono::steady_clock::now();
    report.modes.push_back(subject.measure(mode, bench));
  }
  report.plans = ops::plan_choices();
  const bool is_first = !communicator || communicator->is_first();
  if (!a.trace.empty() && is_first) trace.write(a.trace);
  if (is_first) print(std::cout, report, format);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App& command =
      add_command(app, "bench", "Time a model's forward pass, gradient and training step, and each of their operators; or one operator");
  const auto a = std::make_shared<BenchArguments>();
  a->add_to(command);
  add_choice(command, "--format", a->format, {"table", "csv", "json"}, "Of the result");
  add_json(command, a->json);
  add_path(command, "--trace", a->trace, "Write three runs of each, operator by operator, as a trace for Perfetto (ui.perfetto.dev)")
      .writes();
  add_flag(command, "--per-operator", a->per_operator,
           "Time each operator by itself too, and compare the bytes it must move with the speed of a copy; apart from these, what is "
           "computed once from parameters alone");
  add_flag(command, "--plans", a->plans,
           "List the plans of cuDNN that were tried for each convolution, the chosen one first; with --plan-cache off and --search "
           "exhaustive that is all");
  set_action(command, action, [a] { return run_bench(*a); });
}

}  // namespace frit::apps

#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/benchmark/bench_report.h"
#include "apps/common/options.h"
#include "frit/core/communication/communicator.h"
#include "frit/graph/executable.h"

namespace frit::apps {

class Trace;

inline bool on_gpu(Device device) { return device.kind == DeviceKind::cuda; }

/// Where times are taken, and how many.
struct Benchmark {
  Device device;
  DType dtype, precision;
  int warmup, repeats;
  bool sync_batch_norm = false, per_operator = false;
  std::shared_ptr<Communicator> communicator = nullptr;                            ///< of several processes that train together
  std::function<void(const graph::Executable&, const ModeTimes&)> inspect = {};    ///< is given what was timed
  Trace* trace = nullptr;                                                          ///< null: none is asked for
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();  ///< of what is timed
};

/// What there is to time: a model, or a call of an operator.
struct Subject {
  std::string config;
  Shape input;
  std::vector<std::string> modes;  ///< those that are asked for
  std::function<ModeTimes(const std::string& mode, const Benchmark&)> measure;
};

/// What is timed, and how.
struct BenchmarkOptions {
  std::string model, config;
  Shape input_shape = {};
  std::optional<std::int64_t> batch_size;
  std::string mode = "all";
  std::string optimizer = "sgd";
  DType dtype = DType::f32, precision = DType::f32;
  std::optional<int> warmup, repeats;
  bool sync_batch_norm = false;
  RunOptions run;

  void add_to(CLI::App& command, bool with_search = true, bool required = true);
  Benchmark on(Device device) const;
  /// Refers to the options. Throws ErrorKind::argument for what does not fit the model or operator.
  Subject subject(Device device) const;
};

}  // namespace frit::apps

#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/common/model_graph.h"
#include "apps/serving/bounded_queue.h"
#include "frit/graph/program.h"

namespace frit::apps {

using Clock = std::chrono::steady_clock;

/// An array, or several that go together, on the way through a model.
struct Job {
  std::string name;              ///< where it came from, fit to print
  Bindings inputs;               ///< (N, ...), on the CPU
  Bindings outputs = {};         ///< likewise, when it is done
  std::int64_t done = 0;         ///< of N
  Clock::time_point since = {};  ///< when it had been read

  std::int64_t rows() const { return inputs.at(main_input).dim(0); }
  bool is_done() const { return !outputs.empty() && done == rows(); }
};

/// Median and tails of some times in milliseconds; of none, zeros.
struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0;
};
Percentiles percentiles(const std::vector<double>& times);

struct InferenceStatistics {
  std::int64_t arrays = 0, examples = 0;
  double seconds = 0;            ///< from the first array's arrival, or the end of the warm-up, until the last was written
  std::vector<double> batch;     ///< milliseconds of each batch, from and to the host's memory
  std::vector<double> response;  ///< milliseconds from each array's arrival until it was written
};

/// Runs a forward program over arrays: one thread reads, one computes and one writes, with at most `queue` arrays
/// between two of them.
class Inference {
 public:
  struct Options {
    DType dtype = DType::f32;
    std::int64_t batch_size = 64;
    /// Arrays that wait are put together into one batch. Otherwise what an array gives never depends on what else was there.
    bool combine = true;
    std::int64_t queue = 16;
    int warmup = 0;  ///< runs of the first batch that do not count
    /// With a size, "output" of each array is computed by itself in windows, `batch_size` of them at a time; see predict_by_windows.
    /// Each window is given the other inputs of its example as they are.
    Shape window = {};
    double overlap = 0.5;
  };
  using Read = std::function<std::optional<Job>()>;
  using Write = std::function<void(Job&)>;

  Inference(Program& program, const Options& options);

  /// `read` gives one array after another; each then goes, in the same order, to `write`. What either throws, or the program, is thrown
  /// here, after what was read before has been written. `stop` is called when `read` has to return, as nothing more is needed.
  InferenceStatistics run(const Read& read, const Write& write, const std::function<void()>& stop);

  /// Compiles the first batch that this array gives.
  void prepare(const Job& job);
  /// Computes one array.
  void complete(Job& job);

 private:
  using Queue = BoundedQueue<Job>;

  void compute_all(Queue& from, Queue& to);
  void warm_up(const Job& job);
  void compute_by_windows(Job& job);
  void compute_batch(std::deque<Job>& open, const std::function<bool()>& more);
  Bindings gathered(const std::deque<Job>& open, const std::vector<std::int64_t>& counts, std::int64_t rows);
  std::int64_t rows_to_run(const Shape& shape, std::int64_t rows);
  Bindings run_rows(const Bindings& rows);
  /// So many rows of each input, from the first on, as the program takes them.
  Bindings rows_of(const Job& job, std::int64_t first, std::int64_t count) const;
  /// The first batch of the array.
  Bindings first_batch(const Job& job) const;
  /// Of the job's inputs, or of these.
  std::map<std::string, Shape> output_shapes(const Bindings& inputs) const;

  Program& program_;
  Options options_;
  std::map<std::string, DType> dtypes_;                                   ///< of the inputs
  std::map<std::vector<std::int64_t>, std::set<std::int64_t>> compiled_;  ///< numbers of rows, by an example's shape
  InferenceStatistics statistics_;
  Clock::time_point begin_;  ///< when times began to count
};

}  // namespace frit::apps

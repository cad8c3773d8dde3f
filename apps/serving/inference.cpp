#include "apps/serving/inference.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <thread>

#include "apps/common/interrupt.h"
#include "frit/core/timer.h"
#include "frit/graph/pipeline.h"
#include "frit/models/sliding_window.h"

namespace frit::apps {
namespace {

constexpr const char* input_name = "input";
constexpr const char* output_key = "output";

double milliseconds_since(Clock::time_point begin) { return std::chrono::duration<double, std::milli>(Clock::now() - begin).count(); }

Shape with_rows(Shape shape, std::int64_t rows) {
  shape[0] = rows;
  return shape;
}

/// Examples of one shape and dtype can be computed together.
bool alike(const Tensor& a, const Tensor& b) { return a.dtype() == b.dtype() && with_rows(a.shape(), 0) == with_rows(b.shape(), 0); }

/// NumPy has no bfloat16.
DType numpy_dtype(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

void stop_if_interrupted() {
  if (interrupt_signal() != 0) fail(ErrorKind::interrupted, "interrupted by ", interrupt_name(), "; what was not done is not written");
}

/// Closes a queue at the end of a block.
class Closing {
 public:
  explicit Closing(BoundedQueue<Job>& queue) : queue_(queue) {}
  ~Closing() { queue_.close(); }
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

 private:
  BoundedQueue<Job>& queue_;
};

/// A thread whose exception is thrown where it is joined.
class Worker {
 public:
  explicit Worker(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          try {
            work();
          } catch (...) {
            failure_ = std::current_exception();
          }
        }) {}
  ~Worker() { join(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  std::exception_ptr join() {
    if (thread_.joinable()) thread_.join();
    return failure_;
  }

 private:
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses what stands above
};

}  // namespace

Percentiles percentiles(const std::vector<double>& times) {
  if (times.empty()) return {};
  return {quantile(times, 0.5), quantile(times, 0.9), quantile(times, 0.99)};
}

InferenceStatistics Inference::run(const Read& read, const Write& write, const std::function<void()>& stop) {
  Queue to_compute(static_cast<std::size_t>(options_.queue)), to_write(static_cast<std::size_t>(options_.queue));
  statistics_ = {};
  Worker writer([&] {
    const Closing end(to_write), no_more_work(to_compute);
    while (std::optional<Job> job = to_write.pop()) {
      write(*job);
      statistics_.response.push_back(milliseconds_since(std::max(job->since, begin_)));
    }
  });
  const Closing no_more_results(to_write);  // before the writer is waited for, should there be no thread for the reader
  Worker reader([&] {
    const Closing end(to_compute);
    while (std::optional<Job> job = read()) {
      job->since = Clock::now();
      if (!to_compute.push(std::move(*job))) return;
    }
  });
  std::exception_ptr not_computed;
  try {
    compute_all(to_compute, to_write);
  } catch (...) {
    not_computed = std::current_exception();
  }
  to_write.close();
  const std::exception_ptr not_written = writer.join();
  to_compute.close();
  if (not_computed != nullptr || not_written != nullptr) stop();
  for (const std::exception_ptr& failure : {reader.join(), not_computed, not_written}) {
    if (failure != nullptr) std::rethrow_exception(failure);
  }
  statistics_.seconds = statistics_.arrays > 0 ? milliseconds_since(begin_) / 1e3 : 0;
  return std::move(statistics_);
}

void Inference::compute_all(Queue& from, Queue& to) {
  std::deque<Job> open;
  const auto more = [&] {
    std::optional<Job> job = open.empty() ? from.pop() : options_.combine ? from.try_pop() : std::nullopt;
    if (!job) return false;
    if (statistics_.arrays++ == 0) warm_up(*job);
    open.push_back(std::move(*job));
    return true;
  };
  while (!open.empty() || more()) {
    compute_batch(open, more);
    for (; !open.empty() && open.front().is_done(); open.pop_front()) {
      statistics_.examples += open.front().done;
      if (!to.push(std::move(open.front()))) return;
    }
  }
}

Shape Inference::first_batch(const Shape& input) const {
  if (options_.window.empty()) return with_rows(input, std::min(input[0], options_.batch_size));
  Shape shape{options_.batch_size, input[1]};
  for (const std::int64_t size : options_.window) shape.push_back(size);
  return shape;
}

void Inference::warm_up(const Job& job) {
  const Shape shape = first_batch(job.input.shape());
  for (int i = 0; i < options_.warmup && job.input.dim(0) > 0; ++i) {
    run_rows(options_.window.empty() ? job.input.slice(0, 0, shape[0]).to(options_.dtype) : Tensor::zeros(shape, options_.dtype));
    rows_to_run(shape, shape[0]);
  }
  begin_ = options_.warmup > 0 ? Clock::now() : job.since;
}

void Inference::prepare(const Job& job) {
  const Shape shape = first_batch(job.input.shape());
  if (shape[0] > 0) program_.compile({{input_name, {options_.dtype, shape}}});
}

void Inference::complete(Job& job) {
  std::deque<Job> open = {std::move(job)};
  do {
    compute_batch(open, [] { return false; });
  } while (!open.front().is_done());
  job = std::move(open.front());
}

void Inference::compute_by_windows(Job& job) {
  const auto predict = [&](const Tensor& windows) {
    stop_if_interrupted();
    const Clock::time_point begin = Clock::now();
    const Tensor result = windows.dim(0) > 0 ? run_rows(windows.to(options_.dtype)) : Tensor::empty(output_shape(windows.shape()));
    if (windows.dim(0) > 0) statistics_.batch.push_back(milliseconds_since(begin));
    return result;
  };
  const SlidingWindowOptions windows{.window = options_.window, .overlap = options_.overlap, .batch_size = options_.batch_size};
  job.output = predict_by_windows(predict, job.input, windows).to(numpy_dtype(options_.dtype));
  job.done = job.input.dim(0);
}

/// The next batch of the arrays that are open, of which there is one at least.
void Inference::compute_batch(std::deque<Job>& open, const std::function<bool()>& more) {
  if (!options_.window.empty()) return compute_by_windows(open.front());
  stop_if_interrupted();
  std::vector<std::int64_t> counts;  // rows of each
  std::int64_t rows = 0;
  for (std::size_t i = 0; rows < options_.batch_size && (i < open.size() || more()) && alike(open[i].input, open[0].input); ++i) {
    counts.push_back(std::min(options_.batch_size - rows, open[i].input.dim(0) - open[i].done));
    rows += counts.back();
  }
  const Clock::time_point begin = Clock::now();
  const Tensor results = rows > 0 ? run_rows(gathered(open, counts, rows)) : Tensor();
  if (rows > 0) statistics_.batch.push_back(milliseconds_since(begin));
  std::int64_t row = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    Job& job = open[i];
    if (!job.output.defined()) job.output = Tensor::empty(output_shape(job.input.shape()), numpy_dtype(options_.dtype));
    if (counts[i] > 0) copy(job.output.slice(0, job.done, job.done + counts[i]), results.slice(0, row, row + counts[i]));
    row += counts[i];
    job.done += counts[i];
  }
}

/// The next rows of each array, in the program's dtype.
Tensor Inference::gathered(const std::deque<Job>& open, const std::vector<std::int64_t>& counts, std::int64_t rows) {
  const Tensor& first = open[0].input;
  const std::int64_t to_run = rows_to_run(first.shape(), rows);
  if (counts.size() == 1 && to_run == rows) return first.slice(0, open[0].done, open[0].done + rows).to(options_.dtype);
  const Tensor batch = Tensor::zeros(with_rows(first.shape(), to_run), options_.dtype);
  std::int64_t row = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) copy(batch.slice(0, row, row + counts[i]), open[i].input.slice(0, open[i].done, open[i].done + counts[i]));
    row += counts[i];
  }
  return batch;
}

Shape Inference::output_shape(const Shape& input) const {
  return graph::specialize(program_.graph(), {{input_name, {options_.dtype, input}}}).output_value(output_key).shape();
}

/// Each number of rows is compiled by itself, so after some, further ones are rounded up, and the last rows are for nothing.
std::int64_t Inference::rows_to_run(const Shape& shape, std::int64_t rows) {
  constexpr std::size_t exact = 4;
  const Shape example = with_rows(shape, 0);
  std::set<std::int64_t>& sizes = compiled_[{example.begin(), example.end()}];
  if (!sizes.contains(rows) && sizes.size() >= exact) {
    rows = std::min(options_.batch_size, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows))));
  }
  sizes.insert(rows);
  return rows;
}

Tensor Inference::run_rows(const Tensor& rows) { return program_.run({{input_name, rows}}).output(output_key).to(Device::cpu()); }

}  // namespace frit::apps

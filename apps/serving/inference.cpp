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

double milliseconds_since(Clock::time_point begin) { return std::chrono::duration<double, std::milli>(Clock::now() - begin).count(); }

Shape with_rows(Shape shape, std::int64_t rows) {
  shape[0] = rows;
  return shape;
}

/// Examples of one shape and dtype can be computed together.
bool alike(const Job& a, const Job& b) {
  return std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(), [](const auto& one, const auto& other) {
    return one.second.dtype() == other.second.dtype() && with_rows(one.second.shape(), 0) == with_rows(other.second.shape(), 0);
  });
}

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

Inference::Inference(Program& program, const Options& options) : program_(program), options_(options) {
  for (const auto& [name, type] : input_types(program.graph())) dtypes_[name] = type.dtype;
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

Bindings Inference::rows_of(const Job& job, std::int64_t first, std::int64_t count) const {
  Bindings rows;
  for (const auto& [name, tensor] : job.inputs) rows[name] = tensor.slice(0, first, first + count).to(dtypes_.at(name));
  return rows;
}

Bindings Inference::first_batch(const Job& job) const {
  if (options_.window.empty()) return rows_of(job, 0, std::min(job.rows(), options_.batch_size));
  Bindings batch;
  for (const auto& [name, tensor] : job.inputs) {
    Shape shape = with_rows(tensor.shape(), options_.batch_size);
    if (name == main_input) std::copy(options_.window.begin(), options_.window.end(), shape.begin() + 2);
    batch[name] = Tensor::zeros(shape, dtypes_.at(name));
  }
  return batch;
}

void Inference::warm_up(const Job& job) {
  const Bindings batch = options_.warmup > 0 && job.rows() > 0 ? first_batch(job) : Bindings();
  for (int i = 0; i < options_.warmup && job.rows() > 0; ++i) {
    run_rows(batch);
    rows_to_run(batch.at(main_input).shape(), batch.at(main_input).dim(0));
  }
  begin_ = options_.warmup > 0 ? Clock::now() : job.since;
}

void Inference::prepare(const Job& job) {
  if (job.rows() > 0 || !options_.window.empty()) program_.compile(tensor_types(first_batch(job)));
}

void Inference::complete(Job& job) {
  std::deque<Job> open = {std::move(job)};
  do {
    compute_batch(open, [] { return false; });
  } while (!open.front().is_done());
  job = std::move(open.front());
}

void Inference::compute_by_windows(Job& job) {
  const SlidingWindowOptions windows{.window = options_.window, .overlap = options_.overlap, .batch_size = options_.batch_size};
  std::int64_t example = 0;
  const auto predict = [&](const Tensor& input) {
    stop_if_interrupted();
    Bindings rows;
    for (const auto& [name, tensor] : job.inputs) {
      rows[name] =
          name == main_input ? input.to(dtypes_.at(name)) : Tensor::empty(with_rows(tensor.shape(), input.dim(0)), dtypes_.at(name));
      for (std::int64_t row = 0; name != main_input && row < input.dim(0); ++row) {
        copy(rows[name].slice(0, row, row + 1), tensor.slice(0, example, example + 1));
      }
    }
    if (input.dim(0) == 0) return Tensor::empty(output_shapes(rows).at(output_name));
    const Clock::time_point begin = Clock::now();
    const Tensor result = run_rows(rows).at(output_name);
    statistics_.batch.push_back(milliseconds_since(begin));
    return result;
  };
  const Tensor& images = job.inputs.at(main_input);
  const DType dtype = numpy_dtype(options_.dtype);
  Tensor& output = job.outputs[output_name];
  if (job.inputs.size() == 1 || job.rows() == 0) output = predict_by_windows(predict, images, windows).to(dtype);
  for (; example < job.rows() && job.inputs.size() > 1; ++example) {
    const Tensor one = predict_by_windows(predict, images.slice(0, example, example + 1), windows).to(dtype);
    if (example == 0) output = Tensor::empty(with_rows(one.shape(), job.rows()), dtype);
    copy(output.slice(0, example, example + 1), one);
  }
  job.done = job.rows();
}

/// The next batch of the arrays that are open, of which there is one at least.
void Inference::compute_batch(std::deque<Job>& open, const std::function<bool()>& more) {
  if (!options_.window.empty()) return compute_by_windows(open.front());
  stop_if_interrupted();
  std::vector<std::int64_t> counts;  // rows of each
  std::int64_t rows = 0;
  for (std::size_t i = 0; rows < options_.batch_size && (i < open.size() || more()) && alike(open[i], open[0]); ++i) {
    counts.push_back(std::min(options_.batch_size - rows, open[i].rows() - open[i].done));
    rows += counts.back();
  }
  const Clock::time_point begin = Clock::now();
  const Bindings results = rows > 0 ? run_rows(gathered(open, counts, rows)) : Bindings();
  if (rows > 0) statistics_.batch.push_back(milliseconds_since(begin));
  std::int64_t row = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    Job& job = open[i];
    if (job.outputs.empty()) {
      for (const auto& [name, shape] : output_shapes(job.inputs)) job.outputs[name] = Tensor::empty(shape, numpy_dtype(options_.dtype));
    }
    for (const auto& [name, output] : job.outputs) {
      if (counts[i] > 0) copy(output.slice(0, job.done, job.done + counts[i]), results.at(name).slice(0, row, row + counts[i]));
    }
    row += counts[i];
    job.done += counts[i];
  }
}

/// The next rows of each array, in the program's dtypes.
Bindings Inference::gathered(const std::deque<Job>& open, const std::vector<std::int64_t>& counts, std::int64_t rows) {
  const std::int64_t to_run = rows_to_run(open[0].inputs.at(main_input).shape(), rows);
  if (counts.size() == 1 && to_run == rows) return rows_of(open[0], open[0].done, rows);
  Bindings batch;
  for (const auto& [name, tensor] : open[0].inputs) batch[name] = Tensor::zeros(with_rows(tensor.shape(), to_run), dtypes_.at(name));
  std::int64_t row = 0;
  for (std::size_t i = 0; i < counts.size(); row += counts[i++]) {
    if (counts[i] == 0) continue;
    for (const auto& [name, next] : rows_of(open[i], open[i].done, counts[i])) copy(batch.at(name).slice(0, row, row + counts[i]), next);
  }
  return batch;
}

std::map<std::string, Shape> Inference::output_shapes(const Bindings& inputs) const {
  std::map<std::string, TensorType> types;
  for (const auto& [name, tensor] : inputs) types[name] = {dtypes_.at(name), tensor.shape()};
  const Graph graph = graph::specialize(program_.graph(), types);
  std::map<std::string, Shape> shapes;
  for (const graph::Output& output : graph.outputs()) shapes[output.name] = graph.type(output.value).shape;
  return shapes;
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

Bindings Inference::run_rows(const Bindings& rows) {
  const graph::Executable& result = program_.run(rows);
  Bindings outputs;
  for (const graph::Output& output : program_.graph().outputs()) outputs[output.name] = result.output(output.name).to(Device::cpu());
  return outputs;
}

}  // namespace frit::apps

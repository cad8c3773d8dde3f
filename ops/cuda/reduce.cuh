#pragma once

#include "frit/core/convert.h"
#include "frit/core/cuda/reduce.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/cuda/computed.cuh"
#include "frit/ops/cuda/reduce_plan.cuh"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

// The one skeleton of CUDA reductions. A Reduction is a functor with
//   source                               where elements come from, with
//     static constexpr int width;          of the vectors that fill 16 bytes
//     Raw load<n>(offset) const;           n neighbouring elements, as they lie in memory
//     Term term(Raw, i) const;             of one of them
//   static Term missing();               in the place of an element that does not exist
//   State                                the running state of a line, a plain struct with
//     static State identity();             of nothing
//     static State merge(State, State);    of two parts, in either order
//   State read(terms, const Batch&) const;   the state of some elements
// and, of what becomes of a line's state, one of
//   void finish(State, Line) const;      called once a line
//   output; Map map(State, Line) const;  writes map(Raw, i, position) to output[offset] for all elements of the line
// and, where that is less work, for lines that registers hold,
//   void finish_held(terms, team) const;  makes the calling thread's terms its results; team.merge(part) merges the parts of all threads

/// What a forward kernel kept of each line: in the type that elements of type T are computed with, or rounded to T.
template <class T>
struct Statistics {
  const void* data;  // (results)
  bool rounded;

  explicit Statistics(const Tensor& kept) : data(kept.raw()), rounded(kept.dtype() == dtype_of<T>()) {}
  __device__ Computed<T> operator[](std::int64_t i) const {
    return rounded ? convert<Computed<T>>(static_cast<const T*>(data)[i]) : static_cast<const Computed<T>*>(data)[i];
  }
};

/// Batches of a line in runs that a thread loads before it uses any of them: at `first`, and `stride` positions further on each.
template <class Source, int most = batches_at_once>
struct Runs {
  using Raw = RawOf<Source, batch_size>;
  static constexpr int most_bytes = 128;  // that registers hold
  static constexpr int count = std::clamp<int>(most_bytes / sizeof(Raw), 1, most);

  Raw raw[count];
  std::int64_t offsets[count];

  __device__ static std::int64_t first(const Line& line) { return line.begin + line.worker * batch_size; }
  __device__ static int stride(const Line& line) { return line.workers * batch_size; }
  /// The threads of a line have loaded all of it at once.
  __device__ static bool hold(const Line& line) { return line.end - line.begin <= stride(line) * count; }

  /// Those below the end of the line.
  template <class Plan>
  __device__ void load(const Source& source, std::int64_t first, const Line& line, const Plan& plan) {
    plan.offsets(offsets, first, stride(line));
#pragma unroll
    for (int j = 0; j < count; ++j) {
      offsets[j] += line.offset;
      if (first + j * stride(line) < line.end) raw[j] = source.template load<batch_size>(offsets[j]);
    }
  }
};

/// Adds the calling thread's part of a line in runs to its state.
template <class Reduction, class Plan, class Source>
__device__ void read_runs(typename Reduction::State& state, const Reduction& reduction, const Line& line, const Plan& plan,
                          Runs<Source>& runs) {
  using State = typename Reduction::State;
  const int stride = runs.stride(line);
  for (std::int64_t first = runs.first(line); first < line.end; first += stride * runs.count) {
    runs.load(reduction.source, first, line, plan);
#pragma unroll
    for (int j = 0; j < runs.count; ++j) {
      const std::int64_t position = first + j * stride;
      if (position >= line.end) continue;
      TermOf<Source> terms[batch_size];
#pragma unroll
      for (int i = 0; i < batch_size; ++i) terms[i] = reduction.source.term(runs.raw[j], i);
      state = State::merge(state, reduction.read(terms, Batch(position)));
    }
  }
}

/// Adds the calling thread's parts of `width` neighbouring lines, not in runs, to their states. plan.offsets() says where positions
/// of the first lie, from position 0 on.
template <int width, class Reduction, class Plan>
__device__ void read_lines(typename Reduction::State (&states)[width], const Reduction& reduction, const Line& line, const Plan& plan) {
  using State = typename Reduction::State;
  const auto& source = reduction.source;
  using Source = std::remove_cvref_t<decltype(source)>;
  TermOf<Source> terms[batch_size];
  const std::int64_t stride = static_cast<std::int64_t>(line.workers) * batch_size;
  for (std::int64_t position = line.begin + line.worker; position < line.end; position += stride) {
    const Batch batch(position, line);
    std::int64_t offsets[batch_size];
    plan.offsets(offsets, position, batch.step);
    RawOf<Source, width> raw[batch_size];
#pragma unroll
    for (int i = 0; i < batch_size; ++i) {
      if (batch.has(i)) raw[i] = source.template load<width>(line.offset + offsets[i]);
    }
#pragma unroll
    for (int k = 0; k < width; ++k) {
#pragma unroll
      for (int i = 0; i < batch_size; ++i) terms[i] = batch.has(i) ? source.term(raw[i], k) : reduction.missing();
      states[k] = State::merge(states[k], reduction.read(terms, batch));
    }
  }
}

/// No elements; for results of type T.
template <class T>
struct NoSource {
  static constexpr int width = cuda::vector_width<T>;
  struct Nothing {};
  template <int n>
  __device__ Nothing load(std::int64_t) const {
    return {};
  }
};

/// output[offset] = map(raw, i, position) for the calling thread's part of a line in runs. `held`: `runs` has all of it. Some elements are
/// read before they are written: the output may lie on an input.
template <class T, class Source, class Plan, class Map>
__device__ void write_runs(T* output, const Source& source, const Line& line, const Plan& plan, const Map& map, Runs<Source>& runs,
                           bool held) {
  const bool aligned = cuda::aligned_for_vectors(output);
  const int stride = runs.stride(line);
  for (std::int64_t first = runs.first(line); first < line.end; first += stride * runs.count) {
    if (!held) runs.load(source, first, line, plan);
#pragma unroll
    for (int j = 0; j < runs.count; ++j) {
      const std::int64_t position = first + j * stride;
      if (position >= line.end) continue;
      cuda::Vector<T, batch_size> results;
#pragma unroll
      for (int i = 0; i < batch_size; ++i) results[i] = map(runs.raw[j], i, position + i);
      cuda::store_elements(output + runs.offsets[j], results, aligned);
    }
  }
}

/// The same for the calling thread's parts of neighbouring lines, a map for each.
template <class T, int width, class Source, class Plan, class Map>
__device__ void write_lines(T* output, const Source& source, const Line& line, const Plan& plan, const Map (&maps)[width]) {
  constexpr int at_once = 4;
  const bool aligned = cuda::aligned_for_vectors(output);
  const std::int64_t stride = static_cast<std::int64_t>(line.workers) * at_once;
  for (std::int64_t first = line.begin + line.worker; first < line.end; first += stride) {
    std::int64_t places[at_once];
    RawOf<Source, width> raw[at_once];
    plan.offsets(places, first, line.workers);
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const std::int64_t position = first + static_cast<std::int64_t>(i) * line.workers;
      if (position >= line.end) continue;
      places[i] += line.offset;
      raw[i] = source.template load<width>(places[i]);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const std::int64_t position = first + static_cast<std::int64_t>(i) * line.workers;
      if (position >= line.end) continue;
      cuda::Vector<T, width> results;
#pragma unroll
      for (int k = 0; k < width; ++k) results[k] = maps[k](raw[i], k, position);
      cuda::store_elements(output + places[i], results, aligned);
    }
  }
}

template <class Reduction>
concept WritesLines = requires(const Reduction& reduction, typename Reduction::State state, Line line) {
  reduction.map(state, line);
};

/// `held`: `runs` has all of the line.
template <bool in_runs, int width, class Reduction, class State>
__device__ void finish_lines(const Reduction& reduction, const LinePlan& plan, const State (&states)[width], const Line& line,
                             Runs<decltype(Reduction::source)>& runs, bool held) {
  if (line.result < 0) return;
  if constexpr (WritesLines<Reduction>) {
    decltype(reduction.map(states[0], line)) maps[width];
#pragma unroll
    for (int k = 0; k < width; ++k) maps[k] = reduction.map(states[k], line.neighbour(k));
    if constexpr (in_runs) {
      write_runs(reduction.output, reduction.source, line, plan, maps[0], runs, held);
    } else {
      write_lines(reduction.output, reduction.source, line, plan, maps);
    }
  } else if (line.worker == 0) {
#pragma unroll
    for (int k = 0; k < width; ++k) reduction.finish(states[k], line.neighbour(k));
  }
}

/// A team of threads for `width` neighbouring lines, or a segment of each; see LinePlan. Reads each element once, or twice where lines are
/// written that its registers do not hold, the second time from a cache. With segments, their states go to `states`. Deterministic.
template <int width, bool in_runs, class Reduction, class State>
__global__ void __launch_bounds__(LinePlan::threads)
    reduce_kernel(State* states, Reduction reduction, const __grid_constant__ LinePlan plan) {
  __shared__ State shared[LinePlan::threads];
  for (std::int64_t group = blockIdx.x; group < plan.groups(); group += gridDim.x) {
    const Line line = plan.line(group, blockIdx.y);
    State own[width];
#pragma unroll
    for (int k = 0; k < width; ++k) own[k] = State::identity();
    Runs<decltype(reduction.source)> runs;
    if constexpr (in_runs) {
      read_runs(own[0], reduction, line, plan, runs);
    } else {
      read_lines(own, reduction, line, plan);
    }
#pragma unroll
    for (int k = 0; k < width; ++k) own[k] = merge_team(own[k], plan.team(), shared);
    if (states == nullptr) {
      finish_lines<in_runs>(reduction, plan, own, line, runs, runs.hold(line));
    } else if (line.result >= 0 && line.worker == 0) {
#pragma unroll
      for (int k = 0; k < width; ++k) states[plan.place_of_state(line.neighbour(k), blockIdx.y)] = own[k];
    }
  }
}

/// What finish_held is given to merge parts with.
struct HeldTeam {
  TeamBits team;

  template <class Part>
  __device__ Part merge(Part part) const {
    __shared__ Part shared[LinePlan::threads];
    return merge_team(part, team, shared);
  }
};

template <class Reduction>
concept FinishesHeld = requires(const Reduction& reduction, TermOf<decltype(Reduction::source)> (&terms)[1][batch_size],
                                const HeldTeam& team) {
  reduction.finish_held(terms, team);
};

/// A team of threads for a line in runs that their registers hold, at most `most` batches a thread. Each element is read and written once.
/// Deterministic.
template <int most, class Reduction>
__global__ void __launch_bounds__(LinePlan::threads) held_kernel(Reduction reduction, const __grid_constant__ LinePlan plan) {
  using HeldRuns = Runs<decltype(reduction.source), most>;
  for (std::int64_t group = blockIdx.x; group < plan.groups(); group += gridDim.x) {
    const Line line = plan.line(group, 0);
    HeldRuns runs;
    const std::int64_t first = runs.first(line);
    const int stride = runs.stride(line);
    runs.load(reduction.source, first, line, plan);
    TermOf<decltype(reduction.source)> terms[HeldRuns::count][batch_size];
#pragma unroll
    for (int j = 0; j < runs.count; ++j) {
#pragma unroll
      for (int i = 0; i < batch_size; ++i) {
        terms[j][i] = first + j * stride < line.end ? reduction.source.term(runs.raw[j], i) : reduction.missing();
      }
    }
    reduction.finish_held(terms, HeldTeam{plan.team()});
#pragma unroll
    for (int j = 0; j < runs.count; ++j) {
      if (first + j * stride >= line.end) continue;
      std::remove_pointer_t<decltype(reduction.output)>* const to = reduction.output + runs.offsets[j];
      using T = std::remove_reference_t<decltype(*to)>;
      cuda::store_elements(to, converted<T, batch_size>(terms[j]), cuda::aligned_for_vectors(reduction.output));
    }
  }
}

/// Calls body.template operator()<most>() where that kernel takes the lines; returns whether it does.
template <class Reduction, class Body>
bool dispatch_held(const LinePlan& plan, const Body& body) {
  using Source = decltype(Reduction::source);
  constexpr int fewer = batches_at_once / 2;
  const auto takes = [&](int batches) { return FinishesHeld<Reduction> && plan.in_runs() && plan.holds(batches); };
  if (takes(Runs<Source, fewer>::count)) return body.template operator()<fewer>(), true;
  if constexpr (Runs<Source>::count > fewer) {
    if (takes(Runs<Source>::count)) return body.template operator()<batches_at_once>(), true;
  }
  return false;
}

/// Of the states (segments, results) of a line, in their order.
template <class State>
__device__ State merge_segments(const State* states, const LinePlan& plan, const Line& line, int worker, int workers) {
  State state = State::identity();
#pragma unroll 4
  for (std::int64_t segment = worker; segment < plan.segments(); segment += workers) {
    state = State::merge(state, states[plan.place_of_state(line, segment)]);
  }
  return state;
}

/// After reduce_kernel with segments, for lines that are not written: a block for `lines` of them, a power of 2. Deterministic.
template <class Reduction, class State>
__global__ void __launch_bounds__(LinePlan::threads)
    finish_kernel(const State* states, Reduction reduction, const __grid_constant__ LinePlan plan, int lines) {
  __shared__ State shared[LinePlan::threads];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * lines + thread % lines;
  const Line line = index < plan.results() ? plan.line_of(index) : Line{.result = -1};
  State state = State::identity();
  if (line.result >= 0) state = merge_segments(states, plan, line, thread / lines, LinePlan::threads / lines);
  state = merge_team(state, {lines, LinePlan::threads}, shared);
  if (line.result >= 0 && thread < lines) reduction.finish(state, line);
}

/// The same for lines that are written, by the threads of reduce_kernel.
template <int width, bool in_runs, class Reduction, class State>
__global__ void __launch_bounds__(LinePlan::threads)
    write_kernel(const State* states, Reduction reduction, const __grid_constant__ LinePlan plan) {
  __shared__ State shared[LinePlan::threads];
  for (std::int64_t group = blockIdx.x; group < plan.groups(); group += gridDim.x) {
    const Line line = plan.line(group, blockIdx.y);
    State own[width];
#pragma unroll
    for (int k = 0; k < width; ++k) {
      own[k] = line.result < 0 ? State::identity() : merge_segments(states, plan, line.neighbour(k), line.worker, line.workers);
      own[k] = merge_team(own[k], plan.team(), shared);
    }
    Runs<decltype(reduction.source)> runs;
    finish_lines<in_runs>(reduction, plan, own, line, runs, /*held=*/false);
  }
}

/// Calls body.template operator()<width, in_runs>() for the width of a plan, which is 1 or that of the source's vectors, and 1 in runs.
template <class Source, class Body>
void dispatch_line_width(const LinePlan& plan, const Body& body) {
  if (plan.in_runs()) return body.template operator()<1, true>();
  plan.width() == 1 ? body.template operator()<1, false>() : body.template operator()<Source::width, false>();
}

template <class Reduction>
LinePlan line_plan(const Lines& lines) {
  using Source = decltype(Reduction::source);
  return LinePlan(lines, Source::width, Runs<Source>::count);
}

/// Runs a reduction. `scratch` has LinePlan::scratch_bytes(..., sizeof(Reduction::State)) bytes on the device.
template <class Reduction>
void reduce_lines(cudaStream_t stream, const Reduction& reduction, const Lines& lines, std::span<std::byte> scratch) {
  using State = typename Reduction::State;
  using Source = decltype(Reduction::source);
  const LinePlan plan = line_plan<Reduction>(lines);
  if (plan.results() == 0) return;
  State* states = nullptr;
  if (plan.segments() > 1) {
    FRIT_CHECK(scratch.size() >= static_cast<std::size_t>(plan.results() * plan.segments()) * sizeof(State));
    states = reinterpret_cast<State*>(scratch.data());
  }
  if constexpr (FinishesHeld<Reduction>) {
    const auto launch = [&]<int most>() { cuda::launch(held_kernel<most, Reduction>, plan.all_segments(), stream, reduction, plan); };
    if (dispatch_held<Reduction>(plan, launch)) return;
  }
  dispatch_line_width<Source>(plan, [&]<int width, bool in_runs>() {
    cuda::launch(reduce_kernel<width, in_runs, Reduction, State>, plan.all_segments(), stream, states, reduction, plan);
    if (states == nullptr) return;
    if constexpr (WritesLines<Reduction>) {
      cuda::launch(write_kernel<width, in_runs, Reduction, State>, plan.all_segments(), stream, states, reduction, plan);
    } else {
      constexpr std::int64_t sector_lines = 8;
      const int block_lines = plan.results() < sector_lines ? 1 : static_cast<int>(sector_lines);
      const std::int64_t blocks = (plan.results() + block_lines - 1) / block_lines;
      cuda::launch(finish_kernel<Reduction, State>, {dim3(static_cast<unsigned>(blocks)), dim3(LinePlan::threads)}, stream, states,
                   reduction, plan, block_lines);
    }
  });
}

/// A kernel that runs a reduction, of an input in either layout: with(call, body) calls body(reduction, lines).
template <class With>
Kernel line_kernel(const With& with, std::function<std::size_t(const InferContext&)> scratch) {
  Kernel kernel{.halves = true, .scratch = std::move(scratch), .any_layout_inputs = {0}};
  kernel.run = [with](const KernelContext& call) {
    with(call, [&](const auto& reduction, const Lines& lines) { reduce_lines(call.stream, reduction, lines, call.scratch); });
  };
  kernel.describe = [with](const KernelContext& call) {
    std::string schedule;
    with(call, [&]<class Reduction>(const Reduction&, const Lines& lines) {
      const LinePlan plan = line_plan<Reduction>(lines);
      if (!dispatch_held<Reduction>(plan, [&]<int>() { schedule = "held in registers"; })) schedule = plan.schedule();
    });
    return schedule;
  };
  return kernel;
}

/// A team of threads for `width` neighbouring lines, or a segment of each. Each element is read and written once. Deterministic.
template <int width, bool in_runs, class Visitor>
__global__ void __launch_bounds__(LinePlan::threads) visit_kernel(Visitor visitor, const __grid_constant__ LinePlan plan) {
  for (std::int64_t group = blockIdx.x; group < plan.groups(); group += gridDim.x) {
    const Line line = plan.line(group, blockIdx.y);
    if (line.result < 0) continue;
    decltype(visitor.map(line)) maps[width];
#pragma unroll
    for (int k = 0; k < width; ++k) maps[k] = visitor.map(line.neighbour(k));
    if constexpr (in_runs) {
      Runs<decltype(visitor.source)> runs;
      write_runs(visitor.output, visitor.source, line, plan, maps[0], runs, /*held=*/false);
    } else {
      write_lines(visitor.output, visitor.source, line, plan, maps);
    }
  }
}

/// visitor.output[offset] = visitor.map(line)(raw, i, position) for all elements of all lines, raw from visitor.source.
template <class Visitor>
void visit_lines(cudaStream_t stream, const Visitor& visitor, const Lines& lines) {
  using Source = decltype(Visitor::source);
  const LinePlan plan(lines, Source::width, Runs<Source>::count);
  if (lines.results() == 0 || lines.count() == 0) return;
  dispatch_line_width<Source>(plan, [&]<int width, bool in_runs>() {
    cuda::launch(visit_kernel<width, in_runs, Visitor>, plan.all_segments(), stream, visitor, plan);
  });
}

}  // namespace frit::ops

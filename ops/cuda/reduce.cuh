#pragma once

#include "frit/core/cuda/reduce.cuh"
#include "frit/ops/cuda/reduce_plan.cuh"

namespace frit::ops {

// The one skeleton of CUDA reductions. A Reduction is a functor with
//   State                                the running state of a line, a plain struct with
//     static State identity();             of nothing
//     static State merge(State, State);    of two parts, in either order
//   State read(const Batch&) const;      the state of some elements
// and, of what becomes of a line's state, one of
//   void finish(State, Line) const;      called once a line
//   output; Map map(State, Line) const;  writes map(offset, position) to output[offset] for all elements of the line

/// Elements of a line that a thread reads at once. Element i exists if has(i); element 0 does.
struct Batch {
  std::int64_t position;  ///< of element 0
  int step;               ///< from one element's position to the next's
  int left;               ///< positions to the end of the line, if that is near
  std::int64_t offsets[batch_size];

  template <class Plan>
  __device__ Batch(std::int64_t first, const Line& line, const Plan& plan)
      : position(first), step(line.workers), left(static_cast<int>(std::min<std::int64_t>(line.end - first, batch_size * line.workers))) {
#pragma unroll
    for (int i = 0; i < batch_size; ++i) offsets[i] = line.offset + plan.offset(position + i * step);
  }
  __device__ bool has(int i) const { return i * step < left; }
};

/// The elements of a batch, `missing` for those that do not exist.
template <class T, class Element>
__device__ void read_elements(T (&elements)[batch_size], const Batch& batch, T missing, const Element& element) {
#pragma unroll
  for (int i = 0; i < batch_size; ++i) elements[i] = batch.has(i) ? element(batch.offsets[i]) : missing;
}

/// The state of the calling thread's part of a line. plan.offset(position) is where a position lies, from position 0 on.
template <class Reduction, class Plan>
__device__ auto read_line(const Reduction& reduction, const Line& line, const Plan& plan) {
  using State = typename Reduction::State;
  State state = State::identity();
  const std::int64_t stride = static_cast<std::int64_t>(line.workers) * batch_size;
  for (std::int64_t position = line.begin + line.worker; position < line.end; position += stride) {
    state = State::merge(state, reduction.read(Batch(position, line, plan)));
  }
  return state;
}

/// output[offset] = map(offset, position) for the calling thread's part of a line. Some elements are read before they are written: the
/// output may lie on an input.
template <class T, class Plan, class Map>
__device__ void write_line(T* output, const Line& line, const Plan& plan, const Map& map) {
  constexpr int at_once = 4;
  const std::int64_t stride = static_cast<std::int64_t>(line.workers) * at_once;
  for (std::int64_t first = line.begin + line.worker; first < line.end; first += stride) {
    std::int64_t places[at_once];
    T values[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const std::int64_t position = first + static_cast<std::int64_t>(i) * line.workers;
      if (position >= line.end) continue;
      places[i] = line.offset + plan.offset(position);
      values[i] = map(places[i], position);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (first + static_cast<std::int64_t>(i) * line.workers < line.end) output[places[i]] = values[i];
    }
  }
}

/// Every thread gets the merged states of its team, in an order that does not depend on the thread. `shared` has a place for each thread of
/// the block, and may be used again at once. All threads of the block take part.
template <class State>
__device__ State merge_team(State state, TeamBits team, State* shared) {
  for (int mask = team.first; mask < cuda::warp_size && mask < team.last; mask *= 2) {
    state = State::merge(state, cuda::shuffle_xor(state, mask));
  }
  const int step = team.first > cuda::warp_size ? team.first : cuda::warp_size;  // within a warp, all have the same
  if (step >= team.last) return state;
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  shared[thread] = state;
  __syncthreads();
  const int first = thread % step + (thread & ~(team.last - 1));
  state = shared[first];
  for (int other = first + step; other < first + team.last; other += step) state = State::merge(state, shared[other]);
  return state;
}

template <class Reduction>
concept WritesLines = requires(const Reduction& reduction, typename Reduction::State state, Line line) {
  reduction.map(state, line);
};

template <class Reduction>
__device__ void finish_line(const Reduction& reduction, const LinePlan& plan, typename Reduction::State state, const Line& line) {
  if (line.result < 0) return;
  if constexpr (WritesLines<Reduction>) {
    write_line(reduction.output, line, plan, reduction.map(state, line));
  } else {
    if (line.worker == 0) reduction.finish(state, line);
  }
}

/// A team of threads a line, or a segment of one; see LinePlan. Reads each element once, or twice where lines are written, the second time
/// from a cache. With segments, their states go to `states`. Deterministic.
template <class Reduction, class State>
__global__ void __launch_bounds__(LinePlan::threads)
    reduce_kernel(State* states, Reduction reduction, const __grid_constant__ LinePlan plan) {
  __shared__ State shared[LinePlan::threads];
  for (std::int64_t group = blockIdx.x; group < plan.groups(); group += gridDim.x) {
    const Line line = plan.line(group, blockIdx.y);
    const State state = merge_team(read_line(reduction, line, plan), plan.team(), shared);
    if (states == nullptr) {
      finish_line(reduction, plan, state, line);
    } else if (line.result >= 0 && line.worker == 0) {
      states[plan.place_of_state(line, blockIdx.y)] = state;
    }
  }
}

/// After reduce_kernel with segments: merges the segments' states (results, segments) of a line, in their order, and ends the reduction.
/// Where lines are written, the threads are those of reduce_kernel; otherwise there is a block for all segments. Deterministic.
template <class Reduction, class State>
__global__ void __launch_bounds__(LinePlan::threads)
    finish_kernel(const State* states, Reduction reduction, const __grid_constant__ LinePlan plan) {
  __shared__ State shared[LinePlan::threads];
  for (std::int64_t group = blockIdx.x; group < plan.groups(); group += gridDim.x) {
    const Line line = plan.line(group, blockIdx.y);
    State state = State::identity();
    for (std::int64_t segment = line.worker; segment < plan.segments() && line.result >= 0; segment += line.workers) {
      state = State::merge(state, states[plan.place_of_state(line, segment)]);
    }
    finish_line(reduction, plan, merge_team(state, plan.team(), shared), line);
  }
}

/// Runs a reduction. `scratch` has LinePlan::scratch_bytes(..., sizeof(Reduction::State)) bytes on the device.
template <class Reduction>
void reduce_lines(cudaStream_t stream, const Reduction& reduction, const LinePlan& plan, std::span<std::byte> scratch) {
  using State = typename Reduction::State;
  if (plan.results() == 0) return;
  State* states = nullptr;
  if (plan.segments() > 1) {
    FRIT_CHECK(scratch.size() >= static_cast<std::size_t>(plan.results() * plan.segments()) * sizeof(State));
    states = reinterpret_cast<State*>(scratch.data());
  }
  cuda::launch(reduce_kernel<Reduction, State>, plan.all_segments(), stream, states, reduction, plan);
  if (states == nullptr) return;
  cuda::launch(finish_kernel<Reduction, State>, WritesLines<Reduction> ? plan.all_segments() : plan.whole_lines(), stream, states,
               reduction, plan);
}

/// A team of threads a line, or a segment of one. Each element is read and written once. Deterministic.
template <class Visitor>
__global__ void __launch_bounds__(LinePlan::threads) visit_kernel(Visitor visitor, const __grid_constant__ LinePlan plan) {
  for (std::int64_t group = blockIdx.x; group < plan.groups(); group += gridDim.x) {
    const Line line = plan.line(group, blockIdx.y);
    if (line.result >= 0) write_line(visitor.output, line, plan, visitor.map(line));
  }
}

/// visitor.output[offset] = visitor.map(line)(offset, position) for all elements of all lines.
template <class Visitor>
void visit_lines(cudaStream_t stream, const Visitor& visitor, const LinePlan& plan) {
  if (plan.results() == 0 || plan.count() == 0) return;
  cuda::launch(visit_kernel<Visitor>, plan.all_segments(), stream, visitor, plan);
}

}  // namespace frit::ops

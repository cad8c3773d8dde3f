#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "frit/graph/executable.h"
#include "frit/graph/preparation.h"
#include "frit/ops/operator/run.h"

namespace frit::graph {
namespace {

class BufferPlanner {
 public:
  BufferPlanner(const Graph& graph, Device device, const std::vector<Layout>& layouts)
      : graph_(graph),
        device_(device),
        layouts_(layouts),
        last_use_(static_cast<std::size_t>(graph.value_count()), -1),
        readers_(static_cast<std::size_t>(graph.value_count())),
        end_(static_cast<int>(graph.nodes().size())) {
    plan_.step = first_of_steps(graph, device);
    plan_.prepared = find_preparation(graph);
    operations_.resize(plan_.step.size());
    for (int step = 0; step < end_; ++step) {
      ++operations_[static_cast<std::size_t>(first(step))];
      for (const int id : graph.nodes()[static_cast<std::size_t>(step)].inputs) {
        last_use_[static_cast<std::size_t>(id)] = step;
        readers_[static_cast<std::size_t>(id)].push_back(step);
      }
    }
    for (const Output& output : graph.outputs()) last_use_[static_cast<std::size_t>(output.value)] = end_;
    find_parts();
    find_prepacked();
    keep_prepared();
    find_places();
    plan_.buffer.assign(static_cast<std::size_t>(graph.value_count()), -1);
  }

  BufferPlan run() {
    for (int step = 0; step < end_; ++step) {
      const Node& node = graph_.nodes()[static_cast<std::size_t>(step)];
      plan_.scratch.push_back(-1);
      plan_.prepacked.push_back(-1);
      plan_.view.push_back(node.kind == NodeKind::operation && is_view(node, step));
      if (node.kind == NodeKind::input) add(node.outputs[0], -1, end_);
      if (node.kind == NodeKind::operation) place_outputs(node, step);
    }
    return std::move(plan_);
  }

 private:
  /// What operations outside the preparation make of an input that stays the same, and is none of their others.
  void find_prepacked() {
    const std::vector<bool> fixed = fixed_values(graph_);
    plan_.prepacked_of.assign(graph_.nodes().size(), -1);
    kept_.assign(graph_.nodes().size(), 0);
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (node.kind != NodeKind::operation || node.op->view || plan_.prepared[n]) continue;
      const Types types = types_of(node, static_cast<int>(n));
      const ops::Prepacking made = ops::prepacking_of(*node.op, types.inputs, types.outputs, node.attributes, device_, layouts_of(node));
      if (made.bytes == 0) continue;
      const int input = node.inputs[made.input];
      if (!fixed[static_cast<std::size_t>(input)] || std::count(node.inputs.begin(), node.inputs.end(), input) > 1) continue;
      plan_.prepacked_of[n] = input;
      kept_[n] = made.bytes;
    }
  }

  /// Other operations read what the preparation gives them in every run, or only prepack it, right after the preparation.
  void keep_prepared() {
    prepared_end_ = static_cast<int>(plan_.prepared.rend() - std::find(plan_.prepared.rbegin(), plan_.prepared.rend(), true)) - 1;
    for (std::size_t n = 0; n < plan_.prepared.size(); ++n) {
      if (!plan_.prepared[n]) continue;
      for (const int id : graph_.nodes()[n].outputs) {
        int& last = last_use_[static_cast<std::size_t>(id)];
        if (last <= prepared_end_) continue;
        const auto prepacks = [&](int reader) {
          return reader <= prepared_end_ || plan_.prepacked_of[static_cast<std::size_t>(reader)] == id;
        };
        const std::vector<int>& readers = readers_[static_cast<std::size_t>(id)];
        last = std::all_of(readers.begin(), readers.end(), prepacks) ? prepared_end_ + 1 : end_;
      }
    }
  }

  /// What a microbatch alone reads has a part's place. All else is kept, or has its place, from the first part to the last.
  void find_parts() {
    plan_.microbatches = find_microbatches(graph_, device_);
    plan_.parts.assign(last_use_.size(), 1);
    microbatches_.assign(graph_.nodes().size(), nullptr);
    for (const Microbatches& parts : plan_.microbatches) {
      for (int n = parts.first; n <= parts.last; ++n) {
        const Node& node = graph_.nodes()[static_cast<std::size_t>(n)];
        if (node.kind != NodeKind::operation) continue;
        microbatches_[static_cast<std::size_t>(n)] = &parts;
        for (const int id : node.outputs) {
          if (last_use(id) <= parts.last) plan_.parts[static_cast<std::size_t>(id)] = parts.count;
        }
        for (const int id : node.inputs) {
          int& last = last_use_[static_cast<std::size_t>(id)];
          if (microbatches(graph_.producer_index(id)) != &parts) last = std::max(last, parts.last);
        }
      }
    }
  }
  bool in_parts(int value) const { return plan_.parts[static_cast<std::size_t>(value)] > 1; }
  const Microbatches* microbatches(int node) const { return microbatches_[static_cast<std::size_t>(node)]; }

  /// The types of a call, of which there are several for parts of a batch.
  struct Types {
    std::vector<TensorType> inputs, outputs;
  };
  Types types_of(const Node& node, int step) const {
    Types types{graph_.types(node.inputs), graph_.types(node.outputs)};
    const Microbatches* const parts = microbatches(step);
    if (parts == nullptr) return types;
    const std::vector<bool> with_samples = node.op->inputs_with_samples(types.inputs, node.attributes);
    for (std::size_t i = 0; i < types.inputs.size(); ++i) {
      if (with_samples[i]) types.inputs[i] = microbatch_of(types.inputs[i], parts->count);
    }
    for (TensorType& type : types.outputs) type = microbatch_of(type, parts->count);
    return types;
  }

  /// Computes what is joined where it is joined, if all that write and read it take that. Later operations first: what they join may itself
  /// be joined from others.
  void find_places() {
    plan_.place.resize(last_use_.size());
    for (int id = 0; id < graph_.value_count(); ++id) {
      TensorType type = graph_.type(id);
      if (in_parts(id)) type = microbatch_of(type, plan_.parts[static_cast<std::size_t>(id)]);
      tensors_.push_back(Tensor::over(nowhere(), type.shape, type.dtype, device_, nullptr, layout(id)));
    }
    for (int step = end_; step-- > 0;) {
      const Node& node = graph_.nodes()[static_cast<std::size_t>(step)];
      if (node.kind == NodeKind::operation && node.op->joins && last_use(node.outputs[0]) >= 0) place_inputs(node, step);
    }
  }

  /// A small part does not make the whole live longer.
  void place_inputs(const Node& node, int step) {
    constexpr std::int64_t least_part = 8;
    PartOfValue part{node.outputs[0], node.op->joins(node.attributes, graph_.type(node.outputs[0]).shape.rank())};
    int begin = step;
    for (const int input : node.inputs) {
      const bool is_small = graph_.type(input).bytes() * least_part < graph_.type(part.whole).bytes();
      if (!is_small) begin = std::min(begin, graph_.producer_index(input));
    }
    for (const int input : node.inputs) {
      if (graph_.producer_index(input) >= begin && may_lie_in(input, part.whole, step)) place(input, part);
      part.begin += graph_.type(input).shape[part.axis];
    }
  }

  bool may_lie_in(int value, int whole, int step) const {
    const int producer = graph_.producer_index(value);
    const Node& node = graph_.nodes()[static_cast<std::size_t>(producer)];
    if (node.kind != NodeKind::operation || node.op->view || node.op->part || node.op->permutation) return false;
    const auto v = static_cast<std::size_t>(value), w = static_cast<std::size_t>(whole);
    const bool together = plan_.prepared[static_cast<std::size_t>(producer)] == plan_.prepared[static_cast<std::size_t>(step)] &&
                          microbatches(producer) == microbatches(step) && plan_.parts[v] == plan_.parts[w];
    const auto& inputs = graph_.nodes()[static_cast<std::size_t>(step)].inputs;
    return together && !plan_.place[v] && last_use(value) < end_ && layout(value) == layout(whole) && graph_.type(value).bytes() > 0 &&
           graph_.type(value).dtype == graph_.type(whole).dtype && std::count(inputs.begin(), inputs.end(), value) == 1;
  }

  void place(int value, const PartOfValue& part) {
    const auto v = static_cast<std::size_t>(value);
    const std::int64_t end = part.begin + graph_.type(value).shape[part.axis];
    const Tensor own = std::exchange(tensors_[v], tensors_[static_cast<std::size_t>(part.whole)].slice(part.axis, part.begin, end));
    const bool lies_so = is_whole(value) || tensors_[v].pixel_pitch() > 0;
    if (lies_so && takes(graph_.producer_index(value)) && all_readers_take(value)) {
      plan_.place[v] = part;
    } else {
      tensors_[v] = own;
    }
  }

  /// As well aligned as a buffer, of which only the address is looked at.
  static std::byte* nowhere() {
    alignas(plan_alignment) static std::byte memory[plan_alignment];
    return memory;
  }
  /// Whether a value lies as in memory of its own.
  bool is_whole(int value) const {
    const Tensor& tensor = tensors_[static_cast<std::size_t>(value)];
    return tensor.is_contiguous(layout(value)) && reinterpret_cast<std::uintptr_t>(tensor.raw()) % plan_alignment == 0;
  }

  bool all_readers_take(int value) const {
    const std::vector<int>& readers = readers_[static_cast<std::size_t>(value)];
    return is_whole(value) || std::all_of(readers.begin(), readers.end(), [&](int reader) { return takes(reader); });
  }

  /// Whether an operation computes with its values as `tensors_` has them.
  bool takes(int step) const {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(step)];
    const auto lies_whole = [&](int value) { return is_whole(value); };
    const bool reads_wholes = std::all_of(node.inputs.begin(), node.inputs.end(), lies_whole);
    const bool writes_wholes = std::all_of(node.outputs.begin(), node.outputs.end(), lies_whole);
    if (reads_wholes && writes_wholes) return true;
    const ops::Operator& op = *node.op;
    if (op.view || op.permutation || !op.index_inputs.empty() || operations_[static_cast<std::size_t>(first(step))] > 1) return false;
    const ops::Kernel& kernel = op.kernel_on(device_);
    if (writes_wholes && kernel.strided && !kernel.run_together) return true;
    std::vector<Tensor> inputs, outputs;
    bool has_halves = false;
    const auto add = [&](std::vector<Tensor>& tensors, int value, bool with_samples) {
      Tensor tensor = tensors_[static_cast<std::size_t>(value)];
      if (const Microbatches* const parts = microbatches(step); parts != nullptr && with_samples && !in_parts(value)) {
        tensor = microbatch_of(tensor, parts->count, 0);
      }
      has_halves = has_halves || is_half(tensor.dtype());
      tensors.push_back(last_use(value) < 0 ? Tensor() : tensor);
    };
    const std::vector<bool> with_samples = op.inputs_with_samples(graph_.types(node.inputs), node.attributes);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) add(inputs, node.inputs[i], !with_samples.empty() && with_samples[i]);
    for (const int output : node.outputs) add(outputs, output, true);
    if (!kernel.takes_parts || (has_halves && !kernel.halves)) return false;
    return kernel.takes_parts({op, node.attributes, inputs, outputs, {}});
  }

  int& buffer(int value) { return plan_.buffer[static_cast<std::size_t>(value)]; }
  Layout layout(int value) const { return layouts_[static_cast<std::size_t>(value)]; }
  /// When a node's step begins: its results and scratch memory may share nothing with what any of the step's operations reads.
  int first(int node) const { return plan_.step[static_cast<std::size_t>(node)]; }
  int last_use(int value) const { return last_use_[static_cast<std::size_t>(value)]; }

  /// A permutation or a part of what lies outside, or is prepared when it is not, gets memory of its own: it may be written when that may
  /// not.
  bool is_view(const Node& node, int step) {
    if (node.op->view) return true;
    if (node.op->joins) return is_joined_in_place(node);
    const auto source = static_cast<std::size_t>(graph_.producer_index(node.inputs[0]));
    if (buffer(node.inputs[0]) < 0 || plan_.prepared[source] != plan_.prepared[static_cast<std::size_t>(step)]) return false;
    return gives_a_view(graph_, node, layouts_) || is_read_where_it_lies(node);
  }

  bool is_joined_in_place(const Node& node) const {
    return graph_.type(node.outputs[0]).bytes() > 0 && std::all_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
             return plan_.place[static_cast<std::size_t>(input)].whole == node.outputs[0] || graph_.type(input).bytes() == 0;
           });
  }

  /// A part that lies as memory of its own would, or that nobody reads but kernels that take any strides. Not one for which alone much more
  /// would be kept.
  bool is_read_where_it_lies(const Node& node) {
    if (!node.op->part) return false;
    const int whole = node.inputs[0], part = node.outputs[0], end_of_part = last_use_of_views(part);
    if (end_of_part == end_) return false;
    if (graph_.type(whole).dtype != graph_.type(part).dtype || layout(whole) != layout(part)) return false;
    if (end_of_part > last_use(whole) && 2 * bytes_of_parts(whole) < graph_.type(whole).bytes()) return false;
    Tensor& tensor = tensors_[static_cast<std::size_t>(part)];
    const Tensor own = std::exchange(tensor, node.op->part(tensors_[static_cast<std::size_t>(whole)], node.attributes));
    const bool taken = all_readers_take(part);
    if (!taken) tensor = own;
    return taken;
  }

  /// Of what lies where the value does.
  int last_use_of_views(int value) const {
    int last = last_use(value);
    for (const int reader : readers_[static_cast<std::size_t>(value)]) {
      const Node& node = graph_.nodes()[static_cast<std::size_t>(reader)];
      if (node.op->view) last = std::max(last, last_use_of_views(node.outputs[0]));
    }
    return last;
  }

  std::int64_t bytes_of_parts(int whole) const {
    std::int64_t bytes = 0;
    for (const int reader : readers_[static_cast<std::size_t>(whole)]) {
      const Node& node = graph_.nodes()[static_cast<std::size_t>(reader)];
      if (node.op->part) bytes += graph_.type(node.outputs[0]).bytes();
    }
    return bytes;
  }

  bool is_part_of_another(int value) const {
    if (plan_.place[static_cast<std::size_t>(value)]) return true;
    const Node& node = graph_.producer(value);
    if (node.kind != NodeKind::operation || !plan_.view[static_cast<std::size_t>(graph_.producer_index(value))]) return false;
    return node.op->part || (!node.op->joins && is_part_of_another(node.inputs[0]));
  }

  int add_buffer(std::size_t bytes, int first, int last) {
    plan_.lifetimes.push_back({static_cast<std::int64_t>(bytes), first, last});
    return static_cast<int>(plan_.lifetimes.size()) - 1;
  }
  void add(int value, int first, int last) {
    const Microbatches* const of_batch = microbatches(graph_.producer_index(value));
    if (of_batch != nullptr && !in_parts(value)) first = of_batch->first;
    const std::int64_t bytes = graph_.type(value).bytes() / plan_.parts[static_cast<std::size_t>(value)];
    buffer(value) = add_buffer(static_cast<std::size_t>(bytes), first, last);
  }

  void place_outputs(const Node& node, int step) {
    const bool is_view = plan_.view.back();
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const int value = node.outputs[i];
      if (last_use(value) < 0 || buffer(value) >= 0) continue;
      if (const int whole = whole_of(value); whole != value) {
        if (buffer(whole) < 0) add(whole, first(step), last_use(whole));
        buffer(value) = buffer(whole);
        extend(buffer(value), last_use(value));
        continue;
      }
      const int source = is_view ? node.inputs[0] : reusable_input(node, static_cast<int>(i), step);
      if (source >= 0) {
        buffer(value) = buffer(source);  // stays -1 for a view of a variable or constant
        if (buffer(value) >= 0) extend(buffer(value), last_use(value));
      } else {
        add(value, first(step), last_use(value));
      }
    }
    if (is_view) return;
    const std::size_t kept = kept_[static_cast<std::size_t>(step)];
    if (const std::size_t scratch = scratch_of(node, step, kept > 0)) plan_.scratch.back() = add_buffer(scratch, first(step), step);
    if (kept > 0) plan_.prepacked.back() = add_buffer(kept, prepared_end_ + 1, end_);
  }

  /// What a value lies in; itself if it is no part.
  int whole_of(int value) const {
    while (plan_.place[static_cast<std::size_t>(value)]) value = plan_.place[static_cast<std::size_t>(value)].whole;
    return value;
  }

  void extend(int index, int last) {
    Lifetime& lifetime = plan_.lifetimes[static_cast<std::size_t>(index)];
    lifetime.last = std::max(lifetime.last, last);
  }

  /// An input of the same type and layout whose buffer nobody needs after this step, and that no other output has taken. Not in a step of
  /// several operations, of which another may read it too.
  int reusable_input(const Node& node, int output, int step) {
    if (operations_[static_cast<std::size_t>(first(step))] > 1) return -1;
    for (const auto& [candidate_output, input] : node.op->in_place) {
      if (candidate_output != output || static_cast<std::size_t>(input) >= node.inputs.size()) continue;
      const int source = node.inputs[static_cast<std::size_t>(input)];
      const int result = node.outputs[static_cast<std::size_t>(output)];
      if (!(graph_.type(source) == graph_.type(result)) || layout(source) != layout(result) || buffer(source) < 0) continue;
      if (is_part_of_another(source) || (microbatches(step) != nullptr && !(in_parts(source) && in_parts(result)))) continue;
      const bool dies = plan_.lifetimes[static_cast<std::size_t>(buffer(source))].last <= step;
      const auto elsewhere = [&](int id) { return id != source && buffer(id) == buffer(source); };
      const bool read_twice =
          std::count(node.inputs.begin(), node.inputs.end(), source) > 1 || std::any_of(node.inputs.begin(), node.inputs.end(), elsewhere);
      if (dies && !read_twice) return source;
    }
    return -1;
  }

  ops::CallLayouts layouts_of(const Node& node) const {
    const auto layouts = [&](const std::vector<int>& ids) {
      std::vector<Layout> result;
      for (const int id : ids) result.push_back(layout(id));
      return result;
    };
    return {layouts(node.inputs), layouts(node.outputs)};
  }
  std::size_t scratch_of(const Node& node, int step, bool prepacked) const {
    const Types types = types_of(node, step);
    return ops::scratch_bytes(*node.op, types.inputs, types.outputs, node.attributes, device_, layouts_of(node), prepacked);
  }

  const Graph& graph_;
  Device device_;
  const std::vector<Layout>& layouts_;
  std::vector<int> last_use_;                      // by value id; -1: nobody reads it
  std::vector<std::vector<int>> readers_;          // by value id: nodes
  std::vector<int> operations_;                    // of each step, by its first node
  std::vector<const Microbatches*> microbatches_;  // by node index: that compute it, or null
  int end_, prepared_end_ = -1;                    // prepared_end_: the last of the preparation
  std::vector<std::size_t> kept_;                  // by node index: bytes that are prepacked once
  std::vector<Tensor> tensors_;                    // by value id: how it lies, in no memory
  BufferPlan plan_;
};

}  // namespace

std::vector<std::int64_t> alive_bytes(const Graph& graph, const BufferPlan& buffers) {
  const std::size_t nodes = graph.nodes().size();
  std::vector<std::int64_t> changes(nodes + 1, 0), alive;  // what more is alive from a node on
  for (const Lifetime& lifetime : buffers.lifetimes) {
    changes[static_cast<std::size_t>(std::max(lifetime.first, 0))] += lifetime.bytes;
    changes[std::min(static_cast<std::size_t>(lifetime.last + 1), nodes)] -= lifetime.bytes;
  }
  std::int64_t bytes = 0;
  for (std::size_t n = 0; n < nodes; ++n) {
    const Node& node = graph.nodes()[n];
    bytes += changes[n];
    const bool begins_step = buffers.step[n] == static_cast<int>(n);
    if (node.kind == NodeKind::operation && !buffers.view[n] && begins_step) alive.push_back(bytes);
  }
  return alive;
}

BufferPlan plan_buffers(const Graph& graph, Device device, const std::vector<Layout>& layouts) {
  return BufferPlanner(graph, device, layouts).run();
}

}  // namespace frit::graph

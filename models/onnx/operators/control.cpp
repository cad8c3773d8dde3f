#include <algorithm>

#include "frit/models/onnx/operators/helpers.h"

// What is decided when a model is imported: which of two graphs runs, how often one runs, and which values a sequence has.

namespace frit::onnx {
namespace {

bool is_true(const Call& call, const Tensor& condition) {
  call.require_support(condition.defined() && condition.elements() == 1, "its condition must be known when the model is imported");
  return condition.item() != 0;
}

Values chosen(const Call& call) {
  const bool condition = is_true(call, call.constant(0));
  if (!call.folds()) call.give(call.run_graph(condition ? "then_branch" : "else_branch", {}));
  return {};
}

std::int64_t number(const Call& call, std::size_t input) {
  const Sizes numbers = call.integers(input);
  call.require_support(numbers.size() == 1, "input ", input, " has ", numbers.size(), " numbers, expected one");
  return numbers[0];
}

/// The body once for each iteration. It is given the iteration's number, whether it runs, and what it gave last; it gives whether to go on,
/// what the next iteration is given, and what is stacked over all iterations.
Values repeated(const Call& call) {
  constexpr std::int64_t most_iterations = 1024;
  const std::int64_t times = call.has_input(0) ? number(call, 0) : most_iterations + 1;
  bool goes_on = !call.has_input(1) || is_true(call, call.constant(1));
  if (call.folds()) return {};
  std::vector<Operand> carried;
  for (std::size_t i = 2; i < call.inputs(); ++i) {
    if (!call.is_sequence(i)) call[i];  // joins the graph once
    carried.push_back(call.operand(i));
  }
  const auto known = [&](const Tensor& number) { return Operand{.value = call.graph().constant(number), .known = number}; };
  std::vector<Values> stacked;
  for (std::int64_t i = 0; goes_on && i < times; ++i) {
    call.require_support(i < most_iterations, "more than ", most_iterations, " iterations");
    std::vector<Operand> given = {known(Tensor::from({i}, {})), known(Tensor::full({}, 1, DType::u8))};
    given.insert(given.end(), carried.begin(), carried.end());
    const std::vector<Operand> results = call.run_graph("body", given);
    call.require_support(results.size() > carried.size(), "its graph gives ", results.size(), " values");
    goes_on = is_true(call, results[0].known);
    for (std::size_t k = 0; k < carried.size(); ++k) carried[k] = results[k + 1];
    stacked.resize(results.size() - carried.size() - 1);
    for (std::size_t k = 0; k < stacked.size(); ++k) stacked[k].push_back(results[k + 1 + carried.size()].value);
  }
  for (const Values& values : stacked) {
    call.require_support(std::all_of(values.begin(), values.end(), [](const Value& value) { return static_cast<bool>(value); }),
                         "sequences of all iterations");
    carried.push_back({.value = stack(values, 0)});
  }
  call.give(carried);
  return {};
}

/// A place among so many, or after them, counted from the end if it is negative.
std::ptrdiff_t place_in(const Call& call, std::size_t input, std::int64_t count, bool may_be_end = false) {
  const std::int64_t place = number(call, input), end = may_be_end ? count + 1 : count;
  call.require_support(place >= -count && place < end, "its place is not among ", count);
  return static_cast<std::ptrdiff_t>(place < 0 ? place + count : place);
}

Values give_sequence(const Call& call, const Values& values) {
  call.give({{.sequence = values}});
  return {};
}

Values empty_sequence(const Call& call) { return give_sequence(call, {}); }
Values made_sequence(const Call& call) { return give_sequence(call, call.all()); }

Values inserted(const Call& call) {
  Values values = call.sequence(0);
  const std::ptrdiff_t end = std::ssize(values);
  values.insert(values.begin() + (call.has_input(2) ? place_in(call, 2, end, /*may_be_end=*/true) : end), call[1]);
  return give_sequence(call, values);
}

Values erased(const Call& call) {
  Values values = call.sequence(0);
  call.require_support(!values.empty(), "its sequence is empty");
  values.erase(values.begin() + (call.has_input(1) ? place_in(call, 1, std::ssize(values)) : std::ssize(values) - 1));
  return give_sequence(call, values);
}

Values element(const Call& call) {
  const Values& values = call.sequence(0);
  return {values[static_cast<std::size_t>(place_in(call, 1, std::ssize(values)))]};
}

Values sequence_length(const Call& call) {
  return {call.graph().constant(Tensor::from({static_cast<std::int64_t>(call.sequence(0).size())}, {}))};
}

Values joined_sequence(const Call& call) {
  const Values& values = call.sequence(0);
  call.require_support(!values.empty(), "its sequence is empty");
  const std::int64_t axis = call.integer("axis", 0);
  return {call.integer("new_axis", 0) != 0 ? stack(values, axis) : concatenate(values, axis)};
}

/// Into parts of one size, or of the sizes given; of one element each, without their axis unless it is to be kept.
Values split_into_sequence(const Call& call) {
  const Value x = call[0];
  const int axis = normalize_axis(call.integer("axis", 0), x.rank(), "axis");
  if (call.has_input(1) && call.constant(1).rank() > 0) return give_sequence(call, split(x, call.integers(1), axis));
  const std::int64_t size = call.has_input(1) ? number(call, 1) : 1;
  call.require_support(size > 0 && x.dim(axis) / size <= 1024, "parts of ", size, " of ", x.dim(axis), " elements");
  Values parts = split(x, size, axis);
  if (!call.has_input(1) && call.integer("keepdims", 1) == 0) {
    for (Value& part : parts) part = squeeze(part, {axis});
  }
  return give_sequence(call, parts);
}

}  // namespace

void add_control(OperatorTable& table) {
  table["If"] = chosen;
  table["Loop"] = repeated;
  table["SequenceEmpty"] = empty_sequence;
  table["SequenceConstruct"] = made_sequence;
  table["SequenceInsert"] = inserted;
  table["SequenceErase"] = erased;
  table["SequenceAt"] = element;
  table["SequenceLength"] = sequence_length;
  table["ConcatFromSequence"] = joined_sequence;
  table["SplitToSequence"] = split_into_sequence;
}

}  // namespace frit::onnx

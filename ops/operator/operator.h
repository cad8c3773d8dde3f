#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frit/ops/operator/emitter.h"
#include "frit/ops/operator/library_functions.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/operator/sample.h"

namespace frit::ops {

using InferRule = std::function<std::vector<TensorType>(const InferContext&)>;

/// The type of input 0.
std::vector<TensorType> infer_same(const InferContext& call);
/// The broadcast of all inputs, which must share a dtype.
std::vector<TensorType> infer_broadcast(const InferContext& call);

/// By input: whether its axis 0 counts samples, of which each, with all of the other inputs, gives its share of each output's axis 0.
/// Empty: in none.
using SampleRule = std::function<std::vector<bool>(const InferContext&)>;

/// Input 0 alone.
std::vector<bool> samples_of_input_0(const InferContext& call);
/// Inputs with as many axes as their broadcast has, unless they are repeated along axis 0.
std::vector<bool> samples_of_broadcast(const InferContext& call);

/// One call as a gradient rule sees it. `gradients[i]` belongs to output i and is "none" where nothing flows back.
struct GradientContext {
  Emitter& emitter;
  std::span<const Value> inputs;
  std::span<const Value> outputs;
  std::span<const Value> gradients;
  const Attributes& attributes;
  std::vector<bool> wanted;  ///< a gradient for input i is asked for

  template <class A>
  const A& as() const {
    return attributes.as<A>();
  }
};

/// One value an input: its gradient, or "none" for zero. The shape may be one that broadcasting made of the input's: autograd sums it back.
using GradientRule = std::function<Values(const GradientContext&)>;

/// Spells the operator in others: one value an output that has a meaning of its own (further results, kept for the gradient, are left out).
using DecomposeRule = std::function<Values(Emitter&, std::span<const Value> inputs, const Attributes&)>;

/// What a call on these inputs gives where rows have so many elements more (see Operator::longer_rows).
using LongerRowsRule = std::function<Value(std::span<const Value> inputs, const Attributes&, std::int64_t more)>;

/// What an operator's data is stored in when a program is to store halves (see graph::lower_precision).
enum class Precision {
  as_given,  ///< in halves if any of it comes in halves
  half,      ///< always in halves: the operator gains from them
  full,      ///< in float32: its result would not fit halves, or would lose too much
  as_read,   ///< as given if all that read it are always in halves, else in float32
};

/// Another way to compute what an operator computes, equal for finite numbers but for rounding. The rule, which may emit the operator
/// itself with other inputs, gives no values where it does not apply.
struct Lowering {
  const char* name;  ///< "channels padded to 4"
  DecomposeRule rule = {};
  /// Whether it usually is the fastest where it applies: what is taken where no times may be. Missing: it is not.
  std::function<bool(std::span<const TensorType> inputs)> likely_fastest = {};
};

/// An input that output 0 is a sum or a product with, after broadcasting or, where `axis` is given, along that axis; -1 is the last. A
/// product holds where no addend is given.
struct LinearInput {
  enum Role { addend, factor };
  int input;
  Role role;
  std::optional<int> axis = {};
};

/// Input 0 falls into blocks of this shape. A number that is added to all of a block does not change output 0, nor does a positive one that
/// all of it is multiplied by, if `scale`, but for a norm's eps.
struct Invariance {
  Dims block;
  bool scale = true;
};

/// Averages over windows of an image, all of which lie inside it; on each of its axes.
struct Averaging {
  Dims image = {}, window = {}, stride = {};
  Shape result = {};  ///< what has them, for each sample and channel, in their order
};

/// A number for each channel, axis 1, to multiply by, and one to add then. Missing: 1, and 0. Or their order, done to a tensor's axis 0.
struct ChannelAffine {
  Value factor = {}, addend = {};  // (C)
  std::function<Value(Value)> order = {};

  explicit operator bool() const { return factor || addend || order; }
};

/// An order of input 0's channels, and the attributes with which the call takes them in that.
struct ChannelOrder {
  Attributes attributes;
  std::function<Value(Value)> order;  ///< done to a tensor's axis 0
};

struct Operator;
struct ReducedProgram;
struct StagedCall;

/// An operator, and its attributes in a call.
struct OperatorCall {
  const Operator* op;
  Attributes attributes;

  /// "sum {"axes":[1],"keep_dims":false}"; empty without an operator.
  std::string text() const;
  /// From such a text. Throws ErrorKind::argument for an operator that does not exist, and as attributes do.
  static OperatorCall parse(const std::string& text);
};

/// An input whose integers each name one of so many things: a class, a channel, a place in a plane. A call on the CPU refuses others; a
/// CUDA kernel, for which the host would have to wait, does not look where they point.
struct IndexInput {
  int input;
  std::function<std::int64_t(const InferContext&)> count;
  std::int64_t least = 0;  ///< -1: an index may say that there is none
};

struct StagedInput {
  int input;
  int reads = 1;  ///< how often a kernel reads it
};

struct Argument {
  const char* name;
  bool optional = false;  ///< only at the end of the list; may be left out

  Argument(const char* argument_name, bool is_optional = false) : name(argument_name), optional(is_optional) {}  // NOLINT
};

/// Everything that is known of one operator. Passes read these fields; they never hold an operator's name.
struct Operator {
  std::string name = {};
  std::string summary = {};  ///< the formula, in a line
  std::vector<Argument> inputs = {};
  bool variadic = false;  ///< the last input may repeat
  std::vector<const char*> outputs = {"output"};
  bool variadic_outputs = false;  ///< there may be any number of them

  InferRule infer = {};
  GradientRule gradient = {};    ///< missing: see no_gradient
  std::string no_gradient = {};  ///< why there is none ("integer result"); an operator has exactly one of the two
  DecomposeRule decompose = {};
  /// For a fused operator, or one that programs and files may spell in others: the attributes for which `decompose` gives the nodes that
  /// were matched, whose attributes come in the order in which decompose emitted them, for inputs of these types; none if the nodes are
  /// better left alone. The fusion pass checks the answer by decomposing it again.
  std::function<std::optional<Attributes>(std::span<const Attributes> matched, std::span<const TensorType> inputs)> fuse = {};
  /// What the call becomes once the sizes of the graph's inputs are those of a run. Missing: itself.
  DecomposeRule at_known_sizes = {};
  /// What the call becomes when nothing is trained: the values that replace its outputs ("none" where nothing reads them). Missing: itself.
  DecomposeRule at_inference = {};
  /// What output 0 is of input 0 then, if that is all that is left: it may become part of what gives input 0.
  std::function<ChannelAffine(std::span<const Value> inputs, const Attributes&)> channel_affine_at_inference = {};
  /// What output 0 always is of input `of`, if the others have a number for each channel of it, or one for all; nothing if not. Where that
  /// input is itself `before` of another value: what output 0 is of that one.
  std::function<ChannelAffine(std::span<const Value> inputs, std::size_t of, const ChannelAffine& before)> channel_affine = {};
  /// The inputs with which output 0 comes multiplied and added to like that; no values where that cannot be.
  std::function<Values(std::span<const Value> inputs, const Attributes&, const ChannelAffine&)> fold_channel_affine = {};
  /// Another order in which the call had better get its channels; none if it had not.
  std::function<std::optional<ChannelOrder>(const Attributes&)> channel_order = {};
  /// The outputs, in elementwise operators that can be computed together with what reads them: those whose element at a place follows from
  /// the elements at that place once the others are known, or those of a call that leaves something to be done; "none" where that gains
  /// nothing. Missing ones are "none".
  std::function<Values(std::span<const Value> inputs, std::span<const Value> outputs, const Attributes&)> pointwise = {};
  /// Other ways to compute the call. On a GPU a compiler of graphs tries them all and keeps the fastest; where results must not
  /// depend on times it takes the first that is likely to be.
  std::vector<Lowering> lowerings = {};
  bool is_gradient = false;  ///< its lowerings are tried once a graph has its gradient, those of other operators before
  /// The attributes with which the operator takes over the work of the operation that gives an input, and reads that operation's input 0,
  /// of type `read`, instead.
  std::function<std::optional<Attributes>(const OperatorCall& producer, const TensorType& read, std::size_t input, const Attributes& own)>
      absorb = {};
  /// Output 0 with so many finite numbers more at the end of each row, along the last axis; "none" where that cannot be.
  LongerRowsRule longer_rows = {};
  /// The call where the rows of input 0 have got so many finite numbers more: rows of output 0 get as many zeros, or, where it has no such
  /// rows, it stays what it was, as the numbers are zeros. "none" likewise.
  LongerRowsRule of_longer_rows = {};
  /// The averages over input 0's image that output 0 is, for an input of this shape; none if it is something else.
  std::function<std::optional<Averaging>(const Shape& input, const Attributes&)> averaging = {};
  /// The averages of output 0, from fewer products than it takes by itself; none where that cannot be.
  std::function<Value(std::span<const Value> inputs, const Attributes&, const Averaging&)> average = {};
  /// Which output of the operation that gives input 0, as its output `read`, already is the call's result; none if none is.
  std::function<std::optional<int>(const Operator& producer, int read, const Shape& shape, const Attributes& own)> given = {};
  /// Each element of the one output follows from the elements at its place in the inputs, which broadcast, so that the call may be computed
  /// together with others that it is connected with.
  bool elementwise = false;
  /// The attributes with which this operator computes a program of elementwise operators on inputs of these types; none if it cannot.
  std::function<std::optional<Attributes>(const ElementwiseProgram& program, std::span<const TensorType> inputs)> join = {};
  /// The attributes with which this operator computes such a program and reductions of its results; none if it had better not.
  std::function<std::optional<Attributes>(const ReducedProgram& program, std::span<const TensorType> inputs)> join_reduced = {};
  /// Images that a program of elementwise operators may stand for, and whether one may follow output 0, in one operator with the call.
  std::vector<StagedInput> staged_inputs = {};
  bool staged_output = false;
  /// Whether that holds of calls with these attributes, on such an image; asked by operators with stages. Missing: of all.
  std::function<bool(const Shape& image, const Attributes&)> staged_where = {};
  /// The attributes with which this operator computes a call with its stages; its inputs are those of the program before it, the call's
  /// others, and those of the program after it. None if it cannot.
  std::function<std::optional<Attributes>(const StagedCall& call, std::span<const TensorType> inputs)> stage = {};
  /// Where samples are computed independently of each other. Missing: nowhere, but in elementwise operators as broadcasting has it.
  SampleRule samples_in = {};
  /// Of an elementwise operator with one input: the activation that it is; none where the attributes ask for another than libraries have.
  std::function<std::optional<Activation>(const Attributes&)> activation = {};
  /// Of one with two inputs: the function that it is, if libraries have it.
  std::optional<BinaryFunction> binary = {};

  Precision precision = Precision::as_given;
  /// Floating inputs that may be float32 with halves, or halves with float32. What casts them is left out.
  std::vector<int> any_precision = {};

  Kernel cpu = {};
  Kernel cuda = {};  ///< added by the file next to the operator's own; see FRIT_CUDA_KERNELS
  std::vector<DType> dtypes = {DType::f64, DType::f32, DType::f16, DType::bf16};  ///< of input 0

  std::vector<std::pair<int, int>> in_place = {};  ///< (output, input): the output may take the dying input's memory
  /// (output, of): the output is, as (C), the sum of output `of` over all axes but the channels'.
  std::vector<std::pair<int, int>> channel_sums = {};
  std::vector<int> mutates = {};    ///< inputs that are updated where they lie; they must be variables
  std::optional<int> counter = {};  ///< the one of them that counts draws of random numbers, of which each process has its own
  bool collective = false;          ///< takes part in what other processes compute: all of them run its calls, in the same order
  bool commutative = false;         ///< inputs 0 and 1 may be swapped
  /// The number that as input 1 leaves every value of input 0 as it is, the sign of a zero and NaN included.
  std::optional<double> neutral = {};
  /// Of the operator whose output is its input in another dtype: the attributes for that dtype.
  std::function<Attributes(DType)> conversion = {};
  /// Of the operator whose output is its input in another shape: the attributes for that shape, one size of which may be -1.
  std::function<Attributes(const Shape&)> reshaping = {};
  std::vector<LinearInput> linear_inputs = {};
  std::vector<IndexInput> index_inputs = {};
  /// Of output 0, for an input 0 of this shape; missing: it has none.
  std::function<Invariance(const Shape& input, const Attributes&)> invariance = {};
  /// Outputs other than 0 depend on input 0 through the moments of its samples' channels alone, and a CUDA kernel of a call without output
  /// 0 may get those: it does not read input 0 then.
  bool reads_moments = false;
  bool repeats = false;  ///< output 0 is input 0, repeated along axes as broadcasting would
  bool view = false;     ///< output 0 is input 0's elements in the same order: no kernel need run
  /// Output 0, of input 0's dtype, is a part of input 0: the tensor that this gives, which lies in the input's memory.
  std::function<Tensor(const Tensor& input, const Attributes&)> part = {};
  /// Output 0 is the inputs one after another along the axis that this gives, so that each may be computed in its part of it.
  std::function<int(const Attributes&, int rank)> joins = {};
  /// Output 0 is input 0 with its axes in another order: axis i is the input's axis permutation[i]. In some layouts the memory is the same.
  std::function<Dims(const Attributes&)> permutation = {};
  /// The attributes with which inputs (N, C, 1, L) in place of those of three axes, (N, C, L), give the same elements. Missing: none do.
  std::function<Attributes(const Attributes&)> with_unit_axis = {};
  /// Output 0 of a call of another operator, with its last axis second, by this one, from the call's inputs, of which input 0 lies so too;
  /// none if it is not of this kind.
  std::function<Value(const Operator& other, std::span<const Value> inputs)> along_channels = {};

  std::function<std::vector<Sample>()> samples = {};
  /// Of an operator that multiplies more than it moves: the multiplications, each with an addition, that a call takes if it is computed as
  /// the formula says; `output` is output 0.
  std::function<double(const InferContext&, const TensorType& output)> multiplications = {};
  Sample typical = {};  ///< what a benchmark times, unless told otherwise; without inputs: the largest sample

  /// Attributes from a JSON object; set by Registry::add.
  std::function<Attributes(std::string_view json)> attributes_from_json = {};
  Attributes default_attributes = {};

  /// Throws ErrorKind::device if there is no kernel for the device.
  const Kernel& kernel_on(Device device) const;
  std::size_t required_inputs() const;
  /// Checks the number of inputs and runs `infer`; errors begin with the operator's name.
  std::vector<TensorType> infer_types(std::span<const TensorType> types, const Attributes& attributes) const;
  /// See SampleRule.
  std::vector<bool> inputs_with_samples(std::span<const TensorType> types, const Attributes& attributes) const;
};

template <class A>
const Operator& Registry::add(Operator entry) {
  entry.attributes_from_json = [name = entry.name](std::string_view json) { return Attributes(fields_from_json<A>(json, A{}, name)); };
  entry.default_attributes = Attributes(A{});
  return insert(std::move(entry));
}

}  // namespace frit::ops

/// Opens the function that registers a file's operators. `name` is the file's stem; the build finds these lines and calls them all.
/// A program's own operators are added by a plain call of `ops::registry().add(...)` before the first graph. What runs once
/// is compiled to be small.
#define FRIT_OPERATORS(name)                              \
  namespace frit::ops {                                   \
  [[gnu::cold]] void register_##name(Registry& registry); \
  }                                                       \
  void frit::ops::register_##name(::frit::ops::Registry& registry)

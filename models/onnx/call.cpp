#include "frit/models/onnx/call.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "frit/core/random.h"
#include "frit/core/text.h"
#include "frit/models/onnx/file.h"
#include "frit/models/onnx/importer.h"
#include "frit/models/onnx/tensor_data.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/random/dropout.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::onnx {
namespace {

constexpr const char* of_random_numbers =
    "of random numbers may be asked once, by Less with one number and a Cast to numbers, which are below it";

/// The number that was meant by a float32, the shortest that rounds to it: 1e-5 is no other in float64.
double meant(float value) {
  std::array<char, 32> text;
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double number = static_cast<double>(value);
  std::from_chars(text.data(), written.ptr, number);
  return number;
}

}  // namespace

const std::string& Call::op() const { return node_->op_type(); }
std::int64_t Call::opset() const { return file_->opset; }
std::size_t Call::outputs() const { return static_cast<std::size_t>(node_->output_size()); }

bool Call::wants_output(std::size_t i) const { return i < outputs() && !node_->output(static_cast<int>(i)).empty(); }

Value Call::join(Operand& operand, bool trainable) const {
  if (operand.value) return operand.value;
  const Tensor tensor = converted(operand.known);
  if (operand.parameter.empty()) return operand.value = graph_->constant(tensor);
  const auto initialize = [tensor](const Tensor& variable, std::uint64_t) { copy(variable, tensor); };
  return operand.value = graph_->variable(path(operand.parameter), {tensor.dtype(), tensor.shape()}, initialize, trainable);
}

Value Call::operator[](std::size_t i) const {
  require_support(has_input(i), "input ", i, " is missing");
  require_support(!is_random(i), of_random_numbers);
  require_support(!is_sequence(i), "input ", i, " is a sequence");
  return join(*inputs_[i], /*trainable=*/true);
}

Values Call::all() const {
  Values values;
  for (std::size_t i = 0; i < inputs(); ++i) values.push_back((*this)[i]);
  return values;
}

Value Call::buffer(std::size_t i) const {
  if (!is_initializer(i)) return {};
  const Value value = join(*inputs_[i], /*trainable=*/false);
  return graph_->producer(value.id()).trainable ? Value() : value;
}

Operand::Random& Call::random(std::size_t i, bool compared) const {
  Operand::Random& random = *inputs_[i]->random;
  require_support(random.below.has_value() == compared && !std::exchange(random.read, true), of_random_numbers);
  return random;
}

void Call::draw_below(std::size_t i, double bound) const {
  const Operand::Random& numbers = random(i, /*compared=*/false);
  draw({.type = numbers.type, .low = numbers.low, .high = numbers.high, .below = bound});
}

Value Call::chance(const Operand::Random& numbers) const {
  const double share = std::clamp((*numbers.below - numbers.low) / (numbers.high - numbers.low), 0.0, 1.0);
  const Value all = expand(graph_->constant(Tensor::full({}, 1, numbers.type.dtype)), numbers.type.shape), runs = counter();
  return dropout(all, runs, 1 - share, stream_of(graph_->producer(runs.id()).name)) * share;
}

const Values& Call::sequence(std::size_t i) const {
  require_support(is_sequence(i), "input ", i, " is no sequence");
  return *inputs_[i]->sequence;
}

std::vector<Operand> Call::run_graph(std::string_view attribute, const std::vector<Operand>& inputs) const {
  const AttributeProto* found = find(attribute, AttributeProto::GRAPH);
  require_support(found != nullptr, "attribute \"", attribute, "\" is missing");
  return importer_->run_inner(found->g(), inputs);
}

Value Call::counter() const {
  require_support(node_->output_size() > 0, "it has no output");
  return graph_->variable(path(node_->output(0) + ".counter"), {DType::i64, {}},
                          [](const Tensor& counter, std::uint64_t) { counter.fill(0); });
}

bool Call::is_always(std::size_t i, double number) const {
  if (!is_constant(i) || inputs_[i]->parameter.find('.') != std::string::npos) return false;
  const std::vector<double> numbers = reals(i);
  return std::all_of(numbers.begin(), numbers.end(), [number](double each) { return each == number; });
}

Tensor Call::constant(std::size_t i) const {
  require_support(has_input(i), "input ", i, " is missing");
  require_support(inputs_[i]->known.defined(), "input \"", printable(node_->input(static_cast<int>(i))),
                  "\" must be known when the model is imported: it is computed from what a run is given");
  return inputs_[i]->known;
}

const AttributeProto* Call::find(std::string_view attribute) const {
  for (const AttributeProto& known : node_->attribute()) {
    if (known.name() == attribute) return &known;
  }
  return nullptr;
}

const AttributeProto* Call::find(std::string_view attribute, int type) const {
  const AttributeProto* found = find(attribute);
  // Files of the first versions give no types.
  if (found != nullptr && found->type() != type && found->type() != AttributeProto::UNDEFINED) {
    unsupported("attribute \"", attribute, "\" is of another type than the standard's");
  }
  return found;
}

std::int64_t Call::integer(std::string_view attribute, std::int64_t otherwise) const {
  const AttributeProto* found = find(attribute, AttributeProto::INT);
  return found == nullptr ? otherwise : found->i();
}

double Call::real(std::string_view attribute, double otherwise) const {
  const AttributeProto* found = find(attribute, AttributeProto::FLOAT);
  return found == nullptr ? otherwise : meant(found->f());
}

std::string Call::text(std::string_view attribute, std::string_view otherwise) const {
  const AttributeProto* found = find(attribute, AttributeProto::STRING);
  return found == nullptr ? std::string(otherwise) : printable(found->s());
}

std::vector<std::int64_t> Call::integers(std::string_view attribute) const {
  const AttributeProto* found = find(attribute, AttributeProto::INTS);
  return found == nullptr ? std::vector<std::int64_t>() : std::vector<std::int64_t>(found->ints().begin(), found->ints().end());
}

std::vector<double> Call::reals(std::string_view attribute) const {
  const AttributeProto* found = find(attribute, AttributeProto::FLOATS);
  std::vector<double> numbers;
  for (int i = 0; found != nullptr && i < found->floats_size(); ++i) numbers.push_back(meant(found->floats(i)));
  return numbers;
}

Tensor Call::tensor(std::string_view attribute) const {
  const AttributeProto* found = find(attribute, AttributeProto::TENSOR);
  require_support(found != nullptr, "attribute \"", attribute, "\" is missing");
  return read_tensor(found->t(), file_->folder);
}

std::optional<std::vector<std::int64_t>> Call::integers(std::string_view attribute, std::size_t input) const {
  if (has(attribute)) return integers(attribute);
  if (has_input(input)) return integers(input);
  return std::nullopt;
}

Value Call::emit(const std::vector<std::int64_t>& numbers) const {
  return graph_->constant(Tensor::from(numbers, {static_cast<std::int64_t>(numbers.size())}));
}

Value Call::emit(const std::vector<double>& numbers, const Shape& shape, DType dtype) const {
  return graph_->constant(Tensor::from(numbers, shape).to(dtype));
}

DType Call::dtype_of(std::int64_t element_type) const {
  const std::optional<DType> dtype = dtype_of_element(element_type);
  require_support(dtype.has_value(), "elements of type ", element_name(element_type), " are not supported");
  return *dtype == DType::f32 ? real() : *dtype;
}

}  // namespace frit::onnx

#include "frit/ops/operator/elementwise_program.h"

#include <algorithm>
#include <charconv>

#include "frit/core/text.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

/// Reads the text of a program from left to right.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool take(std::string_view token) {
    while (!rest().empty() && rest()[0] == ' ') ++place_;
    if (!rest().starts_with(token)) return false;
    place_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (!take(token)) error(token);
  }

  std::string_view name() {
    take("");
    const std::size_t size = std::min(rest().find_first_of(" ,;(){}="), rest().size());
    if (size == 0) error("a name");
    place_ += size;
    return rest_before(size);
  }

  int number() {
    int value = 0;
    const auto [end, status] = std::from_chars(rest().data(), rest().data() + rest().size(), value);
    if (status != std::errc() || value < 0 || value > 1000) error("a number");
    place_ += static_cast<std::size_t>(end - rest().data());
    return value;
  }

  /// The JSON object that begins here, or an empty one.
  std::string_view object() {
    if (!take("{")) return "{}";
    const std::size_t begin = place_ - 1;
    bool quoted = false;
    for (int depth = 1; depth > 0; ++place_) {
      if (rest().empty()) error("}");
      const char c = rest()[0];
      if (quoted && c == '\\') {
        ++place_;
      } else if (c == '"') {
        quoted = !quoted;
      } else if (!quoted) {
        depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      }
    }
    return text_.substr(begin, place_ - begin);
  }

  [[noreturn]] void error(std::string_view expected) const {
    fail(ErrorKind::format, "elementwise program: expected ", expected, " before \"", printable(rest().substr(0, 40)), '"');
  }

 private:
  std::string_view rest() const { return text_.substr(std::min(place_, text_.size())); }
  std::string_view rest_before(std::size_t size) const { return text_.substr(place_ - size, size); }

  std::string_view text_;
  std::size_t place_ = 0;
};

/// A value as it is written: results count from -1 downwards until the number of inputs is known.
int value(Reader& reader, int& inputs, int results) {
  if (reader.take("x")) {
    const int input = reader.number();
    inputs = std::max(inputs, input + 1);
    return input;
  }
  reader.expect("y");
  const int result = reader.number();
  if (result >= results) reader.error("an earlier result");
  return -1 - result;
}

bool computes_in(DType dtype, bool wide) { return dtype == DType::u8 || (is_floating(dtype) && (dtype == DType::f64) == wide); }

}  // namespace

std::string ElementwiseProgram::text() const {
  const auto value_text = [&](int id) { return id < inputs ? concat('x', id) : concat('y', id - inputs); };
  const auto list = [&](const std::vector<int>& ids) {
    std::string result;
    for (const int id : ids) result += (result.empty() ? "" : ", ") + value_text(id);
    return result;
  };
  std::string result;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
    result += concat('y', i, " = ", instruction.op->name, '(', list(instruction.operands), ')');
    if (!instruction.attributes.text().empty()) result += ' ' + instruction.attributes.json();
    result += "; ";
  }
  return instructions.empty() ? result : result + "return " + list(outputs);
}

ElementwiseProgram ElementwiseProgram::parse(std::string_view text) {
  ElementwiseProgram program;
  if (text.empty()) return program;
  Reader reader(text);
  while (!reader.take("return ")) {
    const int results = static_cast<int>(program.instructions.size());
    reader.expect("y");
    if (reader.number() != results) reader.error(concat('y', results));
    reader.expect("=");
    Instruction instruction{&registry().find(reader.name()), {}, {}};
    reader.expect("(");
    do instruction.operands.push_back(value(reader, program.inputs, results));
    while (reader.take(","));
    reader.expect(")");
    instruction.attributes = instruction.op->attributes_from_json(reader.object());
    reader.expect(";");
    program.instructions.push_back(std::move(instruction));
  }
  do program.outputs.push_back(value(reader, program.inputs, static_cast<int>(program.instructions.size())));
  while (reader.take(","));
  const auto number = [&](int& id) { id = id < 0 ? program.inputs - 1 - id : id; };
  for (Instruction& instruction : program.instructions) std::for_each(instruction.operands.begin(), instruction.operands.end(), number);
  std::for_each(program.outputs.begin(), program.outputs.end(), number);
  return program;
}

std::vector<int> ElementwiseProgram::last_reads() const {
  std::vector<int> last(static_cast<std::size_t>(values()), -1);
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    for (const int id : instructions[i].operands) last[static_cast<std::size_t>(id)] = static_cast<int>(i);
  }
  return last;
}

std::vector<int> ElementwiseProgram::output_numbers() const {
  std::vector<int> numbers(static_cast<std::size_t>(values()), -1);
  for (std::size_t i = 0; i < outputs.size(); ++i) numbers[static_cast<std::size_t>(outputs[i])] = static_cast<int>(i);
  return numbers;
}

std::string ElementwiseProgram::check(std::span<const TensorType> given, std::vector<TensorType>& types) const {
  if (instructions.empty() || outputs.empty()) return "the program is empty";
  if (static_cast<int>(given.size()) != inputs) return concat("the program has ", inputs, " inputs, got ", given.size());
  types.assign(given.begin(), given.end());
  for (const Instruction& instruction : instructions) {
    const Operator& op = *instruction.op;
    if (!op.elementwise || op.cpu.scratch) return concat(op.name, " cannot be part of a program");
    std::vector<TensorType> operands;
    for (const int id : instruction.operands) operands.push_back(types[static_cast<std::size_t>(id)]);
    types.push_back(op.infer_types(operands, instruction.attributes).at(0));
    const bool compares = types.back().dtype == DType::u8;
    const auto is_u8 = [](const TensorType& type) { return type.dtype == DType::u8; };
    if (compares && std::any_of(operands.begin(), operands.end(), is_u8)) return concat(op.name, " computes with integers");
  }
  const auto first = static_cast<std::size_t>(inputs);
  const bool wide = std::any_of(types.begin(), types.end(), [](const TensorType& type) { return type.dtype == DType::f64; });
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (!computes_in(types[i].dtype, wide)) return concat(types[i].dtype, " does not mix with the other types");
    if (i >= first && !(types[i].shape == types[first].shape)) return concat("results are ", types[first].shape, " and ", types[i].shape);
  }
  std::vector<int> seen;
  for (const int id : outputs) {
    if (id < inputs || std::find(seen.begin(), seen.end(), id) != seen.end()) return "an output is an input, or appears twice";
    seen.push_back(id);
  }
  return {};
}

SlotPlan::SlotPlan(const ElementwiseProgram& program, const std::vector<bool>& kept, bool outputs_stay) : slots(kept.size(), -1) {
  std::vector<int> last = program.last_reads();
  for (const int id : program.outputs) {
    if (outputs_stay) last[static_cast<std::size_t>(id)] = static_cast<int>(program.instructions.size());
  }
  std::vector<int> free;
  const auto give = [&](std::size_t value) {
    if (!kept[value]) return;
    if (free.empty()) free.push_back(count++);
    slots[value] = free.back();
    free.pop_back();
  };
  for (int input = 0; input < program.inputs; ++input) give(static_cast<std::size_t>(input));
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    give(static_cast<std::size_t>(program.inputs + i));
    for (int id = 0; id <= program.inputs + i; ++id) {
      const auto value = static_cast<std::size_t>(id);
      if (slots[value] >= 0 && last[value] == i) free.push_back(slots[value]);
    }
  }
}

}  // namespace frit::ops

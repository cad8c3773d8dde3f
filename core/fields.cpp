#include "frit/core/fields.h"

#include <charconv>
#include <cmath>
#include <set>

#include "frit/core/io/json.h"
#include "frit/core/text.h"

namespace frit::detail {
namespace {

using nlohmann::json;

std::string shortest(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  FRIT_CHECK(error == std::errc());
  return {buffer, end};
}

class TextWriter final : public FieldVisitor {
 public:
  std::string text;

  void field(const char* name, bool& value) override { put(name, value ? "true" : "false"); }
  void field(const char* name, std::int64_t& value) override { put(name, std::to_string(value)); }
  void field(const char* name, double& value) override { put(name, shortest(value)); }
  void field(const char* name, std::string& value) override { put(name, value); }
  void field(const char* name, DType& value) override { put(name, std::string(name_of(value))); }
  void field(const char* name, Dims& value) override { put(name, value.empty() ? "[]" : concat(value)); }
  void field(const char* name, std::optional<double>& value) override { put(name, value ? shortest(*value) : "none"); }
  void field(const char* name, std::optional<DType>& value) override { put(name, value ? std::string(name_of(*value)) : "none"); }

 private:
  void put(const char* name, const std::string& value) { text += concat(text.empty() ? "" : " ", name, '=', value); }
};

/// Numbers that JSON cannot spell are written as the strings "inf", "-inf" and "nan".
json number(double value) { return std::isfinite(value) ? json(value) : json(shortest(value)); }

class JsonWriter final : public FieldVisitor {
 public:
  nlohmann::ordered_json object = nlohmann::ordered_json::object();

  void field(const char* name, bool& value) override { object[name] = value; }
  void field(const char* name, std::int64_t& value) override { object[name] = value; }
  void field(const char* name, double& value) override { object[name] = number(value); }
  void field(const char* name, std::string& value) override { object[name] = value; }
  void field(const char* name, DType& value) override { object[name] = name_of(value); }
  void field(const char* name, Dims& value) override { object[name] = std::vector<std::int64_t>(value.begin(), value.end()); }
  void field(const char* name, std::optional<double>& value) override { object[name] = value ? number(*value) : json(nullptr); }
  void field(const char* name, std::optional<DType>& value) override { object[name] = value ? json(name_of(*value)) : json(nullptr); }
};

class JsonReader final : public FieldVisitor {
 public:
  JsonReader(const json& object, std::string_view what) : object_(object), what_(what) {}

  void field(const char* name, bool& value) override {
    if (const json* j = find(name)) value = expect(j->is_boolean(), name, "true or false", *j).get<bool>();
  }
  void field(const char* name, std::int64_t& value) override {
    if (const json* j = find(name)) value = integer(name, *j);
  }
  void field(const char* name, double& value) override {
    if (const json* j = find(name)) value = real(name, *j);
  }
  void field(const char* name, std::string& value) override {
    if (const json* j = find(name)) value = expect(j->is_string(), name, "a string", *j).get<std::string>();
  }
  void field(const char* name, DType& value) override {
    if (const json* j = find(name)) value = dtype(name, *j);
  }
  void field(const char* name, Dims& value) override {
    const json* j = find(name);
    if (j == nullptr) return;
    value = Dims();
    if (j->is_number()) return value.push_back(integer(name, *j));
    expect(j->is_array() && j->size() <= Dims::max_rank, name, "a list of at most 8 integers", *j);
    for (const json& element : *j) value.push_back(integer(name, element));
  }
  void field(const char* name, std::optional<double>& value) override {
    const json* j = find(name);
    if (j == nullptr) return;
    value.reset();
    if (!j->is_null()) value = real(name, *j);
  }
  void field(const char* name, std::optional<DType>& value) override {
    const json* j = find(name);
    if (j == nullptr) return;
    value.reset();
    if (!j->is_null()) value = dtype(name, *j);
  }

  void check_all_known() const {
    for (const auto& [key, value] : object_.items()) {
      if (!known_.contains(key)) fail(ErrorKind::format, what_, ": unknown field \"", printable(key), '"');
    }
  }

 private:
  const json* find(const char* name) {
    known_.insert(name);
    const auto place = object_.find(name);
    return place == object_.end() ? nullptr : &*place;
  }
  const json& expect(bool holds, const char* name, const char* expected, const json& found) const {
    if (!holds) fail(ErrorKind::format, what_, ": field \"", name, "\": expected ", expected, ", got ", json_excerpt(found));
    return found;
  }
  std::int64_t integer(const char* name, const json& j) const {
    expect(j.is_number_integer() && (!j.is_number_unsigned() || j.get<std::uint64_t>() <= INT64_MAX), name, "an integer", j);
    return j.get<std::int64_t>();
  }
  double real(const char* name, const json& j) const {
    if (j == "inf" || j == "-inf") return j == "inf" ? HUGE_VAL : -HUGE_VAL;
    if (j == "nan") return NAN;
    return expect(j.is_number(), name, "a number", j).get<double>();
  }

  DType dtype(const char* name, const json& j) const { return parse_dtype(expect(j.is_string(), name, "a dtype", j).get<std::string>()); }

  const json& object_;
  std::string_view what_;
  std::set<std::string> known_;
};

}  // namespace

std::string fields_text(void* object, VisitFields visit) {
  TextWriter writer;
  visit(object, writer);
  return writer.text;
}

std::string fields_to_json(void* object, VisitFields visit) {
  JsonWriter writer;
  visit(object, writer);
  return writer.object.dump();
}

void fields_from_json(std::string_view text, void* object, VisitFields visit, std::string_view what) {
  const json parsed = read_json(text, what);
  if (!parsed.is_object()) fail(ErrorKind::format, what, ": expected a JSON object");
  JsonReader reader(parsed, what);
  visit(object, reader);
  reader.check_all_known();
}

}  // namespace frit::detail

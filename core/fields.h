#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "frit/core/dtype.h"
#include "frit/core/shape.h"

namespace frit {

/// Visits the named fields of a plain struct. A struct takes part by listing its fields once:
///   void fields(FieldVisitor& v) { v.field("eps", eps); v.field("axes", axes); }
/// From that one list come its text, its equality, its hash, and its JSON in both directions.
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;
  virtual void field(const char* name, bool& value) = 0;
  virtual void field(const char* name, std::int64_t& value) = 0;
  virtual void field(const char* name, double& value) = 0;
  virtual void field(const char* name, std::string& value) = 0;
  virtual void field(const char* name, DType& value) = 0;
  virtual void field(const char* name, Dims& value) = 0;
  virtual void field(const char* name, std::optional<double>& value) = 0;
  virtual void field(const char* name, std::optional<DType>& value) = 0;
};

/// "min=-1 max=none axes=0x2": every field, doubles in the shortest form that reads back the same. Two structs of one type are equal
/// exactly when their texts are.
template <class T>
std::string fields_text(T value);

/// A JSON object with every field.
template <class T>
std::string fields_to_json(T value);

/// `defaults` with the fields that the JSON object `json` names. Throws ErrorKind::format, beginning with `what`, for text that is not a
/// JSON object, an unknown field, or a value of the wrong type or range. A single number is taken for a Dims field as a list of one.
template <class T>
T fields_from_json(std::string_view json, T defaults, std::string_view what);

namespace detail {
using VisitFields = void (*)(void* object, FieldVisitor& visitor);
std::string fields_text(void* object, VisitFields visit);
std::string fields_to_json(void* object, VisitFields visit);
void fields_from_json(std::string_view json, void* object, VisitFields visit, std::string_view what);

template <class T>
void visit_fields(void* object, FieldVisitor& visitor) {
  static_cast<T*>(object)->fields(visitor);
}
}  // namespace detail

template <class T>
std::string fields_text(T value) {
  return detail::fields_text(&value, detail::visit_fields<T>);
}

template <class T>
std::string fields_to_json(T value) {
  return detail::fields_to_json(&value, detail::visit_fields<T>);
}

template <class T>
T fields_from_json(std::string_view json, T defaults, std::string_view what) {
  detail::fields_from_json(json, &defaults, detail::visit_fields<T>, what);
  return defaults;
}

}  // namespace frit

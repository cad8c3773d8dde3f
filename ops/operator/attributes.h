#pragma once

#include <memory>
#include <string>
#include <typeinfo>

#include "frit/core/fields.h"

namespace frit::ops {

/// An operator without attributes.
struct NoAttributes {
  void fields(FieldVisitor&) {}
};

/// One operator's attribute struct with a common handle: immutable, compared and hashed by value through its text.
class Attributes {
 public:
  Attributes() : Attributes(NoAttributes{}) {}
  template <class T>
  requires requires(T value, FieldVisitor& visitor) { value.fields(visitor); }
  Attributes(T value)  // NOLINT: a struct is meant to convert
      : type_(&typeid(T)),
        text_(fields_text(value)),
        value_(std::make_shared<const T>(std::move(value))),
        to_json_([](const void* v) { return fields_to_json(*static_cast<const T*>(v)); }) {}

  template <class T>
  const T& as() const {
    FRIT_CHECK(*type_ == typeid(T));
    return *static_cast<const T*>(value_.get());
  }
  const std::string& text() const { return text_; }
  /// What the operator's attributes_from_json makes the same attributes of.
  std::string json() const { return to_json_(value_.get()); }

  friend bool operator==(const Attributes& a, const Attributes& b) { return *a.type_ == *b.type_ && a.text_ == b.text_; }

 private:
  const std::type_info* type_;
  std::string text_;
  std::shared_ptr<const void> value_;
  std::string (*to_json_)(const void*);
};

}  // namespace frit::ops

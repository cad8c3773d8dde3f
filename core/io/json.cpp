#include "frit/core/io/json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "frit/core/error.h"
#include "frit/core/text.h"

namespace frit {
namespace {

using nlohmann::json;

/// Builds a value from the events of the parser, which itself does not recurse.
class JsonBuilder final : public nlohmann::json_sax<json> {
 public:
  explicit JsonBuilder(std::string_view what) : what_(what) {}

  json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const auto [place, fresh] = open_.back()->get_ref<json::object_t&>().try_emplace(std::move(name));
    if (!fresh) fail(ErrorKind::format, what_, ": duplicate key \"", printable(place->first), '"');
    member_ = &place->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception& error) override {
    fail(ErrorKind::format, what_, ": not JSON at byte ", position, ": ", json_fault(error));
  }

 private:
  json& place(json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_array()) return open_.back()->emplace_back(std::move(value));
    return *member_ = std::move(value);
  }
  bool add(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json value) {
    if (open_.size() == json_depth_limit) fail(ErrorKind::format, what_, ": JSON nested too deeply (limit ", json_depth_limit, ')');
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view what_;
  json root_;
  std::vector<json*> open_;  ///< what is being filled, the innermost last
  json* member_ = nullptr;   ///< of the innermost object: the one whose key came last
};

}  // namespace

json read_json(std::string_view text, std::string_view what) {
  // The parser would take a NUL for the end of its text.
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) fail(ErrorKind::format, what, ": not JSON at byte ", nul + 1, ": NUL");
  JsonBuilder builder(what);
  json::sax_parse(text, &builder);
  return builder.take();
}

std::string json_fault(const json::exception& error) {
  std::string_view reason = error.what();
  reason = reason.substr(0, reason.find("; last read: "));
  const std::size_t prefix = reason.find("column ");
  if (prefix != std::string_view::npos) reason = reason.substr(std::min(reason.find(": ", prefix), reason.size() - 2) + 2);
  return printable(reason);
}

std::string json_excerpt(const json& value) {
  return value.is_string() ? '"' + printable(value.get_ref<const std::string&>()) + '"' : printable(value.dump());
}

}  // namespace frit

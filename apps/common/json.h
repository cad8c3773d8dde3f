#pragma once

#include <nlohmann/json.hpp>
#include <ostream>

#include "frit/core/shape.h"

namespace frit::apps {

using Json = nlohmann::ordered_json;

/// Bytes that are not UTF-8 are replaced, numbers that are not finite become null.
inline void print(std::ostream& out, const Json& json) { out << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n'; }

inline Json shape_json(const Shape& shape) { return std::vector<std::int64_t>(shape.begin(), shape.end()); }

}  // namespace frit::apps

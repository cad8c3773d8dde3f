#pragma once

namespace frit::ops {

struct NoAttributes {};

}  // namespace frit::ops

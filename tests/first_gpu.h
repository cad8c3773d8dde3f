#pragma once

#include "frit/core/device.h"

namespace frit {

inline constexpr Device first_gpu{DeviceKind::cuda, 0};

}  // namespace frit

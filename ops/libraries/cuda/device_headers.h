#pragma once

#include <span>

namespace frit::nvrtc {

/// A header as the source that is being compiled includes it. Its text is part of the library: see device_headers.cmake.
struct DeviceHeader {
  const char *name, *text;
};

std::span<const DeviceHeader> device_headers();

}  // namespace frit::nvrtc

#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace frit {

enum class DeviceKind { cpu, cuda };

/// Where a tensor lives and a graph runs.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;

  static Device cpu() { return {}; }
  /// The fastest device that this build and machine have.
  static Device best();
  /// "auto", "cpu", "cuda", "cuda:N". Throws ErrorKind::argument for other text, ErrorKind::device if it is not there.
  static Device parse(std::string_view text);

  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu", "cuda:0".
std::ostream& operator<<(std::ostream& out, const Device& device);

/// Every device that can be used, the CPU first.
std::vector<Device> available_devices();

}  // namespace frit

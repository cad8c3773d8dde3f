#include "frit/core/device.h"

#include <charconv>
#include <ostream>

#include "frit/core/cuda/device.h"
#include "frit/core/error.h"

namespace frit {

Device Device::best() { return cuda::device_count() > 0 ? Device{DeviceKind::cuda, 0} : cpu(); }

Device Device::parse(std::string_view text) {
  if (text == "auto") return best();
  if (text == "cpu") return cpu();
  int index = 0;
  if (text.starts_with("cuda:")) {
    const std::string_view digits = text.substr(5);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    require(error == std::errc() && end == digits.data() + digits.size() && index >= 0, "device \"", text,
            "\": expected auto, cpu, cuda or cuda:N");
  } else {
    require(text == "cuda", "device \"", text, "\": expected auto, cpu, cuda or cuda:N");
  }
  const Device wanted{DeviceKind::cuda, index};
  int cuda_devices = 0;
  for (const Device& device : available_devices()) {
    if (device == wanted) return device;
    cuda_devices += device.kind == DeviceKind::cuda;
  }
  fail(ErrorKind::device, "device \"", text, "\" is not there: this build and machine have ", cuda_devices,
       " CUDA devices; hint: --device cpu");
}

std::vector<Device> available_devices() {
  std::vector<Device> devices = {Device::cpu()};
  for (int index = 0; index < cuda::device_count(); ++index) devices.push_back({DeviceKind::cuda, index});
  return devices;
}

std::ostream& operator<<(std::ostream& out, const Device& device) {
  if (device.kind == DeviceKind::cpu) return out << "cpu";
  return out << "cuda:" << device.index;
}

}  // namespace frit

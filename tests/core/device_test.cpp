#include "frit/core/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "frit/core/error.h"

namespace frit {
namespace {

TEST(Device, PrintsAndParses) {
  EXPECT_EQ(concat(Device::cpu()), "cpu");
  EXPECT_EQ(concat(Device{DeviceKind::cuda, 3}), "cuda:3");
  EXPECT_EQ(Device::parse("cpu"), Device::cpu());
  EXPECT_EQ(Device::parse("auto"), Device::best());
  for (const Device& device : available_devices()) EXPECT_EQ(Device::parse(concat(device)), device);
}

TEST(Device, TheCpuIsAlwaysThereAndFirst) {
  const auto devices = available_devices();
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices.front(), Device::cpu());
  EXPECT_NE(std::find(devices.begin(), devices.end(), Device::best()), devices.end());
}

TEST(Device, OtherTextIsRefused) {
  for (const char* text : {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:1x", "cuda: 1", "cuda:99999999999"}) {
    try {
      Device::parse(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::argument) << text;
      EXPECT_EQ(std::string(error.what()), concat("device \"", text, "\": expected auto, cpu, cuda or cuda:N"));
    }
  }
}

TEST(Device, AnAbsentDeviceIsADeviceError) {
  try {
    Device::parse("cuda:4096");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_NE(std::string(error.what()).find("device \"cuda:4096\" is not there"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace frit

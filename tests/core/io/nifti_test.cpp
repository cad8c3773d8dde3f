#include "frit/core/io/nifti.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/io/file.h"

namespace frit {
namespace {

NiftiVolume parse_nifti(const std::string& bytes) { return read_nifti(MemoryInput(bytes_of(bytes), "volume.nii")); }

class Nifti : public testing::Test {
 protected:
  void SetUp() override { FRIT_SKIP_WITHOUT("libnifti2"); }
};

TEST_F(Nifti, AxesAreDepthHeightWidth) {
  const NiftiVolume volume = parse_nifti(nifti_file({.dim = {3, 2, 1}}, bytes_of<float>({1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(volume.voxels.shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(volume.voxels.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(volume.spacing, (std::array<double, 3>{2, 1.5, 1}));
}

TEST_F(Nifti, FurtherAxesOfOneAreDropped) {
  const std::string voxels = bytes_of<float>({1, 2, 3, 4});
  EXPECT_EQ(parse_nifti(nifti_file({.dim = {2, 2}}, voxels)).voxels.shape(), (Shape{1, 2, 2}));
  EXPECT_EQ(parse_nifti(nifti_file({.dim = {4, 1, 1, 1, 1}}, voxels)).voxels.shape(), (Shape{1, 1, 4}));
  EXPECT_EQ(parse_nifti(nifti_file({.dim = {2, 1, 1, 2}}, voxels)).voxels.shape(), (Shape{2, 1, 1, 2}));
}

TEST_F(Nifti, ConvertsEveryElementTypeAndAppliesTheScale) {
  const auto check = [](std::int16_t type, auto zero, std::vector<double> wanted) {
    using T = decltype(zero);
    const std::string voxels = bytes_of<T>({T{3}, static_cast<T>(-1), T{100}});
    const NiftiVolume volume =
        parse_nifti(nifti_file({.dim = {3}, .type = type, .bits = 8 * sizeof(T), .slope = 2, .intercept = -1}, voxels));
    EXPECT_EQ(volume.voxels.to_vector<double>(), wanted) << "type " << type;
    EXPECT_EQ(volume.voxels.dtype(), DType::f32);
  };
  check(2, std::uint8_t{}, {5, 509, 199});
  check(4, std::int16_t{}, {5, -3, 199});
  check(8, std::int32_t{}, {5, -3, 199});
  check(16, float{}, {5, -3, 199});
  check(64, double{}, {5, -3, 199});
  check(256, std::int8_t{}, {5, -3, 199});
  check(512, std::uint16_t{}, {5, 131069, 199});
  check(768, std::uint32_t{}, {5, 8589934592.0, 199});
  check(1024, std::int64_t{}, {5, -3, 199});
  check(1280, std::uint64_t{}, {5, 36893488147419103232.0, 199});
}

TEST_F(Nifti, ReadsTheOtherByteOrderAndGzip) {
  const std::string file = nifti_file({.dim = {2}, .type = 4, .bits = 16}, bytes_of<std::int16_t>({1, 258}));
  EXPECT_EQ(parse_nifti(gzipped(file)).voxels.to_vector<float>(), (std::vector<float>{1, 258}));
  std::string swapped = file;
  for (const auto& [begin, size, count] :
       {std::array{0, 4, 1}, std::array{40, 2, 8}, std::array{70, 2, 2}, std::array{76, 4, 11}, std::array{352, 2, 2}}) {
    for (int i = 0; i < count; ++i) std::reverse(swapped.begin() + begin + i * size, swapped.begin() + begin + (i + 1) * size);
  }
  EXPECT_EQ(parse_nifti(swapped).voxels.to_vector<float>(), (std::vector<float>{1, 258}));
}

TEST_F(Nifti, RefusesWhatItCannotRead) {
  const auto refused = [](const std::string& bytes, const std::string& message) {
    expect_error(ErrorKind::format, "volume.nii: " + message, [&] { parse_nifti(bytes); });
    expect_error(ErrorKind::format, "volume.nii: " + message, [&] { parse_nifti(gzipped(bytes)); });
  };
  const std::string voxels(24, 'v');
  refused("", "not a NIfTI file: expected a header of 348 or 540 bytes");
  refused(std::string(400, 'x'), "not a NIfTI file");
  refused(nifti_file({.dim = {}}, voxels), "NIfTI header: expected 1 to 7 dimensions, got 0");
  refused(nifti_file({.dim = {2, 0, 3}}, voxels), "NIfTI header: dimension 2 must be at least 1, got 0");
  refused(nifti_file({.dim = {2, -3}}, voxels), "NIfTI header: dimension 2 must be at least 1, got -3");
  refused(nifti_file({.dim = {3}, .type = 32, .bits = 64}, voxels), "NIfTI element type 32 (COMPLEX64) not supported; supported: integers");
  refused(nifti_file({.dim = {3}, .type = 7777}, voxels), "NIfTI element type 7777 (**ILLEGAL**) not supported");
  refused(nifti_file({.dim = {3}, .magic = std::string("ni1\0", 4)}, voxels), "a NIfTI header whose voxels lie in a second file");
  refused(nifti_file({.dim = {6}, .offset = 5000}, voxels), "NIfTI header: the voxels begin at byte 5000, beyond the end of the file");
  refused(nifti_file({.dim = {6}}, voxels.substr(1)), "expected 24 bytes of voxels for 1x1x6, found 23");
  refused(nifti_file({.dim = {32767, 32767, 32767, 32767, 32767, 32767, 32767}}, voxels), "NIfTI header: shape ");
  refused(nifti_file({.dim = {32767, 32767, 32767}}, voxels), "header declares FLOAT32 32767x32767x32767, more than a file of ");
  const std::string damaged = gzipped(nifti_file({.dim = {6}}, voxels));
  expect_error(ErrorKind::format, "gzip data", [&] { parse_nifti(damaged.substr(0, damaged.size() - 9)); });
}

/// As bgzip writes them: one part after another.
TEST_F(Nifti, ReadsGzipFilesOfSeveralParts) {
  const std::string file = nifti_file({.dim = {6}}, bytes_of<float>({1, 2, 3, 4, 5, 6}));
  const std::string parts = gzipped(file.substr(0, 100)) + gzipped(file.substr(100, 257)) + gzipped(file.substr(357));
  EXPECT_EQ(parse_nifti(parts).voxels.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(Nifti, ReadsTheHeadOfMricron) {
  const std::string path = "/usr/share/mricron/templates/ch2.nii.gz";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "Debian's package mricron-data is not installed";
  const NiftiVolume head = read_nifti(path);
  EXPECT_EQ(head.voxels.shape(), (Shape{181, 217, 181}));
  EXPECT_EQ(head.spacing, (std::array<double, 3>{1, 1, 1}));
  double sum = 0;
  for (const float voxel : head.voxels.span<float>()) sum += voxel;
  EXPECT_EQ(sum, 317151210);  // as nibabel reads it
}

}  // namespace
}  // namespace frit

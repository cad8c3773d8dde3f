#include "frit/core/io/npz.h"

#include <gtest/gtest.h>

#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/io/npy.h"

namespace frit {
namespace {

std::string npy(const Tensor& tensor) { return text_of(serialize_npy(tensor)); }

TensorMap parse_npz(const std::string& bytes) { return read_npz(MemoryInput(bytes_of(bytes), "arrays.npz")); }

const std::string numbers_file = npy(Tensor::from<float>({1, 2, 3}, {3}));

class Npz : public testing::Test {
 protected:
  void SetUp() override { FRIT_SKIP_WITHOUT("libzip"); }
};

TEST_F(Npz, ReadsStoredAndDeflatedArrays) {
  const TensorMap arrays = parse_npz(zip_file({{"x.npy", numbers_file}, {"folder/y.npy", npy(Tensor::full({1000}, 7)), true}}));
  ASSERT_EQ(arrays.size(), 2u);
  EXPECT_EQ(arrays.at("x").to_vector<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(arrays.at("folder/y").to_vector<float>(), std::vector<float>(1000, 7));
  EXPECT_TRUE(parse_npz(zip_file({})).empty());
}

TEST_F(Npz, RefusesWhatIsNotSuchAFile) {
  const auto refused = [](const std::string& bytes, const std::string& message) {
    expect_error(ErrorKind::format, "arrays.npz", [&] { parse_npz(bytes); });
    expect_error(ErrorKind::format, message, [&] { parse_npz(bytes); });
  };
  refused("", "not a good .npz file");
  refused("PK\x03\x04 and so on", "not a good .npz file");
  refused(zip_file({{"readme.txt", "hello"}}), "\"readme.txt\" is not an array");
  refused(zip_file({{"x.npy", "hello"}}), "arrays.npz, x.npy: bad magic");
  refused(zip_file({{"x.npy", numbers_file, false, 12}}), "\"x.npy\" is compressed by method 12; supported: stored and deflated");
  refused(zip_file({{.name = "x.npy", .content = numbers_file, .flags = 1}}), "\"x.npy\" is encrypted");
  refused(zip_file({{"\x1b[2J.npy", "hello"}}), "\\x1b[2J.npy");
}

TEST_F(Npz, RefusesDamageAndFalseSizes) {
  std::string damaged = zip_file({{"x.npy", numbers_file}});
  damaged[35 + numbers_file.size() - 1] ^= 1;
  expect_error(ErrorKind::format, "\"x.npy\": ", [&] { parse_npz(damaged); });
  const auto claims = [](std::int64_t size, bool deflated) { return zip_file({{"x.npy", numbers_file, deflated, -1, size}}); };
  expect_error(ErrorKind::format, "claims 4000000000 bytes from", [&] { parse_npz(claims(4'000'000'000, true)); });
  expect_error(ErrorKind::format, concat("claims 1000 bytes from ", numbers_file.size()), [&] { parse_npz(claims(1000, false)); });
  expect_error(ErrorKind::format, "\"x.npy\": ", [&] { parse_npz(claims(static_cast<std::int64_t>(numbers_file.size()) + 1, true)); });
  expect_error(ErrorKind::format, "\"x.npy\": ", [&] { parse_npz(claims(static_cast<std::int64_t>(numbers_file.size()) - 1, true)); });
}

/// Many entries of a directory that all stand for the same bytes: a bomb that no ratio within one entry shows.
TEST_F(Npz, RefusesEntriesThatShareBytes) {
  const std::string once = zip_file({{"x.npy", npy(Tensor::zeros({100000})), true}});
  const std::size_t directory = once.find("PK\x01\x02"), end = once.find("PK\x05\x06");
  std::string file = once.substr(0, directory), entry = once.substr(directory, end - directory);
  for (char i = 0; i < 100; ++i) {
    entry[46] = static_cast<char>(' ' + i);
    file += entry;
  }
  file += std::string("PK\x05\x06\0\0\0\0", 8) + little_bytes(100, 2) + little_bytes(100, 2) + little_bytes(100 * entry.size(), 4) +
          little_bytes(directory, 4) + std::string(2, '\0');
  expect_error(ErrorKind::format, "entries are larger than the file", [&] { parse_npz(file); });
}

}  // namespace
}  // namespace frit

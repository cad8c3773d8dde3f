#include "frit/core/io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "core/io/file_testing.h"
#include "frit/core/io/file.h"

namespace frit {
namespace {

std::string dense_bytes(const Tensor& dense) { return {static_cast<const char*>(dense.raw()), static_cast<std::size_t>(dense.bytes())}; }

std::string with_length(const std::string& header, const std::string& data = "") {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i));
  return text + header + data;
}

void expect_same(const TensorMap& got, const TensorMap& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  auto place = got.begin();
  for (const auto& [name, tensor] : wanted) {
    const Tensor& found = place->second;
    ASSERT_EQ(place->first, name);
    ASSERT_EQ(found.dtype(), tensor.dtype());
    ASSERT_EQ(found.shape(), tensor.shape());
    ASSERT_TRUE(found.is_contiguous());
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(found.raw()) % size_of(found.dtype()), 0u);
    ASSERT_EQ(dense_bytes(found), dense_bytes(tensor.contiguous()));
    ++place;
  }
}

/// Sets of tensors of any bits, shapes and names.
class RandomSets {
 public:
  explicit RandomSets(std::uint64_t seed) : random_(seed) {}

  TensorMap tensors() {
    TensorMap result;
    for (std::int64_t count = below(7); count > 0; --count) result[name()] = tensor();
    return result;
  }
  Metadata metadata() {
    Metadata result;
    for (std::int64_t count = below(3); count > 0; --count) result[name()] = name();
    return result;
  }

 private:
  std::int64_t below(std::int64_t bound) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(bound)); }

  std::string name() {
    static const std::string pieces[] = {"conv", ".",   "weight", "0",  "\xc3\xa4", "\xe4\xb8\xad",       "\xf0\x9f\x99\x82",
                                         "\"",   "\\",  "/",      "..", "\n",       std::string(1, '\0'), "\x1b[2J",
                                         " ",    "\x7f"};
    std::string result;
    for (std::int64_t count = below(6); count > 0; --count) result += pieces[below(std::size(pieces))];
    return result;
  }

  Tensor tensor() {
    Shape shape;
    for (std::int64_t rank = below(9); rank > 0; --rank) shape.push_back(below(10) == 0 ? 0 : 1 + below(shape.rank() < 4 ? 4 : 2));
    const Tensor tensor = Tensor::empty(shape, all_dtypes[below(std::size(all_dtypes))]);
    auto* const bytes = static_cast<unsigned char*>(tensor.raw());
    for (std::int64_t i = 0; i < tensor.bytes(); ++i) bytes[i] = static_cast<unsigned char>(random_());
    if (tensor.rank() < 2 || below(2) == 0) return tensor;
    return tensor.transpose(0, -1).slice(1, 0, tensor.rank() == 2 ? tensor.dim(0) : tensor.dim(1), 1 + below(2));
  }

  std::mt19937_64 random_;
};

TEST(Safetensors, TenThousandRandomSetsReadBackBitForBit) {
  RandomSets random(1);
  const TemporaryFolder folder;
  for (int i = 0; i < 10'000; ++i) {
    const TensorMap tensors = random.tensors();
    const Metadata metadata = random.metadata();
    const std::vector<std::byte> bytes = serialize_safetensors(tensors, metadata);
    const TensorFile file = parse_safetensors(bytes, "memory");
    ASSERT_NO_FATAL_FAILURE(expect_same(file.tensors(), tensors)) << "set " << i;
    ASSERT_EQ(file.metadata(), metadata);
    if (i % 100 != 0) continue;
    const std::string path = folder / "set.safetensors";
    write_safetensors(path, tensors, metadata);
    ASSERT_EQ(read_text(path, bytes.size()), text_of(bytes));
    ASSERT_NO_FATAL_FAILURE(expect_same(read_safetensors(path).tensors(), tensors)) << "set " << i;
  }
}

TEST(Safetensors, WritesTheFormatOfTheReference) {
  const TensorMap tensors = {{"a", Tensor::from<std::uint8_t>({1, 2, 3}, {3})}, {"b", Tensor::from<float>({1}, {})}};
  const std::string header =
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";
  const std::string padded = header + std::string(8 - header.size() % 8, ' ');
  EXPECT_EQ(text_of(serialize_safetensors(tensors, {{"k", "v"}})), with_length(padded, std::string("\0\0\x80\x3f\1\2\3", 7)));
  EXPECT_EQ(text_of(serialize_safetensors({})), with_length("{}      "));
}

TEST(Safetensors, KeepsEveryTensorAlignedInTheFile) {
  TensorMap tensors;
  for (const DType dtype : all_dtypes) tensors["t" + std::string(name_of(dtype))] = Tensor::zeros({3}, dtype);
  const std::string text = text_of(serialize_safetensors(tensors));
  const std::size_t data = 8 + static_cast<unsigned char>(text[0]) + 256u * static_cast<unsigned char>(text[1]);
  EXPECT_EQ(data % 8, 0u);
  std::size_t position = data;
  for (const DType dtype : {DType::f64, DType::i64, DType::f32, DType::i32, DType::bf16, DType::f16, DType::u8}) {
    EXPECT_EQ(position % size_of(dtype), 0u);
    const std::string name = "\"t" + std::string(name_of(dtype)) + '"';
    const std::string offsets = concat("\"data_offsets\":[", position - data, ',', position - data + 3 * size_of(dtype), ']');
    EXPECT_NE(text.find(offsets, text.find(name)), std::string::npos) << dtype;
    position += 3 * size_of(dtype);
  }
}

TEST(Safetensors, AlignsWhatTheFileDoesNot) {
  const std::string header =
      R"( {"d":{"dtype":"F64","shape":[1],"data_offsets":[1,9]},"c":{"dtype":"U8","shape":[1],"data_offsets":[9,10]},)"
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[10,18]},"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})";
  const double d = 1.5;
  const float b[] = {2, 3};
  const std::string data =
      '\1' + std::string(reinterpret_cast<const char*>(&d), 8) + '\7' + std::string(reinterpret_cast<const char*>(b), 8);
  const TensorFile file = parse_safetensors(bytes_of(with_length(header, data)), "memory");
  expect_same(file.tensors(), {{"a", Tensor::from<std::uint8_t>({1}, {1})},
                               {"b", Tensor::from<float>({2, 3}, {2})},
                               {"c", Tensor::from<std::uint8_t>({7}, {1})},
                               {"d", Tensor::from<double>({1.5}, {1})}});
}

TEST(Safetensors, AcceptsWhatTheReferenceAccepts) {
  const std::string good[] = {
      with_length("{}"),
      with_length(" \t\r\n{ }  "),
      with_length(R"({"__metadata__":{}})"),
      with_length(R"({"":{"data_offsets":[0,1],"shape":[],"dtype":"U8"}})", "x"),
      with_length(R"({"../../etc/passwd":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
      with_length(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})", "1234"),
      with_length(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", "1234"),
      with_length(R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})"),
      with_length(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", "x"),
  };
  for (const std::string& text : good) EXPECT_NO_THROW(parse_safetensors(bytes_of(text), "memory")) << text.substr(8);
}

TEST(Safetensors, FindsTensorsByName) {
  const Tensor one = Tensor::from<float>({1}, {1});
  const TensorFile file = parse_safetensors(serialize_safetensors({{"b", one}, {"a", one}, {"c", one}}), "memory");
  ASSERT_EQ(file.size(), 3u);
  EXPECT_EQ(file.entry(0).name, "a");
  EXPECT_EQ(file.entry(2).name, "c");
  EXPECT_EQ(file.find("b"), std::optional<std::size_t>(1));
  EXPECT_FALSE(file.find("bb"));
  EXPECT_FALSE(file.find(""));
  EXPECT_EQ(file.at("c").item(), 1);
  expect_error(ErrorKind::format, "memory: no tensor \"x\\x0a\"", [&] { file.at("x\n"); });
}

TEST(Safetensors, TensorsOutliveTheFile) {
  Tensor kept;
  {
    const TensorFile file = parse_safetensors(serialize_safetensors({{"a", Tensor::from<double>({4}, {1})}}), "memory");
    kept = file.at("a");
  }
  EXPECT_EQ(kept.item(), 4);
}

TEST(Safetensors, TheHeaderAloneReadsNoData) {
  const TemporaryFolder folder;
  const std::string path = folder / "sparse.safetensors";
  const std::uint64_t size = 1ull << 40;
  write_text(path, with_length(R"({"a":{"dtype":"U8","shape":[)" + std::to_string(size) + R"(],"data_offsets":[0,)" + std::to_string(size) +
                               "]}}"));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + size);
  const SafetensorsHeader header = read_safetensors_header(path);
  ASSERT_EQ(header.size(), 1u);
  EXPECT_EQ(header.file(), path);
  EXPECT_EQ(header.entry(0).name, "a");
  EXPECT_EQ(header.entry(0).dtype, DType::u8);
  EXPECT_EQ(header.entry(0).shape, (Shape{1ll << 40}));
}

TEST(Safetensors, RefusesToWriteWhatCannotBeRead) {
  const Tensor one = Tensor::zeros({1});
  expect_error(ErrorKind::argument, "tensor \"a\" is undefined", [] { serialize_safetensors({{"a", Tensor()}}); });
  expect_error(ErrorKind::argument, "\"\\xff\" is not valid UTF-8", [&] { serialize_safetensors({{"\xff", one}}); });
  expect_error(ErrorKind::argument, "is not valid UTF-8", [&] { serialize_safetensors({{"a", one}}, {{"k", "\xc3"}}); });
  expect_error(ErrorKind::argument, "a tensor cannot be named __metadata__", [&] { serialize_safetensors({{"__metadata__", one}}); });
}

TEST(Safetensors, AFailedWriteLeavesTheOldFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "weights.safetensors";
  write_safetensors(path, {{"a", Tensor::zeros({1})}});
  const std::string before = read_text(path, 1000);
  EXPECT_THROW(write_safetensors(path, {{"a", Tensor()}}), Error);
  EXPECT_EQ(read_text(path, 1000), before);
  EXPECT_EQ(folder.names().size(), 1u);
  expect_error(ErrorKind::file_system, "/dev/full: no space left on device, wrote 0 of 68 bytes", [] {
    write_safetensors("/dev/full", {{"a", Tensor::zeros({1})}});
  });
}

TEST(Safetensors, LimitsTheMetadata) {
  Metadata metadata;
  for (int i = 0; i < 65'536; ++i) metadata["k" + std::to_string(i)] = "";
  EXPECT_EQ(parse_safetensors(serialize_safetensors({}, metadata), "memory").metadata(), metadata);
  metadata["one more"] = "";
  expect_error(ErrorKind::argument, "more than 65536 metadata entries", [&] { serialize_safetensors({}, metadata); });
}

/// A file of `count` tensors with one byte each.
std::string many_tensors(int count) {
  std::string header = "{";
  for (int i = 0; i < count; ++i) {
    header += concat(i == 0 ? "\"" : ",\"", i, R"(":{"dtype":"U8","shape":[1],"data_offsets":[)", i, ',', i + 1, "]}");
  }
  return with_length(header + '}', std::string(static_cast<std::size_t>(count), 'x'));
}

TEST(Safetensors, LoadsAMillionTinyTensors) {
  constexpr int count = sanitized ? 100'000 : 1'000'000;  // ten times slower
  const TemporaryFolder folder;
  const std::string path = folder / "many.safetensors";
  write_text(path, many_tensors(count));
  const double start = processor_seconds();
  const TensorFile file = read_safetensors(path);
  EXPECT_LT(processor_seconds() - start, 5);  // one on a machine at rest; were it quadratic, hours
  EXPECT_EQ(file.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(file.at(std::to_string(count - 1)).data<std::uint8_t>()[0], 'x');
}

/// The most memory that the process has had, in KiB.
long peak_memory() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

/// By how much a load raises the peak of a process of its own.
long memory_of_loading(const std::string& path) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    const long before = peak_memory();
    try {
      read_safetensors(path);
    } catch (const Error&) {
    }
    const long taken = peak_memory() - before;
    ::_exit(::write(ends[1], &taken, sizeof taken) == sizeof taken ? 0 : 1);
  }
  long taken = -1;
  if (::read(ends[0], &taken, sizeof taken) != sizeof taken) taken = -1;
  ::close(ends[0]);
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
  return taken;
}

TEST(Safetensors, ALoadTakesNoMoreMemoryThanTheFile) {
  if (sanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  const TemporaryFolder folder;
  const std::string path = folder / "file.safetensors";
  std::string misaligned =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F64","shape":[5000000],"data_offsets":[1,40000001]}})";
  misaligned = with_length(misaligned, std::string(40'000'001, 'x'));
  for (const std::string& text : {many_tensors(500'000), misaligned, many_tensors(500'000) + "trailing"}) {
    write_text(path, text);
    const long taken = memory_of_loading(path);
    EXPECT_GE(taken, 0);
    EXPECT_LE(taken, static_cast<long>(text.size() / 1024) + 16 * 1024);
  }
}

}  // namespace
}  // namespace frit

// Damaged and hostile files: what each reader says of them, and how soon.

#include <gtest/gtest.h>

#include <ostream>

#include "core/io/file_testing.h"
#include "frit/core/io/file.h"
#include "frit/core/io/idx.h"
#include "frit/core/io/npy.h"
#include "frit/core/io/safetensors.h"

namespace frit {
namespace {

enum class Format { safetensors, npy, idx };

struct BadFile {
  const char* name;
  Format format;
  std::string bytes;
  std::string message;
};

void PrintTo(const BadFile& file, std::ostream* out) { *out << file.name; }

std::string little_endian(std::uint64_t number, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(number >> (8 * i));
  return bytes;
}

std::string repeat(std::string_view text, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

/// A safetensors file with that header and `data` zero bytes.
std::string tensors(const std::string& header, std::size_t data = 0) {
  return little_endian(header.size(), 8) + header + std::string(data, '\0');
}

/// A tensor "a" with this shape and F32, and the right header around it.
std::string shaped(const std::string& shape, std::size_t data = 4) {
  return tensors(R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,)" + std::to_string(data) + "]}}", data);
}

/// A tensor "a" of three F32 with these offsets over 12 bytes.
std::string offset(const std::string& offsets) {
  return tensors(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":)" + offsets + "}}", 12);
}

/// Tensors of bytes at the given offsets.
std::string bytes_at(std::vector<std::array<int, 2>> ranges, std::size_t data) {
  std::string header;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto [begin, end] = ranges[i];
    header += concat(i == 0 ? "{" : ",", '"', static_cast<char>('a' + i), R"(":{"dtype":"U8","shape":[)", end - begin,
                     R"(],"data_offsets":[)", begin, ',', end, "]}");
  }
  return tensors(header + "}", data);
}

const std::string good_entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";

const BadFile safetensors_files[] = {
    {"empty", Format::safetensors, "", "too short for a safetensors header: 0 bytes"},
    {"seven_bytes", Format::safetensors, "1234567", "too short for a safetensors header: 7 bytes"},
    {"header_length_zero", Format::safetensors, std::string(8, '\0'), "invalid header"},
    {"header_is_array", Format::safetensors, tensors("[1]"), "invalid header: expected a JSON object"},
    {"header_is_number", Format::safetensors, tensors(" 17 "), "invalid header: expected a JSON object"},
    {"header_is_blank", Format::safetensors, tensors("    "), "invalid header: expected a JSON object"},
    {"byte_order_mark", Format::safetensors, tensors("\xef\xbb\xbf{}"), "invalid header: expected a JSON object"},
    {"git_lfs", Format::safetensors, "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
     "this is a Git LFS pointer, fetch the real file"},
    {"zip", Format::safetensors, "PK\x03\x04" + std::string(100, 'x'), "PyTorch pickle or zip, convert it to safetensors"},
    {"pickle", Format::safetensors, "\x80\x02" + std::string(100, '\0'), "PyTorch pickle or zip, convert it to safetensors"},
    {"truncated", Format::safetensors, tensors("{}").substr(0, 9), "header claims 2 bytes, file has 1: truncated?"},
    {"header_too_large", Format::safetensors, little_endian(100'000'001, 8) + "{}",
     "header too large: claims 100000001 bytes, limit 100,000,000"},
    {"header_2_63", Format::safetensors, little_endian(1ull << 63, 8) + "{}", "header too large: claims 9223372036854775808"},
    {"header_2_64", Format::safetensors, std::string(8, '\xff') + "{}", "header too large: claims 18446744073709551615"},
    {"not_utf8", Format::safetensors, tensors("{\"\xff\":" + good_entry + "}", 4), "header is not valid UTF-8/JSON at byte 10"},
    {"nul_inside", Format::safetensors, tensors(std::string("{}\0", 3)), "header is not valid UTF-8/JSON at byte 10: NUL"},
    {"unpaired_surrogate", Format::safetensors, tensors(R"({"\ud800":)" + good_entry + "}", 4),
     "header is not valid UTF-8/JSON at byte 16"},
    {"unfinished", Format::safetensors, tensors(R"({"a":)"),
     "header is not valid UTF-8/JSON at byte 12: syntax error while parsing value - unexpected end of input"},
    {"text_after_header", Format::safetensors, tensors("{} x"), "header is not valid UTF-8/JSON at byte 11"},
    {"comment", Format::safetensors, tensors("{/**/}"), "header is not valid UTF-8/JSON at byte 9"},
    {"deep_arrays", Format::safetensors, tensors("{\"a\":" + repeat("[", 100'000)), "nested too deeply at byte 20 (limit 8)"},
    {"deep_objects", Format::safetensors, tensors(repeat("{\"a\":", 100'000)), "nested too deeply at byte 48 (limit 8)"},
    {"deep_shape", Format::safetensors, shaped(repeat("[", 100'000)), "nested too deeply"},
    {"entry_is_array", Format::safetensors, tensors(R"({"a":[]})"), "tensor \"a\": expected an object, got an array (byte 13)"},
    {"entry_is_number", Format::safetensors, tensors(R"({"a":1})"), "tensor \"a\": expected an object, got 1"},
    {"no_dtype", Format::safetensors, tensors(R"({"a":{"shape":[],"data_offsets":[0,4]}})", 4), "tensor \"a\": key \"dtype\" is missing"},
    {"no_shape", Format::safetensors, tensors(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4),
     "tensor \"a\": key \"shape\" is missing"},
    {"no_offsets", Format::safetensors, tensors(R"({"a":{"dtype":"F32","shape":[]}})", 4), "tensor \"a\": key \"data_offsets\" is missing"},
    {"unknown_key", Format::safetensors, tensors(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4],"b\n":1}})", 4),
     "tensor \"a\": unknown key \"b\\x0a\""},
    {"shape_is_number", Format::safetensors, shaped("1"), "tensor \"a\": key \"shape\": expected an array of integers, got 1"},
    {"dtype_is_number", Format::safetensors, tensors(R"({"a":{"dtype":32}})"), "tensor \"a\": key \"dtype\": expected a string, got 32"},
    {"duplicate_tensor", Format::safetensors, tensors("{\"a\":" + good_entry + ",\"a\":" + good_entry + "}", 4), "duplicate key \"a\""},
    {"duplicate_escaped", Format::safetensors, tensors("{\"a\":" + good_entry + ",\"\\u0061\":" + good_entry + "}", 4),
     "duplicate key \"a\""},
    {"duplicate_shape", Format::safetensors, tensors(R"({"a":{"shape":[1],"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4),
     "tensor \"a\": duplicate key \"shape\""},
    {"duplicate_metadata", Format::safetensors, tensors(R"({"__metadata__":{},"__metadata__":{}})"), "duplicate key \"__metadata__\""},
    {"duplicate_in_metadata", Format::safetensors, tensors(R"({"__metadata__":{"k":"1","k":"2"}})"), "metadata: duplicate key \"k\""},
    {"dimension_negative", Format::safetensors, shaped("[-1,3]"), "tensor \"a\": dimension must be a non-negative integer, got -1"},
    {"dimension_minus_zero", Format::safetensors, shaped("[-0]"), "tensor \"a\": dimension must be a non-negative integer, got -0"},
    {"dimension_fraction", Format::safetensors, shaped("[1.5]"), "tensor \"a\": dimension must be a non-negative integer, got 1.5"},
    {"dimension_exponent", Format::safetensors, shaped("[1e3]"), "tensor \"a\": dimension must be a non-negative integer, got 1e3"},
    {"dimension_string", Format::safetensors, shaped("[\"2\"]"), "tensor \"a\": dimension must be a non-negative integer, got \"2\""},
    {"dimension_true", Format::safetensors, shaped("[true]"), "tensor \"a\": dimension must be a non-negative integer, got true"},
    {"dimension_null", Format::safetensors, shaped("[2,null]"), "tensor \"a\": dimension must be a non-negative integer, got null"},
    {"dimension_2_63", Format::safetensors, shaped("[9223372036854775808]"),
     "tensor \"a\": dimension out of range, got 9223372036854775808"},
    {"dimension_2_64", Format::safetensors, shaped("[18446744073709551616]"),
     "tensor \"a\": dimension out of range, got 18446744073709551616"},
    {"dimension_10_400", Format::safetensors, shaped("[1" + std::string(400, '0') + "]"), "tensor \"a\": dimension out of range, got 1000"},
    {"dimension_1e400", Format::safetensors, shaped("[1e400]"), "tensor \"a\": dimension must be a non-negative integer, got 1e400"},
    {"product_wraps_to_four", Format::safetensors, shaped("[4194305,4194305,211106198978564]", 16),
     "tensor \"a\": shape 4194305x4194305x211106198978564 times dtype F32 overflows"},
    {"bytes_wrap_to_eight", Format::safetensors, tensors(R"({"a":{"dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8]}})", 8),
     "overflows"},
    {"int64_max_twice", Format::safetensors, shaped("[9223372036854775807,2]", 4), "overflows"},
    {"rank_9", Format::safetensors, shaped("[1,1,1,1,1,1,1,1,1]"), "tensor \"a\": rank over the limit of 8"},
    {"rank_10000", Format::safetensors, shaped("[1" + repeat(",1", 9'999) + "]"), "tensor \"a\": rank over the limit of 8"},
    {"offsets_negative", Format::safetensors, offset("[-1,11]"), "tensor \"a\": data_offsets must be two non-negative integers, got -1"},
    {"offsets_reversed", Format::safetensors, offset("[12,0]"), "tensor \"a\": data_offsets [12, 0] are reversed"},
    {"offsets_one", Format::safetensors, offset("[0]"), "tensor \"a\": data_offsets must be two non-negative integers, got 1 of them"},
    {"offsets_three", Format::safetensors, offset("[0,12,12]"),
     "tensor \"a\": data_offsets must be two non-negative integers, got 3 of them"},
    {"offsets_beyond", Format::safetensors, offset("[4,16]"), "tensor \"a\": data_offsets [4, 16] end beyond the 12 bytes of data"},
    {"offsets_wrap", Format::safetensors, offset("[18446744073709551608,18446744073709551615]"), "end beyond the 12 bytes of data"},
    {"offsets_2_64", Format::safetensors, offset("[0,18446744073709551616]"), "tensor \"a\": data_offsets out of range"},
    {"offsets_wrong_size", Format::safetensors, offset("[0,8]"), "tensor \"a\": expected 12 bytes for F32 3, got data_offsets [0, 8] of 8"},
    {"overlap_by_one", Format::safetensors, bytes_at({{0, 4}, {3, 8}}, 8), "tensors \"a\" and \"b\" overlap"},
    {"overlap_identical", Format::safetensors, bytes_at({{0, 8}, {0, 8}}, 8), "tensors \"a\" and \"b\" overlap"},
    {"overlap_inside", Format::safetensors, bytes_at({{0, 8}, {2, 2}}, 8), "tensors \"a\" and \"b\" overlap"},
    {"hole", Format::safetensors, bytes_at({{0, 2}, {4, 8}}, 8), "unindexed bytes at 115..117"},
    {"hole_at_the_start", Format::safetensors, bytes_at({{2, 8}}, 8), "unindexed bytes at 61..63"},
    {"trailing_bytes", Format::safetensors, bytes_at({{0, 8}}, 10), "unindexed bytes at 69..71"},
    {"trailing_bytes_alone", Format::safetensors, tensors("{}", 1), "unindexed bytes at 10..11"},
    {"dtype_unknown", Format::safetensors, tensors(R"({"a":{"dtype":"F128","shape":[],"data_offsets":[0,4]}})", 4),
     "tensor \"a\": dtype \"F128\" not supported; supported: F64, F32, F16, BF16, I64, I32, U8, BOOL"},
    {"dtype_unsupported", Format::safetensors, tensors(R"({"a":{"dtype":"F8_E4M3","shape":[],"data_offsets":[0,4]}})", 4),
     "dtype \"F8_E4M3\" not supported"},
    {"dtype_complex", Format::safetensors, tensors(R"({"a":{"dtype":"C64","shape":[],"data_offsets":[0,8]}})", 8),
     "dtype \"C64\" not supported"},
    {"dtype_four_bits", Format::safetensors, tensors(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1),
     "dtype \"F4\" not supported"},
    {"dtype_lower_case", Format::safetensors, tensors(R"({"a":{"dtype":"f32","shape":[],"data_offsets":[0,4]}})", 4),
     "dtype \"f32\" not supported"},
    {"metadata_array", Format::safetensors, tensors(R"({"__metadata__":[]})"), "metadata must map strings to strings, got an array"},
    {"metadata_null", Format::safetensors, tensors(R"({"__metadata__":null})"), "metadata must map strings to strings, got null"},
    {"metadata_number", Format::safetensors, tensors(R"({"__metadata__":{"k":1}})"), "metadata must map strings to strings, got 1"},
    {"metadata_object", Format::safetensors, tensors(R"({"__metadata__":{"k":{}}})"),
     "metadata must map strings to strings, got an object"},
    {"name_with_escapes", Format::safetensors, tensors(R"({"\u001b[2J":1})"), "tensor \"\\x1b[2J\": expected an object"},
    {"name_with_nul", Format::safetensors, tensors(R"({"a\u0000b":1})"), "tensor \"a\\x00b\": expected an object"},
    {"name_is_empty", Format::safetensors, tensors(R"({"":1})"), "tensor \"\": expected an object"},
    {"name_is_a_path", Format::safetensors, tensors(R"({"../../etc/passwd":1})"), "tensor \"../../etc/passwd\": expected an object"},
    {"name_of_a_mebibyte", Format::safetensors, tensors("{\"" + std::string(1 << 20, 'n') + "\":1}"),
     "tensor \"" + std::string(200, 'n') + "...\": expected"},
    {"string_without_end", Format::safetensors, tensors("{\"" + std::string(1 << 20, 'n')), "header is not valid UTF-8/JSON"},
};

/// An npy file of version `major`.0 with that header and `data` zero bytes.
std::string array(const std::string& header, std::size_t data = 0, char major = 1) {
  return std::string("\x93NUMPY") + major + '\0' + little_endian(header.size(), major == 1 ? 2 : 4) + header + std::string(data, '\0');
}

std::string array_of_shape(const std::string& shape, std::size_t data = 12) {
  return array("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n", data);
}

std::string array_of_dtype(const std::string& descr) {
  return array("{'descr': " + descr + ", 'fortran_order': False, 'shape': (3,), }\n", 12);
}

const BadFile npy_files[] = {
    {"empty", Format::npy, "", "bad magic"},
    {"magic_only", Format::npy, "\x93NUMPY", "too short for an npy header: 6 bytes"},
    {"csv", Format::npy, "1,2,3\n4,5,6\n", "bad magic: expected \\x93NUMPY, got \"1,2,3\\x0a\""},
    {"npz", Format::npy, "PK\x03\x04 rest", "looks like a zip (npz): extract the .npy"},
    {"png", Format::npy, "\x89PNG\r\n rest", "looks like a PNG image"},
    {"version_4", Format::npy, array("{}", 0, 4), "version 4.0 not supported"},
    {"version_0", Format::npy, array("{}", 0, 0), "version 0.0 not supported"},
    {"header_longer_than_file", Format::npy, array("{'descr'").substr(0, 14), "header claims 8 bytes, file has 4: truncated?"},
    {"header_length_cut", Format::npy, array("{}", 0, 2).substr(0, 11), "too short for an npy header: 11 bytes"},
    {"header_over_10000", Format::npy, array(std::string(10'001, ' ')), "header of 10001 bytes, limit 10,000"},
    {"header_of_4_gib", Format::npy, std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12), "header of 4294967295 bytes, limit 10,000"},
    {"no_closing_brace", Format::npy, array("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)\n", 12),
     "header: expected '}', got the header's end (byte 65)"},
    {"code", Format::npy, array("{'descr': __import__('os'), 'fortran_order': False, 'shape': (3,)}\n", 12),
     "header: expected a string, got \"__import__('os'), 'f\" (byte 20)"},
    {"code_in_shape", Format::npy, array_of_shape("(int('3'),)"), "dimension must be a non-negative integer, got \"int('3'),), }\\x0a\""},
    {"code_after", Format::npy, array("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} or exit()\n", 12),
     "unexpected text after the header's closing brace"},
    {"unknown_key", Format::npy, array("{'descr': '<f4', 'order': False, 'shape': (3,)}\n", 12), "header: unknown key \"order\""},
    {"missing_key", Format::npy, array("{'descr': '<f4', 'shape': (3,)}\n", 12), "header key 'fortran_order' is missing"},
    {"key_twice", Format::npy, array("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}\n", 12),
     "header: key 'descr' stands twice"},
    {"string_without_end", Format::npy, array("{'descr", 12), "header: string without an end"},
    {"order_is_number", Format::npy, array("{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}\n", 12),
     "expected True or False, got \"0, 'shape': (3,)}"},
    {"python_object", Format::npy, array_of_dtype("'|O'"), "Python objects are not supported (would need unpickling)"},
    {"structured", Format::npy, array_of_dtype("[('a', '<f4')]"), "structured dtypes are not supported"},
    {"string_dtype", Format::npy, array_of_dtype("'<U3'"), "dtype '<U3' not supported; supported: <f8 <f4 <f2 <i8 <i4 |u1 |b1"},
    {"datetime", Format::npy, array_of_dtype("'<M8[ns]'"), "dtype '<M8[ns]' not supported"},
    {"complex", Format::npy, array_of_dtype("'<c8'"), "dtype '<c8' not supported"},
    {"no_byte_order", Format::npy, array_of_dtype("'|f4'"), "dtype '|f4' not supported"},
    {"empty_dtype", Format::npy, array_of_dtype("''"), "dtype '' not supported"},
    {"shape_no_tuple", Format::npy, array_of_shape("(3)"), "shape must be a tuple: expected (3,)"},
    {"shape_list", Format::npy, array_of_shape("[3]"), "expected '(', got \"[3], }"},
    {"shape_negative", Format::npy, array_of_shape("(-1,)"), "dimension must be a non-negative integer, got \"-1,), }"},
    {"shape_expression", Format::npy, array_of_shape("(2**40, 2**40)"), "expected ',' or ')' in the shape, got \"**40"},
    {"shape_overflows", Format::npy, array_of_shape("(1099511627776, 1099511627776)"),
     "shape 1099511627776x1099511627776 times dtype f32 overflows"},
    {"shape_wraps", Format::npy, array_of_shape("(4194305, 4194305, 211106198978564)", 16), "overflows"},
    {"shape_out_of_range", Format::npy, array_of_shape("(18446744073709551616,)"), "dimension out of range"},
    {"rank_9", Format::npy, array_of_shape("(1, 1, 1, 1, 1, 1, 1, 1, 1)", 4), "rank over the limit of 8"},
    {"data_short", Format::npy, array_of_shape("(3,)", 11), "expected 12 bytes of data for f32 3, found 11"},
    {"data_long", Format::npy, array_of_shape("(3,)", 13), "expected 12 bytes of data for f32 3, found 13"},
    {"data_huge", Format::npy, array_of_shape("(1000000000000,)"), "expected 4000000000000 bytes of data for f32 1000000000000, found 12"},
};

/// An IDX header: the element type and big-endian sizes.
std::string idx(char type, const std::vector<std::uint32_t>& sizes, std::size_t data = 0) {
  std::string bytes = std::string(2, '\0') + type + static_cast<char>(sizes.size());
  for (const std::uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift);
  }
  return bytes + std::string(data, 'x');
}

const BadFile idx_files[] = {
    {"empty", Format::idx, "", "too short for an IDX header"},
    {"no_sizes", Format::idx, idx(8, {5}).substr(0, 4), "too short for an IDX header"},
    {"text", Format::idx, "hello world", "not an IDX file: expected two zero bytes at the start"},
    {"type", Format::idx, idx(9, {1}, 1), "IDX element type 9 not supported"},
    {"rank_9", Format::idx, idx(8, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 1), "rank 9 is over the limit of 8"},
    {"data_short", Format::idx, idx(8, {5}, 4), "expected 5 bytes of data for u8 5, found 4"},
    {"data_long", Format::idx, idx(8, {5}, 6), "1 bytes after the end of the data"},
    {"declares_4_gib", Format::idx, idx(8, {4294967295u}, 6), "header declares u8 4294967295, more than a file of 14 bytes can hold"},
    {"declares_2_128", Format::idx, idx(8, {4294967295u, 4294967295u, 4294967295u, 4294967295u}, 6),
     "more than a file of 26 bytes can hold"},
};

class BadFiles : public testing::TestWithParam<BadFile> {};

void read(Format format, const std::string& path) {
  switch (format) {
    case Format::safetensors: read_safetensors(path); break;
    case Format::npy: read_npy(path); break;
    case Format::idx: read_idx(path); break;
  }
}

TEST_P(BadFiles, AreRefusedWithTheirReason) {
  const BadFile& file = GetParam();
  const TemporaryFolder folder;
  const std::string path = folder / "bad";
  write_text(path, file.bytes);
  const double start = processor_seconds();
  expect_error(ErrorKind::format, file.message, [&] { read(file.format, path); });
  EXPECT_LT(processor_seconds() - start, sanitized ? 1 : 0.1);
  expect_error(ErrorKind::format, path + ": ", [&] { read(file.format, path); });
}

std::string case_name(const testing::TestParamInfo<BadFile>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Safetensors, BadFiles, testing::ValuesIn(safetensors_files), case_name);
INSTANTIATE_TEST_SUITE_P(Npy, BadFiles, testing::ValuesIn(npy_files), case_name);
INSTANTIATE_TEST_SUITE_P(Idx, BadFiles, testing::ValuesIn(idx_files), case_name);

/// Good files, cut.
TEST(CutFiles, AreRefusedAtEveryLength) {
  const Tensor tensor = Tensor::from<float>({1, 2, 3}, {3});
  const std::vector<std::byte> files[] = {serialize_safetensors({{"a", tensor}}, {{"k", "v"}}), serialize_npy(tensor)};
  for (const std::vector<std::byte>& file : files) {
    for (std::size_t length = 0; length < file.size(); ++length) {
      const auto prefix = std::span(file).first(length);
      const auto parse = [&] { &file == files ? void(parse_safetensors(prefix, "cut")) : void(parse_npy(prefix, "cut")); };
      expect_error(ErrorKind::format, "cut: ", parse);
    }
  }
}

}  // namespace
}  // namespace frit

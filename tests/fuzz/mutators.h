#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace frit::fuzzing {

/// Changes bytes that lie in room for `most`; returns their new count: LLVMFuzzerMutate.
using MutateBytes = std::size_t (*)(std::uint8_t* bytes, std::size_t size, std::size_t most);

/// Changes a file of a format and keeps what a reader looks at first in order (lengths, offsets, checksums), so that what lies after it is
/// reached. The result may have more than `most` bytes, and is then of no use.
using Mutator = std::string (*)(const std::string& bytes, std::size_t most, unsigned seed, MutateBytes mutate);

std::string mutate_safetensors(const std::string& bytes, std::size_t most, unsigned seed, MutateBytes mutate);
/// One of two_files.
std::string mutate_two_safetensors(const std::string& bytes, std::size_t most, unsigned seed, MutateBytes mutate);
std::string mutate_png(const std::string& bytes, std::size_t most, unsigned seed, MutateBytes mutate);
std::string mutate_zip(const std::string& bytes, std::size_t most, unsigned seed, MutateBytes mutate);
/// A file that may be compressed by gzip.
std::string mutate_gzip(const std::string& bytes, std::size_t most, unsigned seed, MutateBytes mutate);

/// Eight bytes with the length of the first file, lowest byte first; the first file; the second.
std::pair<std::string, std::string> two_files(const std::string& bytes);

}  // namespace frit::fuzzing

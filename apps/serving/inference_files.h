#pragma once

#include <string>
#include <vector>

namespace frit::apps {

inline constexpr const char* standard_stream = "-";

/// The files of `frit infer`, as the command line names them.
struct InferenceFiles {
  std::string input;      ///< a file, a folder of them, or a stream
  std::string output;     ///< likewise, or none
  std::string reference;  ///< what should come out: a file or a folder, or none
};

bool streams(const InferenceFiles& a);
/// The files of a folder that can be read, by name; otherwise the one file; none for a stream.
std::vector<std::string> input_files(const InferenceFiles& a);
/// Next to the input: the file itself, or in a folder the .npy file of the same name: of a.nii.gz, a.npy.
std::string partner(const InferenceFiles& a, const std::string& path, const std::string& input);
/// The partners of all that is read, none for no path and for a stream.
std::vector<std::string> partners(const InferenceFiles& a, const std::string& path);
bool is_volume_name(const std::string& name);
/// What the output of an input should be: of b.jpg in a folder b.npy, or else a mask, b.png or b.nii.gz.
std::string reference_of(const InferenceFiles& a, const std::string& path, const std::string& input);
std::vector<std::string> references(const InferenceFiles& a, const std::string& path);

}  // namespace frit::apps

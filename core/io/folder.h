#pragma once

#include <functional>
#include <string>
#include <vector>

namespace frit {

bool is_folder(const std::string& path);

using WantedPath = std::function<bool(const std::string& path)>;
/// The names of what stands in a folder and is wanted, in the order of their bytes; hidden ones are left out. Throws
/// ErrorKind::file_system, naming the folder, if it cannot be read to its end.
std::vector<std::string> names_in(const std::string& folder, const WantedPath& wanted);
/// Whether there is any of these; false for a folder that cannot be read.
bool has_any(const std::string& folder, const WantedPath& wanted);

}  // namespace frit

# Writes build_name() of core/plan_cache.h. The checksum is of all that how fast an operation runs on a GPU may depend on: plans for CPUs
# are chosen by rule, so that libraries for several levels of processors may have one name.
file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/* ${PROJECT_SOURCE_DIR}/ops/* ${PROJECT_SOURCE_DIR}/graph/*)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
set(checksums "")
foreach(source IN LISTS sources)
  file(MD5 ${source} checksum)
  string(APPEND checksums ${checksum})
endforeach()
string(MD5 checksum "${checksums}")
string(SUBSTRING ${checksum} 0 8 checksum)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/build_name.cpp @ONLY CONTENT
"// Written by core/build_name.cmake.
#include \"frit/core/plan_cache.h\"

std::string frit::build_name() { return \"frit @PROJECT_VERSION@ @checksum@\"; }
")
target_sources(frit_runtime PRIVATE ${PROJECT_BINARY_DIR}/build_name.cpp)

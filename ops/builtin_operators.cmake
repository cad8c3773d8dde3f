# Every file below ops/ that holds FRIT_OPERATORS(name) registers operators. The list of calls is written from those lines, so that
# it is kept in one place and no linker can drop a registration.
file(GLOB_RECURSE operator_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ops/*.cpp ${PROJECT_SOURCE_DIR}/ops/*.cu)
set(declarations "")
set(calls "")
foreach(source IN LISTS operator_sources)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(STRINGS ${source} lines REGEX "^FRIT_OPERATORS\\([a-z0-9_]+\\)")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^FRIT_OPERATORS\\(([a-z0-9_]+)\\).*" "\\1" name ${line})
    string(APPEND declarations "void register_${name}(Registry& registry);\n")
    string(APPEND calls "  register_${name}(registry);\n")
  endforeach()
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/builtin_operators.cpp @ONLY CONTENT
"// Written by ops/builtin_operators.cmake.
#include \"frit/ops/registry.h\"

namespace frit::ops {
@declarations@
void register_builtin_operators(Registry& registry) {
@calls@}
}  // namespace frit::ops
")
target_sources(frit PRIVATE ${PROJECT_BINARY_DIR}/builtin_operators.cpp)

# Every .cpp file below ops/ that holds FRIT_OPERATORS(name) registers operators, and every .cu file that holds FRIT_CUDA_KERNELS(name) adds
# their kernels. The list of calls is written from those lines, so that it is kept in one place and no linker can drop a registration.
set(declarations "")
set(calls "")

function(frit_collect_registrations extension macro prefix)
  file(GLOB_RECURSE operator_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ops/*.${extension})
  foreach(source IN LISTS operator_sources)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(STRINGS ${source} lines REGEX "^${macro}\\([a-z0-9_]+\\)")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^${macro}\\(([a-z0-9_]+)\\).*" "${prefix}\\1" function ${line})
      string(APPEND declarations "void ${function}(Registry& registry);\n")
      string(APPEND calls "  ${function}(registry);\n")
    endforeach()
  endforeach()
  set(declarations "${declarations}" PARENT_SCOPE)
  set(calls "${calls}" PARENT_SCOPE)
endfunction()

frit_collect_registrations(cpp FRIT_OPERATORS register_)
if(FRIT_WITH_CUDA)
  frit_collect_registrations(cu FRIT_CUDA_KERNELS register_cuda_)
endif()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/builtin_operators.cpp @ONLY CONTENT
"// Written by ops/operator/builtin_operators.cmake.
#include \"frit/ops/operator/registry.h\"

namespace frit::ops {
@declarations@
void register_builtin_operators(Registry& registry) {
@calls@}
}  // namespace frit::ops
")
target_sources(frit_runtime PRIVATE ${PROJECT_BINARY_DIR}/builtin_operators.cpp)

# libfrit-runtime, the only library with loops worth it, once more for each level of processors in FRIT_CPU_LEVELS, to be installed in
# glibc-hwcaps/LEVEL next to the plain one. glibc's loader (2.33 and later; others take the plain one) maps the highest that the processor
# has: whole loops are written for it by the compiler, no function is called through a pointer, and nothing is chosen at run time.
if(FRIT_CPU_LEVELS AND NOT BUILD_SHARED_LIBS)
  message(FATAL_ERROR "FRIT_CPU_LEVELS needs -DBUILD_SHARED_LIBS=ON: the loader chooses, which a static library has none of")
endif()
set(cpu_levels ${FRIT_CPU_LEVELS})
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(FILTER cpu_levels EXCLUDE REGEX "^x86-64")  # NEON, say, is part of every arm64
endif()

# What holds no such loops, and code for GPUs, is taken from the plain library.
set(compiled_once "((.*/)?cuda/|.*[.]cu|(build_name|builtin_operators|device_headers)[.]cpp)")
get_target_property(sources frit_runtime SOURCES)
list(TRANSFORM sources REPLACE "^(${PROJECT_BINARY_DIR}|${PROJECT_SOURCE_DIR})/" "")
list(FILTER sources EXCLUDE REGEX "^(${compiled_once}|[$]<TARGET_OBJECTS:)")
set(objects "$<FILTER:$<TARGET_OBJECTS:frit_runtime>,INCLUDE,frit_runtime[.]dir/([.]/)?${compiled_once}>")
list(APPEND objects "$<FILTER:$<TARGET_OBJECTS:frit_descriptions>,INCLUDE,[.]c[px][px][.]o>")  # not the precompiled header
get_target_property(libraries frit_runtime LINK_LIBRARIES)
foreach(level IN LISTS cpu_levels)
  set(target frit_runtime_${level})
  frit_library(runtime_${level} "${everything_of_frit}")
  target_sources(${target} PRIVATE ${sources})
  target_precompile_headers(${target} PRIVATE ${operator_headers})
  frit_compile_together(${target})
  target_include_directories(${target} SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR})
  target_link_libraries(${target} PRIVATE ${objects} ${libraries})  # of a function in a header the linker takes the target's own
  set_target_properties(${target} PROPERTIES FRIT_CPU_LEVEL ${level} OUTPUT_NAME frit-runtime CUDA_RUNTIME_LIBRARY Static
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/levels/${level})
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/glibc-hwcaps/${level} COMPONENT libraries NAMELINK_SKIP)
endforeach()

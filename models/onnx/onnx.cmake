# frit::onnx reads and writes ONNX models, where protobuf and the ONNX project's schema are installed. Its code is generated with protobuf's
# lite runtime, which the schema itself asks for. -DFRIT_ONNX=OFF leaves it out.
option(FRIT_ONNX "Build frit::onnx where protobuf and ONNX's schema are found" ON)
find_path(FRIT_ONNX_SCHEMA_DIR NAMES onnx.proto onnx-ml.proto PATH_SUFFIXES onnx)
find_path(FRIT_PROTOBUF_INCLUDE_DIR google/protobuf/message_lite.h)
find_library(FRIT_PROTOBUF_LIBRARY protobuf-lite)
find_program(FRIT_PROTOC protoc)
mark_as_advanced(FRIT_ONNX_SCHEMA_DIR FRIT_PROTOBUF_INCLUDE_DIR FRIT_PROTOBUF_LIBRARY FRIT_PROTOC)
set(FRIT_WITH_ONNX FALSE)
if(NOT FRIT_ONNX)
  return()
endif()
if(NOT (FRIT_ONNX_SCHEMA_DIR AND FRIT_PROTOBUF_INCLUDE_DIR AND FRIT_PROTOBUF_LIBRARY AND FRIT_PROTOC))
  message(STATUS "frit: built without ONNX (Debian: libonnx-dev libprotobuf-dev protobuf-compiler)")
  return()
endif()
set(FRIT_WITH_ONNX TRUE)

# The schema under frit's own package, so that its names meet no other's.
set(generated ${PROJECT_BINARY_DIR}/onnx)
find_file(FRIT_ONNX_SCHEMA NAMES onnx.proto onnx-ml.proto PATHS ${FRIT_ONNX_SCHEMA_DIR} NO_DEFAULT_PATH)
mark_as_advanced(FRIT_ONNX_SCHEMA)
file(READ ${FRIT_ONNX_SCHEMA} schema)
string(REGEX REPLACE "\npackage [a-z_.]+;" "\npackage frit.onnx_schema;" schema "${schema}")
file(CONFIGURE OUTPUT ${generated}/frit_onnx_schema.proto CONTENT "${schema}" @ONLY)
add_custom_command(OUTPUT ${generated}/frit_onnx_schema.pb.cc ${generated}/frit_onnx_schema.pb.h VERBATIM
  DEPENDS ${generated}/frit_onnx_schema.proto
  COMMAND ${FRIT_PROTOC} --proto_path=${generated} --cpp_out=${generated} ${generated}/frit_onnx_schema.proto
  COMMENT "ONNX's schema")
add_library(frit_onnx_schema OBJECT ${generated}/frit_onnx_schema.pb.cc ${generated}/frit_onnx_schema.pb.h)
target_include_directories(frit_onnx_schema SYSTEM PUBLIC ${generated} ${FRIT_PROTOBUF_INCLUDE_DIR})
target_compile_options(frit_onnx_schema PRIVATE -w $<$<CONFIG:Release>:-Os>)
target_compile_features(frit_onnx_schema PUBLIC cxx_std_20)

# Tests build models: what the schema's classes are made with is shown too.
frit_library(onnx "${everything_of_frit} _ZN6google8protobuf5Arena*IN4frit11onnx_schema*;")
file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/models/onnx/*.cpp)
target_sources(frit_onnx PRIVATE ${sources} $<TARGET_OBJECTS:frit_onnx_schema>)
target_include_directories(frit_onnx SYSTEM PRIVATE ${generated} ${FRIT_PROTOBUF_INCLUDE_DIR})
add_dependencies(frit_onnx frit_onnx_schema)
frit_compile_together(frit_onnx)
set_source_files_properties(${PROJECT_SOURCE_DIR}/models/onnx/export_operators.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # names as importing has them
target_link_libraries(frit_onnx PUBLIC frit_runtime PRIVATE ${FRIT_PROTOBUF_LIBRARY})
target_compile_options(frit_onnx PRIVATE $<$<CONFIG:Release>:-Os>)

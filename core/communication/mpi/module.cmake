# libfrit-mpi.so, which programs load that mpirun started: the one part that is linked with MPI. -DFRIT_MPI=OFF leaves it out.
option(FRIT_MPI "Build frit-mpi, for training on several processes, where MPI is found" ON)
if(FRIT_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)  # MPI's old classes
  find_package(MPI COMPONENTS CXX QUIET)
endif()
file(RELATIVE_PATH libraries_from_programs ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_property(SOURCE ${PROJECT_SOURCE_DIR}/core/communication/mpi_transport.cpp APPEND PROPERTY COMPILE_DEFINITIONS
  FRIT_MPI_MODULE="${PROJECT_BINARY_DIR}/libfrit-mpi.so" FRIT_LIBRARIES_FROM_PROGRAMS="${libraries_from_programs}")
if(NOT MPI_CXX_FOUND)
  message(STATUS "frit: built without MPI (Debian: libopenmpi-dev)")
  return()
endif()
add_library(frit_mpi MODULE ${PROJECT_SOURCE_DIR}/core/communication/mpi/module.cpp
  ${PROJECT_SOURCE_DIR}/core/communication/mpi/roll_call.cpp)
target_include_directories(frit_mpi PRIVATE ${include_root})
target_link_libraries(frit_mpi PRIVATE frit_flags MPI::MPI_CXX)
set_target_properties(frit_mpi PROPERTIES OUTPUT_NAME frit-mpi LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} CXX_VISIBILITY_PRESET hidden)
install(TARGETS frit_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpi)

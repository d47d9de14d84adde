# Every outside library, found once. The Debian packages are named in packages.txt, the one list that set-up reads.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Boost REQUIRED COMPONENTS program_options)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(FABRIC REQUIRED IMPORTED_TARGET libfabric)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)

# MPICH by name: where Open MPI is installed too, the plain mpicxx may be its own.
find_program(RAMSPAN_MPICXX NAMES mpicxx.mpich mpicxx REQUIRED)
set(MPI_CXX_COMPILER "${RAMSPAN_MPICXX}")
find_package(MPI REQUIRED COMPONENTS CXX)
find_program(RAMSPAN_MPIEXEC NAMES mpiexec.hydra mpiexec.mpich mpiexec REQUIRED)

find_path(AIO_INCLUDE_DIR libaio.h REQUIRED)
find_library(AIO_LIBRARY aio REQUIRED)
add_library(ramspan_aio INTERFACE)
target_include_directories(ramspan_aio SYSTEM INTERFACE ${AIO_INCLUDE_DIR})
target_link_libraries(ramspan_aio INTERFACE ${AIO_LIBRARY})

find_package(nlohmann_json REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
add_library(ramspan_xxhash INTERFACE)
target_include_directories(ramspan_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})
# On x86 xxHash can choose AVX2 or AVX-512 at run time, where it was built so (Debian's is).
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_INCLUDES ${XXHASH_INCLUDE_DIR})
set(CMAKE_REQUIRED_LIBRARIES ${XXHASH_LIBRARY})
check_cxx_source_compiles("#include <xxh_x86dispatch.h>
                           int main() { return XXH3_64bits_dispatch(nullptr, 0) == 1; }" RAMSPAN_XXHASH_DISPATCH)
unset(CMAKE_REQUIRED_INCLUDES)
unset(CMAKE_REQUIRED_LIBRARIES)
if(RAMSPAN_XXHASH_DISPATCH)
  target_compile_definitions(ramspan_xxhash INTERFACE RAMSPAN_XXHASH_DISPATCH)
  target_link_libraries(ramspan_xxhash INTERFACE ${XXHASH_LIBRARY})
endif()

# Every outside library, found once. The Debian packages are named in packages.txt, the one list that set-up reads.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Boost REQUIRED COMPONENTS program_options)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)

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

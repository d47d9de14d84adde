# Compile options shared by all of the project's targets, and the helper that applies them.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

include(GNUInstallDirs)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(ramspan_options INTERFACE)
target_compile_options(ramspan_options INTERFACE -Wall -Wextra -Wpedantic -Wno-missing-field-initializers
                                                 -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(ramspan_options INTERFACE -Wno-restrict)  # false alarms on std::string's + at -O3 (GCC 105651)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(ramspan_options INTERFACE -Wthread-safety)
endif()
# No other library puts functions of its own in the place of Ramspan's (client/CMakeLists.txt binds them, too), so GCC may take them into others: a miss
# takes a tenth less time. Clang does so without being told.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(ramspan_options INTERFACE -fno-semantic-interposition)
endif()
if(RAMSPAN_WERROR)
  target_compile_options(ramspan_options INTERFACE -Werror)
endif()
if(RAMSPAN_SANITIZE)
  add_compile_options(-fsanitize=${RAMSPAN_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${RAMSPAN_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # GCC says by these what it was told; Clang 14 does not.
    if(RAMSPAN_SANITIZE MATCHES thread)
      add_compile_definitions(__SANITIZE_THREAD__=1)
    elseif(RAMSPAN_SANITIZE MATCHES address)
      add_compile_definitions(__SANITIZE_ADDRESS__=1)
    endif()
  endif()
  if(RAMSPAN_SANITIZE MATCHES thread)
    # GCC warns that TSan does not model atomic_thread_fence; the code uses it only where no membarrier exists.
    add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()
# ramspan_bundle(BATCH TARGET...): compiles the sources of targets in bundles of BATCH, which costs about half of the compilers' time: headers
# are read, and what they are templates of is made, once a bundle. Who works on a library may want RAMSPAN_BUNDLE=OFF: after a change of one
# source only that is compiled. Needs: sources of a target do not use the same names for different things, be it in anonymous namespaces.
function(ramspan_bundle batch)
  set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  foreach(target ${ARGN})
    # GCC takes what another source includes for a header, where a class must not hold one of an anonymous namespace.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endforeach()
endfunction()
target_include_directories(ramspan_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)

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
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(ramspan_options INTERFACE -Wthread-safety)
endif()
if(RAMSPAN_WERROR)
  target_compile_options(ramspan_options INTERFACE -Werror)
endif()
if(RAMSPAN_SANITIZE)
  add_compile_options(-fsanitize=${RAMSPAN_SANITIZE} -fno-sanitize-recover=all -g)
  add_link_options(-fsanitize=${RAMSPAN_SANITIZE})
  if(RAMSPAN_SANITIZE MATCHES thread)
    # GCC warns that TSan does not model atomic_thread_fence; the code uses it only where no membarrier exists.
    add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()
target_include_directories(ramspan_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)

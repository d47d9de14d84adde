# Install rules: programs, library, headers, documents, and what find_package(ramspan) and pkg-config read. Only for the
# shared library: a static one would force everything that it is made of upon its users.
if(NOT BUILD_SHARED_LIBS)
  message(STATUS "Ramspan: a static library is not installed (BUILD_SHARED_LIBS=OFF)")
  return()
endif()
include(CMakePackageConfigHelpers)

set(RAMSPAN_LIBEXECDIR ${CMAKE_INSTALL_LIBEXECDIR}/ramspan)
set(RAMSPAN_CMAKEDIR ${CMAKE_INSTALL_LIBDIR}/cmake/ramspan)

set_target_properties(ramspan_mpi_library PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS ramspan ramspan_mpi_library EXPORT ramspanTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# Beside the library, where it looks for it; it finds the library in its turn.
set_target_properties(ramspan_ofi_module ramspan_pages_module PROPERTIES INSTALL_RPATH "$ORIGIN/..")
install(TARGETS ramspan_ofi_module ramspan_pages_module LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ramspan)
install(TARGETS ramspan-launcher ramspan-memserver ramspan-server ramspan-ctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET ramspan-bench)
  file(RELATIVE_PATH to_libraries /${RAMSPAN_LIBEXECDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(ramspan-bench PROPERTIES INSTALL_RPATH "$ORIGIN/${to_libraries}")
  install(TARGETS ramspan-bench ramspan-bench-contention ramspan-bench-fabric RUNTIME DESTINATION ${RAMSPAN_LIBEXECDIR})
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
# In the folders that they have in the source, so that their links to each other hold.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/configs ${PROJECT_SOURCE_DIR}/examples
        DESTINATION ${CMAKE_INSTALL_DOCDIR}
        FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.example" PATTERN "*.cc" PATTERN "*.h" PATTERN "*.sbatch")

# The unit names the program by its path, which only the installation knows (cmake --install --prefix).
install(CODE "set(RAMSPAN_SERVER \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/ramspan-server\")
configure_file(\"${PROJECT_SOURCE_DIR}/configs/ramspan-server.service.in\" \"${PROJECT_BINARY_DIR}/ramspan-server.service\" @ONLY)")
install(FILES ${PROJECT_BINARY_DIR}/ramspan-server.service DESTINATION lib/systemd/system)

install(EXPORT ramspanTargets NAMESPACE ramspan:: DESTINATION ${RAMSPAN_CMAKEDIR})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ramspanConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/ramspanConfig.cmake INSTALL_DESTINATION ${RAMSPAN_CMAKEDIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ramspanConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ramspanConfig.cmake ${PROJECT_BINARY_DIR}/ramspanConfigVersion.cmake
        DESTINATION ${RAMSPAN_CMAKEDIR})

# Paths relative to the .pc files, so that an installation can be moved.
file(RELATIVE_PATH RAMSPAN_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
foreach(name ramspan ramspan-mpi)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

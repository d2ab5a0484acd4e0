# Installs the libraries, the headers, pkg-config files and a CMake package with these targets: hakmem::hakmem (shared),
# hakmem::secure and hakmem::secure_static (hardened, shared and static, docs/hardening.md), hakmem::je and hakmem::tc
# (shared, with jemalloc's and with gperftools' names), hakmem::je_static (static, jemalloc's names beside the C
# library's malloc), hakmem::static (hak_* names only) and hakmem::override (static, with malloc and its family).

if(NOT HAKMEM_OVERRIDES_LIBC)
    return()
endif()

include(CMakePackageConfigHelpers)

set(hakmem_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hakmem)
# A project that embeds HAKMEM installs what it builds in any case (cmake/HakmemLibraries.cmake).
set(hakmem_installed hakmem hakmem_static hakmem_override)
if(PROJECT_IS_TOP_LEVEL)
    list(APPEND hakmem_installed hakmem_secure hakmem_secure_static hakmem_je hakmem_je_static hakmem_tc)
endif()
install(TARGETS ${hakmem_installed} EXPORT hakmem-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_BINARY_DIR}/lib/hakmem.o DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/hakmem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

install(EXPORT hakmem-targets NAMESPACE hakmem:: DESTINATION ${hakmem_cmake_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/hakmem-config.cmake.in
    ${PROJECT_BINARY_DIR}/hakmem-config.cmake INSTALL_DESTINATION ${hakmem_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hakmem-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hakmem-config.cmake ${PROJECT_BINARY_DIR}/hakmem-config-version.cmake
    DESTINATION ${hakmem_cmake_dir})

# An installed tree may be moved: paths in the pkg-config files are relative to these files.
file(RELATIVE_PATH hakmem_prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH hakmem_libdir_from_prefix ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH hakmem_includedir_from_prefix ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})

# One file for each library: hakmem.pc, hakmem-secure.pc, hakmem-secure-static.pc,
# hakmem-je.pc, hakmem-je-static.pc, hakmem-tc.pc, hakmem-static.pc, hakmem-override.pc.
function(hakmem_install_pkgconfig name description libs cflags)
    set(PC_NAME ${name})
    set(PC_DESCRIPTION "${description}")
    set(PC_LIBS "${libs}")
    set(PC_CFLAGS "${cflags}")
    configure_file(${PROJECT_SOURCE_DIR}/cmake/hakmem.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

# nodelete: for a plugin that contains the archive (src/api/pin.c). A program may have it, too.
hakmem_install_pkgconfig(hakmem "${PROJECT_DESCRIPTION}" "-L\${libdir} -lhakmem" "")
hakmem_install_pkgconfig(hakmem-static "${PROJECT_DESCRIPTION}: static, hak_* names only"
    "-Wl,-z,nodelete \${libdir}/libhakmem.a -pthread" "-DHAK_STATIC")
hakmem_install_pkgconfig(hakmem-override "${PROJECT_DESCRIPTION}: static, in place of malloc and its family"
    "-Wl,-z,nodelete -Wl,--undefined=malloc \${libdir}/libhakmem-override.a -pthread" "-DHAK_STATIC")
if(NOT PROJECT_IS_TOP_LEVEL)
    return()
endif()
hakmem_install_pkgconfig(hakmem-secure "${PROJECT_DESCRIPTION}: hardened" "-L\${libdir} -lhakmem-secure" "")
hakmem_install_pkgconfig(hakmem-secure-static
    "${PROJECT_DESCRIPTION}: hardened, static, in place of malloc and its family"
    "-Wl,-z,nodelete -Wl,--undefined=malloc \${libdir}/libhakmem-secure.a -pthread" "-DHAK_STATIC")
hakmem_install_pkgconfig(hakmem-je "${PROJECT_DESCRIPTION}: with jemalloc's names" "-L\${libdir} -lhakmem-je"
    "-I\${includedir}/hakmem/seats")
hakmem_install_pkgconfig(hakmem-je-static
    "${PROJECT_DESCRIPTION}: static, jemalloc's names beside the C library's malloc"
    "-Wl,-z,nodelete \${libdir}/libhakmem-je.a -pthread" "-DHAK_STATIC -I\${includedir}/hakmem/seats")
hakmem_install_pkgconfig(hakmem-tc "${PROJECT_DESCRIPTION}: with gperftools' names" "-L\${libdir} -lhakmem-tc"
    "-I\${includedir}/hakmem/seats")

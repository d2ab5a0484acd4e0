# Runs the port's portfile.cmake as far as possible without vcpkg. Each function here does what vcpkg's documentation
# says of its namesake, or checks what that would require. WORK, BUILD and PORT_FOLDER come from the command line. It
# installs from BUILD instead of building the library again.
cmake_minimum_required(VERSION 3.21)

set(PORT hakmem)
set(CURRENT_PACKAGES_DIR "${WORK}/packages")

function(need path)
    if(NOT EXISTS "${path}")
        message(FATAL_ERROR "the port did not make ${path}")
    endif()
endfunction()

function(vcpkg_cmake_configure)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
    execute_process(COMMAND ${CMAKE_COMMAND} -S ${arg_SOURCE_PATH} -B ${WORK}/build -G Ninja -DCMAKE_BUILD_TYPE=Release
        -DBUILD_SHARED_LIBS=OFF ${arg_OPTIONS} COMMAND_ERROR_IS_FATAL ANY)
    # An option that the project does not know would have no effect.
    execute_process(COMMAND ${CMAKE_COMMAND} -LA -N ${WORK}/build OUTPUT_VARIABLE cache)
    foreach(option IN LISTS arg_OPTIONS)
        string(REGEX REPLACE "^-D([A-Z_]+)=(.*)$" "\\1:BOOL=\\2" entry "${option}")
        if(NOT cache MATCHES "${entry}")
            message(FATAL_ERROR "the project has no option for ${option}")
        endif()
    endforeach()
endfunction()

function(vcpkg_cmake_install)
    execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${CURRENT_PACKAGES_DIR}
        COMMAND_ERROR_IS_FATAL ANY)
    # vcpkg tells CMake that libraries go to lib/.
    file(GLOB folders "${CURRENT_PACKAGES_DIR}/lib/*-linux-*")
    if(folders)
        file(RENAME ${folders} "${CURRENT_PACKAGES_DIR}/lib.new")
        file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib")
        file(RENAME "${CURRENT_PACKAGES_DIR}/lib.new" "${CURRENT_PACKAGES_DIR}/lib")
    endif()
endfunction()

function(vcpkg_cmake_config_fixup)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
    need("${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/hakmem-config.cmake")
    file(MAKE_DIRECTORY "${CURRENT_PACKAGES_DIR}/share")
    file(RENAME "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}" "${CURRENT_PACKAGES_DIR}/share/${PORT}")
endfunction()

function(vcpkg_fixup_pkgconfig)
    need("${CURRENT_PACKAGES_DIR}/lib/pkgconfig/hakmem.pc")
endfunction()

function(vcpkg_install_copyright)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
    file(INSTALL ${arg_FILE_LIST} DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}" RENAME copyright)
endfunction()

# file(INSTALL) prints each file.
include("${PORT_FOLDER}/portfile.cmake")
need("${CURRENT_PACKAGES_DIR}/include/hakmem/hakmem.h")
need("${CURRENT_PACKAGES_DIR}/lib/libhakmem-override.a")
need("${CURRENT_PACKAGES_DIR}/share/${PORT}/usage")
need("${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright")

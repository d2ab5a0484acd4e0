# The crate leaves out mimalloc's own cmake/ folder. This gives its CMakeLists.txt the version, from the header.
file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/include/mimalloc.h" line REGEX "#define MI_MALLOC_VERSION")
if(NOT line MATCHES "MI_MALLOC_VERSION +([0-9])([0-9][0-9])([0-9][0-9])")
    message(FATAL_ERROR "include/mimalloc.h has no MI_MALLOC_VERSION of five digits: ${line}")
endif()
set(mi_version_major ${CMAKE_MATCH_1})
math(EXPR mi_version_minor "1${CMAKE_MATCH_2} - 100")
math(EXPR mi_version_patch "1${CMAKE_MATCH_3} - 100")
set(mi_version ${mi_version_major}.${mi_version_minor})

# hakmem_cmocka: the framework of the unit tests. A cross build finds it under HAKMEM_CROSS_ROOT, where ./hakmem unpacks
# Debian's packages for that architecture.

include_guard(GLOBAL)

set(HAKMEM_CROSS_ROOT "${PROJECT_SOURCE_DIR}/build/${CMAKE_SYSTEM_PROCESSOR}-root" CACHE PATH
    "Root of the target architecture's cmocka; used by cross builds")
if(CMAKE_CROSSCOMPILING)
    find_path(CMOCKA_HEADERS cmocka.h HINTS ${HAKMEM_CROSS_ROOT}/usr/include NO_DEFAULT_PATH)
    find_library(CMOCKA_LIBRARY cmocka
        HINTS ${HAKMEM_CROSS_ROOT}/usr/lib/${CMAKE_SYSTEM_PROCESSOR}-linux-gnu NO_DEFAULT_PATH)
else()
    find_path(CMOCKA_HEADERS cmocka.h)
    find_library(CMOCKA_LIBRARY cmocka)
endif()
if(NOT CMOCKA_HEADERS OR NOT CMOCKA_LIBRARY)
    message(FATAL_ERROR "cmocka is missing. Run ./hakmem test, which installs it, "
        "or apt-get install libcmocka-dev, or configure with -DHAKMEM_TESTS=OFF.")
endif()

add_library(hakmem_cmocka INTERFACE)
target_include_directories(hakmem_cmocka SYSTEM INTERFACE ${CMOCKA_HEADERS})
target_link_libraries(hakmem_cmocka INTERFACE ${CMOCKA_LIBRARY})

# The flags of every C file here, as the target hakmem_flags. Link it PRIVATE.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g")

find_package(Threads REQUIRED)

add_library(hakmem_flags INTERFACE)
target_include_directories(hakmem_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(hakmem_flags INTERFACE Threads::Threads)
target_compile_definitions(hakmem_flags INTERFACE
    # -std=c17 hides POSIX. Files that need GNU names define _GNU_SOURCE themselves.
    _DEFAULT_SOURCE
    $<IF:$<CONFIG:Debug>,HAKMEM_BUILD_DEBUG=1,HAKMEM_BUILD_RELEASE=1>
    $<$<BOOL:${HAKMEM_CYCLES}>:HAKMEM_BUILD_CYCLES=1>)
target_compile_options(hakmem_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
    $<$<BOOL:${HAKMEM_WERROR}>:-Werror>
    # For other processors it is the compiler's default. Without tables a walk up the stack ends in HAKMEM's own code.
    $<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},riscv64>:-fasynchronous-unwind-tables>)

# Last, so that they override the flags above.
separate_arguments(hakmem_extra_cflags UNIX_COMMAND "${HAKMEM_EXTRA_CFLAGS}")
target_compile_options(hakmem_flags INTERFACE ${hakmem_extra_cflags})
# clang's linker reads the objects of -flto only if it has that option, too.
target_link_options(hakmem_flags INTERFACE ${hakmem_extra_cflags})

if(HAKMEM_SANITIZE)
    # -g1: a report names functions and lines, and nobody reads variables. It saves a fifth of the compiler's time.
    add_compile_options(-fsanitize=${HAKMEM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
    add_link_options(-fsanitize=${HAKMEM_SANITIZE})
endif()

if(HAKMEM_COVERAGE)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "HAKMEM_COVERAGE needs clang, whose counters lie in a mapped file: cmake --preset coverage")
    endif()
    # Only the library's sources count (hakmem_add_objects); programs link the run-time that maps the counters. %c maps
    # them, so a process that aborts, forks or is killed has counted all the same. Each process (%p) and binary (%m) has
    # a new file: only then does it have what the allocator counted before the run-time mapped it.
    set(hakmem_coverage_options -fprofile-instr-generate=${PROJECT_BINARY_DIR}/counters/%p-%m%c.profraw
        -fcoverage-mapping "SHELL:-mllvm -runtime-counter-relocation")
    add_link_options(-fprofile-instr-generate)
endif()

if(HAKMEM_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "HAKMEM_FUZZ needs clang, for libFuzzer: cmake --preset fuzz")
    endif()
    # The library and the targets count the code that an input reaches. Only the targets get libFuzzer's main.
    # Comparisons are not traced: an input's process (tests/stress/fuzz/fuzz.h) cannot report them to its parent.
    add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp)
    add_link_options(-fsanitize=fuzzer-no-link)
endif()

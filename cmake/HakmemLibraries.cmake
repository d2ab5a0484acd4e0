# The libraries, made of object libraries, which tests may link separately:
#
#   hakmem_core       all of src/ except the following
#   hakmem_secure_core the same and src/harden, compiled as the hardened library (HAK_SECURE); no other library has
#                     these sources
#   hakmem_os_linux   src/os/linux.c, the real system
#   hakmem_api        process life, figures and settings under the hak_* names
#   hakmem_hak_api    blocks under the hak_* names
#   hakmem_libc_api   malloc and its family, the C++ operators
#   hakmem_runtime_api the program's C++ run-time
#   hakmem_shared_api functions that only lib/libhakmem.so can replace: dlopen, pthread_create, prctl; and substitutes
#                     for functions that older C libraries keep in libpthread.so.0
#   hakmem_static_api what only the archives need: a plugin that contains HAKMEM stays in memory
#
#   hakmem_je_api     jemalloc's names and the hak_* names of blocks, which count each thread's bytes (je/counted.h)
#   hakmem_je_libc_api malloc and its family and the C++ operators, which do the same
#
#   hakmem            lib/libhakmem.so            everything, to preload or to link
#   hakmem_je         lib/libhakmem-je.so         the same with jemalloc's names: src/je
#   hakmem_je_static  lib/libhakmem-je.a          jemalloc's names and hak_* only
#   hakmem_tc         lib/libhakmem-tc.so         the same with gperftools' names in C: src/tc
#   hakmem_secure     lib/libhakmem-secure.so     everything, hardened (docs/hardening.md)
#   hakmem_secure_static lib/libhakmem-secure.a   the same as an archive
#   hakmem_static     lib/libhakmem.a             hak_* only
#   hakmem_override   lib/libhakmem-override.a    everything; lib/hakmem.o is the same as one object

set(hakmem_src ${PROJECT_SOURCE_DIR}/src)
file(GLOB hakmem_core_sources CONFIGURE_DEPENDS
    ${hakmem_src}/base/*.c ${hakmem_src}/config/*.c ${hakmem_src}/os/*.c ${hakmem_src}/options/*.c
    ${hakmem_src}/superslab/*.c ${hakmem_src}/pool/*.c ${hakmem_src}/profile/*.c
    ${hakmem_src}/front/*.c ${hakmem_src}/observe/*.c)
list(FILTER hakmem_core_sources EXCLUDE REGEX "/os/(linux|older_libc)\\.c$|/superslab/limits_shared\\.c$")
# Only in libhakmem-secure.
file(GLOB hakmem_secure_sources CONFIGURE_DEPENDS ${hakmem_src}/harden/*.c ${hakmem_src}/front/sealed*.c)
list(APPEND hakmem_secure_sources ${hakmem_src}/superslab/strict.c)
list(REMOVE_ITEM hakmem_core_sources ${hakmem_secure_sources})
# Only in libhakmem-je.so.
set(hakmem_seat_sources ${hakmem_src}/front/seats.c ${hakmem_src}/pool/dense.c
    ${hakmem_src}/options/malloc_conf.c)
list(REMOVE_ITEM hakmem_core_sources ${hakmem_seat_sources})
set(hakmem_cycles_sources ${hakmem_src}/os/cycles.c ${hakmem_src}/observe/cycle_report.c)
if(NOT HAKMEM_CYCLES)
    list(REMOVE_ITEM hakmem_core_sources ${hakmem_cycles_sources})
endif()
# The kernel maps the pages around each touched page. So a process holds less of the library's code, constants and
# variables if those that every process uses lie together. First comes what processes run at their start and with few
# blocks, last what a process without a profile, a report or a check never runs. tests/process/bounds measures this.
set(hakmem_first_sources
    front/thread_cache.c front/flushes.c front/pooled.c front/allocate.c front/release.c front/resize.c pool/take.c
    pool/slab.c pool/heap.c
    config/classes.c superslab/shared_pool.c superslab/tiers.c superslab/window.c superslab/metadata.c
    superslab/limits.c
    pool/registry.c pool/heap_memory.c front/thread.c front/process.c front/fork.c front/purge_thread.c
    front/housekeeping.c options/options.c os/lock.c os/foreign.c os/threads.c os/symbols.c)
list(TRANSFORM hakmem_first_sources PREPEND ${hakmem_src}/)
set(hakmem_cold_sources ${hakmem_core_sources})
list(FILTER hakmem_cold_sources INCLUDE REGEX
    "/(observe|profile)/|\
/front/(guarded|heaps|pressure|sample|direct|control|unwinder|block|parking)\\.c$|\
/os/(fault|maps|unwind|unwind_objects|unwind_rows|unwind_tables)\\.c$|\
/os/(file|peek|symbols_peek|process|procfs)\\.c$|\
/pool/misuse\\.c$|/base/")
list(REMOVE_ITEM hakmem_core_sources ${hakmem_first_sources} ${hakmem_cold_sources})
list(REMOVE_ITEM hakmem_cold_sources ${hakmem_first_sources})
list(PREPEND hakmem_core_sources ${hakmem_first_sources})
list(APPEND hakmem_core_sources ${hakmem_cold_sources})
file(GLOB hakmem_api_sources CONFIGURE_DEPENDS ${hakmem_src}/api/*.c)
# The calls of front's operations on blocks. src/je compiles these files for libhakmem-je.
set(hakmem_hak_api_sources ${hakmem_src}/api/hak.c)
set(hakmem_libc_api_sources ${hakmem_src}/api/libc.c ${hakmem_src}/api/cxx.c ${hakmem_src}/api/interposed.c
    ${hakmem_src}/api/sized.c)
set(hakmem_runtime_api_sources ${hakmem_src}/api/runtime.c)
set(hakmem_shared_api_sources ${hakmem_src}/api/dlopen.c ${hakmem_src}/api/create.c
    ${hakmem_src}/api/sandbox.c ${hakmem_src}/os/older_libc.c ${hakmem_src}/superslab/limits_shared.c)
# Only in the archives.
set(hakmem_static_api_sources ${hakmem_src}/api/pin.c)
# Only in libhakmem-secure.
set(hakmem_secure_api_sources ${hakmem_src}/api/alloc_token.c)
list(REMOVE_ITEM hakmem_api_sources ${hakmem_hak_api_sources} ${hakmem_libc_api_sources} ${hakmem_runtime_api_sources}
    ${hakmem_shared_api_sources} ${hakmem_static_api_sources} ${hakmem_secure_api_sources})

# The last flags, after those of CMAKE_C_FLAGS and hakmem_flags: an object of the library holds machine code. objcopy
# can rename neither symbols nor sections of an object of -flto, and only the compiler that made such an object can link
# it. gcc could make the code when it links the parts (-flinker-output=nolto-rel). clang has no such option, and the
# order of the parts (hakmem_first_sources) would be lost. -ffunction-sections would give functions sections of other
# names than hakmem_add_single_object renames.
add_library(hakmem_machine_code INTERFACE)
target_compile_options(hakmem_machine_code INTERFACE -fno-lto -fno-function-sections)

# Compiles sources as parts of the library: relocatable, hidden unless declared HAK_API, with thread-local storage at a
# fixed offset. The compiler may neither add nor remove calls of malloc, and makes machine code whatever the project's
# other targets have (CMAKE_INTERPROCEDURAL_OPTIMIZATION, -flto).
function(hakmem_add_objects name)
    add_library(${name} OBJECT ${ARGN})
    target_link_libraries(${name} PRIVATE hakmem_flags hakmem_machine_code)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden
        INTERPROCEDURAL_OPTIMIZATION OFF)
    target_compile_options(${name} PRIVATE
        -ftls-model=initial-exec -fno-semantic-interposition
        -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free
        ${hakmem_coverage_options})
endfunction()

# Keeps the strings that every process needs at its start together. Otherwise they become ends of longer strings in
# files that few processes need. clang does this by itself.
set(hakmem_names_options $<$<C_COMPILER_ID:GNU>:-fno-merge-constants>)
set_source_files_properties(${hakmem_src}/os/symbols.c ${hakmem_src}/api/libc.c ${hakmem_src}/api/interposed.c
    PROPERTIES COMPILE_OPTIONS "${hakmem_names_options}")
hakmem_add_objects(hakmem_core ${hakmem_core_sources})
hakmem_add_objects(hakmem_secure_core ${hakmem_core_sources} ${hakmem_secure_sources})
target_compile_definitions(hakmem_secure_core PRIVATE HAKMEM_BUILD_SECURE=1)
set_target_properties(hakmem_secure_core PROPERTIES EXCLUDE_FROM_ALL ON)
if(NOT HAKMEM_CYCLES AND PROJECT_IS_TOP_LEVEL)
    # Part of no library, but the compiler checks it in every build of HAKMEM itself.
    hakmem_add_objects(hakmem_cycles_unused ${hakmem_cycles_sources})
endif()
# A walk by frame pointers (os/unwind.c) passes through the frames of these files to reach the program's.
set(hakmem_framed_sources front/allocate.c front/guarded.c front/sample.c front/thread_cache.c
    profile/guard.c profile/profile.c profile/stack.c profile/table.c os/unwind.c je/counted.c)
list(TRANSFORM hakmem_framed_sources PREPEND ${hakmem_src}/)
set(hakmem_framed_options -fno-omit-frame-pointer)
if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "riscv64") # its compiler cannot
    list(APPEND hakmem_framed_options -momit-leaf-frame-pointer)
endif()
set_source_files_properties(${hakmem_framed_sources} PROPERTIES COMPILE_OPTIONS "${hakmem_framed_options}")
hakmem_add_objects(hakmem_os_linux ${hakmem_src}/os/linux.c)
hakmem_add_objects(hakmem_api ${hakmem_api_sources})
hakmem_add_objects(hakmem_hak_api ${hakmem_hak_api_sources})
hakmem_add_objects(hakmem_static_api ${hakmem_static_api_sources})

# One relocatable object with only the public names global. So HAKMEM's internal names cannot clash with a program's,
# and linking any part brings in all of it, constructors too. Its code has a section of its own, which tells HAKMEM's
# frames from the program's (os/unwind.c). The parts are object libraries, or objects.
function(hakmem_add_single_object output)
    set(objects "")
    set(targets "")
    foreach(part IN LISTS ARGN)
        if(TARGET ${part})
            list(APPEND targets ${part})
            set(part $<TARGET_OBJECTS:${part}>)
        endif()
        list(APPEND objects "${part}")
    endforeach()
    # -lgcc: helpers that compilers for other processors call: aarch64's for atomic operations, riscv64's for bits.
    add_custom_command(
        OUTPUT ${output}
        COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${output} ${objects}
            $<$<NOT:$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},x86_64>>:-lgcc>
        COMMAND ${CMAKE_OBJCOPY} --localize-hidden --rename-section .text=hakmem_text
            --rename-section .text.unlikely=hakmem_text --rename-section .text.unlikely.=hakmem_text
            --rename-section .text.hot=hakmem_text --rename-section .text.hot.=hakmem_text
            --rename-section .text.startup=hakmem_text --rename-section .text.startup.=hakmem_text
            --rename-section .text.exit=hakmem_text --rename-section .text.exit.=hakmem_text ${output}
        # The linker keeps one base for all probes in a program (os/outside.c): a local one would lead nowhere. clang's
        # run-time finds where the counters are mapped, and the name of their file, by two names (HAKMEM_COVERAGE).
        COMMAND ${CMAKE_OBJCOPY} --globalize-symbol=_.stapsdt.base --globalize-symbol=__llvm_profile_counter_bias
            --globalize-symbol=__llvm_profile_filename ${output}
        DEPENDS ${targets} ${objects}
        COMMAND_EXPAND_LISTS VERBATIM)
    set_source_files_properties(${output} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
endfunction()

function(hakmem_add_static name output_object)
    list(APPEND ARGN hakmem_static_api)
    if(HAKMEM_SANITIZE)
        # The run-times need the tables of each object. These builds stay in this tree.
        set(contents "")
        foreach(part IN LISTS ARGN)
            if(TARGET ${part})
                set(part $<TARGET_OBJECTS:${part}>)
            endif()
            list(APPEND contents "${part}")
        endforeach()
    else()
        set(contents ${output_object})
        hakmem_add_single_object(${contents} ${ARGN})
    endif()
    add_library(${name} STATIC ${contents})
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C INTERPROCEDURAL_OPTIMIZATION OFF)
    target_link_libraries(${name} INTERFACE Threads::Threads)
    # As src/api/pin.c, where the C library cannot be asked: a plugin that contains HAKMEM stays in memory.
    target_link_options(${name} INTERFACE
        $<$<NOT:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>>:-Wl,-z,nodelete>)
    target_include_directories(${name} INTERFACE
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_compile_definitions(${name} INTERFACE HAK_STATIC)
endfunction()

hakmem_add_static(hakmem_static ${PROJECT_BINARY_DIR}/hakmem-names.o hakmem_core hakmem_os_linux hakmem_api
    hakmem_hak_api)
set_target_properties(hakmem_static PROPERTIES OUTPUT_NAME hakmem EXPORT_NAME static)
add_library(hakmem::static ALIAS hakmem_static)

if(HAKMEM_OVERRIDES_LIBC)
    hakmem_add_objects(hakmem_libc_api ${hakmem_libc_api_sources})
    hakmem_add_objects(hakmem_runtime_api ${hakmem_runtime_api_sources})
    # An exception of a new-handler passes through operator new.
    set_source_files_properties(${hakmem_src}/api/cxx.c ${hakmem_src}/api/runtime.c ${hakmem_src}/api/alloc_token.c
        ${hakmem_src}/je/libc.c PROPERTIES COMPILE_OPTIONS "-fexceptions;${hakmem_names_options}")
    set(hakmem_all_parts hakmem_libc_api hakmem_runtime_api hakmem_os_linux hakmem_core hakmem_api hakmem_hak_api)

    hakmem_add_static(hakmem_override ${PROJECT_BINARY_DIR}/lib/hakmem.o ${hakmem_all_parts})
    # Linked even if only the program's shared libraries call malloc.
    target_link_options(hakmem_override INTERFACE -Wl,--undefined=malloc)
    set_target_properties(hakmem_override PROPERTIES OUTPUT_NAME hakmem-override EXPORT_NAME override)
    add_library(hakmem::override ALIAS hakmem_override)

    hakmem_add_objects(hakmem_shared_api ${hakmem_shared_api_sources})
    # bound: -Bsymbolic, or -Bsymbolic-functions if a public variable may be the program's own (malloc_message): the
    # dynamic linker must bind that.
    function(hakmem_add_shared name bound)
        add_library(${name} SHARED ${ARGN})
        target_link_libraries(${name} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
        target_include_directories(${name} INTERFACE
            $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
        set_target_properties(${name} PROPERTIES
            VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C
            INTERPROCEDURAL_OPTIMIZATION OFF)
        target_link_options(${name} PRIVATE
            # No _fini: it is empty, but as the library's last code it would make the kernel map the pages around it.
            -Wl,-fini=hakmem_has_no_fini
            # A second copy in the process uses its own functions. No lazy binding inside malloc. Threads may hold
            # blocks after dlclose. No symbol is left undefined.
            -Wl,${bound} -Wl,-z,now -Wl,-z,relro -Wl,-z,nodelete -Wl,-z,defs
            # Not by -Wl, which takes a comma in the path for an end.
            -Xlinker --version-script=${PROJECT_SOURCE_DIR}/cmake/hidden.map
            # For src/api/create.c and src/os/older_libc.c: saves loading libpthread.so.0.
            -Wl,--wrap=pthread_atfork -Wl,--wrap=pthread_key_create -Wl,--wrap=pthread_setspecific
            -Wl,--wrap=pthread_attr_setstacksize)
    endfunction()

    hakmem_add_shared(hakmem -Bsymbolic)
    target_link_libraries(hakmem PRIVATE hakmem_shared_api ${hakmem_all_parts})
    add_library(hakmem::hakmem ALIAS hakmem)

    # The hardened library.
    hakmem_add_objects(hakmem_secure_api ${hakmem_api_sources} ${hakmem_hak_api_sources} ${hakmem_libc_api_sources}
        ${hakmem_runtime_api_sources} ${hakmem_secure_api_sources})
    hakmem_add_objects(hakmem_secure_shared ${hakmem_shared_api_sources})
    foreach(part hakmem_secure_api hakmem_secure_shared)
        target_compile_definitions(${part} PRIVATE HAKMEM_BUILD_SECURE=1)
    endforeach()
    hakmem_add_shared(hakmem_secure -Bsymbolic)
    target_link_libraries(hakmem_secure PRIVATE hakmem_secure_core hakmem_os_linux hakmem_secure_api
        hakmem_secure_shared)
    set_target_properties(hakmem_secure PROPERTIES OUTPUT_NAME hakmem-secure EXPORT_NAME secure)
    add_library(hakmem::secure ALIAS hakmem_secure)
    hakmem_add_static(hakmem_secure_static ${PROJECT_BINARY_DIR}/hakmem-secure.o hakmem_secure_core hakmem_os_linux
        hakmem_secure_api)
    target_link_options(hakmem_secure_static INTERFACE -Wl,--undefined=malloc)
    set_target_properties(hakmem_secure_static PROPERTIES OUTPUT_NAME hakmem-secure EXPORT_NAME secure_static)
    add_library(hakmem::secure_static ALIAS hakmem_secure_static)
    add_custom_target(hakmem-secure DEPENDS hakmem_secure hakmem_secure_static)

    # The libraries that stand in for other allocators.
    file(GLOB hakmem_tc_sources CONFIGURE_DEPENDS ${hakmem_src}/tc/*.c)
    hakmem_add_objects(hakmem_tc_api ${hakmem_tc_sources})
    hakmem_add_shared(hakmem_tc -Bsymbolic)
    target_link_libraries(hakmem_tc PRIVATE ${hakmem_all_parts} hakmem_shared_api hakmem_tc_api)

    # jemalloc's has the calls of src/je in place of hakmem_hak_api and hakmem_libc_api.
    file(GLOB hakmem_je_sources CONFIGURE_DEPENDS ${hakmem_src}/je/*.c)
    set(hakmem_je_libc_sources ${hakmem_src}/je/libc.c)
    list(REMOVE_ITEM hakmem_je_sources ${hakmem_je_libc_sources})
    hakmem_add_objects(hakmem_je_api ${hakmem_je_sources} ${hakmem_seat_sources})
    hakmem_add_objects(hakmem_je_libc_api ${hakmem_je_libc_sources})
    hakmem_add_shared(hakmem_je -Bsymbolic-functions)
    target_link_libraries(hakmem_je PRIVATE hakmem_je_libc_api hakmem_runtime_api hakmem_os_linux hakmem_core hakmem_api
        hakmem_shared_api hakmem_je_api)
    # The je_* and hak_* names, beside the C library's malloc.
    hakmem_add_static(hakmem_je_static ${PROJECT_BINARY_DIR}/hakmem-je-names.o hakmem_core hakmem_os_linux hakmem_api
        hakmem_je_api)
    set_target_properties(hakmem_je_static PROPERTIES OUTPUT_NAME hakmem-je EXPORT_NAME je_static)
    target_include_directories(hakmem_je_static INTERFACE
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include/hakmem/seats>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/hakmem/seats>)
    add_library(hakmem::je_static ALIAS hakmem_je_static)

    foreach(seat je tc)
        set_target_properties(hakmem_${seat} PROPERTIES OUTPUT_NAME hakmem-${seat} EXPORT_NAME ${seat})
        # <jemalloc/jemalloc.h>, <gperftools/malloc_extension_c.h>
        target_include_directories(hakmem_${seat} INTERFACE
            $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include/hakmem/seats>
            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/hakmem/seats>)
        add_library(hakmem::${seat} ALIAS hakmem_${seat})
    endforeach()

    if(NOT PROJECT_IS_TOP_LEVEL)
        # A project that embeds HAKMEM builds hakmem::hakmem, hakmem::static and hakmem::override, and of the rest only
        # what it links.
        set_target_properties(hakmem_secure hakmem_secure_static hakmem_je hakmem_je_static hakmem_tc
            hakmem_secure_api hakmem_secure_shared hakmem_tc_api
            hakmem_je_api hakmem_je_libc_api PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
endif()

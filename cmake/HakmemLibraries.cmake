# The libraries, from object libraries that tests may link one by one:
#
#   hakmem_core       all of src/ but what follows
#   hakmem_os_linux   src/os/linux.c, the real system
#   hakmem_os_fake    src/os/fake*.c, the system that tests steer
#   hakmem_api        the hak_* names and process life
#   hakmem_libc_api   malloc and its family, the C++ operators
#   hakmem_shared_api names that lib/libhakmem.so alone can stand in front of: dlopen, pthread_create, prctl
#
#   hakmem            lib/libhakmem.so            everything, to preload or to link
#   hakmem_static     lib/libhakmem.a             hak_* only
#   hakmem_override   lib/libhakmem-override.a    everything; lib/hakmem.o is the same as one object

set(hakmem_src ${PROJECT_SOURCE_DIR}/src)
file(GLOB hakmem_core_sources CONFIGURE_DEPENDS
    ${hakmem_src}/base/*.c ${hakmem_src}/config/*.c ${hakmem_src}/os/*.c ${hakmem_src}/options/*.c
    ${hakmem_src}/superslab/*.c ${hakmem_src}/pool/*.c ${hakmem_src}/profile/*.c ${hakmem_src}/front/*.c ${hakmem_src}/observe/*.c)
list(FILTER hakmem_core_sources EXCLUDE REGEX "/os/(linux|fake|fake_ranges)\\.c$|/superslab/limits_shared\\.c$")
set(hakmem_cycles_sources ${hakmem_src}/os/cycles.c ${hakmem_src}/observe/cycle_report.c)
if(NOT HAKMEM_CYCLES)
    list(REMOVE_ITEM hakmem_core_sources ${hakmem_cycles_sources})
endif()
file(GLOB hakmem_api_sources CONFIGURE_DEPENDS ${hakmem_src}/api/*.c)
set(hakmem_libc_api_sources ${hakmem_src}/api/libc.c ${hakmem_src}/api/cxx.c ${hakmem_src}/api/runtime.c
    ${hakmem_src}/api/interposed.c)
set(hakmem_shared_api_sources ${hakmem_src}/api/dlopen.c ${hakmem_src}/api/create.c
    ${hakmem_src}/api/sandbox.c ${hakmem_src}/superslab/limits_shared.c)
list(REMOVE_ITEM hakmem_api_sources ${hakmem_libc_api_sources} ${hakmem_shared_api_sources})

# Compiles sources as parts of the library: relocatable, hidden unless declared HAK_API, thread-local storage at a
# fixed offset, and no call of malloc invented or removed by the compiler.
function(hakmem_add_objects name)
    add_library(${name} OBJECT ${ARGN})
    target_link_libraries(${name} PRIVATE hakmem_flags)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
    target_compile_options(${name} PRIVATE
        -ftls-model=initial-exec -fno-semantic-interposition
        -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free)
endfunction()

hakmem_add_objects(hakmem_core ${hakmem_core_sources})
if(NOT HAKMEM_CYCLES)
    # Part of nothing, but checked by the compiler in every build.
    hakmem_add_objects(hakmem_cycles_unused ${hakmem_cycles_sources})
endif()
# A walk by frame pointers (os/unwind.c) passes through these to the program's frames.
set(hakmem_framed_sources front/allocate.c front/sample.c front/thread_cache.c
    profile/profile.c profile/stack.c os/unwind.c)
list(TRANSFORM hakmem_framed_sources PREPEND ${hakmem_src}/)
set_source_files_properties(${hakmem_framed_sources} PROPERTIES
    COMPILE_OPTIONS "-fno-omit-frame-pointer;-momit-leaf-frame-pointer")
hakmem_add_objects(hakmem_os_linux ${hakmem_src}/os/linux.c)
if(EXISTS ${hakmem_src}/os/fake.c)
    hakmem_add_objects(hakmem_os_fake ${hakmem_src}/os/fake.c ${hakmem_src}/os/fake_ranges.c)
    set_target_properties(hakmem_os_fake PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
hakmem_add_objects(hakmem_api ${hakmem_api_sources})

# One relocatable object in which everything but the public names is local, so that no internal name of HAKMEM's can
# meet one of a program's, and so that linking any part brings all of it, constructors too. Its code has a section of
# its own, which tells HAKMEM's frames from the program's (os/unwind.c).
function(hakmem_add_single_object output)
    set(objects "")
    foreach(part IN LISTS ARGN)
        list(APPEND objects $<TARGET_OBJECTS:${part}>)
    endforeach()
    add_custom_command(
        OUTPUT ${output}
        COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${output} ${objects}
        COMMAND ${CMAKE_OBJCOPY} --localize-hidden --rename-section .text=hakmem_text
            --rename-section .text.unlikely=hakmem_text --rename-section .text.unlikely.=hakmem_text
            --rename-section .text.hot=hakmem_text --rename-section .text.hot.=hakmem_text
            --rename-section .text.startup=hakmem_text --rename-section .text.startup.=hakmem_text
            --rename-section .text.exit=hakmem_text --rename-section .text.exit.=hakmem_text ${output}
        DEPENDS ${ARGN} ${objects}
        COMMAND_EXPAND_LISTS VERBATIM)
    set_source_files_properties(${output} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
endfunction()

function(hakmem_add_static name output_object)
    if(HAKMEM_SANITIZE)
        # Sanitizer run-times look at each object's own tables; these builds stay in this tree.
        set(contents "")
        foreach(part IN LISTS ARGN)
            list(APPEND contents $<TARGET_OBJECTS:${part}>)
        endforeach()
    else()
        set(contents ${output_object})
        hakmem_add_single_object(${contents} ${ARGN})
    endif()
    add_library(${name} STATIC ${contents})
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C)
    target_link_libraries(${name} INTERFACE Threads::Threads)
    target_include_directories(${name} INTERFACE
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_compile_definitions(${name} INTERFACE HAK_STATIC)
endfunction()

hakmem_add_static(hakmem_static ${PROJECT_BINARY_DIR}/hakmem-names.o hakmem_core hakmem_os_linux hakmem_api)
set_target_properties(hakmem_static PROPERTIES OUTPUT_NAME hakmem EXPORT_NAME static)
add_library(hakmem::static ALIAS hakmem_static)

if(HAKMEM_OVERRIDES_LIBC)
    hakmem_add_objects(hakmem_libc_api ${hakmem_libc_api_sources})
    # A new-handler's exception passes through operator new.
    set_source_files_properties(${hakmem_src}/api/cxx.c ${hakmem_src}/api/runtime.c PROPERTIES COMPILE_OPTIONS -fexceptions)
    set(hakmem_all_parts hakmem_core hakmem_os_linux hakmem_api hakmem_libc_api)

    hakmem_add_static(hakmem_override ${PROJECT_BINARY_DIR}/lib/hakmem.o ${hakmem_all_parts})
    # A program that calls malloc through its shared libraries alone gets this one too.
    target_link_options(hakmem_override INTERFACE -Wl,--undefined=malloc)
    set_target_properties(hakmem_override PROPERTIES OUTPUT_NAME hakmem-override EXPORT_NAME override)
    add_library(hakmem::override ALIAS hakmem_override)

    hakmem_add_objects(hakmem_shared_api ${hakmem_shared_api_sources})
    add_library(hakmem SHARED)
    target_link_libraries(hakmem PRIVATE ${hakmem_all_parts} hakmem_shared_api Threads::Threads ${CMAKE_DL_LIBS})
    target_include_directories(hakmem INTERFACE
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    set_target_properties(hakmem PROPERTIES
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C)
    target_link_options(hakmem PRIVATE
        # A second copy in the process uses its own functions; no lazy binding inside malloc; threads may hold
        # blocks after dlclose; nothing is left undefined.
        -Wl,-Bsymbolic -Wl,-z,now -Wl,-z,relro -Wl,-z,nodelete -Wl,-z,defs
        -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/hidden.map)
    add_library(hakmem::hakmem ALIAS hakmem)
endif()

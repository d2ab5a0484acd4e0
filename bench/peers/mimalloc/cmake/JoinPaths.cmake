# For the pkg-config file that mimalloc's CMakeLists.txt writes and that nobody reads here.
function(join_paths result first second)
    set(${result} "${first}/${second}" PARENT_SCOPE)
endfunction()

# The commands `test` and `fuzz`.

command_test()
{
    local all=no quick=no keep_going=no coverage=no flavors=() arguments=() soak=() cache_options=() value taken
    while (($# > 0)); do
        case $1 in
        --all) all=yes ;;
        --quick) quick=yes ;;
        --keep-going) keep_going=yes ;;
        --coverage) coverage=yes ;;
        --yes) assume_yes=yes ;;
        --soak | --soak=*)
            take_value --soak "$@"
            require_number --soak "$value"
            soak=(--minutes "$value" "${@:taken + 1}")
            break
            ;;
        --flavor)
            (($# > 1)) || refuse "--flavor needs a name"
            check_flavor "$2"
            flavors+=("$2")
            shift
            ;;
        *) arguments+=("$1") ;;
        esac
        shift
    done
    if ((${#soak[@]} > 0)); then
        soak "${flavors[*]:-release debug}" "${soak[@]}"
    fi
    if ((${#flavors[@]} == 0)); then
        # asan includes debug's assertions and the check for undefined behaviour. The flavor ubsan checks only that.
        flavors=(release asan tsan)
        if [[ $quick == yes ]]; then
            flavors=(release)
        elif [[ $all == yes ]] || ((${#arguments[@]} > 0)); then
            flavors=(release debug asan tsan cycles clang aarch64)
        fi
    fi

    require_own_out "hakmem test"
    check_ctest_arguments ${arguments[@]+"${arguments[@]}"}
    require_test_tools
    # Some tests abort on purpose, and nobody reads their cores.
    ulimit -S -c 0
    if [[ $coverage == yes ]]; then
        test_coverage
        return
    fi
    use_compile_cache
    if ((${#arguments[@]} > 0)); then
        test_flavors
    else
        test_stages
    fi
}

# Makes the flavors' builds quick if their sources were compiled before, in another checkout too. Builds inside tests
# have their own settings: tests/blackbox.py (compile_cache), tools/package/plan.py.
use_compile_cache()
{
    command -v ccache >/dev/null || return 0
    export CCACHE_BASEDIR=$root
    cache_options=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
}

# Refuses what ctest does not know. ctest itself ignores such a word, and runs every test.
check_ctest_arguments()
{
    local word before="" known
    (($# > 0)) || return 0
    command -v ctest >/dev/null || install_packages "'hakmem test'" "${build_packages[@]}"
    known=$(ctest --help | grep '^  -' | grep -oE '(^ *|, ?)--?[A-Za-z-]+' | tr -d ' ,')
    for word in "$@"; do
        if [[ $word == -* ]]; then
            [[ $word =~ ^-j[0-9]+$ || $'\n'$known$'\n' == *$'\n'"${word%%=*}"$'\n'* ]] ||
                refuse "unknown option '$word' of test, and of ctest"
        elif [[ $before != -* ]]; then
            refuse "test takes options only, not '$word'"
        fi
        before=$word
    done
}

# build_for_tests FLAVOR...: for command_test, whose `all` and `arguments` say which tests will run. `cache_options` are
# for cmake.
build_for_tests()
{
    local flavor cross=aarch64 long=OFF
    if [[ $all == yes ]] || ((${#arguments[@]} > 0)); then
        # tests/delivery/package, which takes long, makes the libraries of all targets.
        cross=release
        long=ON
    fi
    lock_build
    for flavor in "$@"; do
        if [[ $flavor == aarch64 || $flavor == "$cross" ]]; then
            require_cross_tools
        fi
        say "building $flavor"
        configure "$flavor" ON -DHAKMEM_LONG_TESTS="$long" ${cache_options[@]+"${cache_options[@]}"}
        build_flavor "$flavor"
    done
    unlock_build
}

# Tests one flavor after another, with the caller's `arguments` for ctest.
test_flavors()
{
    local flavor result results=()
    build_for_tests "${flavors[@]}"
    for flavor in "${flavors[@]}"; do
        result=$root/build/$flavor/ctest.xml
        rm -f "$result"
        say "testing $flavor"
        ctest --test-dir "$root/build/$flavor" --output-on-failure --parallel "$jobs" --output-junit "$result" \
            "${arguments[@]}" || true
        [[ -f $result ]] || die "ctest wrote no results for $flavor"
        results+=("$result")
    done
    "$venv/bin/python" "$root/tools/count_tests.py" "${results[@]}"
}

# Runs the tests of the flavor coverage, with the caller's `arguments` for ctest, and tells what ran.
test_coverage()
{
    local result=$root/build/coverage/ctest.xml failed=no
    build_for_tests coverage
    rm -rf "$root/build/coverage/counters" "$result"
    say "testing coverage"
    ctest --test-dir "$root/build/coverage" --parallel "$jobs" --output-junit "$result" "${arguments[@]}" || true
    "$venv/bin/python" "$root/tools/count_tests.py" "$result" || failed=yes
    "$venv/bin/python" "$root/tools/coverage" --html && [[ $failed == no ]]
}

# Runs the stages of tools/test_stages.py. A flavor is built before the first stage that needs it.
test_stages()
{
    local line stage began words stages=() results=() choice=() failed=no
    began=$(date +%s)
    if [[ $all == yes ]]; then
        choice=(--all)
    fi
    mapfile -t stages < <("$venv/bin/python" "$root/tools/test_stages.py" --list "${flavors[@]}")
    for line in "${stages[@]}"; do
        read -r -a words <<<"$line"
        stage=${words[0]}
        build_for_tests "${words[@]:1}"
        "$venv/bin/python" "$root/tools/test_stages.py" --run "$stage" ${choice[@]+"${choice[@]}"} --began "$began" \
            --jobs "$jobs" --builds "$root/build" "${flavors[@]}" || failed=yes
        if [[ -f $root/build/tests/$stage/ctest.xml ]]; then
            results+=("$root/build/tests/$stage/ctest.xml")
        fi
        if [[ $failed == yes && $keep_going == no ]]; then
            say "stage $stage failed; those after it were not run (--keep-going runs them)"
            break
        fi
    done
    "$venv/bin/python" "$root/tools/count_tests.py" ${results[@]+"${results[@]}"} && [[ $failed == no ]]
}

# soak "FLAVOR..." ARGUMENTS: runs tests/stress/soak on those flavors and on release, whose library is preloaded.
soak()
{
    local flavor builds=""
    require_own_out "hakmem test"
    require_test_tools
    lock_build
    for flavor in $1 release; do
        say "building $flavor"
        configure "$flavor" ON
        build_flavor "$flavor"
        builds=${builds:+$builds,}$flavor=$root/build/$flavor
    done
    unlock_build
    ulimit -S -c 0
    exec env HAKMEM_BUILD_DIR="$root/build/release" "$venv/bin/python" "$root/tests/stress/soak/soak.py" \
        --builds "$builds" "${@:2}"
}

# Keeps its findings in build/fuzz: inputs that reach new code in corpus/TARGET, inputs that fail in found/.
command_fuzz()
{
    local target=${1:-} minutes=10 value taken arguments=() folders=() cache_options=()
    case $target in
    calls | maps | options | procfs | recording | trace | heap | image | info | jit | linking | report | \
        symbols) shift ;;
    *)
        refuse "fuzz needs a target: calls, maps, options, procfs, recording, trace, heap, image, info, jit, linking," \
            "report or symbols"
        ;;
    esac
    while (($# > 0)); do
        taken=1
        case $1 in
        --minutes | --minutes=*)
            take_value --minutes "$@"
            require_number --minutes "$value"
            minutes=$value
            ;;
        *) arguments+=("$1") ;;
        esac
        shift "$taken"
    done
    require_own_out "hakmem fuzz"
    install_packages "'hakmem fuzz'" "${build_packages[@]}" "${clang_packages[@]}"
    local build=$root/build/fuzz corpus=$root/build/fuzz/corpus/$target
    use_compile_cache
    lock_build
    make_venv all
    configure fuzz OFF ${cache_options[@]+"${cache_options[@]}"}
    build_flavor fuzz fuzz_targets
    unlock_build
    ulimit -S -c 0
    if [[ ! -x $build/bin/fuzz/fuzz_$target ]]; then
        exec env HAKMEM_BUILD_DIR="$build" "$venv/bin/python" "$root/tests/stress/fuzz/readers.py" "$target" \
            --minutes "$minutes" "${arguments[@]}"
    fi
    # If a file is among the arguments, only this input is run.
    if [[ ! " ${arguments[*]}" =~ " "[^-] ]]; then
        mkdir -p "$corpus"
        folders=("$corpus" "$root/tests/stress/fuzz/corpus/$target")
    fi
    mkdir -p "$build/found"
    if [[ -f $root/tests/stress/fuzz/$target.dict ]]; then
        arguments=(-dict="$root/tests/stress/fuzz/$target.dict" "${arguments[@]}")
    fi
    exec "$build/bin/fuzz/fuzz_$target" -error_exitcode=1 -timeout_exitcode=1 -max_total_time=$((minutes * 60)) \
        -timeout=120 -artifact_prefix="$build/found/$target-" "${arguments[@]}" "${folders[@]}"
}

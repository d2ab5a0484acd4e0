# The commands `test` and `fuzz`.

command_test()
{
    local all=no again=no changed=no coverage=no flavors=() arguments=() soak=() cache_options=() build_options=()
    local base=() value taken
    while (($# > 0)); do
        case $1 in
        --all)
            all=yes
            export TEST_COMPLETE=1 # tests/machine.py
            ;;
        --again) again=yes ;;
        --changed) changed=yes ;;
        --base | --base=*)
            take_value --base "$@"
            base=(--base "$value")
            shift "$((taken - 1))"
            ;;
        --coverage) coverage=yes ;;
        --fresh) export TEST_FRESH=1 ;;
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
        if [[ $all == yes || $again == yes ]] || ((${#arguments[@]} > 0)); then
            flavors=(release debug asan tsan cycles clang aarch64)
        fi
    fi
    check_ctest_arguments ${arguments[@]+"${arguments[@]}"}
    # Some tests of whole checkouts look for builds where they usually are.
    if [[ $all == yes || $coverage == yes ]] || ((${#arguments[@]} > 0)); then
        require_own_out "hakmem test with these options"
    fi
    require_test_tools
    # Some tests abort on purpose, and nobody reads their cores.
    ulimit -S -c 0
    use_compile_cache
    if [[ $coverage == yes ]]; then
        test_coverage
    elif [[ $changed == yes ]]; then
        test_changed
    elif ((${#arguments[@]} > 0)); then
        test_flavors
    else
        test_stages
    fi
}

# Installs what ./hakmem test needs, or names it and goes on without: `build_options` for cmake say which tests that
# leaves out. Without a compiler, CMake, Ninja or Python nothing can be tested.
require_test_tools()
{
    local packages tool lists=(build test)
    choose_out
    if [[ $all == yes ]]; then
        lists+=(ccache)
    fi
    if ! has_test_tools || [[ $all == yes ]]; then
        mapfile -t packages < <(read_list "${lists[@]}")
        offer_packages "'hakmem test'" "${packages[@]}" || say "going on with what is there"
    fi
    for tool in cmake ninja gcc python3; do
        command -v "$tool" >/dev/null || die "nothing can be tested without $tool"
    done
    build_options=(-DHAKMEM_UNIT_TESTS=ON)
    if ! has_cmocka; then
        build_options=(-DHAKMEM_UNIT_TESTS=OFF)
        say "without cmocka (Debian: libcmocka-dev), the unit tests are left out"
    fi
    command -v g++ >/dev/null || say "without g++, tests of programs in C++ are left out"
    make_venv test
}

has_cmocka()
{
    printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <cmocka.h>\n' |
        gcc -E -o /dev/null - 2>/dev/null
}

has_test_tools()
{
    local tool
    for tool in cmake ninja gcc g++ python3; do
        command -v "$tool" >/dev/null || return 1
    done
    has_cmocka && python3 -c 'import ensurepip, venv' 2>/dev/null
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
    require_build_tools
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

# build_for_tests FLAVOR...: for command_test, whose `all` and `arguments` say which tests will run. `cache_options` and
# `build_options` are for cmake.
build_for_tests()
{
    local flavor long=OFF status=0
    if [[ $all == yes || $again == yes ]] || ((${#arguments[@]} > 0)); then
        long=ON
    fi
    lock_build
    for flavor in "$@"; do
        if is_cross "$flavor"; then
            require_cross_tools "$flavor"
        fi
        say "building $flavor"
        { configure "$flavor" ON -DHAKMEM_LONG_TESTS="$long" -DHAKMEM_PYTHON="$venv/bin/python" \
            ${cache_options[@]+"${cache_options[@]}"} "${build_options[@]}" && build_flavor "$flavor"; } ||
            status=1
    done
    unlock_build
    return "$status"
}

# Tests one flavor after another, with the caller's `arguments` for ctest.
test_flavors()
{
    local flavor result results=()
    prepare_everything
    build_for_tests "${flavors[@]}" || exit 1
    for flavor in "${flavors[@]}"; do
        result=$out/$flavor/ctest.xml
        rm -f "$result"
        say "testing $flavor"
        ctest --test-dir "$out/$flavor" --output-on-failure --parallel "$jobs" --output-junit "$result" \
            "${arguments[@]}" || true
        [[ -f $result ]] || die "ctest wrote no results for $flavor"
        results+=("$result")
    done
    "$venv/bin/python" "$root/tools/count_tests.py" "${results[@]}"
}

# Runs the tests of the flavor coverage, with the caller's `arguments` for ctest, and tells what ran.
test_coverage()
{
    local result=$out/coverage/ctest.xml failed=no
    prepare_everything
    build_for_tests coverage || exit 1
    rm -rf "$out/coverage/counters" "$result"
    say "testing coverage"
    ctest --test-dir "$out/coverage" --parallel "$jobs" --output-junit "$result" "${arguments[@]}" || true
    "$venv/bin/python" "$root/tools/count_tests.py" "$result" || failed=yes
    "$venv/bin/python" "$root/tools/coverage" --html && [[ $failed == no ]]
}

# For tests that ctest's arguments choose: which of the lists they need is not known, so all are offered.
prepare_everything()
{
    local packages lists
    mapfile -t lists < <("$venv/bin/python" "$root/tools/test_stages.py" --list --all "${flavors[@]}" |
        cut -d ' ' -f 2 | tr ',' '\n' | grep -v '^-$')
    mapfile -t packages < <(read_list "${lists[@]}")
    offer_packages "'hakmem test'" "${packages[@]}" || say "tests that need them will fail"
    make_venv all
    require_cross_tools aarch64
}

# Runs the tests that concern what changed (tools/which_tests.py).
test_changed()
{
    local line targets=() tests=() lists=() packages result
    lock_build
    configure release ON -DHAKMEM_LONG_TESTS=ON -DHAKMEM_PYTHON="$venv/bin/python" \
        ${cache_options[@]+"${cache_options[@]}"} "${build_options[@]}"
    while read -r line; do
        case $line in
        "target "*) targets+=("${line#target }") ;;
        "test "*) tests+=("${line#test }") ;;
        "list "*) lists+=("${line#list }") ;;
        esac
    done < <("$venv/bin/python" "$root/tools/which_tests.py" --build "$out/release" ${base[@]+"${base[@]}"})
    if ((${#tests[@]} == 0)); then
        say "no test concerns what changed"
        unlock_build
        return
    fi
    if ((${#lists[@]} > 0)); then
        mapfile -t packages < <(read_list "${lists[@]}")
        offer_packages "'hakmem test --changed'" "${packages[@]}" || say "tests that need them will fail"
        make_venv all
    fi
    say "building what ${#tests[@]} tests need"
    build_flavor release ${targets[@]+"${targets[@]}"}
    unlock_build
    result=$out/release/ctest.xml
    rm -f "$result"
    ctest --test-dir "$out/release" --output-on-failure --parallel "$jobs" --output-junit "$result" \
        --test-output-size-passed 100000 -R "^($(IFS='|'; echo "${tests[*]//./[.]}"))\$" || true
    "$venv/bin/python" "$root/tools/count_tests.py" "$result"
}

# Runs the stages of tools/test_stages.py. Each installs and builds what it needs when it begins, and goes on when an
# earlier one has failed.
test_stages()
{
    local line stage lists began since words stages=() results=() choice=() number=0 reason
    began=$(date +%s)
    if [[ $all == yes ]]; then
        choice=(--all)
    elif [[ $again == yes ]]; then
        choice=(--again)
    fi
    local runner=("$venv/bin/python" "$root/tools/test_stages.py" ${choice[@]+"${choice[@]}"} --builds "$out")
    mapfile -t stages < <("${runner[@]}" --list "${flavors[@]}")
    if ((${#stages[@]} == 0)); then
        say "nothing failed in the last run"
        return
    fi
    for line in "${stages[@]}"; do
        read -r -a words <<<"$line"
        stage=${words[0]} lists=${words[1]} reason="" number=$((number + 1))
        since=$(date +%s)
        results+=("$out/tests/$stage")
        if [[ $lists != - ]]; then
            prepare_stage "$stage" "$lists" || reason="packages that it needs are missing"
        fi
        if [[ -z $reason ]]; then
            # In a shell of its own, which may exit.
            (build_for_tests "${words[@]:2}") || reason="a build failed"
        fi
        if [[ -n $reason ]]; then
            say "stage $stage cannot run: $reason"
            "${runner[@]}" --lost "$stage" --reason "$reason" "${flavors[@]}"
            continue
        fi
        "${runner[@]}" --run "$stage" --place "$number of ${#stages[@]}" --began "$began" --since "$since" \
            --jobs "$jobs" "${flavors[@]}" || true
    done
    "$venv/bin/python" "$root/tools/count_tests.py" "${results[@]}"
}

# prepare_stage STAGE LIST,...: installs what a stage needs beyond ./hakmem test.
prepare_stage()
{
    local packages lists
    mapfile -d , -t lists < <(printf %s "$2")
    mapfile -t packages < <(read_list "${lists[@]}")
    offer_packages "stage $1" "${packages[@]}" && (make_venv all) || return 1
    # tests/delivery/package makes the libraries of all targets.
    [[ $1 != delivery ]] || (require_cross_tools aarch64)
}

# soak "FLAVOR..." ARGUMENTS: runs tests/stress/soak on those flavors and on release, whose library is preloaded.
soak()
{
    local flavor builds="" packages
    require_own_out "hakmem test --soak"
    require_test_tools
    mapfile -t packages < <(read_list programs soak)
    offer_packages "'hakmem test --soak'" "${packages[@]}" || say "what needs them is left out"
    make_venv all
    lock_build
    for flavor in $1 release; do
        say "building $flavor"
        configure "$flavor" ON
        build_flavor "$flavor"
        builds=${builds:+$builds,}$flavor=$out/$flavor
    done
    unlock_build
    ulimit -S -c 0
    exec env HAKMEM_BUILD_DIR="$out/release" "$venv/bin/python" "$root/tests/stress/soak/soak.py" \
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
    local packages
    mapfile -t packages < <(read_list build fuzz)
    install_packages "'hakmem fuzz'" "${packages[@]}"
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
    exec "$build/bin/fuzz/fuzz_$target" -error_exitcode=1 -timeout_exitcode=1 \
        -max_total_time=$((minutes * 60)) -timeout=120 -artifact_prefix="$build/found/$target-" "${arguments[@]}" \
        "${folders[@]}"
}

"""Protects libhakmem-je.so and libhakmem-je.a (jemalloc's names), and libhakmem-tc.so (gperftools')."""

import json
import re
import subprocess

import pytest

import blackbox
from conftest import FOLDER

DOCUMENT = blackbox.REPOSITORY / "docs" / "jemalloc.md"


def check_done(result):
    assert (result.status, result.stdout.splitlines()[-1:]) == (0, ["done"]), result.report()
    return result


def exported(library):
    output = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in output.splitlines() if line.split()[-2] in "TWDBVR"}


# ---- Names ----


def test_exported_names(library, je_library):
    wanted = {line for line in (FOLDER / "names.txt").read_text().split("\n") if line and not line.startswith("#")}
    assert exported(je_library) - exported(library) == wanted
    assert exported(library) - exported(je_library) == set()


def test_exported_names_of_gperftools(library, tc_library):
    header = (blackbox.INCLUDE_FOLDER / "hakmem" / "gperftools.h").read_text()
    declared = set(re.findall(r"\b((?:tc|MallocExtension)_\w+)\(", header))
    assert len(declared) > 30
    assert exported(tc_library) - exported(library) == declared
    assert exported(library) - exported(tc_library) == set()


@pytest.mark.parametrize("name", ["je", "tc"])
def test_soname(name):
    path = blackbox.LIBRARY_FOLDER / f"libhakmem-{name}.so"
    output = subprocess.run(["readelf", "-d", path], check=True, capture_output=True, text=True).stdout
    assert f"[libhakmem-{name}.so.0]" in output
    assert not re.search(r"\(NEEDED\).*(jemalloc|tcmalloc)", output)


def test_document_has_every_name_of_mallctl():
    rows = set(
        re.findall(r'^    [A-Z]+\((?:\w+, )?"([^"]+)"', (blackbox.REPOSITORY / "src/je/control_rows.c").read_text(),
                   re.M))
    told = {name.replace("<i>", "#").replace("<j>", "#") for name in re.findall(r"`([\w.<>]+)`", DOCUMENT.read_text())}
    assert len(rows) > 130 and rows - told == set()


def test_document_has_every_function():
    told = set(re.findall(r"`(\w+)`", DOCUMENT.read_text()))
    names = {
        line for line in (FOLDER / "names.txt").read_text().splitlines() if line and not line.startswith(("#", "je_"))
    }
    header = (blackbox.INCLUDE_FOLDER / "hakmem" / "gperftools.h").read_text()
    assert names | set(re.findall(r"\b((?:tc|MallocExtension)_\w+)\(", header)) <= told


# ---- What they do ----


@pytest.mark.parametrize("source", ["blocks.c", "arenas.c", "counts.c"])
def test_functions(linked, source):
    check_done(blackbox.run([linked(source)]))


@pytest.mark.parametrize("library", ["libhakmem-je.so", "libhakmem.so"])
def test_sizes_of_aligned_blocks(linked, library):
    check_done(blackbox.run([linked("pairs.c", library)]))


@pytest.mark.parametrize("variable", ["HAKMEM_HEAP_PROFILE", "HAKMEM_GUARD"])
def test_samples_are_counted_like_other_blocks(linked, variable, tmp_path):
    """A sample, and a guarded block of exactly the requested size, pass through other functions of front/."""
    env = {"HAKMEM_HEAP_PROFILE": {"HAKMEM_HEAP_PROFILE": "p.gz", "HAKMEM_HEAP_PROFILE_RATE": "1000"},
           "HAKMEM_GUARD": {"HAKMEM_GUARD": "1", "HAKMEM_GUARD_RATE": "1000"}}[variable]
    check_done(blackbox.run([linked("counts.c")], env=env, cwd=tmp_path))


def test_figures(linked, tmp_path):
    result = check_done(blackbox.run([linked("figures.c")], cwd=tmp_path))
    assert "message" in result.stdout
    text = json.loads((tmp_path / "stats.json").read_text())
    assert text["jemalloc"]["stats"]["allocated"] <= text["jemalloc"]["stats"]["active"] <= text["jemalloc"]["stats"][
        "resident"]
    assert text["hakmem"]
    assert (tmp_path / "dump.heap").read_bytes()[:2] == b"\x1f\x8b", "pprof's format, gzipped"


def test_static_library_beside_the_c_library(in_static):
    check_done(blackbox.run([in_static("static.c")]))


def test_gperftools(linked):
    check_done(blackbox.run([linked("extension.c", "libhakmem-tc.so")]))


def test_under_a_program_of_another_soname(linked, tmp_path, je_library):
    """A link under jemalloc's file name in a private folder serves programs that need jemalloc, without a preload."""
    (tmp_path / "libjemalloc.so.2").symlink_to(je_library)
    result = blackbox.run(["redis-server", "--version"], env={"LD_LIBRARY_PATH": str(tmp_path), "HAKMEM_VERBOSE": "1"})
    assert result.status == 0 and "hakmem: version" in result.stderr, result.report()


# ---- Settings ----

NAMES = ["opt.dirty_decay_ms", "opt.background_thread", "opt.thp", "opt.stats_print", "opt.prof",
         "opt.prof_prefix", "prof.active"]


def settings(program, *names, env=None):
    result = blackbox.run([program, *(names or NAMES)], env=env)
    assert result.status == 0, result.report()
    return dict(line.split(" ", 1) for line in result.stdout.splitlines()), result.stderr


def test_malloc_conf(linked, tmp_path):
    program = linked("settings.c")
    values, errors = settings(program)
    assert (values["opt.dirty_decay_ms"], values["opt.background_thread"], values["opt.prof"], errors) == ("500", "0",
                                                                                                           "0", "")
    conf = "dirty_decay_ms:77,background_thread:true,thp:never,prof:true,prof_prefix:mine,lg_prof_sample:16"
    values, errors = settings(program, *NAMES, "prof.lg_sample", env={"MALLOC_CONF": conf})
    assert values == {
        "opt.dirty_decay_ms": "77", "opt.background_thread": "1", "opt.thp": "never", "opt.stats_print": "0",
        "opt.prof": "1",
        "opt.prof_prefix": "mine", "prof.active": "1", "prof.lg_sample": "16",
    }
    assert errors == ""
    values, _ = settings(program, env={"MALLOC_CONF": "dirty_decay_ms:-1"})
    assert values["opt.dirty_decay_ms"] == "3600000"
    values, _ = settings(program, env={"MALLOC_CONF": "dirty_decay_ms:5", "HAKMEM_PURGE_DELAY": "6"})
    assert values["opt.dirty_decay_ms"] == "6", "HAKMEM's own variable has the last word"


def test_malloc_conf_prints(linked, tmp_path):
    program = linked("settings.c")
    result = blackbox.run([program], env={"MALLOC_CONF": "stats_print:true,stats_print_opts:J"})
    assert json.loads(result.stderr), result.report()
    result = blackbox.run([program],
                          env={"MALLOC_CONF": "prof:true,prof_final:true,prof_prefix:" + str(tmp_path / "p")})
    assert result.status == 0 and len(list(tmp_path.glob("p.*.heap"))) == 1, result.report()
    result = blackbox.run([program], env={"MALLOC_CONF": "confirm_conf:true"})
    assert "hakmem: version" in result.stderr


def test_malloc_conf_names_what_it_cannot_do(linked):
    program = linked("settings.c")
    _, errors = settings(program, env={"MALLOC_CONF": "narenas:4,dirty_decay_ms:9,lg_tcache_max:13,hpa:true"})
    assert errors.startswith("hakmem: MALLOC_CONF: ") and errors.count("\n") == 1
    assert all(name in errors for name in ("narenas", "lg_tcache_max", "hpa")) and "dirty_decay_ms" not in errors
    _, errors = settings(program, env={"MALLOC_CONF": "no_such:1,dirty_decay_ms:many,prof"})
    named = zip(errors.splitlines(), ("no_such:1", "dirty_decay_ms:many", "prof"), strict=True)
    assert all(name in line for line, name in named), errors
    result = blackbox.run([program], env={"MALLOC_CONF": "abort_conf:true,no_such:1"})
    assert result.status < 0 and "abort_conf:true" in result.stderr


def test_the_programs_own_settings(linked, tmp_path):
    program = linked("settings.c", "libhakmem-je.so", '-DOWN_CONF="dirty_decay_ms:123,narenas:3,thp:always"',
                     "-DOWN_MESSAGE")
    result = blackbox.run([program, "opt.dirty_decay_ms", "opt.thp", "opt.malloc_conf.global_var"])
    lines = result.stdout.splitlines()
    assert lines[:3] == [
        "opt.dirty_decay_ms 123", "opt.thp always", "opt.malloc_conf.global_var dirty_decay_ms:123,narenas:3,thp:always"
    ], result.report()
    assert "own message" in lines and result.stderr == ""
    values, _ = settings(program, "opt.dirty_decay_ms", "opt.thp", env={"MALLOC_CONF": "thp:never"})
    assert (values["opt.dirty_decay_ms"], values["opt.thp"]) == ("123", "never"), "the environment comes later"


def test_order_of_settings(linked, tmp_path):
    """malloc_conf, then hakmem_options, then MALLOC_CONF, then HAKMEM_ variables: a later source overrides."""
    program = linked("settings.c", "libhakmem-je.so", '-DOWN_CONF="dirty_decay_ms:1,thp:always,lg_prof_sample:16"',
                     '-DOWN_OPTIONS="PURGE_DELAY=2;THP=never"')
    names = ["opt.dirty_decay_ms", "opt.thp", "opt.lg_prof_sample"]
    compiled, typed = {}, {"MALLOC_CONF": "dirty_decay_ms:3"}
    for env, wanted in [(compiled, "2"), (typed, "3"), (typed | {"HAKMEM_PURGE_DELAY": "4"}, "4")]:
        values, _ = settings(program, *names, env=env)
        assert (values["opt.dirty_decay_ms"], values["opt.thp"], values["opt.lg_prof_sample"]) == (wanted,
                                                                                                   "never", "16")


def test_order_of_settings_of_the_profile(linked, tmp_path):
    """The file of a profile: MALLOC_CONF undoes malloc_conf's request, and hakmem_options names another file."""
    conf = f'-DOWN_CONF="prof:true,prof_final:true,prof_prefix:{tmp_path}/conf"'
    own, both = linked("settings.c", "libhakmem-je.so", conf), linked(
        "settings.c", "libhakmem-je.so", conf, f'-DOWN_OPTIONS="HEAP_PROFILE={tmp_path}/options.heap"')
    for program, env, wanted in [(own, {}, "conf."), (both, {}, "options.heap"),
                                 (own, {"MALLOC_CONF": "prof:false"}, None),
                                 (both, {"MALLOC_CONF": f"prof_prefix:{tmp_path}/typed"}, "typed.")]:
        assert blackbox.run([program, "opt.prof"], env=env).status == 0
        found = list(tmp_path.iterdir())
        assert [file.name.startswith(wanted) for file in found] == [True] if wanted else found == []
        for file in found:
            file.unlink()

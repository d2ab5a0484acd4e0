"""Protects libraries opened with RTLD_DEEPBIND: they use HAKMEM's malloc, and not the C library's.

dlopen still knows its caller."""

import re
import signal
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def plugin(compiled):
    return compiled(HERE / "deepbind_plugin.c", shared=True)


@pytest.fixture(scope="module")
def linked(compiled, library):
    """The program, with the library linked behind it."""
    return compiled(HERE / "deepbind.c", "-Wl,--no-as-needed", library, f"-Wl,-rpath,{library.parent}")


@pytest.mark.parametrize("what", ["blocks", "base", "space"])
def test_blocks_cross(compiled, linked, library, plugin, what):
    blackbox.run_done([compiled(HERE / "deepbind.c"), what, plugin])
    result = blackbox.run([linked, what, plugin])
    assert (result.status, result.stdout, result.stderr) == (0, "done\n", ""), result.report()


def test_said_when_verbose(compiled, library, plugin):
    program = compiled(HERE / "deepbind.c")
    result = blackbox.run([program, "blocks", plugin], preload=library, env={"HAKMEM_VERBOSE": "1"})
    assert result.status == 0, result.report()
    line = rf"^hakmem: dlopen\({re.escape(str(plugin))}\): RTLD_DEEPBIND is left out"
    assert len(re.findall(line, result.stderr, re.MULTILINE)) == 1, result.report()
    silent = blackbox.run([program, "errors"], preload=library, env={"HAKMEM_VERBOSE": "1", "HAKMEM_DEEPBIND": "1"})
    assert "left out" not in silent.stderr, silent.report()


def test_kept_on_request(compiled, library, plugin):
    """With HAKMEM_DEEPBIND=1 the library has the C library's free, which does not know HAKMEM's block."""
    env = {"HAKMEM_DEEPBIND": "1"}
    result = blackbox.run([compiled(HERE / "deepbind.c"), "blocks", plugin], preload=library, env=env)
    assert result.status in (-signal.SIGABRT, -signal.SIGSEGV), result.report()


def test_the_caller_is_the_program(tmp_path):
    """RUNPATH and $ORIGIN are those of the object that calls dlopen."""
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for folder in (inner, outer):
        folder.mkdir()
    beyond = "-Wl,-rpath,$ORIGIN/beyond"
    neighbour = HERE / "deepbind_neighbour.c"
    blackbox.compile_program(HERE / "deepbind_plugin.c", inner / "libplugin.so", beyond, shared=True)
    (inner / "beyond").mkdir()
    blackbox.compile_program(neighbour, inner / "libneighbour.so", '-DNEIGHBOUR="beside"', shared=True)
    blackbox.compile_program(neighbour, inner / "beyond" / "libbeyond.so", '-DNEIGHBOUR="beyond"', shared=True)
    program = blackbox.compile_program(
        HERE / "deepbind.c", outer / "program", "-Wl,-rpath,$ORIGIN/../inner", "-Wl,--enable-new-dtags"
    )
    result = blackbox.run_both([program, "origin"])
    assert result.stdout == "beside beyond\ndone\n"


def test_errors_are_the_same(compiled):
    blackbox.run_both([compiled(HERE / "deepbind.c"), "errors"])


def test_static_programs_get_no_dynamic_loader(override_archive):
    """The archive neither has dlopen nor asks for it: only libhakmem.so does."""
    symbols = blackbox.run(["nm", override_archive]).stdout
    assert " malloc\n" in symbols
    assert not re.search(r" dlm?open$", symbols, re.MULTILINE)


def test_php_with_its_extensions(library):
    """PHP, which opens its extensions with RTLD_DEEPBIND, works with them."""
    script = """
        $document = new DOMDocument;
        $document->loadXML("<list>" . str_repeat("<entry key='x'>text</entry>", 2000) . "</list>");
        echo strlen($document->saveXML()), " ", count($document->getElementsByTagName("entry")), "\n";
        echo mb_strtoupper(str_repeat("äöü", 10)), " ", json_encode(range(1, 20)), "\n";
        $base = new PDO("sqlite::memory:");
        $base->exec("create table rows(number integer, text text)");
        $insert = $base->prepare("insert into rows values (?, ?)");
        for ($i = 0; $i < 2000; $i++) $insert->execute([$i, str_repeat(chr(97 + $i % 26), $i % 300)]);
        echo json_encode($base->query("select count(*), sum(length(text)) from rows")->fetchAll(PDO::FETCH_NUM)), "\n";
        echo (new NumberFormatter("de_DE", NumberFormatter::DECIMAL))->format(1234567.891), "\n";
        $collator = new Collator("de_DE"); $words = ["zu", "äh", "an", "öl"]; $collator->sort($words);
        echo implode(" ", $words), "\n";
        foreach (get_loaded_extensions() as $name) echo $name, " ";
    """
    result = blackbox.run_both(["php", "-d", "opcache.enable_cli=0", "-r", script])
    for extension in ("dom", "intl", "mbstring", "pdo_sqlite", "xml"):
        assert f" {extension} " in result.stdout, "the extension is not installed"

"""Protects a database, compilers, interpreters and text tools: the output is the same on either allocator."""

import hashlib
import random
import re
import shutil
from pathlib import Path

import pytest

import blackbox

HERE = Path(__file__).resolve().parent


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_library_is_hakmem(library):
    """Other tests prove that malloc is bound to this file. This one proves that the file is HAKMEM."""
    symbols = blackbox.run(["nm", "-D", "--defined-only", library]).stdout
    assert re.search(r" T hak_version$", symbols, re.MULTILINE)


def both_folders(tmp_path, work):
    """Calls work(folder, run) with a runner on the system's allocator and with one on HAKMEM. Returns both answers."""
    answers = []
    for name, runner in (("plain", blackbox.run), ("hakmem", blackbox.run_with_proof)):
        folder = tmp_path / name
        folder.mkdir()
        answers.append(work(folder, runner))
    return answers


def test_sqlite(tmp_path):
    script = (HERE / "database.sql").read_text()

    def build(folder, runner):
        result = runner(["sqlite3", folder / "database.db"], stdin=script, timeout=60)
        assert result.status == 0, result.report()
        return result.stdout, result.stderr, digest(folder / "database.db")

    plain, ours = both_folders(tmp_path, build)
    assert ours == plain
    assert ours[0].splitlines()[-1] == "ok"
    assert ours[1] == ""


def large_cpp(instances):
    """A C++ program that is hard to compile: many instances of deep templates over the standard containers."""
    lines = [
        "#include <algorithm>",
        "#include <functional>",
        "#include <map>",
        "#include <memory>",
        "#include <string>",
        "#include <tuple>",
        "#include <unordered_map>",
        "#include <variant>",
        "#include <vector>",
        "template <int N> struct Tag { static constexpr int value = N + Tag<N - 1>::value; };",
        "template <> struct Tag<0> { static constexpr int value = 0; };",
        "template <typename T, int N> struct Node {",
        "    std::map<std::string, std::vector<T>> rows; std::array<T, N> fixed;",
        "    std::unordered_map<int, std::tuple<T, std::string, std::shared_ptr<T>>> index;",
        "    long sum() const { long s = 0; for (auto &r : rows) for (auto &v : r.second) s += sizeof(v);",
        "        return s; } };",
    ]
    for i in range(instances):
        lines.append(
            f"struct Item{i} {{ int field[{i + 1}]; std::string name; bool operator<(const Item{i} &o) const "
            f"{{ return name < o.name; }} }};"
        )
        lines.append(
            f"long use{i}() {{ Node<Item{i}, {i + 2}> n; std::vector<Item{i}> v({i + 3}); "
            f'std::sort(v.begin(), v.end()); n.rows["k{i}"] = v; std::variant<int, Item{i}, std::string> w = v[0]; '
            f"std::function<long(int)> f = [&](int x) {{ return n.sum() + x + (long)w.index(); }}; "
            f"return f(Tag<{200 + i}>::value); }}"
        )
    return "\n".join(lines) + "\n"


def test_compiler_makes_the_same_object(tmp_path):
    """The driver passes LD_PRELOAD on to the compiler proper and the assembler."""
    source = tmp_path / "large.cpp"
    source.write_text(large_cpp(2))

    def build(folder, runner):
        result = runner(
            ["g++", "-std=c++17", "-O1", "-c", source, "-o", folder / "large.o"], cwd=tmp_path, timeout=150
        )
        assert result.status == 0, result.report()
        return result.stdout, result.stderr, digest(folder / "large.o")

    plain, ours = both_folders(tmp_path, build)
    assert ours == plain


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A git repository of 300 commits on two branches with merges, the same on every machine."""
    folder = tmp_path_factory.mktemp("git") / "repository"
    chance = random.Random(7)
    files = {f"folder{i % 7}/file{i}.txt": [f"line {j} of {i}" for j in range(60)] for i in range(40)}
    stream = []
    for number in range(1, 301):
        changed = dict(files) if number == 1 else {}
        for name in chance.sample(sorted(files), 3):
            lines = files[name]
            lines[chance.randrange(len(lines))] = f"changed {number} {chance.random()}"
            lines.insert(chance.randrange(len(lines)), f"added in {number}")
            changed[name] = lines
        stream.append(
            f"commit refs/heads/main\nmark :{number}\n"
            f"committer A U Thor <author@example.com> {1600000000 + number * 3600} "
            f"+0000\ndata <<END\ncommit {number}\n\nA body of some words, number {number}.\nEND\n"
        )
        if number > 1:
            stream.append(f"from :{number - 1}\n")
            if number % 25 == 0:
                stream.append(f"merge :{number - 20}\n")
        for name, lines in changed.items():
            text = "\n".join(lines) + "\n"
            stream.append(f"M 100644 inline {name}\ndata {len(text)}\n{text}\n")
    stream.append("tag v1\nfrom :300\ntagger A U Thor <author@example.com> 1700000000 +0000\ndata 3\nv1\n\n")
    for argv, stdin in (
        (["git", "init", "-q", "-b", "main", folder], None),
        (["git", "-C", folder, "fast-import", "--quiet"], "".join(stream)),
        (["git", "-C", folder, "reset", "-q", "--hard"], None),
    ):
        result = blackbox.run(argv, stdin=stdin, env=GIT)
        assert result.status == 0, result.report()
    return folder


GIT = {
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_PAGER": "cat",
    "GIT_AUTHOR_NAME": "A U Thor",
    "GIT_AUTHOR_EMAIL": "author@example.com",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_NAME": "A U Thor",
    "GIT_COMMITTER_EMAIL": "author@example.com",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
}

GIT_COMMANDS = [
    "log --stat -p --all",
    "blame --line-porcelain folder1/file1.txt",
    "diff -M --word-diff HEAD~200 HEAD",
    "grep -n changed",
    "-c pack.threads=1 repack -a -d -f -q --depth=60 --window=60",
    "fsck --full --strict --no-progress",
    "count-objects -v",
    "rev-list --objects --all",
    "archive --format=tar HEAD",
    "-c commit.gpgsign=false cherry-pick --allow-empty -X theirs HEAD~30",
    "rev-parse HEAD HEAD^{tree}",
]


def test_git(repository, tmp_path):
    def use(folder, runner):
        copy = folder / "repository"
        shutil.copytree(repository, copy, symlinks=True)
        answers = []
        for command in GIT_COMMANDS:
            result = runner(["git", "-C", copy, *command.split()], env=GIT, timeout=60)
            assert result.status == 0, f"git {command}: {result.report()}"
            answers.append((command, hashlib.sha256(result.stdout.encode()).hexdigest(), result.stderr))
        return answers

    plain, ours = both_folders(tmp_path, use)
    assert ours == plain


def test_perl():
    blackbox.run_both(["perl", HERE / "work.pl"], env={"PERL_HASH_SEED": "1", "PERL_PERTURB_KEYS": "0"}, timeout=60)


def test_lua():
    blackbox.run_both(["lua5.4", HERE / "work.lua"], timeout=60)


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    """1 MB of unsorted lines."""
    chance = random.Random(11)
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text(
        "".join(
            f"{chance.randrange(10 ** 6)} {chance.choice('abcdefgh') * chance.randrange(1, 20)} {n}\n"
            for n in range(50000)
        )
    )
    assert path.stat().st_size > 1_000_000
    return path


def test_sort(text_file):
    for arguments in (["-k2,2", "-k1,1nr"], ["--parallel=2", "-S", "200K"]):
        blackbox.run_both(["sort", *arguments, text_file])


def test_gawk(text_file):
    program = (
        "{ count[$2]++; sum[$2] += $1; text[$1 % 1000] = text[$1 % 1000] $2 } "
        "END { n = asorti(count, keys); for (i = 1; i <= n; i++) print keys[i], count[keys[i]], sum[keys[i]]; "
        "for (i = 0; i < 1000; i++) print i, length(text[i]), substr(text[i], 1, 40) }"
    )
    blackbox.run_both(["gawk", program, text_file])


def test_shell_pipeline(text_file):
    blackbox.run_both(
        [
            "bash",
            "-c",
            'for i in $(seq 8); do grep -c "$i" "$0"; done; sed "s/a/bb/g" "$0" | tr b c | md5sum; '
            'xz -T2 -1 < "$0" | xz -d | sha256sum; tar cf - -C "$(dirname "$0")" --mtime=@0 text | sha256sum',
            text_file,
        ],
        timeout=120,
    )

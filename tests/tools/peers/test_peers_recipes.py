"""Protects the recipes: pinned sources, commands in Debian, versions read from the sources."""

import tomllib

import pytest

from hakmem import paths
from hakmem.peers import PeersError, build, recipes

CRATES = {recipe.crate for recipe in recipes.RECIPES.values() if recipe.crate}


def test_every_crate_is_pinned_and_locked():
    pinned = tomllib.loads((recipes.HERE / "Cargo.toml").read_text())["dependencies"]
    locked = build.locked_crates()
    assert set(pinned) == CRATES
    for name, version in pinned.items():
        assert version.startswith("="), f"{name} is not pinned"
        assert locked[name][0].partition("+")[0] == version[1:], f"Cargo.lock is of another {name}"
        assert len(locked[name][1]) == 64, f"{name} has no checksum"


def test_every_command_and_package_has_a_place_in_the_lists():
    lines = (paths.CHECKOUT / "tools/packages/bench.txt").read_text().splitlines()
    listed = {name for line in lines for name in line.split()[0].split("|")}
    for recipe in recipes.RECIPES.values():
        assert set(recipe.needs) <= set(build.DEBIAN_OF)
        if recipe.package:
            assert recipe.package in listed


def test_every_folder_of_a_recipe_is_there():
    for recipe in recipes.RECIPES.values():
        if recipe.recipe_files:
            assert any(file.is_file() for file in (recipes.HERE / recipe.recipe_files).rglob("*"))


@pytest.mark.parametrize("name, file, text, version", [
    ("mimalloc3", "c_src/mimalloc3/include/mimalloc.h", "#define MI_MALLOC_VERSION 30402  // x\n", "3.4.2"),
    ("mimalloc2", "c_src/mimalloc/include/mimalloc.h", "#define MI_MALLOC_VERSION 21012\n", "2.10.12"),
    ("snmalloc", "Cargo.toml", 'name = "snmalloc-sys"\nversion = "0.7.6"\n', "0.7.6"),
    ("rpmalloc", "rpmalloc/CHANGELOG", "1.4.3\n\nFixed.\n\n\n1.4.2\n", "1.4.3"),
    ("jemalloc", "Cargo.toml", 'version = "0.7.1+5.3.1-0-g81034ce1"\n', "5.3.1"),
    ("hardened", "Cargo.toml", 'version = "16.0.2026071503"\n', "16.0.2026071503"),
])
def test_a_version_is_read_from_the_sources(tmp_path, name, file, text, version):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert recipes.RECIPES[name].version(tmp_path) == version
    path.write_text("nothing of the kind\n")
    with pytest.raises(PeersError, match=path.name):
        recipes.RECIPES[name].version(tmp_path)


def test_tcmalloc_s_version_is_its_day(tmp_path):
    (tmp_path / "Cargo.toml").write_text('version = "0.1.14"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "## [Unreleased]\n## [0.1.15](x) - 2025-07-01\n## [0.1.14](x) - 2025-06-16\n")
    assert recipes.RECIPES["tcmalloc"].version(tmp_path) == "2025-06-16"

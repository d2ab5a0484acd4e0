"""Protects temporary blocks: what part of a site's blocks their thread freed before its next N allocations."""

import json

import blackbox
import pytest
from making import run, with_lives, with_own_frees, words
from steady import FLAGS

# The main thread frees soon() at once, late() after three allocations, and lets another thread free away().
SOURCE = """
#include <pthread.h>
#include <stdlib.h>
#define SITE(name) __attribute__((noipa)) static void *name(size_t size) \\
    { void *volatile block = malloc(size); return block; }
SITE(soon) SITE(late) SITE(away) SITE(other)
static void *frees(void *block) { free(block); return NULL; }
int main(void)
{
    for (int i = 0; i < 3000; i++) {
        void *block = late(400);
        for (int n = 0; n < 3; n++)
            free(soon(n * 1000 + 50));
        free(block);
    }
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, frees, away(70000)) || pthread_join(thread, NULL))
            return 1;
    }
    return other(1) == NULL;
}
"""


def test_the_shares_of_a_site(tmp_path):
    path = with_own_frees().write(tmp_path / "own")
    found = {site["name"]: site["temporary"] for site in json.loads(run(path, "--json").stdout)["sites"]}
    assert found == {"keep": None, "main": None, "fill": {
        "freed": 110, "by_own_thread": 88, "within": {"1": 55, "2": 55, "16": 66, "256": 66, "4096": 66}}}
    assert words(run(path, "--temporary").stdout)[-1] == "110 50.0 % 50.0 % 60.0 % 60.0 % 60.0 % 20.0 % 20.0 % fill"
    done = run(with_lives().write(tmp_path / "lives"), "--temporary")
    assert done.exit_code == 1 and not done.stdout and done.stderr


@pytest.mark.parametrize("rate", [1, 2048])
def test_a_program(library, tmp_path, rate):
    """The equalities hold for every sample, whichever blocks become samples. Of the least likely blocks, late()'s 3,000
    of 400 bytes, each is one with a chance of 0.18: their estimate is 3,000 with a standard deviation of 120."""
    source, profile = tmp_path / "soon.c", tmp_path / "own.pb.gz"
    source.write_text(SOURCE)
    program = blackbox.compile_program(source, tmp_path / "soon", "-pthread", *FLAGS)
    done = blackbox.run([program], preload=library, env={
        "HAKMEM_HEAP_PROFILE": str(profile), "HAKMEM_HEAP_PROFILE_RATE": str(rate)})
    assert done.status == 0, done.report()
    rows = {site["name"]: site["temporary"] for site in json.loads(run(profile, "--json").stdout)["sites"]
            if site["temporary"]}
    soon, late, away = rows["soon"], rows["late"], rows["away"]
    # A site's freed blocks are a sum over lifetimes, each of them rounded.
    assert soon["freed"] > 1000 and soon["freed"] == pytest.approx(soon["by_own_thread"], abs=16)
    assert soon["by_own_thread"] == soon["within"]["1"]
    assert late["freed"] > 300 and late["freed"] == pytest.approx(late["by_own_thread"], abs=16)
    assert late["within"]["2"] == 0 and late["by_own_thread"] == late["within"]["16"]
    assert away["freed"] >= 40 and away["by_own_thread"] == 0

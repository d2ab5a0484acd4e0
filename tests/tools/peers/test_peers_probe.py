"""Protects the check of a library: HAKMEM passes, and libraries with each fault fail."""

import pytest

from hakmem.peers import PeersError, probe
from hakmem.peers.steps import Steps

# A library that serves everything by the system's malloc. A test leaves a part out or breaks it.
WHOLE = r"""
#include <stddef.h>
#include <errno.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);
#ifndef NO_FREE
void free(void *block) { __libc_free(block); }
#endif
void *malloc(size_t size) { return __libc_malloc(size); }
#ifdef LEAVES_A_BYTE
void *calloc(size_t count, size_t size)
{
    char *block = __libc_calloc(count, size + 1);
    block[count * size - 1] = 1;
    return block;
}
#else
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
#endif
#ifdef LOSES_BLOCKS
void *realloc(void *block, size_t size) { __libc_free(block); return __libc_calloc(1, size); }
#else
void *realloc(void *block, size_t size) { return __libc_realloc(block, size); }
#endif
#ifdef MISALIGNED
void *aligned_alloc(size_t alignment, size_t size) { (void)alignment; return __libc_malloc(size); }
#else
void *aligned_alloc(size_t alignment, size_t size) { return __libc_memalign(alignment, size); }
#endif
int posix_memalign(void **block, size_t alignment, size_t size)
{
    *block = __libc_memalign(alignment, size);
    return *block ? 0 : ENOMEM;
}
#ifndef NO_OPERATORS
void *_Znwm(size_t size) { return __libc_malloc(size); }
void *_Znam(size_t size) { return __libc_malloc(size); }
void _ZdlPv(void *block) { __libc_free(block); }
void _ZdaPv(void *block) { __libc_free(block); }
#endif
#ifdef CRASHES
__attribute__((constructor)) static void crash(void) { __builtin_trap(); }
#endif
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    return probe.compile_probe(Steps("probe", folder / "log"), folder)


@pytest.fixture
def make(tmp_path, compiled):
    def make_library(*flags):
        source = tmp_path / "peer.c"
        source.write_text(WHOLE)
        return compiled(source, "-fno-builtin", *flags, shared=True)
    return make_library


def check(program, library, tmp_path):
    return probe.check_library(Steps("peer", tmp_path / "log"), program, library, {})


def test_hakmem_serves_everything(program, library, tmp_path):
    serves = check(program, library, tmp_path)
    assert set(probe.NEEDED) < set(serves)
    assert {"memalign", "malloc_usable_size", "_ZdlPvm", "_ZnwmSt11align_val_t"} < set(serves)


def test_what_a_library_leaves_to_others_is_not_what_it_serves(program, make, tmp_path):
    assert set(check(program, make(), tmp_path)) == set(probe.NEEDED)


@pytest.mark.parametrize("flag, message", [
    ("-DNO_FREE", r"\bfree\b.*libc\.so"),
    ("-DNO_OPERATORS", r"\b_Znwm\b"),
    ("-DLEAVES_A_BYTE", r"\bcalloc\b"),
    ("-DMISALIGNED", r"\baligned_alloc\b"),
    ("-DLOSES_BLOCKS", r"\brealloc\b"),
    ("-DCRASHES", "signal 4"),
])
def test_a_fault_is_found(program, make, tmp_path, flag, message):
    with pytest.raises(PeersError, match=message):
        check(program, make(flag), tmp_path)


def test_a_library_that_cannot_be_loaded(program, tmp_path):
    library = tmp_path / "libnone.so"
    library.write_text("not ELF")
    with pytest.raises(PeersError, match=r"\bmalloc\b.*libc"):
        check(program, library, tmp_path)

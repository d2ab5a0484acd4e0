"""Protects tools/memory_orders.py: it finds atomic objects and accesses whose memory order no comment states."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import memory_orders  # noqa: E402


@pytest.fixture
def found(tmp_path):
    """Returns what the check finds in a tree with the given files of src/."""

    def check(**files):
        for name, text in files.items():
            path = tmp_path / "src" / "pool" / name.replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return [f"{where}: {what}" for where, what in memory_orders.check_orders(tmp_path)]

    return check


def names_found(messages):
    """The objects that lack a comment."""
    return [message.split()[1] for message in messages if "has no comment" in message]


@pytest.mark.parametrize("declaration, names", [
    ("static _Atomic uint32_t hits;", ["hits"]),
    ("static _Atomic bool one, two;", ["one", "two"]),
    ("static _Atomic uint64_t words[WORDS][4] = { 0 };", ["words"]),
    ("struct heap {\n    struct slab *_Atomic pending;\n};", ["pending"]),
    ("static _Atomic(handler) current;", ["current"]),
    ("static _Atomic(_Atomic uint64_t *) table;", ["table"]),
    ("static void (*_Atomic at_exit)(void *);", ["at_exit"]),
    ("_Alignas(64) _Atomic size_t apart;", ["apart"]),
    ("HAK_DATA _Atomic size_t sum;", ["sum"]),
    ("static _Atomic uint32_t hits; /* how often */", ["hits"]),
    ("static _Atomic uint32_t hits; /* Order: relaxed */", ["hits"]),  # no reason
    ("static _Atomic uint32_t hits; /* Order: as usual */", ["hits"]),  # no order
    ("/* Order: relaxed; a sum. */\n\nstatic _Atomic uint32_t hits;", ["hits"]),
    ("struct a {\n    /* Order: relaxed; a sum. */\n    _Atomic int x;\n};\nstatic _Atomic int hits;", ["hits"]),
    ('static _Atomic int hits = sizeof "/* Order: relaxed; a sum */";', ["hits"]),
])
def test_an_object_without_an_order(found, declaration, names):
    messages = found(a_c=f"{declaration}\n")
    assert names_found(messages) == names == [message.split()[1] for message in messages]


@pytest.mark.parametrize("declaration", [
    "static _Atomic uint32_t hits; /* Order: relaxed; a sum */",
    "/* How often. Order:\n * relaxed; a sum. */\nstatic _Atomic uint32_t hits;\nstatic _Atomic uint32_t misses;",
    "/* Order: any; hints. */\nstruct a {\n    int plain; /* of the thread */\n    _Atomic int x, y;\n};",
    "struct a {\n    /* Order of x: any; hints. */\n    _Atomic int x;\n    struct {\n        int z;\n    };\n};",
    "HAK_DATA_HERE _Atomic size_t sum;",  # the header has the comment
    "void wait(_Atomic uint32_t *word, uint32_t expected);",
    "static _Atomic uint8_t *state_of(struct heap *heap);",
    "void f(void)\n{\n    struct leaf *_Atomic *place = g((_Atomic uint32_t *)(void *)h);\n}",
    "/* _Atomic int words; */",
])
def test_what_needs_no_more(found, declaration):
    assert found(a_c=f"{declaration}\n") == []


ACCESS = "{held}\nvoid f(void)\n{{\n    {access};\n}}\n"


@pytest.mark.parametrize("order, access, names", [
    ("relaxed", "atomic_store_explicit(&x, 1, memory_order_release)", "x with release"),
    ("release", "atomic_load_explicit(&x, memory_order_acquire)", "x with acquire"),
    ("release", "atomic_fetch_add_explicit(&x, 1, memory_order_acq_rel)", "x with acq_rel"),
    ("acquire, release", "atomic_load_explicit(&x, memory_order_seq_cst)", "x with seq_cst"),
    ("relaxed", "atomic_load(&x)", "x with default"),
    ("relaxed", "atomic_exchange(&heap->x, 1)", "x with default"),
    ("relaxed", "atomic_exchange_explicit(&x, 1,\n        memory_order_acquire)", "x with acquire"),
    ("relaxed", "__atomic_store_n(&a[i].x[j], 1, __ATOMIC_RELEASE)", "x with release"),
    ("release", "__atomic_store_n(last ? &last->next : &x, 1, __ATOMIC_RELEASE)", "next with release"),
])
def test_an_access_whose_order_is_not_stated(found, order, access, names):
    messages = found(a_c=ACCESS.format(held=f"static _Atomic int x; /* Order: {order}; because */", access=access))
    assert messages == [f"src/pool/a.c:4: accesses {names}, which no comment `Order: ...` at its declaration names"]


@pytest.mark.parametrize("order, access", [
    ("release in g, acquire", "atomic_fetch_add_explicit(&x, 1, memory_order_acq_rel)"),
    ("any", "atomic_fetch_add_explicit(&x, 1, memory_order_seq_cst)"),
    ("any", "atomic_load(&x)"),
    ("release", "atomic_store(&x, 1)"),
    ("relaxed", "atomic_load_explicit(&x, memory_order_relaxed)"),
    ("relaxed", "/* Release: what g wrote. */\n\n    atomic_store_explicit(&x, 1, memory_order_release)"),
    ("relaxed", "atomic_store_explicit(&x, 1, memory_order_release) /* Release: what g wrote. */"),
    ("relaxed", "/* Acquire: g. */\n    atomic_thread_fence(memory_order_acquire)"),
])
def test_an_access_whose_order_is_stated(found, order, access):
    assert found(a_c=ACCESS.format(held=f"static _Atomic int x; /* Order: {order}; because */", access=access)) == []


def test_a_comment_too_far_above_an_access(found):
    held = "static _Atomic int x; /* Order: relaxed; a sum */"
    access = "/* Release: what g wrote. */\n\n\n\n    atomic_store_explicit(&x, 1, memory_order_release)"
    assert len(found(a_c=ACCESS.format(held=held, access=access))) == 1


def test_a_fence_without_a_comment(found):
    messages = found(a_c=ACCESS.format(held="", access="atomic_thread_fence(memory_order_acquire)"))
    assert messages == ["src/pool/a.c:4: a fence without a comment that names its partner"]


def test_a_header_states_the_order_for_all_files(found):
    source = ACCESS.format(held="", access="__atomic_store_n(&ring->head, 1, __ATOMIC_RELEASE)")
    assert len(found(a_c=source)) == 1
    assert found(a_h="struct ring {\n    uint16_t head, tail; /* Order: release, for a fork */\n};\n", a_c=source) == []


def test_the_tree():
    assert list(memory_orders.check_orders(ROOT)) == []

"""Protects tools/memory_orders.py: it finds atomic objects and accesses whose memory order no comment states."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import memory_orders  # noqa: E402


@pytest.fixture
def found(tmp_path):
    """Returns what the check finds in a tree with the given files of src/, each with its line."""

    def check(**files):
        for name, text in files.items():
            path = tmp_path / "src" / "pool" / name.replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return [(where.rpartition(":")[2], what) for where, what in memory_orders.check_orders(tmp_path)]

    return check


@pytest.mark.parametrize("declaration, name", [
    ("static _Atomic uint32_t hits;", "hits"),
    ("struct heap {\n    struct slab *_Atomic pending;\n};", "pending"),
    ("static void (*_Atomic at_exit)(void *);", "at_exit"),
    ("HAK_DATA _Atomic size_t sum;", "sum"),
    ("static _Atomic uint32_t hits; /* Order: relaxed */", "hits"),  # no reason
    ("static _Atomic uint32_t hits; /* Order: as usual */", "hits"),  # no order
    ("/* Order: relaxed; a sum. */\n\nstatic _Atomic uint32_t hits;", "hits"),
])
def test_an_object_without_an_order(found, declaration, name):
    ((_, what),) = found(a_c=f"{declaration}\n")
    assert name in what.split()


@pytest.mark.parametrize("declaration", [
    "static _Atomic uint32_t hits; /* Order: relaxed; a sum */",
    "/* How often. Order:\n * relaxed; a sum. */\nstatic _Atomic uint32_t hits;\nstatic _Atomic uint32_t misses;",
    "HAK_DATA_HERE _Atomic size_t sum;",  # the header has the comment
    "/* _Atomic int words; */",
])
def test_what_needs_no_more(found, declaration):
    assert found(a_c=f"{declaration}\n") == []


ACCESS = "{held}\nvoid f(void)\n{{\n    {access};\n}}\n"


@pytest.mark.parametrize("order, access, stated", [
    ("relaxed", "atomic_store_explicit(&x, 1, memory_order_release)", "x"),
    ("release", "atomic_fetch_add_explicit(&x, 1, memory_order_acq_rel)", "x"),
    ("relaxed", "atomic_load(&x)", "x"),
    ("release", "__atomic_store_n(last ? &last->next : &x, 1, __ATOMIC_RELEASE)", "next"),
    ("release in g, acquire", "atomic_fetch_add_explicit(&x, 1, memory_order_acq_rel)", None),
    ("any", "atomic_load(&x)", None),
    ("relaxed", "/* Release: what g wrote. */\n\n    atomic_store_explicit(&x, 1, memory_order_release)", None),
    ("relaxed", "/* Release: far. */\n\n\n\n    atomic_store_explicit(&x, 1, memory_order_release)", "x"),
    ("relaxed", "atomic_thread_fence(memory_order_acquire)", "fence"),
])
def test_an_access(found, order, access, stated):
    """stated: what the check names, or None."""
    messages = found(a_c=ACCESS.format(held=f"static _Atomic int x; /* Order: {order}; because */", access=access))
    assert len(messages) == (stated is not None)
    assert all(stated in what.split() for _, what in messages)


def test_a_header_states_the_order_for_all_files(found):
    source = ACCESS.format(held="", access="__atomic_store_n(&ring->head, 1, __ATOMIC_RELEASE)")
    assert [line for line, _ in found(a_c=source)] == ["4"]
    assert found(a_h="struct ring {\n    uint16_t head, tail; /* Order: release, for a fork */\n};\n", a_c=source) == []

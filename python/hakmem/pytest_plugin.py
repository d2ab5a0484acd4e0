"""A pytest plugin that limits how much memory a test may take and leave allocated, if Python runs on HAKMEM.

    @pytest.mark.limit_hakmem("10 MB")         fails above 10 MB of memory resident beyond what was at its start
    @pytest.mark.limit_hakmem_leaks("100 KB")  fails when more stays allocated than that, and names the sites
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

MARKS = (
    "limit_hakmem(most): fail the test if its resident memory rises by more than `most` above that at its start",
    "limit_hakmem_leaks(most, warmups=0): fail the test if more than `most` of what it allocated is in use at its end; "
    "it is called `warmups` times before it counts")
ABSENT = "hakmem_absent"
SITES = 5
CLEAR_REFS, RESET_PEAK = Path("/proc/self/clear_refs"), "5"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the plugin's setting."""
    parser.addini(ABSENT, "what to do with tests that have a limit if Python does not run on HAKMEM: fail or skip",
                  default="fail")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marks."""
    for text in MARKS:
        config.addinivalue_line("markers", text)


def most_of(mark: pytest.Mark) -> int:
    """Returns the bytes that the mark allows."""
    from hakmem.amount import number_of

    value = mark.args[0] if len(mark.args) == 1 else None
    number = value if isinstance(value, int) and not isinstance(value, bool) else number_of(value) if isinstance(
        value, str) else None
    if number is None or number < 0 or set(mark.kwargs) - ({"warmups"} if mark.name == "limit_hakmem_leaks" else set()):
        raise pytest.UsageError(f"{mark.name}{mark.args}: one size is wanted, such as '10 MB'")
    return number


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, None]:
    """Measures only the test itself: what fixtures take does not count."""
    peak, leaks = (pyfuncitem.get_closest_marker(name) for name in ("limit_hakmem", "limit_hakmem_leaks"))
    if peak is None and leaks is None:
        yield
        return
    refuse_absent(pyfuncitem.config)
    bounds: list[Peak | Leaks] = [Peak(most_of(peak))] if peak else []
    if leaks:
        for _ in range(int(leaks.kwargs.get("warmups", 0))):
            pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames})
        bounds.append(Leaks(most_of(leaks)))
    for bound in bounds:
        bound.begin()
    outcome = yield
    said = [text for bound in reversed(bounds) for text in [bound.end()] if text]
    if said and outcome.excinfo is None:
        outcome.force_exception(pytest.fail.Exception("\n".join(said), pytrace=False))


def refuse_absent(config: pytest.Config) -> None:
    """Fails or skips the test if Python runs on another malloc."""
    from hakmem.inside import NotActive, library

    try:
        library()
    except NotActive as error:
        if config.getini(ABSENT) == "skip":
            pytest.skip(str(error))
        pytest.fail(f"{error}. `{ABSENT} = skip` in pytest's settings skips the tests that need it", pytrace=False)


def resident(name: str) -> int:
    """Returns VmRSS or VmHWM of this process in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    raise OSError(f"/proc/self/status has no {name}")


class Peak:
    """Limits resident memory. The kernel keeps the peak, so nothing between two looks is missed."""

    def __init__(self, most: int) -> None:
        self.most, self.start = most, 0

    def begin(self) -> None:
        """Starts measuring."""
        from hakmem.inside import collect

        gc.collect()
        collect()  # otherwise free memory that waits for reuse would hide what the test takes
        try:
            CLEAR_REFS.write_text(RESET_PEAK)
        except OSError as error:
            pytest.fail(f"limit_hakmem: the kernel's peak cannot be reset: {CLEAR_REFS}: {error.strerror}",
                        pytrace=False)
        self.start = resident("VmRSS")

    def end(self) -> str | None:
        """Returns what is wrong, or None."""
        from hakmem.heap.show import value_text

        taken = max(resident("VmHWM") - self.start, 0)
        if taken <= self.most:
            return None
        return f"the test took {value_text(taken, 'bytes')} of memory, and its limit is {value_text(self.most, 'bytes')}"


class Leaks:
    """Limits what stays in use of the test's allocations. Samples every block, by site."""

    def __init__(self, most: int) -> None:
        self.most = most

    def begin(self) -> None:
        """Starts measuring."""
        from hakmem.inside import EVERY_BLOCK, profile

        gc.collect()
        self.taking = profile(EVERY_BLOCK)
        self.heap = self.taking.__enter__()

    def end(self) -> str | None:
        """Returns what is wrong, or None."""
        from hakmem.heap.show import value_text

        gc.collect()
        self.taking.__exit__(None, None, None)
        left = self.heap.in_use
        if left <= self.most:
            return None
        sites = self.heap.sites()
        lines = [
            f"  {value_text(size, 'bytes'):>10}  {name}  {where}" for size, name, where in sites[:SITES] if size > 0
        ]
        if len(sites) > SITES:
            lines.append(f"  and {len(sites) - SITES} more sites")
        return "\n".join([
            f"the test left {value_text(left, 'bytes')} allocated, and its limit is {value_text(self.most, 'bytes')}:",
            *lines
        ])

"""Protects what is seen of scopes from outside the process: their names, bytes, caps and refusals."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

import blackbox
import machine
from hakmem.live import ProcessMemory, find, snapshot
from hakmem.live.prometheus import prometheus_text


@pytest.fixture(scope="module")
def program(compiled):
    library = blackbox.LIBRARY
    return compiled(blackbox.REPOSITORY / "tests/process/stats/scopes.c", f"-I{blackbox.INCLUDE_FOLDER}", library,
                    f"-Wl,-rpath,{library.parent}")


@machine.needs("ptrace")
def test_scopes_have_names_and_figures(program):
    process = blackbox.start([program])
    try:
        assert process.stdout.readline() == "ready\n"
        memory = ProcessMemory(process.pid)
        shot = snapshot(memory, find(memory))
    finally:
        process.communicate("\n", timeout=blackbox.HANG)
    scopes = {row.name: row for row in shot.scopes}
    assert set(scopes) == {"alice", "bob"}
    assert scopes["bob"].live_bytes >= 700000 and scopes["bob"].refused == scopes["bob"].cap_bytes == 0
    assert scopes["alice"].live_bytes == scopes["bob"].live_bytes + 8 * 1024
    assert (scopes["alice"].cap_bytes, scopes["alice"].refused) == (65536, 2)
    assert scopes["alice"].peak_bytes == scopes["alice"].live_bytes
    names = {row.heap: row.name for row in shot.threads}
    assert {names[row.heap] for row in shot.scopes} == {"scope alice", "scope bob"}
    found = {(sample.name, sample.labels["scope"]): sample.value
             for family in text_string_to_metric_families(prometheus_text(shot))
             for sample in family.samples if "scope" in sample.labels}
    assert found["hakmem_scope_live_bytes", "bob"] == scopes["bob"].live_bytes
    assert found["hakmem_scope_refused", "alice"] == 2

"""Prints the memory that servers.compare() measured."""

import servers


def pytest_terminal_summary(terminalreporter):
    if not servers.MEASURED:
        return
    terminalreporter.write_line("memory in MiB (peak, at the end)    system's allocator          HAKMEM")
    for name, plain, ours in servers.MEASURED:
        figures = "".join(f"{peak / 1024:10.1f} {last / 1024:9.1f}" for peak, last in (plain, ours))
        terminalreporter.write_line(f"{name:34}{figures}")

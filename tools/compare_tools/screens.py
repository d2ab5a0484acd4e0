"""Pictures: of a terminal and of heaptrack's window on an X screen of their own, and of pages in Chromium."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from programs import wait_for

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from chromium import chromium  # noqa: E402

if TYPE_CHECKING:
    from selenium.webdriver import Chrome as WebDriver

LARGEST = 150_000
COLORS = 64
Action = str | tuple[int, int]  # a key, or a place to click
# Of a picture of a page, in pixels of CSS.
WIDTH, HEIGHT = 960, 600
# Moves jeprof's graph, which its page shows from the top, to its end, where the functions are that allocate.
TO_THE_END = """
const graph = document.getElementById("viewport"), page = document.documentElement;
graph.setAttribute("transform", "");
const box = graph.getBBox(), scale = Math.min(1.25, page.clientWidth / box.width);
const x = (page.clientWidth - box.width * scale) / 2 - box.x * scale;
graph.setAttribute("transform",
    `translate(${x} ${page.clientHeight - (box.y + box.height) * scale - 4}) scale(${scale})`);
"""


def shrink(path: Path, trimmed: bool = False) -> None:
    """Gives the picture a palette, and refuses it if it is still too large. trimmed: cuts its empty borders off."""
    if trimmed:
        subprocess.run(["convert", path, "-trim", "-bordercolor", "white", "-border", "8", "+repage", path], check=True)
    subprocess.run(["pngquant", "--force", "--skip-if-larger", "--speed", "1", "--strip", "--output", path, str(COLORS),
                    path], check=True)
    size = path.stat().st_size
    print(f"  {path.name}: {size:,} bytes", flush=True)
    if size > LARGEST:
        raise ValueError(f"{path}: {size} bytes")


@contextmanager
def screen(home: Path) -> Iterator[dict[str, str]]:
    """An X screen. Gives the environment of programs that draw on it. They keep their settings in the folder `home`."""
    reader, writer = os.pipe()
    with subprocess.Popen(["Xvfb", "-displayfd", str(writer), "-screen", "0", "1600x1100x24", "-nolisten", "tcp"],
                          pass_fds=[writer], stderr=subprocess.DEVNULL) as server:
        os.close(writer)
        try:
            with os.fdopen(reader) as file:
                number = file.readline().strip()
            home.mkdir(mode=0o700, exist_ok=True)
            yield {**os.environ, "DISPLAY": f":{number}", "HOME": str(home), "XDG_RUNTIME_DIR": str(home),
                   "XDG_CONFIG_HOME": str(home)}
        finally:
            server.terminate()


def found_window(env: dict[str, str], pattern: str) -> str | None:
    """The first window with this name that is shown, or None."""
    said = subprocess.run(["xdotool", "search", "--onlyvisible", "--name", pattern], env=env, capture_output=True,
                          text=True, check=False).stdout.split()
    return said[0] if said else None


def take(env: dict[str, str], window: str, path: Path) -> None:
    subprocess.run(["import", "-window", window, path], env=env, check=True)


def pixels(env: dict[str, str]) -> bytes:
    return subprocess.run(["import", "-window", "root", "ppm:-"], env=env, check=True, capture_output=True).stdout


def settle(env: dict[str, str]) -> None:
    """Waits until the screen no longer changes."""
    before = b""
    while (now := pixels(env)) != before:
        before = now
        time.sleep(1)


def act(env: dict[str, str], action: Action) -> None:
    """Clicks at (x, y), or presses the key of a name, until that has changed the screen."""
    before = pixels(env)
    words = ["key", action] if isinstance(action, str) else ["mousemove", *map(str, action), "click", "1"]

    def changed() -> bool:
        subprocess.run(["xdotool", *words], env=env, check=True)
        time.sleep(4)
        return pixels(env) != before

    wait_for(f"what {action} does", changed)
    settle(env)


def terminal(env: dict[str, str], words: Sequence[object], path: Path, shown: str, columns: int = 118,
             rows: int = 56) -> None:
    """A picture of xterm after a command. shown: the command as the picture has it."""
    with tempfile.TemporaryDirectory() as folder:
        done, script = Path(folder, "done"), Path(folder, "script")
        # The cursor is hidden.
        script.write_text(f"printf '\\033[?25l\\033[1m$ %s\\033[0m\\n' {shlex.quote(shown)}\n"
                          f"{shlex.join(map(str, words))}\ntouch {done}\nsleep 600\n")
        with subprocess.Popen(["xterm", "-title", "picture", "-fa", "DejaVu Sans Mono", "-fs", "10", "-geometry",
                               f"{columns}x{rows}", "-bg", "white", "-fg", "black", "+sb", "-b", "8", "-e", "bash",
                               script], env={**env, "COLUMNS": str(columns), "TERM": "xterm-256color"}) as process:
            try:
                wait_for("the command", done.exists)
                window = wait_for("the window", lambda: found_window(env, "^picture$"))
                assert window
                settle(env)
                take(env, window, path)
            finally:
                process.terminate()
    shrink(path, trimmed=True)


def heaptrack_window(env: dict[str, str], recording: Path, path: Path, actions: Sequence[Action]) -> None:
    """A picture of heaptrack's window after clicks and keys."""
    with subprocess.Popen(["heaptrack_gui", recording], env=env, stderr=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL) as process:
        try:
            window = wait_for("heaptrack's window", lambda: found_window(env, "^Heaptrack"))
            assert window
            # A pointer over a bar would show its tooltip.
            away = ["mousemove", "1590", "1090"]
            subprocess.run(["xdotool", *away, "windowmove", window, "0", "0", "windowsize", "--sync", window,
                            str(WIDTH), str(HEIGHT), "windowfocus", window], env=env, check=True)
            settle(env)
            for action in actions:
                act(env, action)
            subprocess.run(["xdotool", *away], env=env, check=True)
            settle(env)
            take(env, window, path)
        finally:
            process.kill()
    shrink(path)


@contextmanager
def browser() -> Iterator[WebDriver]:
    """Chromium in light mode."""
    with tempfile.TemporaryDirectory() as profile, chromium(profile) as driver:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                               {"features": [{"name": "prefers-color-scheme", "value": "light"}]})
        yield driver


def page(driver: WebDriver, address: str, path: Path, script: str = "", height: int = HEIGHT,
         trimmed: bool = False) -> None:
    """A picture of a page after a script. trimmed: without empty borders."""
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False})
    driver.get(address)
    time.sleep(1.5)
    if script:
        driver.execute_script(script)
        time.sleep(0.5)
    driver.save_screenshot(str(path))
    shrink(path, trimmed)

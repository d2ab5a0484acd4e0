"""Makes docs/images/serve.png: HAKMEM_LIB=... build/venv/bin/python tests/tools/serve/picture.py."""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import blackbox  # noqa: E402
from chromium import chromium  # noqa: E402
from serving import looks, serving, until  # noqa: E402

PICTURE = blackbox.REPOSITORY / "docs/images/serve.png"
LOOKS = 60
# Three threads fill lists and drop them.
PROGRAM = """
import random, threading, time
def work():
    while True:
        kept = [bytes(random.randrange(10, 3000)) for _ in range(20000)]
        time.sleep(random.random())
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
large = bytearray(30 << 20)
time.sleep(600)
"""


def main():
    process = subprocess.Popen(["/usr/bin/python3", "-c", PROGRAM],
                               env=blackbox.environment({"PYTHONMALLOC": "malloc"}, preload=blackbox.LIBRARY))
    try:
        until(lambda: str(blackbox.LIBRARY) in Path(f"/proc/{process.pid}/maps").read_text(), "the library")
        with serving(process.pid, "--interval", "0.5") as server, tempfile.TemporaryDirectory() as profile, \
                chromium(profile, height=1900) as browser:
            browser.get(server.page)
            until(lambda: browser.execute_script("return document.getElementById('profile-switch').textContent"),
                  "the switch")
            browser.execute_script("document.getElementById('profile-switch').click()")
            until(lambda: looks(browser) >= LOOKS, f"{LOOKS} looks", 300)
            browser.save_screenshot(str(PICTURE))
    finally:
        process.kill()
        process.wait()


main()

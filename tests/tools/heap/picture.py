"""Makes docs/images/timeline.png: HAKMEM_LIB=... build/venv/bin/python tests/tools/heap/picture.py."""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import blackbox  # noqa: E402
from chromium import chromium  # noqa: E402

PICTURE = blackbox.REPOSITORY / "docs/images/timeline.png"
# Buffers and sessions that stay, a cache that is dropped now and then, and lines of a log.
PROGRAM = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *kept[1 << 16], *cache[64], *lines[256];
static unsigned count, round_;
__attribute__((noinline)) static void *request_buffer(void) { return memset(malloc(24000), 1, 24000); }
__attribute__((noinline)) static void *session_new(void) { return memset(malloc(6000), 2, 6000); }
__attribute__((noinline)) static void *cache_grow(void) { return memset(malloc(400000), 3, 400000); }
__attribute__((noinline)) static void *log_line(void) { return memset(malloc(16000), 4, 16000); }
__attribute__((noinline)) static void refresh(void)
{
    cache[round_ % 40] = cache_grow();
    for (unsigned i = 0; round_ % 40 == 39 && i < 40; i++) {
        free(cache[i]);
        cache[i] = NULL;
    }
}
__attribute__((noinline)) static void serve(void)
{
    kept[count++] = request_buffer();
    for (unsigned i = 0; i < 4; i++)
        kept[count++] = session_new();
    free(lines[round_ % 256]);
    lines[round_ % 256] = log_line();
}
int main(void)
{
    for (; count < (1 << 16) - 64; round_++) {
        for (unsigned i = 0; i < 3; i++)
            serve();
        refresh();
        usleep(20000);
    }
    return 0;
}
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        source, page = Path(folder, "server.c"), Path(folder, "page.html")
        source.write_text(PROGRAM)
        program = blackbox.compile_program(source, Path(folder, "server"))
        process = subprocess.Popen([program], env=blackbox.environment(
            {"HAKMEM_HEAP_PROFILE": f"{folder}/heap.gz", "HAKMEM_HEAP_PROFILE_RATE": "16384"},
            preload=blackbox.LIBRARY))
        try:
            done = blackbox.run([sys.executable, "-m", "hakmem", "heap", "--timeline", "--seconds", "12", "--every",
                                 "0.25", "--html", page, str(process.pid)], timeout=120)
            assert done.status == 0, done.report()
        finally:
            process.kill()
            process.wait()
        with chromium(Path(folder, "browser"), height=1500) as browser:
            browser.get(page.as_uri())
            assert browser.execute_script("return document.documentElement.dataset.drawn") == "yes"
            browser.save_screenshot(str(PICTURE))


main()

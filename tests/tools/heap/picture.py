"""Makes docs/images/flame.png and timeline.png: HAKMEM_LIB=... build/venv/bin/python tests/tools/heap/picture.py."""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import blackbox  # noqa: E402
from chromium import chromium  # noqa: E402
from making import Making, named, run  # noqa: E402
from pages import frames, highlighted, moving, wait_for  # noqa: E402

PICTURES = blackbox.REPOSITORY / "docs/images"
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


def server_like():
    """A small server's profile, deep and wide enough for a picture."""
    making = Making()
    top = ("main:210", "event_loop:88")
    request = ("handle_request:131", "connection_ready:57", *reversed(top))
    source = "/src/server/server.cc"

    def add(inner, outer, objects, size, kept, file=source):
        making.stack(named(*inner, file=file) + named(*outer, file=source), objects, objects * size, kept, kept * size)
    add(("cache::Table::grow:64", "cache::Table::insert:41", "store_page:12"), request, 900, 65536, 300,
        "/src/server/cache.cc")
    add(("cache::Entry::Entry:20", "cache::Table::insert:43", "store_page:12"), request, 80000, 192, 52000,
        "/src/server/cache.cc")
    add(("json::Value::append:301", "json::parse_array:210", "json::parse:77"), request, 700000, 64, 21000,
        "/src/json/parse.cc")
    add(("json::Value::set:322", "json::parse_object:180", "json::parse_array:215", "json::parse:77"), request, 400000,
        96, 26000, "/src/json/parse.cc")
    add(("json::string_of:119", "json::parse_object:176", "json::parse:77"), request, 900000, 48, 9000,
        "/src/json/parse.cc")
    add(("z_inflate_init:55", "decompress:31"), request, 30000, 43776, 42, "/src/zip/inflate.c")
    add(("log::Line::format:29", "log::write:13"), request, 2000000, 256, 64, "/src/log/log.cc")
    add(("tls_session_new:402", "tls_accept:377", "accept_connection:50"), tuple(reversed(top)), 6000, 9216, 410,
        "/src/tls/session.c")
    add(("read_config:33", "startup:18"), ("main:201",), 120, 2048, 120)
    add(("thread_start:9",), (), 16, 131072, 8, "/src/server/pool.cc")
    return making


def make_flame():
    """A flame graph in which a name is searched."""
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder, "browser")) as browser:
        page = Path(folder, "page.html")
        assert run(server_like().write(Path(folder, "server.pb")), "--html", page).exit_code == 0
        browser.get(page.as_uri())
        wait_for(lambda: len(frames(browser)) > 20, "the bars")
        browser.find_element("id", "search").send_keys("^cache::")
        wait_for(lambda: "cache::Table::insert" in highlighted(browser) and not moving(browser), "what was searched")
        browser.save_screenshot(str(PICTURES / "flame.png"))


def make_timeline():
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
            browser.save_screenshot(str(PICTURES / "timeline.png"))


make_flame()
make_timeline()

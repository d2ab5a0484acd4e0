"""/debug/pprof/: the heap profiles of the processes, where and as Go programs serve theirs, for what reads those.

Of several processes ?pid=PID names one, or /PID before the address.
"""

import asyncio

from aiohttp import web

from hakmem.heap.file import ProfileError
from hakmem.heap.outside import as_text, difference, look, packed, symbols_of, whole
from hakmem.heap.symbolize import Strings, symbolize
from hakmem.live.descriptor import find
from hakmem.live.memory import LiveError, NoProcess
from hakmem.live.sites import ProfileOff, read_sites
from hakmem.serve.answers import PPROF, WATCHES, fresh, wanted

# What each profile shows when nothing else is asked for.
DEFAULTS = {"heap": "inuse_space", "allocs": "alloc_space"}
# A difference is waited for no longer.
SECONDS_MOST = 3600


def routes():
    return [route for before in ("", r"/{pid:\d+}") for route in (
        web.get(f"{before}{PPROF}/", show_index),
        web.get(f"{before}{PPROF}/{{name:{'|'.join(DEFAULTS)}}}", show_profile),
        web.get(f"{before}{PPROF}/symbol", show_symbols), web.post(f"{before}{PPROF}/symbol", show_symbols))]


async def show_profile(request):
    watch = selected(request)
    if watch is None:
        raise web.HTTPBadRequest(
            text=f"which process? Add ?pid=PID; served are {', '.join(map(str, request.app[WATCHES]))}")
    kind = DEFAULTS[request.match_info["name"]]
    seconds, debug, symbols = (number(request, name) for name in ("seconds", "debug", "symbols"))
    if "seconds" in request.query and not 1 <= seconds <= SECONDS_MOST:
        raise web.HTTPBadRequest(text=f"seconds={seconds}: from 1 to {SECONDS_MOST} can be waited for")
    if debug and seconds:
        raise web.HTTPBadRequest(text="seconds and debug do not go together")
    before = await outcome(look_at, watch) if seconds else None
    if seconds:
        await asyncio.sleep(seconds)
    if debug:
        return text_answer(await outcome(lambda: as_text(look_at(watch))))
    data = await outcome(made, watch, before, kind, symbols)
    return fresh(web.Response(body=data, content_type="application/octet-stream", headers={
        "Content-Disposition": f'attachment; filename="{request.match_info["name"]}-{watch.pid}.pb.gz"'}))


async def show_symbols(request):
    """As pprof asks for them: addresses with + between them, in the body or behind the ?."""
    watch = selected(request)
    asked = await request.text() if request.method == "POST" else request.query_string
    try:
        addresses = [int(word, 16) for word in asked.split("+") if word]
    except ValueError as error:
        raise web.HTTPBadRequest(text="addresses are wanted as 0x1234+0x5678") from error
    if watch is None:  # nobody says whose addresses they are
        return text_answer("num_symbols: 0\n")
    names = await outcome(symbols_of, watch.sampler.memory, addresses)
    return text_answer("num_symbols: 1\n" + "".join(f"{address:#x} {name}\n" for address, name in names.items()))


async def show_index(request):
    only = selected(request)
    watches = request.app[WATCHES].values() if only is None else [only]
    lines = ["Heap profiles by hakmem serve, in pprof's format", ""]
    for watch in watches:
        lines.append(f"process {watch.pid}, {watch.sample.shot.command}: {await asyncio.to_thread(state_of, watch)}")
        lines += [f"    /{watch.pid}{PPROF}/{name}" for name in DEFAULTS]
    lines += ["", "?seconds=N: what changes in N seconds; ?debug=1: as text; ?symbols=1: with functions' names in it"]
    return text_answer("\n".join(lines) + "\n")


# ---- Parts ----


def selected(request):
    """The Watch that is asked for, or the only one; None: of several, none is."""
    text = request.match_info.get("pid", request.query.get("pid"))
    if text is not None:
        return wanted(request, text)
    watches = list(request.app[WATCHES].values())
    return watches[0] if len(watches) == 1 else None


def number(request, name):
    text = request.query.get(name, "0")
    if not (text.isascii() and text.isdigit()):
        raise web.HTTPBadRequest(text=f"{name}={text}: a whole number is wanted")
    return int(text)


async def outcome(function, *arguments):
    """What a function returns that looks at a process, from a thread; or an answer that says why it cannot."""
    try:
        return await asyncio.to_thread(function, *arguments)
    except NoProcess as error:
        raise web.HTTPGone(text=str(error)) from error
    except LiveError as error:
        raise web.HTTPServiceUnavailable(text=str(error)) from error
    except ProfileError as error:
        raise web.HTTPServiceUnavailable(text=error.message) from error


def descriptor_of(watch):
    return watch.sampler.descriptor or find(watch.sampler.memory)


def look_at(watch):
    return look(watch.sampler.memory, descriptor_of(watch))


def made(watch, before, kind, symbols):
    """The profile's file: all of it, or the difference to an earlier Look."""
    seen = look_at(watch)
    profile = difference(before, seen, kind) if before else whole(seen, kind)
    if symbols:
        notes, strings = symbolize(profile), Strings(profile)
        profile.comment.extend(strings.place(note) for note in notes)
    return packed(profile)


def state_of(watch):
    """Whether there is a profile, in words."""
    try:
        heap = read_sites(watch.sampler.memory, descriptor_of(watch))
    except LiveError as error:
        return f"off: {error}" if isinstance(error, ProfileOff) else str(error)
    return f"{'on' if heap.on else 'stopped'}, samples {heap.mean} bytes apart in the mean, {len(heap.sites)} sites"


def text_answer(text):
    return fresh(web.Response(text=text))

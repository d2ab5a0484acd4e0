"""The server's end of a worker: starts the process that looks at one target, asks it, and ends it if it is late."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from hakmem.apart import ended_text
from hakmem.live.memory import LiveError, NoPermission, NoProcess

# Keeps the current folder off the module path, so that a file in it cannot be imported.
PACKAGES = str(Path(__file__).resolve().parents[2])
BOOT = ("import sys; sys.path[:] = [sys.argv[1], *(path for path in sys.path if path)]; from hakmem.serve.worker "
        "import main; "
        "main(*map(int, sys.argv[2:]))")
# Seconds that a worker may take to start, on a busy machine.
START_SECONDS = 120
# Seconds to wait for the end of a worker that was killed.
END_SECONDS = 5
# Limit of an answer's bytes: enough for every unit of a heap of 200 GiB.
ANSWER_MOST = 512 << 20
KINDS = {"NoProcess": NoProcess, "NoPermission": NoPermission}


class Late(LiveError):
    """The worker did not answer in time and was ended."""


class Target:
    """A process that is looked at. A worker that was ended is started again for the next question."""

    def __init__(self, pid: int, seconds: float, begun: int = 0) -> None:
        """pid: the process; 0 for a worker that looks at all. begun: when the process started, which tells it from a
        later one with its PID; 0 takes whichever is there."""
        self.pid, self.seconds, self.begun = pid, seconds, begun
        self.process: asyncio.subprocess.Process | None = None
        self.turn = asyncio.Lock()

    async def ask(self, do: str, **more: object) -> Any:
        """Returns the answer, as JSON values or bytes; raises LiveError if there is none."""
        async with self.turn:
            try:
                if self.process is None:
                    await self.start()
                question = json.dumps({"do": do, **more}).encode() + b"\n"
                return await asyncio.wait_for(self.exchange(question), self.seconds)
            except asyncio.TimeoutError:
                await self.end()
                raise Late(f"process {self.pid} kept its reader waiting for more than {self.seconds:g} "
                           "seconds") from None
            except (asyncio.IncompleteReadError, ConnectionError):
                status = await self.end()
                raise LiveError(f"process {self.pid}: what looks at it failed: {ended_text(status)}") from None
            except asyncio.CancelledError:
                # Otherwise this question's answer would be taken for the next one's.
                await self.end()
                raise

    async def each(self, do: str, questions: Sequence[dict[str, object]]) -> AsyncIterator[Any]:
        """Yields the answers to many questions, which are sent at once. Raises LiveError at the first that fails, and
        Late at one that takes too long; the worker has ended then."""
        async with self.turn:
            if self.process is None:
                await self.start()
            assert self.process
            worker, late = self.process.pid, []

            def end_late() -> None:
                late.append(True)
                os.killpg(worker, signal.SIGKILL)
            loop, whole = asyncio.get_running_loop(), False
            try:
                to_worker, _ = self.pipes()
                to_worker.write(b"".join(json.dumps({"do": do, **one}).encode() + b"\n" for one in questions))
                for _ in questions:
                    timer = loop.call_later(self.seconds, end_late)
                    try:
                        answer = await self.answer()
                    finally:
                        timer.cancel()
                    yield answer
                whole = True
            except (asyncio.IncompleteReadError, ConnectionError):
                status = await self.end()
                if late:
                    raise Late(f"no answer within {self.seconds:g} seconds") from None
                raise LiveError(f"what looks at it failed: {ended_text(status)}") from None
            finally:
                if not whole:
                    await self.end()

    async def start(self) -> None:
        """Starts the worker."""
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", BOOT, PACKAGES, str(self.pid), str(os.getpid()), str(self.begun),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True)
        try:
            self.begun = (await asyncio.wait_for(self.answer(), START_SECONDS))["begun"]
        except LiveError:
            await self.end()
            raise

    async def exchange(self, question: bytes) -> Any:
        """Sends a question and returns the answer."""
        to_worker, _ = self.pipes()
        to_worker.write(question)
        await to_worker.drain()
        return await self.answer()

    def pipes(self) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
        """Returns the pipes to and from the worker."""
        if self.process is None or self.process.stdin is None or self.process.stdout is None:
            raise ConnectionError("the worker was ended")
        return self.process.stdin, self.process.stdout

    async def answer(self) -> Any:
        """Reads an answer."""
        _, from_worker = self.pipes()
        head = await from_worker.readexactly(9)
        letter, size = head[:1], int.from_bytes(head[1:], "little")
        if size > ANSWER_MOST:
            await self.end()
            raise LiveError(f"process {self.pid}: an answer of {size:,} bytes is larger than any")
        data = await from_worker.readexactly(size)
        if letter == b"B":
            return data
        value = json.loads(data)
        if letter == b"E":
            raise KINDS.get(value["kind"], LiveError)(value["text"])
        return value

    async def end(self) -> int:
        """Ends the worker and everything it started. Returns its exit status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        # wait() returns after the pipes have ended. A full pipe ends only if it is read.
        try:
            rest = [process.stdout.read()] if process.stdout else []
            await asyncio.wait_for(asyncio.gather(process.wait(), *rest), END_SECONDS)
        except asyncio.TimeoutError:
            pass  # it hangs in a call that the kernel does not end, for example of a dead network file system
        return -signal.SIGKILL if process.returncode is None else process.returncode

"""Artifacts under Ray Serve: replicas of ``llmcc serve``, and an ingress whose streams outlive them.

::

    from ray import serve
    import llmcc.ray

    serve.run(llmcc.ray.app("m.so", replicas=3))                # OpenAI's interface at http://127.0.0.1:8000

or ``serve run llmcc.ray:build artifact=m.so replicas=3``. A replica is a process of ``llmcc serve`` behind an actor. Where it dies in the middle of a stream,
the ingress goes on with the stream at another one: the client gets each event once, byte for byte as if nothing had happened (docs/routing.md says how).

Replicas keep no answers of ``/v1/responses``: a later request may go to another one.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any, AsyncIterator, Mapping, Optional, Sequence, Union

try:
    import aiohttp
    from ray import serve
    from starlette.responses import JSONResponse, Response, StreamingResponse
except ImportError as error:
    raise ImportError(f"llmcc.ray needs Ray Serve ({error}): pip install 'ray[serve]'") from error

from ._errors import LlmccError, Status
from ._program import compiler
from ._relay import TRACE, Ask, Broken, Relay, failure, passed

if TYPE_CHECKING:
    from starlette.requests import Request

#: Attempts in a row, and seconds, in which a request comes no further before it fails; the first pause between two.
_ATTEMPTS, _SECONDS, _PAUSE = 8, 30.0, 0.05
#: Requests that a replica has at once; its engine has them in turn.
_ONGOING = 256


class Replica:
    """A server of an artifact, for as long as the actor lives."""

    def __init__(self, artifact: str, options: Sequence[str]) -> None:
        command = [compiler(), "serve", artifact, "--port", "0", "--no-page", "--stored-responses", "0", *options]
        self._server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=_end_with_parent)
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        if not line.startswith("listening at "):
            raise LlmccError(f"`{' '.join(command)}` did not begin: its status is {self._server.wait()}", Status.SYSTEM)
        self._url = line.split()[-1]
        self._session: Optional[aiohttp.ClientSession] = None

    def check_health(self) -> None:
        """Ray Serve replaces a replica whose server has ended."""
        if self._server.poll() is not None:
            raise LlmccError(f"llmcc serve ended with {self._server.returncode}", Status.SYSTEM)

    def pids(self) -> list[int]:
        """The processes of the actor, and of its server."""
        return [os.getpid(), self._server.pid]

    async def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> AsyncIterator[Any]:
        """The answer to a request: its status, its headers and the model's fingerprint, then its bytes."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False)
        async with self._session.request(method, self._url + path, headers=headers, data=body or None, allow_redirects=False) as answer:
            yield answer.status, passed(iter(answer.headers.items())), answer.headers.get(TRACE)
            async for data in answer.content.iter_any():
                yield data

    def __del__(self) -> None:
        server = getattr(self, "_server", None)
        if server is not None:
            server.terminate()


class Ingress:
    """The way of clients to replicas: it keeps what each client has of its stream."""

    def __init__(self, replicas: Any) -> None:
        self._replicas = replicas.options(stream=True, method_name="ask")

    async def __call__(self, request: Request) -> Response:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        ask = Ask(request.method, path, passed(iter(request.headers.items())), await request.body())
        attempts = _Attempts()
        while True:
            try:
                (status, headers, model), source = await self._begun(ask, [])
                if status in (502, 503) and await attempts.fail(f"it answers {status}"):
                    continue
                if headers.get("content-type", "").startswith("text/event-stream"):
                    return StreamingResponse(self._stream(ask, source, model), status, headers)
                return Response(b"".join([data async for data in source]), status, headers)
            except asyncio.CancelledError:
                raise
            # (Whatever a dying actor raises.)
            except Exception as error:
                if not await attempts.fail(str(error)):
                    return JSONResponse({"error": {"message": attempts.message, "type": "server_error", "code": "no_replica"}}, 503)

    async def _begun(self, ask: Ask, tokens: list[list[int]]) -> tuple[tuple[int, dict[str, str], Optional[str]], AsyncIterator[bytes]]:
        """The head of an answer, and its bytes."""
        source = self._replicas.remote(ask.method, ask.path, ask.headers, ask.body(tokens))
        head = await source.__anext__()
        return head, source

    async def _stream(self, ask: Ask, source: AsyncIterator[bytes], model: Optional[str]) -> AsyncIterator[bytes]:
        """A stream that goes on until it has ended, at whichever replica of the same model."""
        relay, attempts = Relay(), _Attempts()
        while True:
            try:
                async for data in source:
                    new = relay.take(data) if ask.resumable else data
                    if new:
                        attempts = _Attempts()
                        yield new
                if relay.ended or not ask.resumable:
                    return
                raise Broken("its stream ended before the last event")
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except Exception as error:
                why = str(error)
            while True:
                if not ask.resumable or not await attempts.fail(why):
                    yield failure(ask.path, attempts.message or why)
                    return
                try:
                    (status, _, other), source = await self._begun(ask, relay.tokens)
                    if status == 200 and other == model:
                        break
                    why = f"it answers {status} to a request that another replica took" if status != 200 else "it serves another model or version"
                except asyncio.CancelledError:
                    raise
                except Exception as error:
                    why = str(error)
            relay.begin()


class _Attempts:
    """Attempts that brought a request no further."""

    def __init__(self) -> None:
        self._count, self._since, self._pause = 0, time.monotonic(), _PAUSE
        self.message = ""

    async def fail(self, why: str) -> bool:
        """Waits after an attempt that failed; whether there is to be another one."""
        self._count += 1
        self.message = f"no replica takes the request: {why[:500]}"
        if self._count >= _ATTEMPTS or time.monotonic() - self._since > _SECONDS:
            return False
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, 2.0)
        return True


def _end_with_parent() -> None:
    """A server ends when its actor is killed (Linux' PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def app(
    artifact: Union[str, os.PathLike[str]],
    *,
    replicas: int = 1,
    autoscaling: Optional[Mapping[str, Any]] = None,
    options: Sequence[str] = (),
    cpus: float = 1,
    ingresses: int = 1,
) -> Any:
    """An application of Ray Serve: ``serve.run(llmcc.ray.app("m.so"))``.

    :param artifact: the artifact's path, the same on every machine.
    :param replicas: servers of it.
    :param autoscaling: in place of ``replicas``, Ray Serve's ``autoscaling_config``, such as ``{"min_replicas": 1, "max_replicas": 8, "target_ongoing_requests": 16}``.
    :param options: further options of ``llmcc serve``, such as ``["--threads", "4", "--api-key-file", "keys"]``.
    :param cpus: processors that Ray gives to each replica.
    :param ingresses: processes between clients and replicas.
    """
    size: dict[str, Any] = {"autoscaling_config": dict(autoscaling)} if autoscaling is not None else {"num_replicas": replicas}
    common = {"max_ongoing_requests": _ONGOING, "health_check_period_s": 1, "health_check_timeout_s": 10, "graceful_shutdown_timeout_s": 60}
    served = serve.deployment(name="llmcc", ray_actor_options={"num_cpus": cpus}, **common, **size)(Replica)
    ingress = serve.deployment(name="llmcc-ingress", num_replicas=ingresses, ray_actor_options={"num_cpus": 0}, max_ongoing_requests=4096)(Ingress)
    return ingress.bind(served.bind(os.path.abspath(artifact), list(options)))


def build(args: Mapping[str, str]) -> Any:
    """The same for ``serve run llmcc.ray:build artifact=m.so replicas=3 options="--threads 4"``."""
    known = {"artifact", "replicas", "options", "cpus", "ingresses"}
    if set(args) - known or "artifact" not in args:
        raise LlmccError(f"llmcc.ray:build takes {', '.join(sorted(known))}, and needs artifact; it got {', '.join(sorted(args)) or 'nothing'}", Status.INVALID)
    numbers: dict[str, Any] = {name: int(args[name]) for name in ("replicas", "ingresses") if name in args}
    return app(args["artifact"], options=args.get("options", "").split(), cpus=float(args.get("cpus", 1)), **numbers)

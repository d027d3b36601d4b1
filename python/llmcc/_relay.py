"""Streams that go on at another server, as ``llmcc route`` does it (docs/routing.md).

A text depends on prompt, parameters and seed alone. A server says in comments of its stream which event brings which token (the header ``x-llmcc-trace``).
Where it dies, another one gets the same request with the tokens so far (``expected_token_ids``), and its stream begins at the beginning: the events that the
client has are left out.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from typing import Any, Iterator, Optional

#: Paths whose answers are texts.
WRITES = {"/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/chat/completions", "/completion", "/completions", "/infill", "/responses"}
#: The header that asks for a trace, and the one that chooses the identifier of a response.
TRACE, CHOSEN = "x-llmcc-trace", "x-llmcc-response"
_EXPECTED = "expected_token_ids"
#: Members in which two streams of one request differ.
_IDENTITY = (re.compile(rb'"id":"[^"]*"'), re.compile(rb'"created":\d+'))
_MARK = re.compile(rb": (?:tokens (\d+)(?: (-?\d+))?|(end)|failed (\d+))\n")


class Broken(Exception):
    """A server that does not go on with a stream: why."""


class Ask:
    """A client's request as servers get it: with a seed, so that it can be repeated."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        self.method, self.path, self.headers = method, path, {name: value for name, value in headers.items() if name not in (TRACE, CHOSEN)}
        plain = path.split("?")[0]
        members = _members(body) if method == "POST" and plain in WRITES else None
        #: Whether another server can go on with its stream.
        self.resumable = members is not None
        if members is None:
            self._open = body
            return
        if plain.endswith("/responses"):
            self.headers[CHOSEN] = f"resp_{secrets.token_hex(16)}.{int(time.time())}"
        self.headers[TRACE] = "1"
        self._own = members.get(_EXPECTED)
        # (For llama.cpp's clients -1 is no seed.)
        unseeded = members.get("seed") is None or (members["seed"] == -1 and not plain.startswith("/v1/"))
        if _EXPECTED in members or (unseeded and "seed" in members):
            kept = {name: value for name, value in members.items() if name != _EXPECTED and not (unseeded and name == "seed")}
            body, members = json.dumps(kept).encode(), kept
        self._open = body.rstrip()[:-1]
        if unseeded:
            self._open += b'%s"seed":%d' % (b"," if members else b"", secrets.randbelow(1 << 53))

    def body(self, tokens: list[list[int]]) -> bytes:
        """Its body, where the client has these tokens of its choices already."""
        if not self.resumable:
            return self._open
        expected: Optional[Any] = tokens if any(tokens) else self._own
        return self._open + (b"}" if expected is None else b',"%s":%s}' % (_EXPECTED.encode(), json.dumps(expected).encode()))


class Relay:
    """The part of a stream that its client has."""

    def __init__(self) -> None:
        #: Tokens of each choice.
        self.tokens: list[list[int]] = []
        self._events: list[int] = []
        self._plain = 0
        self._identity: Optional[list[bytes]] = None
        self.begin()

    def begin(self) -> None:
        """Begins with the stream of another server."""
        #: Whether the last event has come.
        self.ended = False
        self._rest = b""
        self._told: list[list[int]] = []
        self._told_plain = 0
        self._other: Optional[list[bytes]] = None

    def take(self, data: bytes) -> bytes:
        """Takes bytes of the server, and returns what the client does not have.

        :raises Broken: the server has failed, or tells another text.
        """
        out = []
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            mark, rest = _MARK.match(event + b"\n"), event + b"\n\n"
            if mark is None and event.startswith(b":"):
                out.append(rest)
                continue
            if mark is not None:
                # (A mark may stand alone.)
                rest = event[mark.end() :] + b"\n\n" if mark.end() <= len(event) else b""
            if self._is_new(mark, bool(rest)) and rest:
                out.append(self._renamed(rest))
        return b"".join(out)

    def _is_new(self, mark: Optional[re.Match[bytes]], has_event: bool) -> bool:
        """Whether the client does not have an event."""
        choice, token, end, failed = mark.groups() if mark is not None else (None, None, None, None)
        if failed in (b"500", b"502", b"503"):
            raise Broken(f"its stream failed with {failed.decode()}")
        if choice is None:
            self.ended = self.ended or bool(end or failed)
            self._told_plain += has_event
            is_new = self._told_plain > self._plain
            self._plain = max(self._plain, self._told_plain)
            return is_new
        at = int(choice)
        if at >= 4096:
            raise Broken(f"its stream has choice {at}")
        while len(self.tokens) <= at:
            self.tokens.append([])
            self._events.append(0)
        while len(self._told) <= at:
            self._told.append([0, 0])
        told = self._told[at]
        if token is not None:
            own = self.tokens[at]
            if told[1] == len(own):
                own.append(int(token))
            elif own[told[1]] != int(token):
                raise Broken(f"it goes on with another text (choice {at}, token {told[1]}): is it the same artifact?")
            told[1] += 1
        told[0] += has_event
        is_new = told[0] > self._events[at]
        self._events[at] = max(self._events[at], told[0])
        return is_new

    def _renamed(self, event: bytes) -> bytes:
        """An event with the identifier and the time of the first stream. (No string has the text of a member: quotes are escaped there.)"""
        found = [pattern.search(event) for pattern in _IDENTITY]
        if self._other is None:
            self._other = [match.group() if match else b"" for match in found]
        if self._identity is None:
            self._identity = self._other
        for other, own in zip(self._other, self._identity):
            if other and own and other != own:
                event = event.replace(other, own, 1)
        return event


def failure(path: str, message: str) -> bytes:
    """The events that end a stream which no server goes on with."""
    error = {"message": message, "type": "server_error", "code": "no_replica"}
    if path.startswith("/v1/messages"):
        return b"event: error\ndata: " + json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": message}}).encode() + b"\n\n"
    return b"data: " + json.dumps({"error": error}).encode() + b"\n\ndata: [DONE]\n\n"


def _members(body: bytes) -> Optional[dict[str, Any]]:
    """The members of an object; ``None``: it is none, and its server says so."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("a member is there twice")
        return dict(pairs)

    try:
        found = json.loads(body, object_pairs_hook=once)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def passed(headers: Iterator[tuple[str, str]]) -> dict[str, str]:
    """Headers of a message that go on with it: none of its connection, nor of the trace."""
    of_connection = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length", "expect", "host", TRACE}
    return {name.lower(): value for name, value in headers if name.lower() not in of_connection}

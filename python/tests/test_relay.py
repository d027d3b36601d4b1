"""Streams that go on at another server, without servers: wherever a stream breaks, the client gets the same bytes."""

from __future__ import annotations

import json

import pytest

from llmcc._relay import CHOSEN, TRACE, Ask, Broken, Relay, failure, passed

IDENTITIES = [b'"id":"cmpl-1","created":100', b'"id":"cmpl-22","created":1001']


def stream(identity: bytes, order: "list[int]" = [0, 1, 0, 1, 0]) -> bytes:
    """A traced stream of two choices, whose tokens come in an order; one token brings no text, and a comment stands between."""
    counts, out = [0, 0], [b'data: {%s,"open":true}\n\n' % identity]
    for choice in order:
        n = counts[choice]
        counts[choice] += 1
        mark = b": tokens %d %d\n" % (choice, 10 * choice + n)
        out.append(mark + (b"\n" if (choice, n) == (0, 1) else b'data: {%s,"index":%d,"text":"%d \\"id\\":\\"x\\""}\n\n' % (identity, choice, n)))
        out.append(b": tokens %d\ndata: {%s,\"index\":%d,\"more\":%d}\n\n" % (choice, identity, choice, n))
    return b"".join(out) + b": queued\n\n" + b": end\ndata: {%s,\"usage\":1}\n\n" % identity + b"data: [DONE]\n\n"


def by_choices(text: bytes) -> "list[bytes]":
    """Events, each choice's together: several choices come in any order. Comments that are no marks come again."""
    events = [event for event in text.split(b"\n\n") if not event.startswith(b": queued")]
    return sorted(events, key=lambda event: 1 if b'"index":0' in event else 2 if b'"index":1' in event else 0 if b"open" in event else 3)


def test_streams_break_anywhere() -> None:
    first, second = stream(IDENTITIES[0]), stream(IDENTITIES[1], [1, 0, 0, 1, 0])
    whole = Relay()
    want = by_choices(whole.take(first))
    assert whole.ended and whole.tokens == [[0, 1, 2], [10, 11]]
    assert b"tokens" not in b"".join(want) and b"cmpl-22" not in b"".join(want)
    for size in (1, 7, len(first)):
        for cut in range(0, len(first) - 20):
            relay, got = Relay(), b""
            for source in (first[:cut], second):
                relay.begin()
                for at in range(0, len(source), size):
                    got += relay.take(source[at : at + size])
            if cut >= first.index(b"\n\n") + 2:
                assert by_choices(got) == want, (size, cut)
            assert relay.ended and relay.tokens == whole.tokens


def test_other_texts_and_failures_are_noticed() -> None:
    relay = Relay()
    relay.take(b": tokens 0 5\ndata: a\n\n: tokens 0 6\n\n")
    relay.begin()
    with pytest.raises(Broken, match="another text .choice 0, token 1"):
        relay.take(b": tokens 0 5\ndata: a\n\n: tokens 0 7\ndata: b\n\n")
    with pytest.raises(Broken, match="503"):
        Relay().take(b": failed 503\ndata: x\n\n")
    other = Relay()
    assert other.take(b": failed 504\ndata: late\n\n") == b"data: late\n\n" and other.ended
    with pytest.raises(Broken):
        Relay().take(b": tokens 5000 1\n\n")


def test_requests_are_repeatable() -> None:
    def ask(body: bytes, path: str = "/v1/completions") -> Ask:
        return Ask("POST", path, {"authorization": "Bearer k", CHOSEN: "resp_x.1"}, body)

    once = ask(b'{"prompt": "a"}')
    first = json.loads(once.body([]))
    assert once.resumable and once.headers == {"authorization": "Bearer k", TRACE: "1"} and isinstance(first.pop("seed"), int) and first == {"prompt": "a"}
    assert once.body([]) == once.body([[]])
    assert json.loads(once.body([[1, 2], []]))["expected_token_ids"] == [[1, 2], []]
    assert ask(b' {"seed": 7, "prompt": "\xc3\xa9"} ').body([]) == b' {"seed": 7, "prompt": "\xc3\xa9"}'
    assert isinstance(json.loads(ask(b"{}").body([]))["seed"], int) and isinstance(json.loads(ask(b'{"seed": null}').body([]))["seed"], int)
    assert json.loads(ask(b'{"seed": -1}').body([]))["seed"] == -1 != json.loads(ask(b'{"seed": -1}', "/completion").body([]))["seed"]
    own = ask(b'{"expected_token_ids": [[1]], "seed": 1}')
    assert json.loads(own.body([])) == {"expected_token_ids": [[1]], "seed": 1} and json.loads(own.body([[2]]))["expected_token_ids"] == [[2]]
    # Whatever is no object its server refuses; other paths are passed on as they are.
    for body, path in [(b"[1]", "/v1/completions"), (b"{", "/v1/completions"), (b'{"a": 1, "a": 2}', "/v1/completions"), (b'{"input": "a"}', "/v1/embeddings")]:
        assert not ask(body, path).resumable and ask(body, path).body([]) == body
    response = ask(b'{"input": "a"}', "/v1/responses")
    assert response.headers[CHOSEN].startswith("resp_") and response.headers[CHOSEN] != "resp_x.1"


def test_headers_and_errors() -> None:
    given = iter([("Host", "x"), ("Authorization", "Bearer k"), ("Content-Length", "3"), ("X-Llmcc-Trace", "1"), ("Content-Type", "application/json")])
    assert passed(given) == {"authorization": "Bearer k", "content-type": "application/json"}
    assert failure("/v1/messages", "gone").startswith(b"event: error\n") and b"[DONE]" in failure("/v1/completions", "gone")

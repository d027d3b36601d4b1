"""Conversations as chat templates take them."""

from __future__ import annotations

from typing import Any, Mapping


def as_messages(messages: Any) -> list[Mapping[str, Any]]:
    """The messages of a conversation, a list of mappings.

    :raises TypeError: the argument has another type; the message names the right one.
    """
    if isinstance(messages, (str, bytes)):
        raise TypeError(f'messages must be a list of messages, not a text; use [{{"role": "user", "content": {messages[:60]!r}}}]')
    if isinstance(messages, Mapping):
        raise TypeError("messages must be a list of messages, not one message; put it into a list: [message]")
    try:
        found = list(messages)
    except TypeError:
        raise TypeError(f"messages must be a list of messages, not {type(messages).__name__}") from None
    for i, message in enumerate(found):
        if not isinstance(message, Mapping):
            raise TypeError(f'message {i} must be a mapping like {{"role": "user", "content": "Hi"}}, not {type(message).__name__}')
    return found

"""Instructor's modes over both interfaces: an answer is an object of a class."""

from __future__ import annotations

from typing import Literal

import anthropic
import instructor
import openai
from common import ASK, KEY, MODEL, URL
from pydantic import BaseModel, ConfigDict, Field


class Place(BaseModel):
    """A place and a time."""

    model_config = ConfigDict(extra="forbid")
    city: Literal["Bern", "Rome"]
    days: int = Field(ge=1, le=9)


MESSAGES = [{"role": "user", "content": ASK}]
plain = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)
# (A model without knowledge keeps to a schema where the server makes it: Mode.JSON only asks it to.)
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS_STRICT):
    client = instructor.from_openai(plain, mode=mode)
    place = client.chat.completions.create(model=MODEL, messages=MESSAGES, response_model=Place, max_tokens=300, max_retries=1)
    assert place.city in ("Bern", "Rome") and 1 <= place.days <= 9, (mode, place)

client = instructor.from_openai(plain, mode=instructor.Mode.TOOLS)
parts = list(client.chat.completions.create_partial(model=MODEL, messages=MESSAGES, response_model=Place, max_tokens=300))
assert parts and parts[-1].city in ("Bern", "Rome"), parts
place, completion = client.chat.completions.create_with_completion(model=MODEL, messages=MESSAGES, response_model=Place, max_tokens=300)
assert completion.usage.completion_tokens > 0

other = instructor.from_anthropic(anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0))
place = other.messages.create(model=MODEL, messages=MESSAGES, response_model=Place, max_tokens=300, max_retries=1)
assert place.city in ("Bern", "Rome"), place

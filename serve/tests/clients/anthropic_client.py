"""Anthropic's own client: messages, streams, tools, counts, errors."""

from __future__ import annotations

import json

import anthropic
from common import ASK, KEY, MODEL, PLACE, URL, is_place, refused

client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
MESSAGES = [{"role": "user", "content": ASK}]
TOOLS = [{"name": "weather", "description": "The weather", "input_schema": PLACE}]
# (Its newest versions have no member for the temperature.)
SAME = dict(model=MODEL, messages=MESSAGES, system="Be brief.", extra_body={"temperature": 0, "seed": 1})

whole = client.messages.create(**SAME, max_tokens=24)
text = whole.content[0].text
assert text and whole.usage.output_tokens == 24 and whole.stop_reason == "max_tokens", whole
with client.messages.stream(**SAME, max_tokens=24) as stream:
    assert "".join(stream.text_stream) == text
    final = stream.get_final_message()
assert final.usage.output_tokens == 24 and final.stop_reason == "max_tokens"
stopped = client.messages.create(**SAME, max_tokens=24, stop_sequences=[text[4:7]])
assert (stopped.stop_reason, stopped.stop_sequence, stopped.content[0].text) == ("stop_sequence", text[4:7], text[: text.index(text[4:7])])

forced = dict(SAME, tools=TOOLS, tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=300)
answer = client.messages.create(**forced)
call = answer.content[-1]
assert answer.stop_reason == "tool_use" and call.name == "weather" and is_place(call.input), answer
with client.messages.stream(**forced) as stream:
    partial = [event.partial_json for event in stream if event.type == "input_json"]
    streamed = stream.get_final_message().content[-1]
assert partial and streamed.input == call.input and streamed.id == call.id, (partial, streamed)
result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "It rains."}]}
back = client.messages.create(model=MODEL, messages=[*MESSAGES, {"role": "assistant", "content": answer.content}, result], tools=TOOLS, max_tokens=8)
assert back.usage.input_tokens + back.usage.cache_read_input_tokens > answer.usage.input_tokens

form = {"format": {"type": "json_schema", "schema": PLACE}}
formed = client.messages.create(**SAME, output_config=form, max_tokens=300)
assert is_place(json.loads(formed.content[0].text)), formed

counted = client.messages.count_tokens(model=MODEL, messages=MESSAGES, system="Be brief.")
assert counted.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens, counted
refused(lambda: client.messages.create(model="other", messages=MESSAGES, max_tokens=1), anthropic.NotFoundError)
error = refused(lambda: client.messages.create(model=MODEL, messages=[], max_tokens=1), anthropic.BadRequestError)
assert error.body["error"]["message"], error.body

"""LiteLLM in front of the server: OpenAI's interface, its responses, and Anthropic's."""

from __future__ import annotations

import json

import litellm
from common import ASK, KEY, MODEL, PLACE, URL, is_place, refused

litellm.telemetry = False
MESSAGES = [{"role": "user", "content": ASK}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PLACE}}]
OPENAI = dict(model=f"openai/{MODEL}", api_base=URL + "/v1", api_key=KEY, messages=MESSAGES, temperature=0, num_retries=0)
VLLM = dict(OPENAI, model=f"hosted_vllm/{MODEL}")
ANTHROPIC = dict(OPENAI, model=f"anthropic/{MODEL}", api_base=URL)

texts = set()
for ask in (OPENAI, VLLM, ANTHROPIC):
    whole = litellm.completion(**ask, max_tokens=16)
    assert whole.usage.completion_tokens == 16 and whole.choices[0].finish_reason == "length", whole
    pieces = litellm.completion(**ask, max_tokens=16, stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == whole.choices[0].message.content
    texts.add(whole.choices[0].message.content)
    answer = litellm.completion(**ask, tools=TOOLS, tool_choice="required", max_tokens=300)
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "weather" and is_place(json.loads(call.function.arguments)), answer
    chunks = list(litellm.completion(**ask, tools=TOOLS, tool_choice="required", max_tokens=300, stream=True))
    built = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
    assert json.loads(built.choices[0].message.tool_calls[0].function.arguments) == json.loads(call.function.arguments), built
    back = [*MESSAGES, answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "It rains."}]
    assert litellm.completion(**dict(ask, messages=back), tools=TOOLS, max_tokens=8).choices[0].message.content is not None
assert len(texts) == 1, texts

form = {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE, "strict": True}}
for ask in (OPENAI, VLLM):
    assert is_place(json.loads(litellm.completion(**ask, response_format=form, max_tokens=300).choices[0].message.content))
response = litellm.responses(model=f"openai/{MODEL}", api_base=URL + "/v1", api_key=KEY, input=ASK, max_output_tokens=8)
assert response.status == "incomplete" and response.output[0].content[0].text, response
completion = litellm.text_completion(model=f"text-completion-openai/{MODEL}", api_base=URL + "/v1", api_key=KEY, prompt="import", max_tokens=8)
assert completion.choices[0].text
refused(lambda: litellm.completion(**dict(OPENAI, model="openai/other")), litellm.NotFoundError)
refused(lambda: litellm.completion(**dict(OPENAI, messages=[{"role": "user", "content": "x " * 5000}])), litellm.BadRequestError)

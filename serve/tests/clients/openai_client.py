"""OpenAI's own client: chat, streams, tools, forms, errors, counts, completions, responses."""

from __future__ import annotations

import asyncio
import json

import openai
from common import ASK, KEY, MODEL, PLACE, URL, is_place, refused
from pydantic import BaseModel, Field

client = openai.OpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASK}]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather", "parameters": PLACE, "strict": True}}]
SAME = dict(model=MODEL, messages=MESSAGES, temperature=0, seed=3)


class Place(BaseModel):
    """PLACE as a class, with which the client makes a strict schema."""

    city: str = Field(pattern="^(Bern|Rome)$")
    days: int = Field(ge=1, le=9)


def chat() -> None:
    whole = client.chat.completions.create(**SAME, max_tokens=24)
    text = whole.choices[0].message.content
    assert text and whole.usage.completion_tokens == 24 and whole.choices[0].finish_reason == "length", whole
    stream = list(client.chat.completions.create(**SAME, max_tokens=24, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == text
    assert stream[-1].usage == whole.usage.model_copy(update={"prompt_tokens_details": stream[-1].usage.prompt_tokens_details})
    two = client.chat.completions.create(model=MODEL, messages=MESSAGES, n=2, seed=1, max_tokens=8, logprobs=True, top_logprobs=2)
    assert [len(choice.logprobs.content) for choice in two.choices] == [8, 8] and len(two.choices[1].logprobs.content[0].top_logprobs) == 2
    stopped = client.chat.completions.create(**SAME, max_tokens=24, stop=[text[4:7]])
    assert stopped.choices[0].message.content == text[: text.index(text[4:7])] and stopped.choices[0].finish_reason == "stop"


def tools() -> None:
    forced = dict(SAME, tools=TOOLS, tool_choice="required", max_tokens=300, parallel_tool_calls=False)
    answer = client.chat.completions.create(**forced)
    call = answer.choices[0].message.tool_calls[0]
    assert answer.choices[0].finish_reason == "tool_calls" and is_place(json.loads(call.function.arguments)), answer
    with client.chat.completions.stream(**forced) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds and "tool_calls.function.arguments.done" in kinds, kinds
    assert final.choices[0].message.tool_calls[0].function.arguments == call.function.arguments
    assert final.choices[0].message.tool_calls[0].id == call.id
    result = {"role": "tool", "tool_call_id": call.id, "content": "It rains."}
    back = client.chat.completions.create(model=MODEL, messages=[*MESSAGES, answer.choices[0].message, result], tools=TOOLS, max_tokens=8, seed=1)
    assert back.choices[0].message.content is not None and back.usage.prompt_tokens > answer.usage.prompt_tokens
    named = client.chat.completions.create(**dict(forced, tool_choice={"type": "function", "function": {"name": "weather"}}))
    assert named.choices[0].message.tool_calls[0].function.name == "weather"


def forms() -> None:
    parsed = client.chat.completions.parse(**SAME, response_format=Place, max_tokens=300)
    assert is_place(parsed.choices[0].message.parsed.model_dump()), parsed
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE, "strict": True}}
    assert is_place(json.loads(client.chat.completions.create(**SAME, response_format=form, max_tokens=300).choices[0].message.content))
    choice = client.chat.completions.create(**SAME, max_tokens=9, extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
    assert choice.choices[0].message.content in ("yes", "no")


def completions() -> None:
    whole = client.completions.create(model=MODEL, prompt=["import", "def f("], max_tokens=6, temperature=0, logprobs=1, echo=True)
    assert whole.choices[0].text.startswith("import") and whole.choices[1].text.startswith("def f(") and whole.usage.completion_tokens == 12
    assert whole.choices[0].logprobs.token_logprobs[0] is None
    pieces = client.completions.create(model=MODEL, prompt="import", max_tokens=6, temperature=0, stream=True)
    assert "import" + "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text


def embeddings() -> None:
    """The model writes and has no entry for embeddings: the client hears why."""
    error = refused(lambda: client.embeddings.create(model=MODEL, input="x"), openai.BadRequestError)
    assert "also-embed" in error.body["message"], error.body


def responses() -> None:
    tool = {"type": "function", **TOOLS[0]["function"]}
    ask = dict(model=MODEL, input=ASK, tools=[tool], tool_choice="required", parallel_tool_calls=False, temperature=0, max_output_tokens=300, extra_body={"seed": 1})
    answer = client.responses.create(**ask)
    call = next(item for item in answer.output if item.type == "function_call")
    assert call.name == "weather" and is_place(json.loads(call.arguments)) and call.status == "completed", answer
    with client.responses.stream(**ask) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.function_call_arguments.delta" in kinds and kinds[-1] == "response.completed", kinds
    assert final.output[-1].call_id == call.call_id and final.output[-1].arguments == call.arguments
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "It rains."}
    for go_on in [dict(previous_response_id=answer.id, input=[result]), dict(input=[{"role": "user", "content": ASK}, *answer.output, result])]:
        back = client.responses.create(model=MODEL, tools=[tool], max_output_tokens=8, extra_body={"seed": 1}, **go_on)
        assert back.output[0].type == "message" and back.output_text is not None, back
    parsed = client.responses.parse(model=MODEL, input=ASK, text_format=Place, max_output_tokens=300)
    assert is_place(parsed.output_parsed.model_dump())


def errors() -> None:
    message = refused(lambda: client.chat.completions.create(model="other", messages=MESSAGES), openai.NotFoundError)
    assert message.body["message"]
    refused(lambda: client.chat.completions.create(**SAME, max_tokens=-1), openai.BadRequestError)
    refused(lambda: client.chat.completions.create(**SAME, extra_body={"mirostat_mode": 2}), openai.BadRequestError)
    long = refused(lambda: client.completions.create(model=MODEL, prompt="x " * 5000), openai.BadRequestError)
    assert long.code == "context_length_exceeded", long.body


async def together() -> None:
    many = openai.AsyncOpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)
    alone = client.completions.create(model=MODEL, prompt="import", seed=5, max_tokens=16).choices[0].text
    asks = [many.completions.create(model=MODEL, prompt="import", seed=5, max_tokens=16) for _ in range(16)]
    assert {answer.choices[0].text for answer in await asyncio.gather(*asks)} == {alone}


for part in (chat, tools, forms, completions, embeddings, responses, errors):
    part()
asyncio.run(together())
assert client.models.list().data[0].id == MODEL

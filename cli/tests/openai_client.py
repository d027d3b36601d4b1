"""OpenAI's own client, on a server at the URL of the first argument: `cli/tests/serve.rs` runs it where it is installed."""

from __future__ import annotations

import asyncio
import sys

import openai

URL = sys.argv[1] + "/v1"
client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
MODEL = client.models.list().data[0].id
MESSAGES = [{"role": "user", "content": "hi"}]


def completions() -> None:
    given = dict(model=MODEL, prompt="Once upon", max_tokens=12, seed=1)
    whole = client.completions.create(**given, logprobs=2)
    choice = whole.choices[0]
    assert choice.finish_reason in ("length", "stop") and whole.usage.completion_tokens <= 12, whole
    assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) > 0, choice
    stream = client.completions.create(**given, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == choice.text


def conversations() -> None:
    given = dict(model=MODEL, messages=MESSAGES, max_tokens=12, seed=5)
    whole = client.chat.completions.create(**given, logprobs=True, top_logprobs=3)
    answer = whole.choices[0].message.content
    assert whole.choices[0].message.role == "assistant" and whole.usage.prompt_tokens > 0, whole
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 3, whole
    chunks = list(client.chat.completions.create(**given, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == answer
    assert chunks[-1].usage == whole.usage.model_copy(update={"prompt_tokens_details": chunks[-1].usage.prompt_tokens_details})
    two = client.chat.completions.create(**given, n=2)
    assert two.choices[0].message.content == answer and len(two.choices) == 2


def responses() -> None:
    given = dict(model=MODEL, input="hi", max_output_tokens=12, extra_body={"seed": 5})
    whole = client.responses.create(**given)
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=12, seed=5).choices[0].message.content
    assert whole.output_text == answer and whole.usage.output_tokens <= 12, whole
    with client.responses.stream(**given) as stream:
        assert "".join(event.delta for event in stream if event.type == "response.output_text.delta") == answer
    more = client.responses.create(**{**given, "input": "on"}, previous_response_id=whole.id)
    assert more.previous_response_id == whole.id and client.responses.retrieve(more.id).output_text == more.output_text


def errors() -> None:
    for wrong, error in [
        (dict(model="other"), openai.NotFoundError),
        (dict(temperature=-1), openai.BadRequestError),
        (dict(response_format={"type": "json_object"}), openai.BadRequestError),
        (dict(extra_body={"timeout": 1e-9}, max_tokens=100), openai.APIStatusError),
    ]:
        try:
            client.chat.completions.create(**{**dict(model=MODEL, messages=MESSAGES), **wrong})
        except error as e:
            assert e.body["message"], e
        else:
            raise AssertionError(f"{wrong} is no error")


async def many() -> None:
    async with openai.AsyncOpenAI(base_url=URL, api_key="none") as user:
        asked = [user.completions.create(model=MODEL, prompt="Once", max_tokens=8, seed=i % 3) for i in range(12)]
        texts = [whole.choices[0].text for whole in await asyncio.gather(*asked)]
    assert texts[:3] * 4 == texts, texts


completions()
conversations()
responses()
errors()
asyncio.run(many())
print("all right")

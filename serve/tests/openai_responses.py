"""OpenAI's own client on `/v1/responses` of the stand-in at the URL of the first argument: `serve/tests/responses.rs` runs it."""

from __future__ import annotations

import sys
import time

import openai
from openai.types.responses import Response

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
MODEL = client.models.list().data[0].id
LIMIT = dict(model=MODEL, max_output_tokens=8, extra_body={"seed": 3})


def checked(response: Response) -> Response:
    """The client takes any document; this one must be as its types say."""
    return Response.model_validate(response.model_dump(exclude_unset=True), strict=True)


whole = checked(client.responses.create(input="hi", instructions="be brief", metadata={"a": "b"}, temperature=0.5, **LIMIT))
assert whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens", whole
assert len(whole.output_text) == 8 and whole.usage.output_tokens == 8 and whole.metadata == {"a": "b"}, whole
assert whole.usage.total_tokens == whole.usage.input_tokens + 8 and whole.temperature == 0.5

with client.responses.stream(input="hi", instructions="be brief", **LIMIT) as stream:
    kinds, text = [], ""
    for event in stream:
        kinds.append(event.type)
        text += event.delta if event.type == "response.output_text.delta" else ""
assert text == whole.output_text and kinds[0] == "response.created" and kinds[-1] == "response.incomplete", kinds
assert kinds.count("response.output_text.done") == 1

with client.responses.stream(model=MODEL, input="hi", extra_body={"seed": 3, "stop": [text[2]]}) as stream:
    final = checked(stream.get_final_response())
assert final.status == "completed" and final.output_text, final

again = client.responses.create(input=[{"role": "user", "content": "go on"}], previous_response_id=whole.id, **LIMIT)
assert again.previous_response_id == whole.id and again.output_text != whole.output_text
items = list(client.responses.input_items.list(again.id, limit=1))
assert [item.role for item in items] == ["user", "assistant", "user"], items
assert checked(client.responses.retrieve(whole.id)).output_text == whole.output_text
# The client's own items are taken back.
more = client.responses.create(input=[{"role": "user", "content": "hi"}, *whole.output, {"role": "user", "content": "go on"}], **LIMIT)
assert len(more.output_text) == 8

logprobs = client.responses.create(input="hi", include=["message.output_text.logprobs"], top_logprobs=2, **LIMIT)
assert len(logprobs.output[0].content[0].logprobs) == 8 and len(logprobs.output[0].content[0].logprobs[0].top_logprobs) == 2
client.responses.create(input="hi", text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}}, **LIMIT)

begun = client.responses.create(model=MODEL, input="hi", background=True)
while begun.status == "queued":
    time.sleep(0.01)
    begun = client.responses.retrieve(begun.id)
assert begun.status == "in_progress", begun
assert client.responses.cancel(begun.id).status == "cancelled"
events = list(client.responses.retrieve(begun.id, stream=True, starting_after=1))
assert events[0].sequence_number == 2 and events[0].type == "response.output_item.added", events[0]
client.responses.delete(begun.id)

for wrong, error in [
    (lambda: client.responses.retrieve(begun.id), openai.NotFoundError),
    (lambda: client.responses.create(model="other", input="hi"), openai.NotFoundError),
    (lambda: client.responses.create(model=MODEL, input="hi", previous_response_id="resp_x"), openai.NotFoundError),
    (lambda: client.responses.create(model=MODEL, input=[]), openai.BadRequestError),
    (lambda: client.responses.create(model=MODEL, input="hi", tools=[{"type": "web_search"}]), openai.BadRequestError),
]:
    try:
        wrong()
    except error as e:
        assert e.body["message"], e
    else:
        raise AssertionError("no error")
print("all right")

"""LangChain's chat model for OpenAI's interface: messages, streams, tools, forms; by chat completions and by responses."""

from __future__ import annotations

from common import ASK, KEY, MODEL, PLACE, URL, is_place, refused
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from openai import NotFoundError
from pydantic import BaseModel, ConfigDict, Field


class Place(BaseModel):
    """A place and a time."""

    model_config = ConfigDict(extra="forbid")
    city: str = Field(pattern="^(Bern|Rome)$")
    days: int = Field(ge=1, le=9)


@tool(args_schema=Place)
def weather(city: str, days: int) -> str:
    """The weather."""
    return f"{city}: rain for {days} days"


MESSAGES = [SystemMessage("Be brief."), HumanMessage(ASK)]
for responses in (False, True):
    model = ChatOpenAI(model=MODEL, base_url=URL + "/v1", api_key=KEY, temperature=0, max_retries=0, max_tokens=16, use_responses_api=responses)
    whole = model.invoke(MESSAGES)
    assert whole.text and whole.usage_metadata["output_tokens"] == 16, whole
    pieces = list(model.stream(MESSAGES, stream_usage=True) if not responses else model.stream(MESSAGES))
    joined = pieces[0]
    for piece in pieces[1:]:
        joined += piece
    assert joined.text == whole.text and joined.usage_metadata["output_tokens"] == 16, joined
    assert [answer.text for answer in model.batch([MESSAGES] * 4)] == [whole.text] * 4

    long = ChatOpenAI(model=MODEL, base_url=URL + "/v1", api_key=KEY, temperature=0, max_retries=0, max_tokens=300, use_responses_api=responses)
    # (Only strict schemas keep `additionalProperties`.)
    calling = long.bind_tools([weather], tool_choice="required", strict=True)
    answer = calling.invoke(MESSAGES)
    call = answer.tool_calls[0]
    assert call["name"] == "weather" and is_place(call["args"]), answer
    pieces = list(calling.stream(MESSAGES))
    joined = pieces[0]
    for piece in pieces[1:]:
        joined += piece
    assert joined.tool_calls[0]["args"] == call["args"], joined
    result = weather.invoke(call)
    assert isinstance(result, ToolMessage)
    assert model.bind_tools([weather]).invoke([*MESSAGES, answer, result]).usage_metadata["input_tokens"] > answer.usage_metadata["input_tokens"]
    for method in ("json_schema", "function_calling"):
        place = long.with_structured_output(Place, method=method).invoke(MESSAGES)
        assert is_place(place.model_dump()), place
    assert is_place(long.with_structured_output({"title": "place", **PLACE}, method="json_schema").invoke(MESSAGES))
    other = ChatOpenAI(model="other", base_url=URL + "/v1", api_key=KEY, max_retries=0, use_responses_api=responses)
    refused(lambda model=other: model.invoke(MESSAGES), NotFoundError)

assert OpenAI(model=MODEL, base_url=URL + "/v1", api_key=KEY, max_tokens=8, temperature=0).invoke("import")

"""OpenAI's agents: a run calls a tool and answers with its result, by responses and by chat completions, whole and streamed."""

from __future__ import annotations

import asyncio
from typing import Literal

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from common import ASK, KEY, MODEL, URL
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=URL + "/v1", api_key=KEY, max_retries=0)
calls = []


@function_tool
def weather(city: Literal["Bern", "Rome"]) -> str:
    """The weather of a city."""
    calls.append(city)
    return "It rains."


class Verdict(BaseModel):
    """An answer of a form."""

    rain: bool


async def main() -> None:
    for kind in (OpenAIResponsesModel, OpenAIChatCompletionsModel):
        # (The choice is "auto" again after the first call.)
        # (Streams that end at a limit are errors of the client: its text ends at a stop, which no call has.)
        settings = ModelSettings(tool_choice="required", temperature=0, max_tokens=300, include_usage=True, extra_body={"stop": [".", "("]})
        agent = Agent(name="a", instructions="Be brief.", model=kind(model=MODEL, openai_client=client), tools=[weather], model_settings=settings)
        calls.clear()
        result = await Runner.run(agent, ASK, max_turns=6)
        assert calls and isinstance(result.final_output, str), (kind, result)
        kinds = [item.type for item in result.new_items]
        # (A model without knowledge writes on behind its call.)
        assert kinds[0] == "tool_call_item" and "tool_call_output_item" in kinds and kinds[-1] == "message_output_item", kinds
        again = await Runner.run(agent, [*result.to_input_list(), {"role": "user", "content": "And tomorrow?"}], max_turns=6)
        assert again.final_output is not None
        stream = Runner.run_streamed(agent, ASK, max_turns=6)
        text = ""
        async for event in stream.stream_events():
            if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
                text += event.data.delta
        assert stream.final_output == result.final_output and text.endswith(result.final_output), (text, result.final_output)
        judge = Agent(name="b", model=kind(model=MODEL, openai_client=client), output_type=Verdict, model_settings=ModelSettings(temperature=0, max_tokens=40))
        assert isinstance((await Runner.run(judge, ASK)).final_output, Verdict)


asyncio.run(main())

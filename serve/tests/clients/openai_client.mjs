// OpenAI's own client for JavaScript: chat, streams, tools, forms, responses, errors.
import assert from "node:assert/strict";
import OpenAI from "openai";

const { LLMCC_URL, LLMCC_MODEL: model } = process.env;
const client = new OpenAI({ baseURL: `${LLMCC_URL}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "What is the weather in Bern?" }];
const parameters = {
  type: "object",
  properties: { city: { type: "string", enum: ["Bern", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "weather", parameters } }];
const same = { model, messages, temperature: 0, max_tokens: 300 };

const whole = await client.chat.completions.create({ ...same, max_tokens: 16 });
assert.equal(whole.usage.completion_tokens, 16);
let text = "";
for await (const chunk of await client.chat.completions.create({ ...same, max_tokens: 16, stream: true })) {
  text += chunk.choices[0]?.delta?.content ?? "";
}
assert.equal(text, whole.choices[0].message.content);

const forced = { ...same, tools, tool_choice: "required", parallel_tool_calls: false };
const answer = await client.chat.completions.create(forced);
const [call] = answer.choices[0].message.tool_calls;
assert.ok(["Bern", "Rome"].includes(JSON.parse(call.function.arguments).city));
const final = await client.chat.completions.stream(forced).finalChatCompletion();
assert.deepEqual(final.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
const result = { role: "tool", tool_call_id: call.id, content: "It rains." };
const back = await client.chat.completions.create({ ...same, max_tokens: 8, tools, messages: [...messages, answer.choices[0].message, result] });
assert.ok(back.usage.prompt_tokens > answer.usage.prompt_tokens);

const response_format = { type: "json_schema", json_schema: { name: "place", schema: parameters, strict: true } };
const formed = await client.chat.completions.parse({ ...same, response_format });
assert.ok(["Bern", "Rome"].includes(formed.choices[0].message.parsed.city));

const asked = {
  model, input: messages, tools: [{ type: "function", ...tools[0].function, strict: true }], tool_choice: "required", temperature: 0,
  max_output_tokens: 300, parallel_tool_calls: false,
};
const response = await client.responses.stream(asked).finalResponse();
const item = response.output.find((one) => one.type === "function_call");
assert.equal(item.name, "weather");
const output = { type: "function_call_output", call_id: item.call_id, output: "It rains." };
const next = await client.responses.create({ model, previous_response_id: response.id, input: [output], max_output_tokens: 8 });
assert.equal(next.output.at(-1).type, "message");

await assert.rejects(client.chat.completions.create({ ...same, model: "other" }), OpenAI.NotFoundError);
await assert.rejects(client.chat.completions.create({ ...same, messages: [] }), OpenAI.BadRequestError);
await assert.rejects(client.embeddings.create({ model, input: "x" }), OpenAI.BadRequestError);

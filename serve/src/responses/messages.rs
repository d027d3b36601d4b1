//! Messages of a conversation as chat templates take them, from items: calls and reasoning are members of messages.

use crate::json::Json;
use serde_json::Value;

/// The messages of a conversation.
pub(super) fn messages<'a>(instructions: Option<&str>, items: impl Iterator<Item = &'a Value>) -> Json {
    let mut turns = Turns::default();
    if let Some(text) = instructions {
        turns.say("system", text.to_owned());
    }
    items.for_each(|item| turns.take(item));
    Json::List(turns.all.into_iter().map(Turn::json).collect())
}

/// A message.
#[derive(Default)]
struct Turn {
    role: String,
    content: Option<String>,
    reasoning: Option<String>,
    calls: Vec<Json>,
    /// The call whose result it is.
    result_of: Option<String>,
}

#[derive(Default)]
struct Turns {
    all: Vec<Turn>,
}

impl Turns {
    fn say(&mut self, role: &str, text: String) {
        self.all.push(Turn { role: role.to_owned(), content: Some(text), ..Turn::default() });
    }

    /// The assistant's last message if nobody has answered it and `open` holds for it, else a new one.
    fn own(&mut self, open: fn(&Turn) -> bool) -> Option<&mut Turn> {
        if !self.all.last().is_some_and(|last| last.role == "assistant" && open(last)) {
            self.all.push(Turn { role: "assistant".into(), ..Turn::default() });
        }
        self.all.last_mut()
    }

    fn take(&mut self, item: &Value) {
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        match item["type"].as_str() {
            Some("function_call") => {
                let call = call(text("call_id"), text("name"), text("arguments"));
                self.own(|_| true).into_iter().for_each(|turn| turn.calls.push(call.clone()));
            }
            Some("function_call_output") => {
                let (content, result_of) = (Some(text("output")), Some(text("call_id")));
                self.all.push(Turn { role: "tool".into(), content, result_of, ..Turn::default() });
            }
            Some("reasoning") => {
                let parts = if item["content"][0].is_null() { &item["summary"] } else { &item["content"] };
                // (It comes before the answer that it leads to.)
                let turn = self.own(|_| false);
                turn.into_iter().for_each(|turn| turn.reasoning = Some(joined(parts)));
            }
            _ => {
                let content = joined(&item["content"]);
                match item["role"].as_str().unwrap_or("user") {
                    "assistant" => {
                        let turn = self.own(|turn| turn.content.is_none() && turn.calls.is_empty());
                        turn.into_iter().for_each(|turn| turn.content = Some(content.clone()));
                    }
                    // Templates know the older name of developers' messages.
                    "developer" => self.say("system", content),
                    role => self.say(role, content),
                }
            }
        }
    }
}

impl Turn {
    fn json(self) -> Json {
        let mut members = vec![("role".to_owned(), Json::String(self.role))];
        let content = match self.content {
            Some(text) => Json::String(text),
            None if self.calls.is_empty() => Json::String(String::new()),
            None => Json::Null,
        };
        members.push(("content".to_owned(), content));
        let texts = [("reasoning_content", self.reasoning), ("tool_call_id", self.result_of)];
        members.extend(texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Json::String(text?)))));
        if !self.calls.is_empty() {
            members.push(("tool_calls".to_owned(), Json::List(self.calls)));
        }
        Json::Object(members)
    }
}

/// A call, as conversations have it.
fn call(id: String, name: String, arguments: String) -> Json {
    let text = |name: &str, text: String| (name.to_owned(), Json::String(text));
    let function = Json::Object(vec![text("name", name), text("arguments", arguments)]);
    Json::Object(vec![text("id", id), text("type", "function".into()), ("function".to_owned(), function)])
}

/// The texts of parts, a line each.
fn joined(parts: &Value) -> String {
    let parts = parts.as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responses::items::items;

    fn shown(instructions: Option<&str>, given: &str) -> String {
        let items = items(serde_json::from_str(given).unwrap()).unwrap_or_else(|e| panic!("{}", e.message));
        serde_json::to_string(&messages(instructions, items.iter())).unwrap()
    }

    #[test]
    fn texts_are_messages() {
        let given = r#"[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"role": "assistant", "content": "c"}, {"role": "assistant", "content": "d"}]"#;
        let want = concat!(
            r#"[{"role":"system","content":"x"},{"role":"system","content":"be brief"},"#,
            r#"{"role":"user","content":"a\nb"},{"role":"assistant","content":"c"},{"role":"assistant","content":"d"}]"#
        );
        assert_eq!(shown(Some("x"), given), want);
    }

    #[test]
    fn calls_and_reasoning_join_their_message() {
        let given = r#"[
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}],
             "encrypted_content": null, "status": null},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
            {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "f", "arguments": "{\"a\":1}"},
            {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}", "status": "completed"},
            {"type": "function_call_output", "call_id": "1", "output": "one"},
            {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "two"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
            {"type": "function_call", "call_id": "3", "name": "f", "arguments": ""}]"#;
        let call = |id: &str, name: &str, arguments: &str| {
            format!(r#"{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":"{arguments}"}}}}"#)
        };
        let want = [
            format!(
                r#"{{"role":"assistant","content":"so","reasoning_content":"hm","tool_calls":[{},{}]}}"#,
                call("1", "f", r#"{\"a\":1}"#),
                call("2", "g", "{}")
            ),
            r#"{"role":"tool","content":"one","tool_call_id":"1"}"#.to_owned(),
            r#"{"role":"tool","content":"two","tool_call_id":"2"}"#.to_owned(),
            format!(
                r#"{{"role":"assistant","content":null,"reasoning_content":"s","tool_calls":[{}]}}"#,
                call("3", "f", "")
            ),
        ];
        assert_eq!(shown(None, given), format!("[{}]", want.join(",")));
    }
}

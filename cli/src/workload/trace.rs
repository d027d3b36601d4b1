//! Traces: a JSON object per line and request.
//!
//! Members are `arrival` (seconds from the start), `prompt` and `output` (tokens), and if wanted `prefix` with
//! `prefix_tokens` (requests with the same value of it begin with the same tokens), `priority` and `deadline` (seconds
//! from the arrival). Lines of Mooncake's traces (Qin et al. 2024, arXiv 2407.00079) are read as they are: `timestamp`
//! in milliseconds, `input_length`, `output_length`, and `hash_ids`, an id for every 512 tokens of the prompt.

use super::request::{Request, Segment, Workload, mixed};
use crate::Error;
use llmcc_frontends::input;
use serde_json::{Map, Value};
use std::path::Path;

/// Tokens that an id of `hash_ids` stands for.
const BLOCK: usize = 512;
/// Members of a line.
const MEMBERS: [&str; 7] = ["arrival", "prompt", "output", "prefix", "prefix_tokens", "priority", "deadline"];
/// Members of a line of Mooncake's.
const MOONCAKE: [&str; 4] = ["timestamp", "input_length", "output_length", "hash_ids"];

/// Reads a trace. Requests are sorted by their arrivals, which are counted from the first one.
///
/// # Errors
/// Not readable, or no regular file; a line that is no request: its line and member.
pub fn read(path: &Path) -> Result<Workload, Error> {
    let text = input::read_text(path)?;
    let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    let requests = parse(&text).map_err(|message| Error::Usage(format!("{}: {message}", path.display())))?;
    Ok(Workload { name: format!("{name}, {} requests", requests.len()), requests, users: None })
}

/// Reads the text of a trace.
///
/// # Errors
/// The first line that is no request, and why.
pub fn parse(text: &str) -> Result<Vec<Request>, String> {
    let mut all = vec![];
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        all.push(request(line).map_err(|message| format!("line {}: {message}", at + 1))?);
    }
    if all.is_empty() {
        return Err("it has no requests; give a JSON object per line, like {\"arrival\": 0.5, \"prompt\": 128, \
                    \"output\": 64}"
            .into());
    }
    all.sort_by(|a, b| a.arrival.total_cmp(&b.arrival));
    let first = all[0].arrival;
    all.iter_mut().for_each(|r| r.arrival -= first);
    Ok(all)
}

fn request(line: &str) -> Result<Request, String> {
    let value: Value = serde_json::from_str(line).map_err(|e| format!("no JSON: {e}"))?;
    let Value::Object(members) = value else { return Err("a request is a JSON object; this is none".into()) };
    let foreign = members.contains_key("timestamp");
    let known = if foreign { &MOONCAKE[..] } else { &MEMBERS[..] };
    if let Some(name) = members.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("there is no member {name:?} (known: {})", known.join(", ")));
    }
    if foreign { mooncake(&members) } else { own(&members) }
}

fn own(members: &Map<String, Value>) -> Result<Request, String> {
    let (prompt, output) = (tokens(members, "prompt")?, tokens(members, "output")?);
    let shared = match (members.get("prefix"), members.get("prefix_tokens")) {
        (None, None) => vec![],
        (Some(id), Some(_)) => vec![Segment { id: identity(id)?, tokens: tokens(members, "prefix_tokens")? }],
        (Some(_), None) => return Err("prefix: say how many tokens it has, too (prefix_tokens)".into()),
        (None, Some(_)) => return Err("prefix_tokens: say which beginning it is, too (prefix)".into()),
    };
    if let Some(segment) = shared.first().filter(|segment| segment.tokens > prompt) {
        return Err(format!("prefix_tokens: {} are more than the prompt's {prompt}", segment.tokens));
    }
    let priority = match members.get("priority") {
        None => 0,
        Some(value) => value
            .as_i64()
            .and_then(|priority| i32::try_from(priority).ok())
            .ok_or_else(|| format!("priority: {value} is no integer of 32 bits"))?,
    };
    let deadline = members.get("deadline").map(|_| seconds(members, "deadline")).transpose()?;
    Ok(Request { arrival: seconds(members, "arrival")?, prompt, output, shared, priority, deadline })
}

fn mooncake(members: &Map<String, Value>) -> Result<Request, String> {
    let (prompt, output) = (tokens(members, "input_length")?, tokens(members, "output_length")?);
    let ids = match members.get("hash_ids") {
        None => &[][..],
        Some(Value::Array(ids)) => ids,
        Some(value) => return Err(format!("hash_ids: {value} is no array of integers")),
    };
    let one = |(at, id): (usize, &Value)| {
        let id = id.as_u64().ok_or_else(|| format!("hash_ids: {id} is no integer"))?;
        let left = prompt.checked_sub(at * BLOCK).filter(|left| *left > 0);
        let left = left.ok_or_else(|| format!("hash_ids: more than one id for every {BLOCK} tokens of the prompt"))?;
        Ok(Segment { id, tokens: left.min(BLOCK) })
    };
    let shared = ids.iter().enumerate().map(one).collect::<Result<_, String>>()?;
    let arrival = seconds(members, "timestamp")? / 1e3;
    Ok(Request { arrival, prompt, output, shared, priority: 0, deadline: None })
}

/// A member that counts tokens.
fn tokens(members: &Map<String, Value>, name: &str) -> Result<usize, String> {
    let value = members.get(name).ok_or_else(|| format!("{name} is missing"))?;
    let count = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..1 << 31).contains(n));
    count.ok_or_else(|| format!("{name}: {value} is no count of tokens, at least 1"))
}

/// A member that is a time.
fn seconds(members: &Map<String, Value>, name: &str) -> Result<f64, String> {
    let value = members.get(name).ok_or_else(|| format!("{name} is missing"))?;
    let time = value.as_f64().filter(|time| (0.0..1e12).contains(time));
    time.ok_or_else(|| format!("{name}: {value} is no time, at least 0"))
}

/// The id of a beginning: an integer, or a text by its bytes.
fn identity(value: &Value) -> Result<u64, String> {
    match value {
        Value::String(text) => Ok(text.bytes().fold(text.len() as u64, |id, byte| mixed(id ^ u64::from(byte)))),
        Value::Number(_) => value.as_u64().ok_or_else(|| format!("prefix: {value} is no integer of 64 bits")),
        _ => Err(format!("prefix: {value} is neither an integer nor a text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_requests() {
        let text = r#"
            {"arrival": 1.5, "prompt": 100, "output": 20}
            {"arrival": 0.5, "prompt": 64, "output": 8, "prefix": "system", "prefix_tokens": 48, "priority": -2}

            {"arrival": 2, "prompt": 64, "output": 8, "prefix": 7, "prefix_tokens": 64, "deadline": 0.25}
        "#;
        let all = parse(text).unwrap();
        assert_eq!(all.iter().map(|r| r.arrival).collect::<Vec<_>>(), [0.0, 1.0, 1.5]);
        assert_eq!((all[0].prompt, all[0].output, all[0].priority, all[0].shared[0].tokens), (64, 8, -2, 48));
        assert_eq!((all[1].prompt, all[1].output, all[1].shared.len(), all[1].deadline), (100, 20, 0, None));
        assert_eq!((all[2].shared[0], all[2].deadline), (Segment { id: 7, tokens: 64 }, Some(0.25)));
    }

    #[test]
    fn lines_of_mooncake_are_requests() {
        let all = parse(r#"{"timestamp": 27482, "input_length": 600, "output_length": 52, "hash_ids": [46, 47]}"#);
        let all = all.unwrap();
        assert_eq!((all[0].arrival, all[0].prompt, all[0].output), (0.0, 600, 52));
        assert_eq!(all[0].shared, [Segment { id: 46, tokens: 512 }, Segment { id: 47, tokens: 88 }]);
    }

    #[test]
    fn faults_name_line_and_member() {
        let good = r#"{"arrival": 0, "prompt": 1, "output": 1}"#;
        for (line, parts) in [
            ("{", &["line 2", "no JSON"][..]),
            ("[1]", &["line 2", "object"]),
            (r#"{"arrival": 0, "prompt": 1}"#, &["line 2", "output is missing"]),
            (r#"{"arrival": 0, "prompt": 0, "output": 1}"#, &["prompt: 0", "at least 1"]),
            (r#"{"arrival": 0, "prompt": -1, "output": 1}"#, &["prompt: -1"]),
            (r#"{"arrival": 0, "prompt": 1.5, "output": 1}"#, &["prompt: 1.5"]),
            (r#"{"arrival": 0, "prompt": 1e300, "output": 1}"#, &["prompt: 1e+300"]),
            (r#"{"arrival": -1, "prompt": 1, "output": 1}"#, &["arrival: -1"]),
            (r#"{"arrival": "now", "prompt": 1, "output": 1}"#, &["arrival: \"now\""]),
            (r#"{"arrival": 0, "prompt": 1, "output": 1, "temperature": 1}"#, &["\"temperature\"", "priority"]),
            (r#"{"arrival": 0, "prompt": 1, "output": 1, "prefix": 1}"#, &["prefix_tokens"]),
            (r#"{"arrival": 0, "prompt": 1, "output": 1, "prefix_tokens": 1}"#, &["prefix"]),
            (r#"{"arrival": 0, "prompt": 1, "output": 1, "prefix": 1, "prefix_tokens": 2}"#, &["more than the prompt"]),
            (r#"{"arrival": 0, "prompt": 1, "output": 1, "prefix": [], "prefix_tokens": 1}"#, &["neither"]),
            (r#"{"arrival": 0, "prompt": 1, "output": 1, "priority": 1e10}"#, &["priority"]),
            (r#"{"arrival": 0, "prompt": 1, "output": 1, "deadline": null}"#, &["deadline: null"]),
            (r#"{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]}"#, &["hash_ids"]),
            (r#"{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": "1"}"#, &["hash_ids"]),
        ] {
            let error = parse(&format!("{good}\n{line}\n")).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)) && error.starts_with("line 2"), "{line}: {error}");
        }
        assert!(parse("\n \n").unwrap_err().contains("no requests"));
        let missing = read(Path::new("/nonexistent/trace.jsonl")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/trace.jsonl"), "{missing}");
    }
}

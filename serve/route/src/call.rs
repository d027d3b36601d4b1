//! A client's request as replicas get it: repeatable, and with the hash of its beginning.

use crate::error::Interface;
use crate::fleet::hash;
use crate::json::{Member, elements, members};
use axum::body::Bytes;
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use llmcc_serve::front::given_key;
use serde::Deserialize;
use std::borrow::Cow;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// The header by which replicas say which tokens an event brings.
pub(crate) const TRACE: HeaderName = HeaderName::from_static("x-llmcc-trace");
/// The header with the identifier and the time of an answer of `/v1/responses`, which every replica is to give it.
const CHOSEN: HeaderName = HeaderName::from_static("x-llmcc-response");
/// The member with the tokens that choices are expected to begin with.
const EXPECTED: &str = "expected_token_ids";
/// Bytes of a prompt that make a request like another one.
const BEGINNING: usize = 1024;
/// Bytes of a conversation's beginning, which reaches to the end of its first message of a user.
const TURN: usize = 16 << 10;
/// Seeds that are chosen here are below: every reader of JSON takes them.
const SEEDS: u64 = 1 << 53;
/// Headers that are of a connection alone, or made anew.
const OF_CONNECTION: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
];

/// The kind of answer that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Texts, which depend on the request alone.
    Text,
    /// An answer that a replica keeps, or one that goes on from it: its identifier.
    Kept(String),
    /// Anything else, which any replica can say.
    Any,
}

/// A client's request.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: PathAndQuery,
    headers: HeaderMap,
    body: Body,
    pub(crate) interface: Interface,
    pub(crate) kind: Kind,
    /// The hash of its beginning.
    pub(crate) key: u64,
    /// The client wants the trace, too.
    pub(crate) traced: bool,
    /// The identifier of the answer that it asks for, where replicas keep answers.
    pub(crate) id: Option<String>,
}

/// A request's body.
enum Body {
    Whole(Bytes),
    /// An object without its closing brace, and without the tokens that are expected.
    Open {
        text: Vec<u8>,
        /// The member with these, as the client gave it.
        expected: Vec<u8>,
    },
}

impl Call {
    /// The request of a client; `unforeseen`: for the choice of its seed, if it has none.
    pub(crate) fn new(head: Parts, body: Bytes, unforeseen: u64) -> Call {
        let mut path = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        if !path.as_str().starts_with('/') {
            path = PathAndQuery::from_static("/");
        }
        let (interface, writes) = interface(path.path());
        let mut headers = head.headers;
        let traced = headers.get(&TRACE).is_some_and(|value| value == "1");
        let tenant = hash(0, given_key(&headers).unwrap_or_default());
        let own = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
        let own: Vec<HeaderName> =
            own.flat_map(|names| names.split(',')).filter_map(|n| n.trim().parse().ok()).collect();
        // (A router before this one may have chosen an identifier.)
        let chosen = headers.remove(&CHOSEN).filter(|_| traced);
        OF_CONNECTION.iter().chain(&own).chain([&TRACE]).for_each(|name| drop(headers.remove(name)));
        let members = if head.method == Method::POST { members(&body) } else { None };
        let kind = kind(&head.method, path.path(), writes, members.as_deref().map(|all| (all, &body[..])));
        let key = members.as_deref().map_or(tenant, |all| beginning(tenant, all, &body));
        let body = match members.filter(|_| writes) {
            Some(members) => opened(&members, &body, interface, unforeseen % SEEDS),
            None => Body::Whole(body),
        };
        let mut call = Call { method: head.method, path, headers, body, interface, kind, key, traced, id: None };
        if call.can_resume() && RESPONSES.contains(&call.path.path()) {
            call.choose(chosen, unforeseen);
        }
        call
    }

    /// Gives its answer an identifier: the one that is there, or a new one.
    fn choose(&mut self, chosen: Option<HeaderValue>, unforeseen: u64) {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let other = crate::fleet::mixed(unforeseen);
        let new = || HeaderValue::from_str(&format!("resp_{unforeseen:016x}{other:016x}.{seconds}")).ok();
        let Some(chosen) = chosen.or_else(new) else { return };
        self.id = chosen.to_str().ok().and_then(|text| Some(text.split_once('.')?.0.to_owned()));
        self.headers.insert(CHOSEN, chosen);
    }

    /// Whether its stream can go on at another replica.
    pub(crate) fn can_resume(&self) -> bool {
        self.kind == Kind::Text && matches!(self.body, Body::Open { .. })
    }

    /// Its headers for a replica.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        if self.can_resume() {
            headers.insert(TRACE, HeaderValue::from_static("1"));
        }
        headers
    }

    /// Its body, where the client has these tokens of its choices already.
    pub(crate) fn body<'a>(&self, tokens: impl Iterator<Item = &'a [i32]>) -> Bytes {
        let (text, own) = match &self.body {
            Body::Whole(body) => return body.clone(),
            Body::Open { text, expected } => (text, expected),
        };
        let mut lists = String::new();
        for list in tokens {
            lists.push_str(if lists.is_empty() { "[" } else { ",[" });
            for (i, token) in list.iter().enumerate() {
                // (Writing to a text cannot fail.)
                let _ = write!(lists, "{}{token}", if i > 0 { "," } else { "" });
            }
            lists.push(']');
        }
        let member = match lists.is_empty() {
            true => own.clone(),
            false => format!(",\"{EXPECTED}\":[{lists}]").into_bytes(),
        };
        [text, &member[..], b"}"].concat().into()
    }
}

/// Whether a header is of a connection alone.
pub(crate) fn is_of_connection(name: &HeaderName) -> bool {
    OF_CONNECTION.contains(name)
}

/// The shape of a path's errors, and whether it writes texts.
pub(crate) fn interface(path: &str) -> (Interface, bool) {
    match path {
        "/v1/completions" | "/v1/chat/completions" => (Interface::OpenAi, true),
        "/v1/responses" => (Interface::OpenAi, true),
        "/v1/messages" => (Interface::Anthropic, true),
        "/chat/completions" => (Interface::OpenAi, true),
        "/responses" | "/completion" | "/completions" | "/infill" => (Interface::Llama, true),
        path if path.starts_with("/v1/messages/") => (Interface::Anthropic, false),
        "/embedding" | "/embeddings" | "/apply-template" | "/props" | "/slots" | "/lora-adapters" => {
            (Interface::Llama, false)
        }
        _ => (Interface::OpenAi, false),
    }
}

/// Paths that create answers which replicas keep.
const RESPONSES: [&str; 2] = ["/v1/responses", "/responses"];

fn kind(method: &Method, path: &str, writes: bool, body: Option<(&[Member], &[u8])>) -> Kind {
    if let Some(rest) = path.strip_prefix("/v1/responses/")
        && rest != "input_tokens"
    {
        return Kind::Kept(rest.split('/').next().unwrap_or_default().to_owned());
    }
    if RESPONSES.contains(&path) || path == "/v1/responses/input_tokens" {
        let value = |name: &str| {
            let (all, text) = body?;
            all.iter().find(|member| member.name == name).map(|member| &text[member.value.clone()])
        };
        let previous = value("previous_response_id").and_then(|value| serde_json::from_slice::<String>(value).ok());
        // (An answer in the background goes on without its client, and its replica has it.)
        let stays = value("background").is_some_and(|value| value != b"false" && value != b"null");
        match previous {
            Some(previous) => return Kind::Kept(previous),
            None if stays => return Kind::Any,
            None => {}
        }
    }
    if writes && *method == Method::POST { Kind::Text } else { Kind::Any }
}

/// The hash of a request's beginning: its tenant, and what its prompt begins with.
fn beginning(tenant: u64, members: &[Member], text: &[u8]) -> u64 {
    let of = |name: &str| members.iter().find(|member| member.name == name).map(|member| member.value.clone());
    let model = of("model").map_or(tenant, |at| hash(tenant, &text[at]));
    let model = of("cache_salt").map_or(model, |at| hash(model, &text[at]));
    if let Some(at) = of("messages") {
        let all = elements(text, at.clone());
        let first = all.iter().find(|one| is_users(&text[(*one).clone()]));
        let end = first.or(all.last()).map_or(at.end, |one| one.end);
        return hash(model, &text[at.start..end.min(at.start + TURN)]);
    }
    let names = ["prompt", "input", "input_prefix", "query", "text_1", "content"];
    match names.into_iter().find_map(of) {
        Some(at) => hash(model, &text[at.start..at.end.min(at.start + BEGINNING)]),
        None => model,
    }
}

/// Whether a message is a user's.
fn is_users(message: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        role: Cow<'a, str>,
    }
    serde_json::from_slice::<Message>(message).is_ok_and(|message| message.role == "user")
}

/// The object without its closing brace, and with a seed.
fn opened(members: &[Member], body: &[u8], interface: Interface, seed: u64) -> Body {
    let (mut text, mut expected, mut seeded) = (vec![b'{'], vec![], false);
    for member in members {
        let value = &body[member.value.clone()];
        if member.name == EXPECTED {
            expected.push(b',');
            expected.extend_from_slice(&body[member.whole.clone()]);
            continue;
        }
        if member.name == "seed" {
            // (For llama.cpp's clients -1 is none.)
            if value == b"null" || (interface == Interface::Llama && value == b"-1") {
                continue;
            }
            seeded = true;
        }
        text.extend_from_slice(&body[member.whole.clone()]);
        text.push(b',');
    }
    if seeded {
        // (It has a member, and so a comma behind it.)
        text.pop();
    } else {
        text.extend_from_slice(format!("\"seed\":{seed}").as_bytes());
    }
    Body::Open { text, expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use serde_json::{Value, json};

    fn call(method: &str, path: &str, body: &str) -> Call {
        let request = Request::builder().method(method).uri(path).header("authorization", "Bearer k").body(());
        Call::new(request.unwrap().into_parts().0, Bytes::copy_from_slice(body.as_bytes()), 42)
    }

    fn sent(call: &Call, tokens: &[&[i32]]) -> Value {
        serde_json::from_slice(&call.body(tokens.iter().copied())).unwrap()
    }

    #[test]
    fn requests_are_repeatable() {
        let path = "/v1/completions";
        for (body, want) in [
            (r#"{"prompt": "a"}"#, json!({ "prompt": "a", "seed": 42 })),
            (r#"{"seed": null, "prompt": "a"}"#, json!({ "prompt": "a", "seed": 42 })),
            (r#"{"seed": 7, "prompt": "a"}"#, json!({ "prompt": "a", "seed": 7 })),
            (r#"{"seed": -1}"#, json!({ "seed": -1 })),
            ("{}", json!({ "seed": 42 })),
        ] {
            assert_eq!(sent(&call("POST", path, body), &[]), want, "{body}");
        }
        assert_eq!(sent(&call("POST", "/completion", r#"{"seed": -1}"#), &[]), json!({ "seed": 42 }));
        let own = call("POST", path, r#"{"expected_token_ids": [[1]], "n": 2, "seed": 1}"#);
        assert_eq!(sent(&own, &[]), json!({ "n": 2, "seed": 1, "expected_token_ids": [[1]] }));
        let more = json!({ "n": 2, "seed": 1, "expected_token_ids": [[1, 2], []] });
        assert_eq!(sent(&own, &[&[1, 2], &[]]), more);
        // Whatever is no object the replica refuses.
        for body in ["[1]", "{", "", "{\"a\":1}x"] {
            let call = call("POST", path, body);
            assert!(!call.can_resume());
            assert_eq!(&call.body(std::iter::empty())[..], body.as_bytes());
        }
        let other = call("POST", "/v1/embeddings", r#"{"input": "a"}"#);
        assert_eq!(sent(&other, &[]), json!({ "input": "a" }));
    }

    #[test]
    fn answers_that_are_kept_have_an_identifier_for_all_replicas() {
        let path = "/v1/responses";
        let new = call("POST", path, r#"{"input": "a", "background": false}"#);
        assert!(new.can_resume());
        let id = new.id.clone().unwrap();
        assert!(id.starts_with("resp_") && id.len() == 37, "{id}");
        let header = new.headers()[&CHOSEN].to_str().unwrap().to_owned();
        assert_eq!(header.split_once('.').unwrap().0, id);
        for body in [r#"{"input": "a", "background": true}"#, r#"{"input": "a", "previous_response_id": "resp_1"}"#] {
            let call = call("POST", path, body);
            assert!(!call.can_resume() && call.id.is_none() && !call.headers().contains_key(&CHOSEN), "{body}");
        }
        // A client cannot choose it, a router before this one can.
        for (trace, kept) in [("0", false), ("1", true)] {
            let request = Request::builder().method("POST").uri(path).header(TRACE, trace).header(CHOSEN, "resp_x.1");
            let call = Call::new(request.body(()).unwrap().into_parts().0, Bytes::from_static(b"{}"), 42);
            assert_eq!(call.id.as_deref() == Some("resp_x"), kept);
        }
        assert!(call("POST", "/v1/completions", "{}").id.is_none());
    }

    #[test]
    fn beginnings_of_conversations_are_the_same() {
        let key = |body: &str| call("POST", "/v1/chat/completions", body).key;
        let turn = |more: &str| {
            key(&format!(
                r#"{{"messages": [{{"role": "system", "content": "s"}}, {{"role": "user", "content": "u"}}{more}]}}"#
            ))
        };
        let later = r#", {"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}"#;
        assert_eq!(turn(""), turn(later));
        assert_ne!(turn(""), key(r#"{"messages": [{"role": "user", "content": "v"}]}"#));
        let prompt = |text: &str| call("POST", "/v1/completions", &json!({ "prompt": text }).to_string()).key;
        let long = "a".repeat(BEGINNING);
        assert_eq!(prompt(&(long.clone() + "b")), prompt(&(long + "c")));
        assert_ne!(prompt("a"), prompt("b"));
    }

    #[test]
    fn kept_answers_have_a_home() {
        let kept = |id: &str| Kind::Kept(id.to_owned());
        assert_eq!(call("GET", "/v1/responses/resp_1?stream=true", "").kind, kept("resp_1"));
        assert_eq!(call("POST", "/v1/responses/resp_1/cancel", "").kind, kept("resp_1"));
        let next = r#"{"input": "a", "previous_response_id": "resp_2"}"#;
        assert_eq!(call("POST", "/v1/responses", next).kind, kept("resp_2"));
        assert_eq!(call("POST", "/v1/responses", r#"{"input": "a"}"#).kind, Kind::Text);
        assert_eq!(call("POST", "/v1/chat/completions", "{}").kind, Kind::Text);
        assert_eq!(call("GET", "/v1/models", "").kind, Kind::Any);
    }
}

//! Prompts that completions begin with, their log-probabilities, and gaps that completions fill.

use crate::client::post;
use crate::stand_in::{Running, StandIn, expected};
use serde_json::{Value, json};
use std::time::Duration;

const COMPLETIONS: &str = "/v1/completions";

#[test]
fn prompts_have_logprobs() {
    let s = Running::plain();
    let mut ask = json!({ "prompt": "hiya", "max_tokens": 2, "seed": 0, "echo": true, "logprobs": 2 });
    let whole = post(s.address, COMPLETIONS, &ask).json();
    let made = expected("hiya", 0, 2);
    let choice = &whole["choices"][0];
    assert_eq!(choice["text"], format!("hiya{made}"), "{whole}");
    let logprobs = &choice["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["h", "i", "y", "a", made[0..1], made[1..2]]));
    assert_eq!(logprobs["token_logprobs"], json!([null, -1.0, -2.0, -3.0, -0.5, -0.5]));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 3, 4, 5]));
    assert_eq!(
        (&logprobs["top_logprobs"][0], &logprobs["top_logprobs"][1]),
        (&Value::Null, &json!({ "i": -1.0, "A": -9.0 }))
    );
    ask["stream"] = true.into();
    let events = post(s.address, COMPLETIONS, &ask).events();
    let all: Vec<Value> = events
        .iter()
        .filter_map(|e| e.pointer("/choices/0/logprobs/token_logprobs")?.as_array().cloned())
        .flatten()
        .collect();
    assert_eq!(json!(all), logprobs["token_logprobs"], "{events:?}");
    (ask["stream"], ask["max_tokens"], ask["prompt"], ask["n"]) =
        (false.into(), 0.into(), json!(["ab", [104]]), 2.into());
    let none = post(s.address, COMPLETIONS, &ask).json();
    let texts: Vec<&Value> = none["choices"].as_array().expect("a list").iter().map(|c| &c["text"]).collect();
    assert_eq!(texts, ["ab", "ab", "h", "h"], "{none}");
    assert_eq!(none["choices"][1]["logprobs"]["token_logprobs"], json!([null, -1.0]));
    assert_eq!(none["usage"], json!({ "prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3 }));
    assert_eq!(s.model.all(), 2, "the engine has nothing to do");
    let mut ask = json!({ "prompt": "hi", "max_tokens": 1, "prompt_logprobs": 2 });
    let got = post(s.address, COMPLETIONS, &ask).json();
    let token =
        |logprob: f64, rank: u32, text: &str| json!({ "logprob": logprob, "rank": rank, "decoded_token": text });
    let want = json!([null, { "105": token(-1.0, 1, "i"), "65": token(-9.0, 2, "A") }]);
    assert_eq!(got["choices"][0]["prompt_logprobs"], want, "{got}");
    assert_eq!(got["choices"][0]["logprobs"], Value::Null);
    ask["stream"] = true.into();
    assert_eq!(post(s.address, COMPLETIONS, &ask).status, 400);
}

#[test]
fn gaps_are_filled_by_models_that_can() {
    let ask = json!({ "prompt": "ab", "suffix": "yz", "max_tokens": 3, "seed": 0, "echo": true });
    let s = Running::plain();
    let refused = post(s.address, COMPLETIONS, &ask);
    let error = &refused.json()["error"];
    assert_eq!((refused.status, &error["param"]), (400, &json!("suffix")), "{error}");
    assert!(error["message"].as_str().is_some_and(|m| m.contains("filling in the middle")), "{error}");
    let mut model = StandIn::new(4, Duration::ZERO);
    model.fills = true;
    let s = Running::start(model, |_| {});
    let got = post(s.address, COMPLETIONS, &ask).json();
    assert_eq!(got["choices"][0]["text"], format!("ab{}", expected("\u{1}ab\u{2}yz\u{3}", 0, 3)), "{got}");
}

//! Scores of pairs of texts over a stand-in for a model: by comparison, and by embeddings.

use crate::client::post;
use crate::stand_in::{Running, StandIn};
use serde_json::{Value, json};
use std::time::Duration;

/// A server of a model that compares texts: the score of a pair is the difference of their lengths.
fn reranker(activation: &str) -> Running {
    let mut model = StandIn::new(4, Duration::ZERO);
    (model.facts.writes, model.facts.embed_columns, model.facts.score_columns) = (false, 0, 1);
    model.facts.pair_activation = Some(activation.into());
    Running::start(model, |_| {})
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn near(given: &Value, wanted: f64) -> bool {
    given.as_f64().is_some_and(|given| (given - wanted).abs() < 1e-6)
}

#[test]
fn documents_are_ranked() {
    let s = reranker("sigmoid");
    let ask = json!({ "model": "letters", "query": "abc", "documents": ["abcd", { "text": "abc" }, "x", "y"] });
    for path in ["/rerank", "/v1/rerank", "/v2/rerank", "/reranking", "/v1/reranking"] {
        let got = post(s.address, path, &ask).json();
        let results = got["results"].as_array().unwrap_or_else(|| panic!("{got}"));
        let order: Vec<&Value> = results.iter().map(|r| &r["index"]).collect();
        assert_eq!(order, [2, 3, 1, 0], "{got}");
        assert!(
            near(&results[0]["relevance_score"], sigmoid(2.0)) && near(&results[3]["relevance_score"], sigmoid(-1.0))
        );
        assert_eq!(results[2]["document"], json!({ "text": "abc" }));
        assert_eq!(got["usage"]["total_tokens"], 4 * 3 + 4 + 3 + 1 + 1);
    }
    let mut ask = ask;
    (ask["top_n"], ask["return_documents"], ask["use_activation"]) = (1.into(), false.into(), false.into());
    let got = post(s.address, "/rerank", &ask).json();
    assert_eq!(got["results"], json!([{ "index": 2, "relevance_score": 2.0 }]));
    // TEI's names: the answer is a list.
    let ask = json!({ "query": "abc", "texts": ["abc", "x"], "use_activation": false });
    let listed = json!([{ "index": 1, "score": 2.0, "text": null }, { "index": 0, "score": 0.0, "text": null }]);
    assert_eq!(post(s.address, "/rerank", &ask).json(), listed);
    let shown = json!({ "query": "abc", "texts": ["x"], "return_text": true, "top_n": 1 });
    assert_eq!(post(s.address, "/rerank", &shown).json()[0]["text"], "x");
    for wrong in [
        json!({ "query": "x" }),
        json!({ "documents": ["x"] }),
        json!({ "query": "x", "documents": [] }),
        json!({ "query": "x", "documents": [1] }),
        json!({ "query": "x", "documents": [{ "txt": "x" }] }),
        json!({ "query": "x", "documents": ["x"], "top_n": -1 }),
        json!({ "query": "x", "documents": ["x"], "max_tokens_per_doc": 3 }),
        json!({ "query": "x", "documents": ["x"], "truncate_prompt_tokens": 5 }),
        json!({ "query": "x", "documents": vec!["x"; 2049] }),
        json!({ "query": "x", "documents": ["too long"] }),
    ] {
        let got = post(s.address, "/rerank", &wrong);
        assert!(got.status == 400 && got.json()["error"]["message"].is_string(), "{wrong:.80}: {}", got.text());
    }
    let cut = json!({ "query": "x", "documents": ["too long"], "truncate_prompt_tokens": -1 });
    assert_eq!(post(s.address, "/rerank", &cut).status, 200);
}

#[test]
fn pairs_have_scores() {
    let s = reranker("identity");
    let scores = |ask: Value| -> Vec<f64> {
        let got = post(s.address, "/v1/score", &ask);
        let got = got.json();
        let data = got["data"].as_array().unwrap_or_else(|| panic!("{got}"));
        data.iter().map(|d| d["score"].as_f64().expect("a number")).collect()
    };
    assert_eq!(scores(json!({ "text_1": "abc", "text_2": "a" })), [2.0]);
    assert_eq!(scores(json!({ "text_1": "abc", "text_2": ["a", "ab"] })), [2.0, 1.0]);
    assert_eq!(scores(json!({ "queries": ["abc", "a"], "documents": ["a", "ab"] })), [2.0, -1.0]);
    for wrong in [
        json!({ "text_1": ["a", "b"], "text_2": "a" }),
        json!({ "text_1": "a" }),
        json!({ "text_1": "a", "text_2": [] }),
        json!({ "text_1": "a", "text_2": "b", "data_1": "c" }),
    ] {
        assert_eq!(post(s.address, "/score", &wrong).status, 400, "{wrong}");
    }
    let unknown = reranker("tanh");
    let ask = |activate: bool| json!({ "text_1": "abc", "text_2": "a", "use_activation": activate });
    assert_eq!(post(unknown.address, "/score", &ask(true)).status, 400);
    assert_eq!(post(unknown.address, "/score", &ask(false)).status, 200);
}

#[test]
fn embeddings_are_compared_by_their_angle() {
    // (The stand-in's embedding of a text is its length and 0.5.)
    let s = Running::plain();
    let cosine = |a: f64, b: f64| (a * b + 0.25) / ((a * a + 0.25).sqrt() * (b * b + 0.25).sqrt());
    let got = post(s.address, "/score", &json!({ "text_1": "ab", "text_2": ["ab", "a"] })).json();
    assert!(near(&got["data"][0]["score"], 1.0) && near(&got["data"][1]["score"], cosine(2.0, 1.0)), "{got}");
    let got = post(s.address, "/rerank", &json!({ "query": "ab", "documents": ["a", "ab"] })).json();
    assert_eq!((&got["results"][0]["index"], &got["usage"]["total_tokens"]), (&json!(1), &json!(5)));
    let mut none = StandIn::new(4, Duration::ZERO);
    none.facts.embed_columns = 0;
    let none = Running::start(none, |_| {});
    let refused = post(none.address, "/rerank", &json!({ "query": "ab", "documents": ["a"] }));
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("unsupported")));
}

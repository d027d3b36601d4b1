//! Where requests go: those with the same beginning to one replica, and kept answers to the one that has them.

use crate::client::{get, reply, send};
use crate::routed::Routed;
use crate::stand_in::StandIn;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";

fn fleet(n: usize) -> Routed {
    Routed::new((0..n).map(|_| StandIn::new(64, Duration::from_millis(1))).collect())
}

#[test]
fn conversations_stay_at_their_replica() {
    let routed = fleet(3);
    let turns = |who: usize, n: usize| -> Value {
        let first = json!({ "role": "user", "content": format!("I am number {who}") });
        let more = (0..n).flat_map(|i| [("assistant", i), ("user", i)]);
        let more = more.map(|(role, i)| json!({ "role": role, "content": format!("turn {i}") }));
        let messages: Vec<Value> = std::iter::once(first).chain(more).collect();
        json!({ "messages": messages, "max_tokens": 2 })
    };
    let homes: Vec<usize> = (0..12).map(|who| routed.home(CHAT, &turns(who, 0))).collect();
    for (who, home) in homes.iter().enumerate() {
        assert_eq!(routed.home(CHAT, &turns(who, 3)), *home);
    }
    assert!(homes.iter().collect::<BTreeSet<_>>().len() > 1, "{homes:?}");
}

#[test]
fn kept_answers_are_found() {
    let routed = fleet(3);
    for stream in [false, true] {
        let ask = json!({ "input": "hi", "max_output_tokens": 4, "seed": 1, "stream": stream });
        let made = routed.post("/v1/responses", &ask);
        assert_eq!(made.status, 200, "{}", made.text());
        let text = made.text();
        let at = text.find("\"id\":\"resp_").expect("an id") + 6;
        let id = &text[at..at + text[at..].find('"').expect("an end")];
        let path = format!("/v1/responses/{id}");
        let got = get(routed.address, &path);
        assert_eq!((got.status, got.json()["id"].as_str()), (200, Some(id)), "{}", got.text());
        let next = json!({ "input": "on", "previous_response_id": id, "max_output_tokens": 4 });
        assert_eq!(routed.post("/v1/responses", &next).status, 200);
        // A router that does not know whose it is asks all.
        let other =
            Routed::of(vec![], |s| s.replicas = routed.fuses.iter().map(|f| format!("http://{}", f.address)).collect());
        assert_eq!(get(other.address, &path).status, 200);
        assert_eq!(reply(send(routed.address, "DELETE", &path, &[], b"")).status, 200);
        assert_eq!(get(routed.address, &path).status, 404);
    }
}

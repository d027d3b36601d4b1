//! Replicas that refuse, hang, end, or serve something else; clients that go away; routers that end.

use crate::client::{Reply, get, post, reply, send};
use crate::fuse::Plan;
use crate::routed::{Routed, constant};
use crate::stand_in::{Running, StandIn, expected, wait_for};
use llmcc_route::{RouteError, Router, Settings};
use llmcc_turns::Format;
use serde_json::{Value, json};
use std::io::Read;
use std::time::{Duration, Instant};

const COMPLETIONS: &str = "/v1/completions";

fn ask(tokens: u64, stream: bool) -> Value {
    json!({ "prompt": "hi", "max_tokens": tokens, "seed": 3, "stream": stream })
}

/// The text of a stream.
fn text(reply: &Reply) -> String {
    let events = reply.events();
    events.iter().filter_map(|event| event.pointer("/choices/0/text")?.as_str().map(str::to_owned)).collect()
}

fn slow() -> StandIn {
    StandIn::new(64, Duration::from_millis(5))
}

#[test]
fn documents_come_whole_from_another_replica() {
    let routed = Routed::letters();
    let whole = routed.post(COMPLETIONS, &ask(200, false));
    let home = routed.home(COMPLETIONS, &ask(1, false));
    for bytes in [0, 1, 100, 300, 500] {
        routed.fuses[home].set(Plan::Cut(1, bytes));
        let got = routed.post(COMPLETIONS, &ask(200, false));
        assert_eq!((got.status, constant(&got.text())), (200, constant(&whole.text())), "{bytes}");
        assert_eq!(routed.fuses[home].plan(), Plan::Pass);
    }
    routed.fuses[home].set(Plan::Cut(1, 20));
    assert_eq!(routed.post("/tokenize", &json!({ "prompt": "hi" })).json()["count"], 2);
    assert_eq!(get(routed.address, "/v1/models").json()["data"][0]["id"], "letters");
}

#[test]
fn refusals_and_errors() {
    let routed = Routed::letters();
    let home = routed.home(COMPLETIONS, &ask(1, false));
    for code in ["503 Service Unavailable", "502 Bad Gateway", "429 Too Many Requests"] {
        routed.fuses[home].set(Plan::Answer(format!("HTTP/1.1 {code}\r\nContent-Length: 2\r\n\r\n{{}}")));
        let got = routed.post(COMPLETIONS, &ask(9, true));
        assert_eq!(got.status, 200, "{code}: {}", got.text());
        assert_eq!(text(&got), expected("hi", 3, 9));
    }
    // The client hears a refusal of all.
    let busy = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}";
    routed.fuses.iter().for_each(|fuse| fuse.set(Plan::Answer(busy.into())));
    let got = routed.post(COMPLETIONS, &ask(9, true));
    assert_eq!((got.status, got.header("retry-after")), (429, Some("1")));
    routed.fuses.iter().for_each(|fuse| fuse.set(Plan::Pass));
    let wrong = routed.post(COMPLETIONS, &json!({ "prompt": "hi", "best_of": 3 }));
    assert!(wrong.status == 400 && wrong.text().contains("best_of"), "{}", wrong.text());
    assert_eq!(get(routed.address, "/nothing").status, 404);
    assert_eq!(routed.post("/models/load", &json!({ "model": "x" })).status, 501);
    let unread = reply(send(routed.address, "POST", COMPLETIONS, &[], b"{\"prompt\""));
    assert!(unread.status == 400 && unread.text().contains("no JSON"), "{}", unread.text());
    let bound = Router::bind(Settings { listen: ([0, 0, 0, 0], 0).into(), ..Settings::default() });
    assert!(matches!(bound, Err(RouteError::Open(_))));
    assert!(matches!(Router::bind(Settings::default()), Err(RouteError::Replicas(_))));
}

/// Where no replica is left, the error names all of them; in a stream, too.
#[test]
fn all_are_dead() {
    let routed = Routed::with(vec![slow(), slow()], |s| s.retry = Duration::from_millis(600));
    let home = routed.home(COMPLETIONS, &ask(1, false));
    let names: Vec<String> = routed.fuses.iter().map(|fuse| fuse.address.to_string()).collect();
    let other = &routed.fuses[1 - home];
    other.set(Plan::Dead);
    routed.fuses[home].set(Plan::Cut(1, 2500));
    let stream = send(routed.address, "POST", COMPLETIONS, &[], ask(60, true).to_string().as_bytes());
    wait_for("it is cut", || routed.fuses[home].plan() == Plan::Pass);
    routed.fuses[home].set(Plan::Dead);
    let got = reply(stream);
    let events = got.events();
    let error = &events.last().expect("some")["error"];
    let message = error["message"].as_str().expect("a message");
    assert!(events.len() > 2 && error["code"] == "no_replica", "{}", got.text());
    assert!(names.iter().all(|name| message.contains(name)), "{message}");
    let got = routed.post("/v1/messages", &json!({}));
    assert_eq!((got.status, got.json()["error"]["type"].as_str()), (503, Some("overloaded_error")), "{}", got.text());
    wait_for("not ready", || get(routed.address, "/ready").status == 503);
    assert_eq!(get(routed.address, "/health").status, 200);
    routed.fuses.iter().for_each(|fuse| fuse.set(Plan::Pass));
    wait_for("ready again", || get(routed.address, "/ready").status == 200);
    assert_eq!(routed.post(COMPLETIONS, &ask(9, false)).status, 200);
}

/// A replica that stands still, with open connections, is late for its health, and is left.
#[test]
fn replicas_that_hang_are_left() {
    let routed = Routed::with(vec![slow(), slow()], |s| s.connect = Duration::from_millis(200));
    let want = constant(&routed.post(COMPLETIONS, &ask(40, true)).text());
    let home = routed.home(COMPLETIONS, &ask(1, false));
    routed.fuses[home].set(Plan::Hang(3000));
    let began = Instant::now();
    assert_eq!(constant(&routed.post(COMPLETIONS, &ask(40, true)).text()), want);
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(routed.count("resumed_streams_total"), 1);
    // Where its health goes on, the stream alone may be late: comments do not count.
    let replicas = (0..2).map(|_| Running::start(slow(), |s| s.quiet = Duration::from_millis(50))).collect();
    let routed = Routed::of(replicas, |s| s.stall = Some(Duration::from_millis(300)));
    let home = routed.home(COMPLETIONS, &ask(1, false));
    let stream = send(routed.address, "POST", COMPLETIONS, &[], ask(100, true).to_string().as_bytes());
    wait_for("it runs", || routed.replicas[home].model.live() > 0);
    routed.replicas[home].model.pause(true);
    assert_eq!(text(&reply(stream)), expected("hi", 3, 100));
}

/// Servers that end, by a signal or because their engine does, hand their streams over.
#[test]
fn replicas_that_end_hand_over() {
    for breaks in [false, true] {
        let replicas = (0..2).map(|_| Running::start(slow(), |s| s.drain = Duration::from_millis(50))).collect();
        let routed = Routed::of(replicas, |_| {});
        let want = constant(&routed.post(COMPLETIONS, &ask(60, true)).text());
        let home = routed.home(COMPLETIONS, &ask(1, false));
        let stream = send(routed.address, "POST", COMPLETIONS, &[], ask(60, true).to_string().as_bytes());
        wait_for("it runs", || routed.replicas[home].model.live() > 0);
        std::thread::sleep(Duration::from_millis(50));
        match breaks {
            true => routed.replicas[home].model.break_down(),
            false => routed.replicas[home].stopper.stop(),
        }
        assert_eq!(constant(&reply(stream).text()), want);
        assert_eq!(routed.count("resumed_streams_total"), 1);
        assert_eq!(text(&routed.post(COMPLETIONS, &ask(5, true))), expected("hi", 3, 5));
    }
}

/// A replica with another text, or of another model, does not go on.
#[test]
fn other_models_are_noticed() {
    let saying = |says: fn(&str) -> String| {
        let model = StandIn::saying(Format::default(), &[], says);
        Running::start(model, |_| {})
    };
    let letters: fn(&str) -> String = |_| "abcdefghijklmnopqrstuvwxyz".into();
    let other: fn(&str) -> String = |_| "abcdeXghijklmnopqrstuvwxyz".into();
    let ask = json!({ "prompt": "hi", "max_tokens": 100, "stream": true });
    let routed = Routed::of(vec![saying(letters), saying(other)], |s| s.retry = Duration::from_millis(500));
    let home = routed.home(COMPLETIONS, &ask);
    // Long after the place where the texts part; the replica itself is dead then.
    routed.fuses[home].set(Plan::Cut(50, 4000));
    let got = routed.post(COMPLETIONS, &ask);
    let error = got.events().last().expect("some")["error"].clone();
    let message = error["message"].as_str().unwrap_or_else(|| panic!("{}", got.text()));
    assert!(message.contains("another text (choice 0, token 5)"), "{message}");
    assert!(routed.count("different_texts_total") > 0);
}

#[test]
fn clients_that_go_cancel() {
    let routed = Routed::with(vec![slow(), slow()], |_| {});
    let stream = send(routed.address, "POST", COMPLETIONS, &[], ask(100_000, true).to_string().as_bytes());
    (&stream).read_exact(&mut [0; 400]).expect("begins");
    drop(stream);
    let live = || routed.replicas.iter().map(|replica| replica.model.live()).sum::<usize>();
    wait_for("nobody reads it", || live() == 0);
    let whole = send(routed.address, "POST", COMPLETIONS, &[], ask(100_000, false).to_string().as_bytes());
    wait_for("it runs", || live() > 0);
    drop(whole);
    wait_for("nobody waits for it", || live() == 0);
}

/// A client that reads slowly holds up its replica, and no memory is filled.
#[test]
fn slow_clients_hold_up_their_stream() {
    let routed = Routed::with(vec![StandIn::new(64, Duration::ZERO)], |_| {});
    let stream = send(routed.address, "POST", COMPLETIONS, &[], ask(3000, true).to_string().as_bytes());
    std::thread::sleep(Duration::from_millis(300));
    let got = reply(stream);
    // (The server cuts off who leaves 2048 tokens unread; buffers of the sockets have the others.)
    assert!(got.events().len() > 100);
}

#[test]
fn keys_are_checked_and_passed_on() {
    let secret = || vec!["secret".to_owned()];
    let replica = Running::start(slow(), |s| s.keys = secret());
    let routed = Routed::of(vec![replica], |s| s.keys = secret());
    assert_eq!(routed.post(COMPLETIONS, &ask(2, false)).status, 401);
    assert_eq!(get(routed.address, "/metrics").status, 401);
    assert_eq!(get(routed.address, "/ready").status, 200);
    let key = [("Authorization", "Bearer secret")];
    let body = ask(2, false).to_string();
    assert_eq!(reply(send(routed.address, "POST", COMPLETIONS, &key, body.as_bytes())).status, 200);
    // Without keys, pages elsewhere whose names lead here are refused.
    let open = Routed::letters();
    let mut foreign = std::net::TcpStream::connect(open.address).expect("connected");
    std::io::Write::write_all(&mut foreign, b"GET /v1/models HTTP/1.1\r\nHost: evil.com\r\nConnection: close\r\n\r\n")
        .expect("written");
    assert_eq!(reply(foreign).status, 403);
}

#[test]
fn routers_end_after_their_streams() {
    let mut routed = Routed::with(vec![slow(), slow()], |_| {});
    let stream = send(routed.address, "POST", COMPLETIONS, &[], ask(60, true).to_string().as_bytes());
    (&stream).read_exact(&mut [0; 20]).expect("begins");
    routed.stopper.stop();
    wait_for("not ready", || get(routed.address, "/ready").status == 503);
    assert_eq!(post(routed.address, COMPLETIONS, &ask(2, false)).status, 503);
    let mut rest = String::new();
    (&stream).read_to_string(&mut rest).expect("ends");
    assert!(rest.contains("[DONE]"), "{rest}");
    routed.join();
}

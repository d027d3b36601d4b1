//! Many streams at once: each is as it would be alone, and the time that the router adds is printed.

use crate::client::post;
use crate::fuse::Plan;
use crate::routed::{Routed, THREAD, constant};
use crate::stand_in::StandIn;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::thread::scope;
use std::time::{Duration, Instant};

const STREAMS: u64 = 48;
const COMPLETIONS: &str = "/v1/completions";

fn ask(i: u64, tokens: u64) -> Value {
    json!({ "prompt": format!("number {i}"), "max_tokens": tokens, "seed": i, "stream": true })
}

/// Texts of streams of some servers, which take turns.
fn of(servers: &[SocketAddr], tokens: u64) -> Vec<String> {
    scope(|s| {
        let one = |i: u64| {
            let server = servers[i as usize % servers.len()];
            s.spawn(move || constant(&post(server, COMPLETIONS, &ask(i, tokens)).text()))
        };
        let all: Vec<_> = (0..STREAMS).map(one).collect();
        all.into_iter().map(|one| one.join().expect("no panic")).collect()
    })
}

fn all(routed: &Routed, tokens: u64) -> Vec<String> {
    of(&[routed.address], tokens)
}

#[test]
fn many_streams_outlive_a_replica() {
    let routed = Routed::new((0..3).map(|_| StandIn::new(64, Duration::from_millis(2))).collect());
    let alone: Vec<String> =
        (0..STREAMS).map(|i| constant(&post(routed.replicas[0].address, COMPLETIONS, &ask(i, 60)).text())).collect();
    let together = scope(|s| {
        let together = s.spawn(|| all(&routed, 60));
        std::thread::sleep(Duration::from_millis(60));
        routed.fuses[1].set(Plan::Cut(100, 3000));
        together.join().expect("no panic")
    });
    assert_eq!(together, alone);
    routed.fuses[1].set(Plan::Cut(100, 2500));
    assert_eq!(all(&routed, 60), alone);
    assert!(routed.count("resumed_streams_total") > 5);
}

/// Seconds of the processor that routers of this process have taken.
fn seconds() -> f64 {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let tasks = std::fs::read_dir("/proc/self/task").expect("listed").flatten().map(|task| task.path());
    let routers = tasks.filter(|task| read(task.join("comm")).trim() == THREAD);
    let ns = routers.filter_map(|task| read(task.join("schedstat")).split(' ').next()?.parse::<f64>().ok());
    ns.sum::<f64>() / 1e9
}

/// Time that the router adds to a token: run with `--nocapture` in a release build.
#[test]
fn the_router_adds_little() {
    let (tokens, replicas) = (200, 2);
    let routed = Routed::new((0..replicas).map(|_| StandIn::new(64, Duration::from_millis(20))).collect());
    let servers: Vec<SocketAddr> = routed.replicas.iter().map(|replica| replica.address).collect();
    let began = Instant::now();
    let want = of(&servers, tokens);
    let direct = began.elapsed().as_secs_f64();
    let (began, before) = (Instant::now(), seconds());
    let got = all(&routed, tokens);
    let (took, own) = (began.elapsed().as_secs_f64(), seconds() - before);
    let page = crate::client::get(routed.address, "/metrics").text();
    let value = |name: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("llmcc_route_{name} ")).map(str::to_owned));
        line.and_then(|n| n.parse().ok()).expect("a number")
    };
    let (parts, in_parts) = (value("parts_total"), value("part_seconds_total"));
    println!(
        "{STREAMS} streams of {tokens} tokens: {direct:.2} s without the router, {took:.2} s with it: {:.3} ms more \
         for a token; {:.1} % of a core; {parts} parts, {:.1} us each in the code between two sockets",
        1e3 * (took - direct) / tokens as f64,
        1e2 * own / took,
        1e6 * in_parts / parts
    );
    assert_eq!(got, want);
    assert!(in_parts / parts < 1e-3, "{in_parts} s for {parts} parts");
}

//! Modules in which one entry reads what another one stores for tokens of its own.

use super::verify_module;
use crate::text::{parse_module, print_module};

/// A decoder of one operation over a source that `encode` stores; `attention` says how it is read.
fn module(attention: &str, source: &str, bias: &str) -> String {
    format!(
        "module \"two\" {{
  info vocab=4 hidden=4 max_context=8
  weight 0 \"table\": f32[4, 4]
  weight 1 \"$bias\": f32[2] = [0.5, 0.25]
  kv 0: {source}
  func @read(
    %table: f32[4, 4] shared_weight,
    %tokens: i32[T],
    %positions: i32[T],
    %out_rows: i32[R],
    %source: {source} state,{bias_param}
  ) -> (f32[R, 4]) {{
    %x = embed(%table, %tokens) : f32[T, 4]
    %a = {attention}(%x, %source, %positions{bias}) : f32[T, 4]
    %r = gather_rows(%a, %out_rows) : f32[R, 4]
    %l = matmul(%r, %table) : f32[R, 4]
    return %l
  }}
  func @store(
    %table: f32[4, 4] shared_weight,
    %tokens: i32[T],
    %positions: i32[T],
    %source: {source} state,
  ) -> () {{
    %x = embed(%table, %tokens) : f32[T, 4]
    %y = kv_append(%source, %x, %x, %positions) : {source}
    return
  }}
  entry @step {{
    %0 = @read(weight 0, tokens, positions, out_rows, kv 0{bias_arg})
    logits %0
  }}
  entry @encode {{
    @store(weight 0, tokens, positions, kv 0)
  }}
}}
",
        bias_param = if bias.is_empty() { "" } else { "\n    %bias: f32[2] weight," },
        bias_arg = if bias.is_empty() { "" } else { ", weight 1" },
    )
}

fn codes(text: &str) -> Vec<&'static str> {
    let module = parse_module(text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    assert_eq!(parse_module(&print_module(&module)).expect("as printed"), module);
    verify_module(&module).iter().map(|d| d.code).filter(|code| *code != "unused-weight").collect()
}

/// All of a source is read, whatever the positions of the tokens that read it. The entry that stores it gives nothing.
#[test]
fn sources_are_read_whole() {
    let whole = "attention{heads=2, scale=0.5, causal=false}";
    assert_eq!(codes(&module(whole, "kv<f32, 2x2>", "")), [""; 0]);
    let tracks = parse_module(&module(whole, "kv<f32, 2x2>", "")).expect("a module").tracks();
    assert_eq!((tracks.entries, tracks.states), (vec![0, 1], vec![1]));
    for (attention, source, bias) in [
        ("attention{heads=2, scale=0.5}", "kv<f32, 2x2>", ""),
        (whole, "kv<f32, 2x2, window 4>", ""),
        ("attention{heads=2, scale=0.5, causal=false, biased=true}", "kv<f32, 2x2>", ", %bias"),
    ] {
        assert_eq!(codes(&module(attention, source, bias)), ["state-calls"], "{attention} {source}");
    }
}

/// The first entry gives something, and so does one that updates nothing.
#[test]
fn entries_that_give_nothing_update_states() {
    let text = module("attention{heads=2, scale=0.5, causal=false}", "kv<f32, 2x2>", "");
    let mut m = parse_module(&text).expect("a module");
    m.entries[0].outputs.clear();
    assert!(verify_module(&m).iter().any(|d| d.code == "output"));
    let mut m = parse_module(&text).expect("a module");
    m.entries[1].calls.clear();
    assert!(verify_module(&m).iter().any(|d| d.code == "output"));
}

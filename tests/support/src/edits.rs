//! A kernel with one thing about it changed: whatever its text says has to matter to a backend, or
//! be refused by it.
//!
//! The changes are made in the text, word by word, so that a field that a family gets is changed as
//! well: a family's text must say all of its fields ([`check`] looks), and each must be changed.

use crate::recurrent::fixed_numbers;
use crate::{Case, Gen};
use llmcc_ir::eval::OperandData;
use llmcc_ir::kernel::{Attention, Body, Field, Kernel, ParamId, ParamKind};
use llmcc_ir::state::{State, StateSpec};
use llmcc_ir::text::{parse_kernel, print_kernel};
use std::collections::BTreeSet;

/// Words after which a number says how work is cut, which does not change results.
const CUTS: [&str; 3] = ["k_parts", "tile_m", "tile_n"];
/// Words that rows and widths of the operands imply as well: one without the other is refused by
/// the verifier.
const TIED: [&str; 6] = ["gather", "heads", "side", "sums", "width", "axes"];

/// Changes every field in kernels of a family, in `texts`. `run`: the operands after a kernel,
/// `None` if the backend refuses it. The result of a changed kernel must be nearer to the change's
/// meaning than to the kernel's meaning before.
///
/// # Panics
/// When it is not, or when a field of the family is in no text or is never changed.
pub fn check(texts: &[&str], run: &dyn Fn(&Case) -> Option<Vec<OperandData<'static>>>) {
    check_but(&[], texts, run);
}

/// The same, but for flags that the backend refuses, `left`.
///
/// # Panics
/// As [`check`].
pub fn check_but(left: &[&str], texts: &[&str], run: &dyn Fn(&Case) -> Option<Vec<OperandData<'static>>>) {
    let (mut changed, mut all) = (BTreeSet::new(), BTreeSet::new());
    for text in texts {
        let base = case_of(text).unwrap_or_else(|| panic!("the verifier refuses\n{text}"));
        all.extend(fields(&base.kernel));
        let (text, before) = (print_kernel(&base.kernel), base.expected());
        assert!(run(&base).is_some(), "the backend refuses\n{text}");
        for (key, edited) in edits(&text) {
            let Some(case) = case_of(&edited).filter(|c| c.operands.len() == base.operands.len()) else { continue };
            let wanted = case.expected();
            // A change that means nothing here (two vectors that are multiplied change places).
            if distance(&before, &wanted) < 1e-3 {
                continue;
            }
            changed.insert(key);
            let Some(got) = run(&case) else { continue };
            let (old, new) = (distance(&got, &before), distance(&got, &wanted));
            assert!(new < 0.1 * old, "{new} from what was changed, {old} from what was\n{edited}instead of\n{text}");
        }
    }
    for field in all.into_iter().filter(|field| !left.contains(field)) {
        assert!(changed.contains(field), "`{field}` is not in the texts, or never changed\n{texts:?}{changed:?}");
    }
}

/// Words that the text of a kernel needs, so that each of its fields may be changed.
fn fields(kernel: &Kernel) -> Vec<&'static str> {
    let mut out = vec![];
    for (name, field) in kernel.body.fields() {
        match field {
            Field::Operand(_) | Field::Segments(_) => {}
            Field::Size(_) | Field::SizeOr1(_) if CUTS.contains(&name) => {}
            // Which words there are is not in the text.
            Field::Word(_) => {}
            Field::Flag(_) | Field::Size(_) if TIED.contains(&name) => {}
            Field::Norm(_) => out.extend(["eps", "width", "center"]),
            Field::Prologue(_) => out.extend(["eps", "width", "center", "gain", "bias"]),
            Field::Optional(_)
            | Field::Size(_)
            | Field::Sizes(_)
            | Field::SizeOr1(_)
            | Field::SizeIf(_)
            | Field::Real(_)
            | Field::RealIf(_)
            | Field::RealOr1(_)
            | Field::Flag(_) => out.push(name),
        }
    }
    out
}

/// A piece of a text: a word with its signs, or a separator.
fn words(text: &str) -> Vec<&str> {
    let of_word = |c: char| c.is_alphanumeric() || "%_.-".contains(c);
    let mut out = vec![];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| of_word(c) != of_word(first)).unwrap_or(rest.len());
        out.push(&rest[..end]);
        rest = &rest[end..];
    }
    out
}

/// The name of the list that word `i` is in.
fn list_of<'a>(words: &[&'a str], i: usize) -> Option<&'a str> {
    let open = words[..i].iter().rposition(|w| *w == "=[")?;
    let left = words[open..i].iter().any(|w| w.starts_with(']'));
    words.get(open.checked_sub(1)?).copied().filter(|_| !left)
}

/// Texts that differ in one place: another number, another operand, or a word or a part with its
/// operand left out. With the word that was changed.
fn edits(text: &str) -> Vec<(String, String)> {
    let words = words(text);
    let operands: Vec<&str> =
        words.windows(3).filter(|w| w[0] == "param").map(|w| w[2]).collect::<BTreeSet<_>>().into_iter().collect();
    let mut out = vec![];
    let mut edit = |key: &str, range: std::ops::Range<usize>, with: &str| {
        out.push((key.to_string(), [&words[..range.start], &[with], &words[range.end..]].concat().concat()));
    };
    let body = words.iter().rposition(|w| *w == "param").map_or(0, |i| i + 3);
    for (i, word) in words.iter().enumerate() {
        let key = if i >= 2 && words[i - 1] == "=" { words[i - 2] } else { list_of(&words, i).unwrap_or(word) };
        let of_state = i >= 2 && ["window", "every"].contains(&words[i - 2]);
        if i <= body && !of_state || CUTS.contains(&key) {
            continue;
        }
        let key = if of_state { words[i - 2] } else { key };
        if let Ok(n) = word.parse::<usize>() {
            [n / 2, n * 2, n + 1].iter().for_each(|n| edit(key, i..i + 1, &n.to_string()));
        } else if let Some(n) = word.strip_suffix("..").and_then(|n| n.parse::<usize>().ok()) {
            edit("start", i..i + 1, &format!("{}..", n + 1));
        } else if let Ok(x) = word.parse::<f64>() {
            edit(key, i..i + 1, &format!("{:?}", 1.5 * x + 0.25));
        } else if word.starts_with('%') {
            operands.iter().filter(|o| *o != word).for_each(|o| edit(key, i..i + 1, o));
            if words[i - 1] == "=" {
                // With a comma behind it, or before it.
                let behind = words.get(i + 1) == Some(&", ");
                edit(key, if behind { i - 2..i + 2 } else { i - 3..i + 1 }, if behind { "" } else { " " });
            }
        } else if word.chars().all(|c| c.is_alphabetic() || c == '_') && words.get(i + 1) != Some(&"=") {
            edit(key, i..i + 1, "");
            edit(key, i - 1..i + 1, "");
        }
    }
    out
}

/// The kernel with random operands, the same for all texts of the same operands; `None` where it
/// does not read or the verifier refuses it.
fn case_of(text: &str) -> Option<Case> {
    let kernel = parse_kernel(text).ok()?;
    kernel.check().ok()?;
    let mut g = Gen::new(7, 4, 30);
    g.rows = kernel.rows;
    let written = kernel.written();
    // Outputs were never written before.
    if kernel.body.operands().iter().any(|(p, used)| !used.write && written.contains(p)) {
        return None;
    }
    for (i, p) in kernel.params.iter().enumerate() {
        match p.kind {
            ParamKind::Rows { cols, elem, .. } if written.contains(&i) => g.output(cols, elem),
            ParamKind::Rows { rows, cols, .. } => g.input(rows, cols),
            ParamKind::Matrix { n, k, format } => g.matrix(n, k, format),
            ParamKind::Vector { len } => g.vector(len),
            ParamKind::State(spec) => state_of(&mut g, spec),
        };
    }
    if let Body::EmbedHashed(k) = &kernel.body {
        g.change_rows(k.ids, |x| (x.abs() * 1000.0).floor());
    }
    if let Body::Attention(Attention { selected: Some(p), .. }) = &kernel.body {
        g.selections(*p);
    }
    Some(g.case_named(kernel))
}

/// A state of random numbers, keys and values of all positions that the step's tokens see.
fn state_of(g: &mut Gen, spec: StateSpec) -> ParamId {
    if let Some(spec) = spec.fixed() {
        return g.fixed(*spec);
    }
    if let Some(spec) = spec.adapter() {
        return g.adapter(*spec);
    }
    let mut state = State::new(spec);
    if let Some(kv) = state.paged_mut() {
        let spec = kv.spec;
        for t in 0..g.batch.tokens.len() {
            for position in 0..=g.batch.positions[t] as usize {
                let mut row = |key| g.rng.floats(spec.width(key)).into_iter().map(f64::from).collect::<Vec<_>>();
                let (key, value) = (row(true), row(false));
                kv.store_key(g.batch.seqs[t], position, &key);
                kv.store_value(g.batch.seqs[t], position, &value);
            }
        }
    }
    g.state(state)
}

/// The largest difference of a number; infinite where only one is a number.
fn distance(a: &[OperandData<'_>], b: &[OperandData<'_>]) -> f64 {
    let of = |(a, b): (f64, f64)| match (a.is_nan(), b.is_nan()) {
        (true, true) => 0.0,
        (false, false) => (a - b).abs(),
        (true, false) | (false, true) => f64::INFINITY,
    };
    a.iter().zip(b).flat_map(|(a, b)| numbers(a).into_iter().zip(numbers(b))).map(of).fold(0.0, f64::max)
}

/// Numbers that kernels write to an operand.
fn numbers(x: &OperandData<'_>) -> Vec<f64> {
    match x {
        OperandData::Rows(r) => r.data.iter().map(|v| f64::from(*v)).collect(),
        OperandData::Q8(r) => (0..r.scales.len() / r.groups().max(1)).flat_map(|i| r.row(i)).collect(),
        OperandData::Fp8(r) => (0..r.scales.len()).flat_map(|i| r.row(i)).collect(),
        OperandData::State(state) => fixed_numbers(state),
        OperandData::Matrix(_) | OperandData::Vector(_) => vec![],
    }
}

/// A row norm that has all parts.
pub const ROW_NORM: &str = "kernel @norm rows T {
  param %x: rows f32[T, 64]
  param %gain: vector f32[64]
  param %bias: vector f32[64]
  param %residual: rows f32[T, 64]
  param %out: rows f32[T, 64]
  row_norm x=%x norm{eps=0.5, width=32, center} gain=%gain bias=%bias residual=%residual out=%out
}
";

/// A row norm that gathers.
pub const GATHER: &str = "kernel @gather rows R {
  param %x: rows f32[T, 64]
  param %gain: vector f32[64]
  param %bias: vector f32[64]
  param %out: rows f32[R, 64]
  row_norm x=%x gather norm{eps=0.5, width=32, center} gain=%gain bias=%bias out=%out
}
";

/// A look-up that has all parts.
pub const EMBED: &str = "kernel @embed rows T {
  param %table: matrix f32[40, 64]
  param %add: rows f32[T, 64]
  param %out: rows f32[T, 64]
  embed table=%table positions scale=1.75 add=%add out=%out
}
";

/// One by types.
pub const EMBED_TYPES: &str = "kernel @embed rows T {
  param %table: matrix f32[40, 64]
  param %out: rows f32[T, 64]
  embed table=%table types out=%out
}
";

/// One by steps of positions.
pub const EMBED_STEPS: &str = "kernel @embed rows T {
  param %table: matrix f32[40, 64]
  param %out: rows f32[T, 64]
  embed table=%table positions every=3 shift=1 out=%out
}
";

/// A look-up by hashes.
pub const EMBED_HASHED: &str = "kernel @embed rows T {
  param %table: matrix f32[400, 64]
  param %ids: rows f32[T, 3]
  param %out: rows f32[T, 256]
  embed_hashed table=%table ids=%ids factors=[23703573157769, 20109073645365, 805291] sizes=[31, 37, 41, 43] out=%out
}
";

/// Cosines and sines.
pub const ROPE_TABLE: &str = "kernel @table rows T {
  param %freq: vector f32[8]
  param %out: rows f32[T, 16]
  rope_table inv_freq=%freq scale=1.25 out=%out
}
";

/// A product with all parts of a prologue, and an epilogue of most expressions.
pub const MATMUL: &str = "kernel @product rows T {
  param %x: rows f32[T, 64]
  param %gain: vector f32[64]
  param %bias: vector f32[64]
  param %a: matrix f32[64, 64]
  param %b: matrix f32[64, 64]
  param %v: vector f32[64]
  param %more: rows f32[T, 80]
  param %t: rows f32[T, 16]
  param %y: rows f32[T, 160]
  matmul x=%x prologue{norm{eps=0.5, width=32, center}, gain=%gain, bias=%bias} tile_m=4 {
    segment n=64 tile_n=64 weights(%a, %b): %y[8..] = silu(acc0) * acc1 + %more[7..]
    segment n=64 tile_n=64 weights(%a): %y[80..] = rope{head_dim=32, table=%t}(norm{eps=0.5, width=16, center}(acc0)*%v)
  }
}
";

/// Attention with a window, a softcap and sinks.
pub const ATTENTION: &str = "kernel @attention rows T {
  param %q: rows f32[T, 64]
  param %kv: kv<f32, 2x16, window 6>
  param %sinks: vector f32[4]
  param %out: rows f32[T, 64]
  attention q=%q kv=%kv heads=4 scale=0.25 softcap=1.5 sinks=%sinks out=%out
}
";

/// Attention in chunks, with slopes.
pub const CHUNKED: &str = "kernel @attention rows T {
  param %q: rows f32[T, 64]
  param %kv: kv<f32, 2x16, window 6>
  param %sinks: vector f32[4]
  param %slopes: vector f32[4]
  param %out: rows f32[T, 64]
  attention q=%q kv=%kv heads=4 scale=0.25 sinks=%sinks bias=%slopes chunked out=%out
}
";

/// Attention with a table of biases by distance.
pub const BIASED: &str = "kernel @attention rows T {
  param %q: rows f32[T, 64]
  param %kv: kv<f32, 2x16>
  param %near: vector f32[12]
  param %far: vector f32[28]
  param %out: rows f32[T, 64]
  attention q=%q kv=%kv heads=4 scale=0.25 bias=%far bidirectional out=%out
}
";

/// Attention that sees later tokens.
pub const BIDIRECTIONAL: &str = "kernel @attention rows T {
  param %q: rows f32[T, 64]
  param %kv: kv<f32, 2x16>
  param %out: rows f32[T, 64]
  attention q=%q kv=%kv heads=4 scale=0.25 bidirectional out=%out
}
";

/// Attention whose distances, up to one either way, have keys and queries.
pub const RELATIVE: &str = "kernel @attention rows T {
  param %q: rows f32[T, 64]
  param %kv: kv<f32, 2x16>
  param %near: vector f32[192]
  param %far: vector f32[192]
  param %out: rows f32[T, 64]
  attention q=%q kv=%kv heads=4 scale=0.25 relative_keys=%near relative_queries=%far bidirectional out=%out
}
";

/// Attention over a latent, whose queries are in two parts.
pub const LATENT: &str = "kernel @attention rows T {
  param %q: rows f32[T, 64]
  param %own: rows f32[T, 64]
  param %kv: kv<f32, 1x32/16, latent>
  param %out: rows f32[T, 64]
  attention q=%q own=%own kv=%kv heads=4 scale=0.25 out=%out
}
";

/// Attention to some of the rows that are keys and values.
pub const ROWS: &str = "kernel @attention rows T {
  param %q: rows f32[T, 64]
  param %kv: kv<f32, 1x16, latent, every 2>
  param %sinks: vector f32[4]
  param %out: rows f32[T, 64]
  attention q=%q kv=%kv heads=4 scale=0.25 sinks=%sinks out=%out
}
";

/// Attention to some of the rows that each token selects.
pub const SELECTED: &str = "kernel @attention rows T {
  param %q: rows f32[T, 64]
  param %kv: kv<f32, 1x16, latent>
  param %numbers: rows f32[T, 3]
  param %out: rows f32[T, 64]
  attention q=%q kv=%kv heads=4 scale=0.25 selected=%numbers out=%out
}
";

/// Attention whose KV heads select rows of their own.
pub const SELECTED_BY_HEAD: &str = "kernel @attention rows T {
  param %q: rows f32[T, 64]
  param %kv: kv<f32, 2x16>
  param %numbers: rows f32[T, 6]
  param %out: rows f32[T, 64]
  attention q=%q kv=%kv heads=4 scale=0.25 selected=%numbers by_head out=%out
}
";

/// Least and largest values in windows of three tokens.
pub const WINDOW_BOUNDS: &str = "kernel @bounds rows T {
  param %x: rows f32[T, 64]
  param %s: state<f32, 1x2x24>
  param %out: rows f32[T, 48]
  window_bounds x=%x start=5 width=3 state=%s out=%out
}
";

/// Cosines and sines of two sets of frequencies; a token's position, which has a largest one, chooses one.
pub const ROPE_TABLE_OF_TWO: &str = "kernel @table rows T {
  param %freq: vector f32[16]
  param %out: rows f32[T, 16]
  rope_table inv_freq=%freq scale=1.25 border=12 most=14 out=%out
}
";

/// Cosines and sines of positions along axes, each with frequencies of its own.
pub const ROPE_TABLE_OF_AXES: &str = "kernel @table rows T {
  param %freq: vector f32[24]
  param %out: rows f32[T, 16]
  rope_table inv_freq=%freq scale=1.25 axes out=%out
}
";

/// A convolution over time that reads some columns.
pub const CAUSAL_CONV: &str = "kernel @conv rows T {
  param %x: rows f32[T, 40]
  param %taps: vector f32[72]
  param %s: state<f32, 1x2x24>
  param %out: rows f32[T, 24]
  causal_conv x=%x start=5 taps=%taps width=3 state=%s out=%out
}
";

/// A recurrence by the delta rule, of groups and of some columns.
pub const RECURRENCE: &str = "kernel @recurrence rows T {
  param %q: rows f32[T, 80]
  param %k: rows f32[T, 80]
  param %v: rows f32[T, 64]
  param %decay: rows f32[T, 4]
  param %rate: rows f32[T, 4]
  param %s: state<f32, 4x16x12>
  param %out: rows f32[T, 48]
  recurrence q=%q q_start=3 k=%k k_start=7 groups=2 v=%v v_start=4 \
    decay=%decay update=delta with=%rate state=%s out=%out
}
";

/// A recurrence that erases, with decays that are the same for all tokens.
pub const ERASING: &str = "kernel @recurrence rows T {
  param %q: rows f32[T, 80]
  param %k: rows f32[T, 80]
  param %v: rows f32[T, 64]
  param %decay: vector f32[4]
  param %other: vector f32[4]
  param %read: rows f32[T, 32]
  param %write: rows f32[T, 32]
  param %s: state<f32, 4x16x12>
  param %out: rows f32[T, 48]
  recurrence q=%q q_start=3 k=%k k_start=7 groups=2 v=%v v_start=4 \
    decay=%decay update=erase with=%read write=%write state=%s out=%out
}
";

/// A recurrence that reads the state before, and the token itself.
pub const BONUS: &str = "kernel @recurrence rows T {
  param %q: rows f32[T, 80]
  param %k: rows f32[T, 80]
  param %v: rows f32[T, 64]
  param %decay: rows f32[T, 64]
  param %bonus: vector f32[64]
  param %s: state<f32, 4x16x12>
  param %out: rows f32[T, 48]
  recurrence q=%q q_start=3 k=%k k_start=7 groups=2 v=%v v_start=4 \
    decay=%decay update=bonus with=%bonus state=%s out=%out
}
";

/// A selective scan.
pub const SCAN: &str = "kernel @recurrence rows T {
  param %q: rows f32[T, 40]
  param %k: rows f32[T, 40]
  param %v: rows f32[T, 64]
  param %step: rows f32[T, 24]
  param %rates: vector f32[192]
  param %s: state<f32, 2x8x12>
  param %out: rows f32[T, 24]
  recurrence q=%q q_start=3 k=%k k_start=7 groups=2 v=%v v_start=4 decay=%step update=scan with=%rates state=%s out=%out
}
";

/// Means with weights that decay, of some columns.
pub const WKV: &str = "kernel @wkv rows T {
  param %k: rows f32[T, 40]
  param %v: rows f32[T, 40]
  param %decay: vector f32[24]
  param %bonus: vector f32[24]
  param %s: state<f32, 1x3x24>
  param %out: rows f32[T, 24]
  wkv k=%k k_start=5 v=%v v_start=7 decay=%decay bonus=%bonus state=%s out=%out
}
";

/// Means of windows of three tokens, of two series.
pub const WINDOW_MEANS: &str = "kernel @windows rows T {
  param %k: rows f32[T, 64]
  param %v: rows f32[T, 60]
  param %places: vector f32[144]
  param %s: state<f32, 1x6x24>
  param %out: rows f32[T, 24]
  window_means k=%k k_start=5 v=%v v_start=7 places=%places width=3 state=%s out=%out
}
";

/// Attention to a cache of nine tokens, which drops those with the least weights.
pub const EVICTING: &str = "kernel @evicting rows T {
  param %q: rows f32[T, 64]
  param %k: rows f32[T, 32]
  param %v: rows f32[T, 32]
  param %s: state<f32, 2x27x16>
  param %out: rows f32[T, 48]
  evicting_attention q=%q q_start=3 k=%k k_start=1 v=%v v_start=2 heads=4 key_dim=12 scale=0.5 criterion=sum budget=9 \
                             recent=2 drop=1 window=1 level=0.0 state=%s out=%out
}
";

/// Matrices of four rows, far from sums of one.
pub const SINKHORN: &str = "kernel @sinkhorn rows T {
  param %x: rows f32[T, 16]
  param %out: rows f32[T, 16]
  sinkhorn x=%x side=4 rounds=1 eps=0.5 out=%out
}
";

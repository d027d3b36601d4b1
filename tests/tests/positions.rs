//! Tokens with positions along axes (M-RoPE), against Transformers (`tests/goldens/positions.py`): steps, sequences
//! that go on after them, and texts, whose positions are their places.

use crate::ready;
use llmcc_cli::loaded::Model;
use llmcc_cli::session::CompileOptions;
use llmcc_frontends::Checkpoint;
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use llmcc_ir::target;
use llmcc_tests::{Artifact, golden, options};

const AXES: usize = 3;
/// The fixtures: sections that stand together, and by turns.
const ALL: [&str; 2] = ["qwen2_vl", "qwen3_vl"];

struct Placed {
    name: &'static str,
    golden: Checkpoint,
    artifact: Artifact,
    tokens: Vec<i32>,
    positions: Vec<i32>,
}

impl Placed {
    fn load(name: &'static str, compile: impl Fn(&CompileOptions) -> Artifact) -> Placed {
        let artifact = compile(&options(&golden(name)));
        let golden = Checkpoint::open(&golden(name).join("positions.safetensors")).expect("goldens");
        let ints = |name: &str| -> Vec<i32> {
            let raw = golden.tensor(name).expect(name).data;
            raw.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
        };
        let (tokens, positions) = (ints("tokens"), ints("positions"));
        Placed { name, artifact, tokens, positions, golden }
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.golden.tensor(name).expect(name).to_f32()
    }

    /// Logits of all tokens, in steps that end at these, and the sequence that has them.
    fn logits(&self, model: &Model, ends: &[usize]) -> (Vec<f32>, i32) {
        let seq = model.seq_new().expect("a sequence");
        let (mut all, mut from) = (vec![], 0);
        for &to in ends {
            let (part, at) = (&self.tokens[from..to], &self.positions[from * AXES..to * AXES]);
            let rows: Vec<u32> = (0..part.len() as u32).collect();
            all.extend(model.run_at(0, (part, &[]), at, &vec![seq; part.len()], &rows).expect("logits").0);
            from = to;
        }
        (all, seq)
    }

    /// Logits are as far from Transformers' as its own in f32, twice; the next tokens have positions after the largest.
    fn check(&self, model: &Model, cuts: &[usize]) -> Vec<f32> {
        let n = self.tokens.len();
        let (logits, seq) = self.logits(model, &[n]);
        let want = self.floats("logits");
        assert_eq!(logits.len(), want.len());
        let error = logits.iter().zip(&want).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
        let entitled = f64::from(self.floats("error_f32").into_iter().fold(0.0, f32::max));
        let name = self.name;
        assert!(error <= 2.0 * entitled, "{name}: off by {error:e}, Transformers in f32 by {entitled:e}");
        let (again, other) = self.logits(model, cuts);
        let same = |a: &f32, b: &f32| f64::from((a - b).abs()) <= 2.0 * entitled;
        assert!(again.iter().zip(&logits).all(|(a, b)| same(a, b)), "{name}: other steps");
        for seq in [seq, other] {
            assert_eq!(self.continued(model, seq, &logits), self.greedy(), "{name}");
            model.seq_free(seq).expect("freed");
        }
        logits
    }

    fn greedy(&self) -> Vec<i32> {
        let raw = self.golden.tensor("greedy").expect("greedy").data;
        raw.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
    }

    /// The most probable tokens after a sequence, one by one, without positions; `logits` has a row for each of its tokens.
    fn continued(&self, model: &Model, seq: i32, logits: &[f32]) -> Vec<i32> {
        let vocab = model.info().vocab;
        let mut last = logits[logits.len() - vocab..].to_vec();
        let mut step = || {
            let best = (0..vocab).max_by(|a, b| last[*a].total_cmp(&last[*b])).expect("a token") as i32;
            last = model.step(&[best], &[seq], &[0]).expect("logits");
            best
        };
        (0..self.greedy().len()).map(|_| step()).collect()
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn positions_mean_what_transformers_says() {
    for name in ALL {
        let placed = Placed::load(name, Artifact::compile);
        let model = placed.artifact.open(2);
        let n = placed.tokens.len();
        let logits = placed.check(&model, &[3, 6, 9, 17, 18, 34, n]);
        assert!(bits(&placed.logits(&model, &[1, 7, 20, n]).0) == bits(&logits), "{name}: other bits in other steps");
        assert!(bits(&placed.logits(&placed.artifact.open(1), &[n]).0) == bits(&logits), "{name}: one thread");
        sequences_go_on(&placed, &model);
        texts_have_their_places(&placed, &model);
        refusals(&placed, &model);
    }
}

/// A sequence that goes back, and a copy, go on after the largest position that is left.
fn sequences_go_on(placed: &Placed, model: &Model) {
    let next = |seq: i32, at: &[i32]| model.run_at(0, (&[5], &[]), at, &[seq], &[0]).expect("logits").0;
    for len in [placed.tokens.len() - 1, 34, 12, 7, 2] {
        let (_, seq) = placed.logits(model, &[len + 1]);
        model.seq_truncate(seq, len).expect("cut");
        let copy = model.seq_fork(seq).expect("a copy");
        let largest = placed.positions[..len * AXES].iter().max().expect("some") + 1;
        assert!(bits(&next(copy, &[])) == bits(&next(seq, &[largest; AXES])), "{}: after {len} tokens", placed.name);
        [seq, copy].into_iter().for_each(|seq| model.seq_free(seq).expect("freed"));
    }
}

/// Without positions a text has its places along all axes.
fn texts_have_their_places(placed: &Placed, model: &Model) {
    let n = placed.tokens.len();
    let places: Vec<i32> = (0..n as i32).flat_map(|i| [i; AXES]).collect();
    let rows: Vec<u32> = (0..n as u32).collect();
    let all = |at: &[i32]| {
        let seq = model.seq_new().expect("a sequence");
        let out = model.run_at(0, (&placed.tokens, &[]), at, &vec![seq; n], &rows).expect("logits").0;
        model.seq_free(seq).expect("freed");
        out
    };
    assert!(bits(&all(&[])) == bits(&all(&places)), "{}", placed.name);
    assert!(bits(&all(&[])) != bits(&all(&placed.positions)), "{}: positions do not matter", placed.name);
}

fn refusals(placed: &Placed, model: &Model) {
    let seq = model.seq_new().expect("a sequence");
    for at in [[0, -1, 0], [0, 0, (1 << 24) + 1]] {
        let error = model.run_at(0, (&[5], &[]), &at, &[seq], &[0]).expect_err("a bad position").to_string();
        assert!(error.contains("of token 0: give 0 to 16777216"), "{}: {error}", placed.name);
    }
    assert!(model.seq_truncate(seq, 1).is_err(), "{}: a refused step left a token", placed.name);
    model.seq_free(seq).expect("freed");
    let plain = Artifact::compile(&options(&golden("qwen2"))).open(1);
    let seq = plain.seq_new().expect("a sequence");
    let error = plain.run_at(0, (&[5], &[]), &[0; AXES], &[seq], &[0]).expect_err("no axes").to_string();
    assert!(error.contains("are their places in sequences"), "{error}");
}

/// The same on a GPU, which an emulator is.
#[test]
fn gpus_place_the_same() {
    if !ready() {
        return;
    }
    let compile = |o: &CompileOptions| {
        let targets = vec![target::find("sm90").expect("a target")];
        let weights = Some(Format::parse("f32").expect("a format"));
        let o = CompileOptions { targets, weights, kv: Some(KvDType::F32), act: None, ..o.clone() };
        Artifact::compile_unless(&o, |_| false).expect("nothing is left out")
    };
    for name in ALL {
        let placed = Placed::load(name, compile);
        placed.check(&placed.artifact.open(2), &[3, 9, 18, placed.tokens.len()]);
    }
}

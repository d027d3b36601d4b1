//! States of attention, their bytes, and attention over those whose keys and values differ.

use super::fixture::random;
use super::*;
use crate::graph::{F32, Op};
use crate::kv::{KvDType, KvSpec};
use crate::ty::{Dim, TensorType};

/// Keys and values of as many elements.
pub(super) fn heads(dtype: KvDType, kv_heads: usize, d: usize, window: Option<usize>) -> KvSpec {
    KvSpec { dtype, kv_heads, key_dim: d, value_dim: d, latent: false, window, every: 1, first: None }
}

#[test]
fn states_convert_to_pages_and_back() {
    let widths = [(8, 8, false), (8, 6, false), (4, 10, false), (10, 6, true)];
    for ((dtype, _), (key_dim, value_dim, latent)) in KvDType::ALL.iter().flat_map(|t| widths.map(|w| (t, w))) {
        let spec = KvSpec { key_dim, value_dim, latent, ..heads(*dtype, 2, 8, None) };
        let (keys, values) = (spec.width(true), spec.width(false));
        let mut state = KvState::new(spec);
        let lens = [19, 3];
        for (s, len) in lens.iter().enumerate() {
            for p in 0..*len {
                let x: Vec<f64> = random((s * 100 + p) as u64, keys + values).iter().map(|v| f64::from(*v)).collect();
                state.store_key(s, p, &x[..keys]);
                state.store_value(s, p, &x[keys..]);
            }
        }
        let bytes = llmcc_abi::layout::page(2, spec.own_dim(), value_dim, dtype.bits()).bytes;
        let mut pool = vec![0xAA; 5 * bytes];
        let tables = [vec![4, 1], vec![2]];
        kv_to_pages(&state, &tables, &mut pool).unwrap();
        assert_eq!(kv_from_pages(spec, &tables, &lens, &pool).unwrap(), state, "{spec}");
        assert!(pool[..bytes].iter().all(|b| *b == 0xAA), "page 0 is not used");
        assert!(kv_to_pages(&state, &[vec![4], vec![2]], &mut pool).is_err(), "19 positions in one page");
        assert!(kv_from_pages(spec, &[vec![5]], &[1], &pool).is_err(), "page outside the pool");
    }
}

#[test]
fn keys_lie_by_element_and_values_by_token() {
    let spec = heads(KvDType::F32, 1, 4, None);
    let mut state = KvState::new(spec);
    state.store_key(0, 2, &[1.0, 2.0, 3.0, 4.0]);
    state.store_value(0, 2, &[5.0, 6.0, 7.0, 8.0]);
    let mut pool = vec![0; llmcc_abi::layout::page(1, 4, 4, 32).bytes];
    kv_to_pages(&state, &[vec![0]], &mut pool).unwrap();
    let at = |i: usize| f32::from_le_bytes(pool[i * 4..][..4].try_into().unwrap());
    // K: [4 elements][16 tokens]; V: [16 tokens][4 elements] after 64 floats.
    assert_eq!([at(2), at(18), at(34), at(50)], [1.0, 2.0, 3.0, 4.0]);
    assert_eq!([at(72), at(73), at(74), at(75)], [5.0, 6.0, 7.0, 8.0]);
}

#[test]
fn states_round_as_their_type_says() {
    let store = |dtype| {
        let mut state = KvState::new(heads(dtype, 2, 2, None));
        state.store_key(0, 0, &[0.1, 1.0, 0.0, 0.0]);
        (state.key(0, 0, 0).unwrap(), state.key(0, 0, 1).unwrap())
    };
    assert_eq!(store(KvDType::F32).0, [0.1, 1.0]);
    assert_eq!(store(KvDType::F16).0, [0.0999755859375, 1.0]);
    assert_eq!(store(KvDType::Bf16).0, [0.10009765625, 1.0]);
    let scale = f64::from(1.0f32 / 127.0);
    assert_eq!(store(KvDType::Int8), (vec![13.0 * scale, 127.0 * scale], vec![0.0, 0.0]));
}

/// Attention over a latent state is that over its keys in full, with values narrower than keys.
#[test]
fn latent_attention_is_attention_over_whole_keys() {
    let (own, value, count, tokens) = (3, 5, 4, 6);
    let latent = KvSpec { key_dim: own + value, value_dim: value, latent: true, ..heads(KvDType::F32, 2, 8, None) };
    let whole = KvSpec { latent: false, ..latent };
    let numbers = |seed: u64, cols: usize| -> Vec<Vec<f64>> {
        let all = random(seed, tokens * cols);
        all.chunks(cols).map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect()
    };
    let (keys, values) = (numbers(1, 2 * own), numbers(2, 2 * value));
    let (q, of_own) = (numbers(3, count * value), numbers(4, count * own));
    let joined = |a: &[Vec<f64>], b: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let row = |(a, b): (&Vec<f64>, &Vec<f64>)| {
            a.chunks(own).zip(b.chunks(value)).flat_map(|(a, b)| [a, b].concat()).collect()
        };
        a.iter().zip(b).map(row).collect()
    };
    let batch = Batch::single(&vec![0; tokens], 0);
    let mut states = [KvState::new(latent), KvState::new(whole)];
    let in_full = joined(&keys, &values);
    for p in 0..tokens {
        states[0].store_key(0, p, &keys[p]);
        states[1].store_key(0, p, &in_full[p]);
        states.iter_mut().for_each(|s| s.store_value(0, p, &values[p]));
    }
    let of = Attend::plain(count, F32::new(0.4));
    let rows: Vec<Vec<f64>> = q.iter().zip(&of_own).map(|(q, own)| whole_queries(&latent, count, own, q)).collect();
    assert_eq!(rows, joined(&of_own, &q));
    let [got, want] = states.each_ref().map(|s| attention(s, &batch, &rows, &of).unwrap().concat());
    assert_eq!(got.len(), tokens * count * value);
    assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-12), "{got:?} {want:?}");
}

/// Widths that the rules of the graph refuse.
#[test]
fn widths_are_checked() {
    let rows = |n: usize| TensorType::rows(Dim::Tokens, n);
    let latent = KvSpec { key_dim: 8, value_dim: 5, latent: true, ..heads(KvDType::F32, 1, 8, None) };
    let typed = |op: Op, args: Vec<crate::graph::ValueType>| op.infer(&args).map(|t| t.to_string());
    let positions = || TensorType::new(crate::ty::DType::I32, [Dim::Tokens]).into();
    let state = |kv: KvSpec| crate::graph::ValueType::State(kv.into());
    let attend = |q: usize, own: usize, kv| {
        let op = Op::LatentAttention { heads: 2, scale: F32::new(1.0) };
        typed(op, vec![rows(q).into(), rows(own).into(), state(kv), positions()])
    };
    assert_eq!(attend(10, 6, latent).unwrap(), "f32[T, 10]");
    assert!(attend(16, 6, latent).is_err() && attend(10, 5, latent).is_err());
    let with_sinks = |n: usize| {
        let op = Op::LatentAttention { heads: 2, scale: F32::new(1.0) };
        let sinks = TensorType::vector(n).into();
        typed(op, vec![rows(10).into(), rows(6).into(), state(latent), positions(), sinks])
    };
    assert!(with_sinks(2).is_ok() && with_sinks(3).is_err());
    assert!(attend(10, 6, KvSpec { latent: false, ..latent }).is_err());
    let near = |q: usize, [keys, queries]: [usize; 2], kv: KvSpec| {
        let op = Op::RelativeAttention { heads: 2, scale: F32::new(1.0) };
        let vector = |n: usize| TensorType::new(crate::ty::DType::F32, [Dim::Static(n)]).into();
        typed(op, vec![rows(q).into(), state(kv), positions(), vector(keys), vector(queries)])
    };
    let plain_kv = heads(KvDType::F32, 1, 4, None);
    assert_eq!(near(8, [40, 40], plain_kv).unwrap(), "f32[T, 8]");
    assert!(near(8, [32, 32], plain_kv).is_err() && near(8, [40, 24], plain_kv).is_err());
    assert!(near(8, [40, 40], KvSpec { window: Some(4), ..plain_kv }).is_err());
    let append = |k: usize, v: usize| {
        typed(Op::KvAppend, vec![state(latent), rows(k).into(), rows(v).into(), positions()]).is_ok()
    };
    assert!(append(3, 5) && !append(8, 5) && !append(5, 3));
    let product = |x: usize, n: usize| {
        let w = TensorType::rows(Dim::Static(n), 4).into();
        typed(Op::HeadMatMul { heads: 3, cols: 10 }, vec![rows(x).into(), w])
    };
    assert_eq!(product(12, 48).unwrap(), "f32[T, 30]");
    assert!(product(4, 48).is_err() && product(12, 47).is_err() && product(12, 27).is_err());
    let plain = |biased, chunked, causal| Op::Attention {
        heads: 2,
        scale: F32::new(1.0),
        softcap: F32::new(0.0),
        causal,
        chunked,
        biased,
        sums: false,
    };
    let usual = plain(false, false, true);
    assert!(typed(usual.clone(), vec![rows(16).into(), state(latent), positions()]).is_err());
    // Keys that are values are stored once, and may be of several tokens.
    let rows_alone = KvSpec { key_dim: 8, value_dim: 8, ..latent };
    let with_sums = {
        let Op::Attention { heads, scale, softcap, causal, chunked, biased, .. } = usual else { unreachable!() };
        Op::Attention { heads, scale, softcap, causal, chunked, biased, sums: true }
    };
    let seen = |op: &Op, kv| typed(op.clone(), vec![rows(16).into(), state(kv), positions()]);
    let apart = KvSpec { every: 4, ..rows_alone };
    assert_eq!(seen(&usual, apart).unwrap(), "f32[T, 16]");
    assert_eq!(seen(&with_sums, apart).unwrap(), "f32[T, 20]");
    assert!(seen(&usual, KvSpec { window: Some(9), ..rows_alone }).is_ok());
    assert!(seen(&plain(false, false, false), apart).unwrap_err().contains("behind a token"));
    let wrong = |kv: KvSpec| crate::state::StateSpec::from(kv).verify();
    assert!(wrong(apart).is_empty() && !wrong(KvSpec { every: 0, ..rows_alone }).is_empty());
    assert!(!wrong(KvSpec { window: Some(9), ..apart }).is_empty() && !wrong(KvSpec { every: 4, ..latent }).is_empty());
    let stored =
        |k: usize| typed(Op::KvAppend, vec![state(rows_alone), rows(k).into(), rows(8).into(), positions()]).is_ok();
    assert!(stored(8) && !stored(3));
    let vector = |n: usize| crate::graph::ValueType::from(TensorType::vector(n));
    let kv = |window| state(heads(KvDType::F32, 1, 8, window));
    let of = |op: &Op, window, more: &[usize]| {
        let mut args = vec![rows(16).into(), kv(window), positions()];
        args.extend(more.iter().map(|n| vector(*n)));
        typed(op.clone(), args).is_ok()
    };
    assert!(of(&usual, None, &[]) && of(&usual, None, &[2]) && !of(&usual, None, &[6]) && !of(&usual, None, &[2, 2]));
    let biased = plain(true, false, true);
    assert!(of(&biased, None, &[2]) && of(&biased, None, &[6]) && of(&biased, None, &[2, 10]));
    assert!(of(&biased, None, &[4]));
    assert!(!of(&biased, None, &[]) && !of(&biased, None, &[5]) && !of(&biased, None, &[3, 2]));
    assert!(of(&plain(false, true, true), Some(4), &[]) && !of(&plain(false, true, true), None, &[]));
    assert!(!of(&plain(false, true, false), Some(4), &[]));
}

/// Slopes, tables by distance and by position, and chunks.
#[test]
fn biases_and_chunks_by_hand() {
    let spec = heads(KvDType::F32, 1, 1, Some(3));
    let mut kv = KvState::new(spec);
    (0..6).for_each(|p| {
        kv.store_key(0, p, &[0.0]);
        kv.store_value(0, p, &[f64::from(1 << p)]);
    });
    let batch = Batch { tokens: vec![0; 2], seqs: vec![0; 2], positions: vec![1, 5], ..Batch::default() };
    let run = |bias: &[f64], (causal, chunked): (bool, bool)| {
        let of = Attend { bias: Some(bias), causal, chunked, ..Attend::plain(1, F32::new(1.0)) };
        attention(&kv, &batch, &[vec![1.0], vec![1.0]], &of).unwrap().concat()
    };
    let mean = |scores: &[(usize, f64)]| {
        let weights: f64 = scores.iter().map(|(_, s)| s.exp()).sum();
        scores.iter().map(|(p, s)| f64::from(1 << p) * s.exp()).sum::<f64>() / weights
    };
    let near = |got: Vec<f64>, want: [f64; 2]| {
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12), "{got:?} {want:?}");
    };
    let slopes = [mean(&[(0, -0.5), (1, 0.0)]), mean(&[(3, -1.0), (4, -0.5), (5, 0.0)])];
    near(run(&[0.5], (true, false)), slopes);
    // Chunks 0..3 and 3..6: the last token's is all that it sees.
    near(run(&[0.5], (true, true)), slopes);
    let both = [mean(&[(0, -0.5), (1, 0.0), (2, -0.5), (3, -1.0)]), slopes[1]];
    near(run(&[0.5], (false, false)), both);
    let table = [0.1, 0.7, -0.3];
    let both = [mean(&[(0, 0.1), (1, 0.7), (2, -0.3), (3, -0.3)]), mean(&[(3, 0.1), (4, 0.1), (5, 0.7)])];
    near(run(&table, (false, false)), both);
    let table = [0.1, 0.7, -0.3, 0.9];
    let both = [mean(&[(0, 0.1), (1, 0.7), (2, -0.3), (3, 0.9)]), mean(&[(3, 0.9), (4, 0.9), (5, 0.9)])];
    near(run(&table, (false, false)), both);
    let batch = Batch { positions: vec![2, 4], ..batch.clone() };
    let of = Attend { chunked: true, ..Attend::plain(1, F32::new(1.0)) };
    let got = attention(&kv, &batch, &[vec![1.0], vec![1.0]], &of).unwrap().concat();
    near(got, [7.0 / 3.0, 12.0]);
}

/// Tokens of a text see all of its source, wherever they are, and sequences theirs alone.
#[test]
fn attention_to_a_source_by_hand() {
    let (dtype, latent, window, every) = (KvDType::F32, false, None, 1);
    let mut kv =
        KvState::new(KvSpec { dtype, kv_heads: 1, key_dim: 1, value_dim: 1, latent, window, every, first: None });
    for (seq, p, value) in [(0, 0, 10.0), (0, 1, 20.0), (0, 2, 60.0), (1, 0, 7.0)] {
        kv.store_key(seq, p, &[0.0]);
        kv.store_value(seq, p, &[value]);
    }
    let positions = vec![0, 1, 9, 0];
    let batch = Batch { tokens: vec![0; 4], seqs: vec![0, 0, 0, 1], positions, out_rows: vec![], ..Batch::default() };
    let of = Attend { causal: false, ..Attend::plain(1, F32::new(1.0)) };
    let seen = attention(&kv, &batch, &vec![vec![1.0]; 4], &of).unwrap();
    assert_eq!(seen, [[30.0], [30.0], [30.0], [7.0]]);
}

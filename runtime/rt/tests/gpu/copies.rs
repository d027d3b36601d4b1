//! Copies between host and device, and the pinned memory that they take.

use llmcc_rt::cuda::upload;

use super::*;

/// A row wanted very often, by threads that copy side by side.
#[test]
fn many_rows_are_stored_by_threads() {
    let mut engine = engine(Options { threads: 3, ..options() });
    let seq = engine.kv_mut().seq_new().unwrap();
    let out: Vec<u32> = (0..50_000u32).map(|i| i.wrapping_mul(2_654_435_761) >> 30).map(|i| i.min(2)).collect();
    let logits = step(&mut engine, &[1, 2, 3], &[seq; 3], &out).unwrap();
    let each = [1, 2, 3].map(|n| expected(&[1, 2, 3][..n]));
    assert!(out.iter().zip(&logits).all(|(row, got)| got[..VOCAB - 1] == each[*row as usize][..]));
    drop(engine);
    cuda::assert_clean();
}

/// More weights than two pinned blocks hold, on which nobody waits between.
#[test]
fn weights_arrive_whole() {
    let weights: Vec<u8> =
        (0..3 * upload::BLOCK as u32 + 5).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (code, data) = artifact(SM90, ptx);
    let data = changed(data.to_vec(), |d| d.model.weights.len = weights.len() as u64).leak();
    cuda::reset(&GPU_KERNELS);
    // SAFETY: code and data are leaked, the weights live until the engine is dropped.
    let images = unsafe {
        let (code, len) = (code.as_ptr(), code.len() as u64);
        Image::all_from_parts(code, len, data, weights.as_ptr(), weights.len() as u64).unwrap()
    };
    let open = || open_with(images, &Options { threads: 3, ..options() }, Wish::default(), || Ok(cuda::api()));
    let engine = open().unwrap();
    assert!(cuda::with(|m| m.contents(weights.len())) == weights);
    assert_eq!((calls("cuMemcpyHtoDAsync_v2"), calls("cuModuleLoadDataEx")), (4, 5));
    let opened = engine.opened();
    assert!(!opened.weights.is_zero() && !opened.code.is_zero() && !opened.memory.is_zero(), "{opened:?}");
    drop(engine);
    cuda::assert_clean();
}

/// Opening pins memory for the inputs of a step, and a step for its results.
#[test]
fn memory_is_pinned_for_what_is_wanted() {
    let (mut engine, seq) = top_engine();
    let pinned = || cuda::with(|m| m.pinned());
    let (inputs, row, found) = (1 << 16, 4 * VOCAB, 4 * layout::candidate_cols(K));
    let whole = |bytes: usize| bytes.next_multiple_of(8);
    assert_eq!(pinned(), inputs);
    let best = |engine: &mut Engine, rows: &[u32], values: &[usize]| {
        let batch = llmcc_rt::Batch { tokens: &[1; 5], seqs: &[seq; 5], out_rows: rows, ..Default::default() };
        let mut take = |i: usize, mut row: llmcc_rt::engine::Row| {
            if values.contains(&i) {
                row.values().unwrap();
            }
        };
        engine.step_for(&batch, &vec![Want::Best; rows.len()], &mut take).unwrap();
    };
    best(&mut engine, &[0, 1, 4], &[]);
    assert_eq!(pinned(), inputs + whole(4 * found), "no row was wanted whole");
    best(&mut engine, &[0, 1, 4], &[1]);
    assert_eq!(pinned(), inputs + whole(4 * found) + whole(4 * row));
    step(&mut engine, &[1; 20], &[seq; 20], &(0..17).collect::<Vec<_>>()).unwrap();
    assert_eq!(pinned(), inputs + whole(4 * found) + whole(32 * row));
    step(&mut engine, &[1], &[seq], &[0]).unwrap();
    assert_eq!(pinned(), inputs + whole(4 * found) + whole(32 * row), "what was pinned stays");
    // Neither the largest step nor its memory is beyond the limit.
    step(&mut engine, &[1; 64], &[seq; 64], &(0..64).collect::<Vec<_>>()).unwrap();
    assert_eq!(pinned(), inputs + whole(4 * found) + whole(64 * row));
    drop(engine);
    cuda::assert_clean();
}

//! Several entries of one model, on the hand-made model: `step` has logits, and `rows` makes embeddings of the same
//! numbers.

use crate::common::{Data, FEW, VOCAB, expected, host_isa, toy_code, toy_desc, toy_image_from};
use llmcc_abi::output::{kind, pool};
use llmcc_abi::*;
use llmcc_rt::embed::{Rows, embed};
use llmcc_rt::engine::{Io, Sink};
use llmcc_rt::{Batch, Engine, Options};
use std::mem::{offset_of, size_of};

/// The toy with a second entry, whose regimes are the same kernels. `change` changes the second descriptor.
fn data(change: impl FnOnce(&mut EntryDesc)) -> Vec<u8> {
    let mut data = Data::new();
    let texts = ["{}", "", ""].map(|t| data.text(t));
    let kernels = data.kernels(&toy_code());
    let toy = toy_desc(&mut data, host_isa(), &kernels, texts);
    let logits = OutputDesc { kind: kind::LOGITS, columns: VOCAB as u64, buffer: 2, ..OutputDesc::default() };
    let rows = OutputDesc { kind: kind::EMBEDDING, pool: pool::LAST, ..logits };
    let step =
        EntryDesc { name: data.text("step"), outputs: data.table(&[logits]), regimes: 2, ..EntryDesc::default() };
    let mut more = EntryDesc {
        name: data.text("rows"),
        outputs: data.table(&[rows]),
        first_regime: 2,
        regimes: 2,
        ..EntryDesc::default()
    };
    change(&mut more);
    let regime = |max_tokens, first_step| RegimeDesc { max_tokens, first_step, steps: 4, reserved: 0 };
    let of_entry = [regime(FEW, 0), regime(NONE, 4)];
    let desc =
        ModelDesc { entries: data.table(&[step, more]), regimes: data.table(&[of_entry, of_entry].concat()), ..toy };
    data.finish(desc)
}

fn engine() -> Engine {
    let image = toy_image_from(data(|_| ()).leak()).unwrap();
    Engine::new(image, &Options::default(), llmcc_ukernels::table(llmcc_ukernels::detect())).unwrap()
}

/// Entries append to the same sequences, each with outputs of its own.
#[test]
fn entries_share_sequences() {
    let mut engine = engine();
    let seq = engine.kv_mut().seq_new().unwrap();
    let history = [1, 2, 3, 4, 5, 6, 0];
    for (i, token) in history.iter().enumerate() {
        let mut row = vec![];
        let batch = Batch { tokens: &[*token], seqs: &[seq], out_rows: &[0], ..Batch::default() };
        engine.run_each(i % 2, &batch, &mut |_, values| row = values.to_vec(), None).unwrap();
        assert_eq!(row[..VOCAB - 1], expected(&history[..=i])[..]);
    }
    let rows = Rows { tokens: &[1, 2, 3], lengths: &[3], types: &[], normalize: None, pool: None };
    assert_eq!(embed(&mut engine, &rows).unwrap()[..VOCAB - 1], expected(&[1, 2, 3])[..]);
    let first = Rows { pool: Some(pool::FIRST), ..rows };
    assert_eq!(embed(&mut engine, &first).unwrap()[..VOCAB - 1], expected(&[1])[..]);
    let unknown = embed(&mut engine, &Rows { pool: Some(9), ..rows }).unwrap_err();
    assert!(unknown.message.contains("there is no pooling 9"), "{unknown}");
    assert_eq!(engine.kv().tokens(seq).unwrap(), history);
}

#[test]
fn entries_that_are_not_there_are_refused() {
    let mut engine = engine();
    let seq = engine.kv_mut().seq_new().unwrap();
    let batch = Batch { tokens: &[1], seqs: &[seq], out_rows: &[], ..Batch::default() };
    let mut each = |_: usize, _: llmcc_rt::engine::Row| ();
    let io = Io { batch: &batch, wants: &[], rows: Sink::Each(&mut each), keep: None, taps: None };
    let error = engine.run(2, io).unwrap_err();
    assert!(error.message.contains("2 entries, none of number 2"), "{error}");
    let mut keep = |_: usize, _: &[f32]| ();
    let error = engine.run_each(1, &batch, &mut |_, _| (), Some(&mut keep)).unwrap_err();
    assert!(error.message.contains("does not return hidden states"), "{error}");
    assert!(engine.kv().tokens(seq).unwrap().is_empty());
}

#[test]
fn damaged_entries_are_refused() {
    let refused = |what: &str, change: &dyn Fn(&mut EntryDesc)| {
        let error = toy_image_from(data(change).leak()).err().expect("refused");
        assert!(error.message.contains(what), "{what}: {}", error.message);
    };
    refused("regime 2 is out of order", &|e| e.first_regime = 1);
    refused("`rows` is out of order, or is there twice", &|e| e.first_regime = 0);
    refused("regimes outside the table", &|e| e.regimes = 3);
    refused("regimes outside the table", &|e| e.first_regime = u32::MAX);
    refused("no regime serves steps of any size", &|e| e.regimes = 1);
    refused("`rows`, track 1 of 1", &|e| e.track = 1);
    refused("`rows`, track 0 of 1", &|e| e.context = u32::MAX);
    refused("flags 0x4", &|e| e.flags = 4);
    refused("runs of no token", &|e| e.flags = 2);
    refused("has no output", &|e| e.outputs.count = 0);
    refused("candidates", &|e| e.candidates = 3);
    refused("entry name", &|e| e.name.len = u64::MAX);
    refused("entry ``", &|e| e.name.len = 0);
    refused("outputs", &|e| e.outputs.off = u64::MAX);
    refused("inputs", &|e| e.inputs.count = 1 << 40);
    // A name of the first entry, or none that is left: entries of the table are checked as a whole.
    let mut none = data(|_| ());
    let at = offset_of!(ModelDesc, entries) + offset_of!(Table, count);
    none[at..at + size_of::<u64>()].fill(0);
    assert!(toy_image_from(none.leak()).err().expect("refused").message.contains("0 entries"));
}

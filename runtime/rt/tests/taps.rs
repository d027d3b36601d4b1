//! Inputs of products, on the hand-made model: an entry shows the token values, and the sums before its head.

use crate::common::{Data, FEW, Rng, VOCAB, host_isa, toy_code, toy_desc, toy_image_from};
use llmcc_abi::*;
use llmcc_rt::engine::{Io, Sink, Tapped};
use llmcc_rt::tap::{Moments, Rows, tap};
use llmcc_rt::{Batch, Engine, Error, Options, Status};

/// The toy with an entry of taps. `change` changes the descriptor of the first of them, and of the entry.
fn data(change: impl FnOnce(&mut TapDesc, &mut EntryDesc)) -> Vec<u8> {
    let mut data = Data::new();
    let texts = ["{}", "", ""].map(|t| data.text(t));
    let kernels = data.kernels(&toy_code());
    let toy = toy_desc(&mut data, host_isa(), &kernels, texts);
    let logits = OutputDesc { columns: VOCAB as u64, buffer: 2, ..OutputDesc::default() };
    let step =
        EntryDesc { name: data.text("step"), outputs: data.table(&[logits]), regimes: 2, ..EntryDesc::default() };
    let weight = |data: &mut Data, name: &str| {
        let weight = TappedWeightDesc { name: data.text(name), expert: NO_EXPERT };
        data.table(&[weight])
    };
    let mut values = TapDesc { weights: weight(&mut data, "a"), columns: 1, ..TapDesc::default() };
    let sums = TapDesc { weights: weight(&mut data, "b"), columns: 1, buffer: 1, ..TapDesc::default() };
    let mut entry = EntryDesc { name: data.text("tap"), first_regime: 2, regimes: 2, ..EntryDesc::default() };
    change(&mut values, &mut entry);
    let taps = data.table(&[values, sums]);
    entry.taps = Table { count: entry.taps.count.wrapping_add(2), ..taps };
    let regime = |max_tokens, first_step| RegimeDesc { max_tokens, first_step, steps: 4, reserved: 0 };
    let of_entry = [regime(FEW, 0), regime(NONE, 4)];
    let desc =
        ModelDesc { entries: data.table(&[step, entry]), regimes: data.table(&[of_entry, of_entry].concat()), ..toy };
    data.finish(desc)
}

fn engine(threads: usize, max_batch_tokens: usize) -> Engine {
    let image = toy_image_from(data(|_, _| ()).leak()).unwrap();
    let options = Options { threads, max_tokens: 96, max_batch_tokens, ..Options::default() };
    let mut engine = Engine::new(image, &options, llmcc_ukernels::table(llmcc_ukernels::detect())).unwrap();
    engine.set_solo_bytes(0);
    engine
}

/// Sums of a tap of one column.
#[derive(Clone, Debug, PartialEq)]
struct Sums {
    count: [u64; 1],
    squares: [f64; 1],
    min: [f32; 1],
    max: [f32; 1],
    products: [f64; 1],
}

const NONE_YET: Sums = Sums { count: [0], squares: [0.0], min: [5.0], max: [5.0], products: [0.0] };

impl Sums {
    fn moments(&mut self, tap: usize) -> Moments<'_> {
        let Sums { count, squares, min, max, products } = self;
        Moments { tap, count, squares, min, max, products }
    }

    fn of(values: &[f64]) -> Sums {
        let squares = values.iter().map(|x| x * x).sum();
        let (min, max) = (values.iter().copied().reduce(f64::min), values.iter().copied().reduce(f64::max));
        Sums {
            count: [values.len() as u64],
            squares: [squares],
            min: [min.unwrap_or(f64::INFINITY) as f32],
            max: [max.unwrap_or(f64::NEG_INFINITY) as f32],
            products: [squares],
        }
    }
}

fn add(engine: &mut Engine, texts: &[Vec<i32>], sums: &mut [Sums; 2]) -> Result<(), Error> {
    let (tokens, lengths) = (texts.concat(), texts.iter().map(Vec::len).collect::<Vec<_>>());
    let [a, b] = sums;
    let rows = Rows { tokens: &tokens, lengths: &lengths, types: &[] };
    let done = tap(engine, &rows, &mut [a.moments(0), b.moments(1)]);
    assert_eq!((engine.kv().sequences(), engine.kv().used_pages()), (0, 0), "sequences are left");
    done
}

/// Values and sums of all tokens are added up, in any steps and calls.
#[test]
fn moments_are_of_all_tokens() {
    let mut rng = Rng(3);
    let texts: Vec<Vec<i32>> =
        [1, 9, 30, 2, 5].iter().map(|n| (0..*n).map(|_| rng.below(VOCAB) as i32).collect()).collect();
    let values: Vec<f64> = texts.concat().into_iter().map(f64::from).collect();
    let so_far = |text: &Vec<i32>| {
        let mut sum = 0;
        text.iter()
            .enumerate()
            .map(|(q, t)| {
                sum += (q as i32 + 1) * t;
                f64::from(sum)
            })
            .collect::<Vec<f64>>()
    };
    let sums: Vec<f64> = texts.iter().flat_map(so_far).collect();
    let want = [Sums::of(&values), Sums::of(&sums)];
    for (threads, step, together) in [(1, 0, 5), (2, 0, 1), (3, 4, 5), (2, 1, 2)] {
        let mut engine = engine(threads, step);
        let mut got = [NONE_YET, NONE_YET];
        texts.chunks(together).for_each(|part| add(&mut engine, part, &mut got).unwrap());
        assert_eq!(got, want, "{threads} threads, steps of {step}, {together} texts together");
    }
    // A call without texts adds nothing, and forgets what arrays without inputs hold.
    let mut got = [NONE_YET, NONE_YET];
    add(&mut engine(1, 0), &[], &mut got).unwrap();
    assert_eq!(got, [Sums::of(&[]), Sums::of(&[])]);
}

/// The caller of an entry sees rows as soon as their call has ended, chunk by chunk; other entries show none.
#[test]
fn rows_come_chunk_by_chunk() {
    let mut engine = engine(2, 4);
    let seq = engine.kv_mut().seq_new().unwrap();
    let batch = Batch { tokens: &[1, 2, 3, 4, 5, 6], seqs: &[seq; 6], out_rows: &[], ..Batch::default() };
    let mut seen = vec![];
    let mut sink = |tap: usize, rows: Tapped| {
        seen.push((tap, rows.rows.to_vec()));
        assert!(rows.routes.is_empty());
        Ok(())
    };
    let io = Io { batch: &batch, wants: &[], rows: Sink::Each(&mut |_, _| ()), keep: None, taps: Some(&mut sink) };
    engine.run(1, io).unwrap();
    let want = [(0, vec![1., 2., 3., 4.]), (1, vec![1., 5., 14., 30.]), (0, vec![5., 6.]), (1, vec![55., 91.])];
    assert_eq!(seen, want);
    // An error of the sink takes the tokens back.
    let mut fails = |_: usize, _: Tapped| Err(Error::new(Status::Numeric, "no"));
    let io = Io { batch: &batch, wants: &[], rows: Sink::Each(&mut |_, _| ()), keep: None, taps: Some(&mut fails) };
    assert_eq!(engine.run(1, io).unwrap_err().status, Status::Numeric);
    assert_eq!(engine.kv().tokens(seq).unwrap(), batch.tokens);
    let mut sink = |_: usize, _: Tapped| Ok(());
    let io = Io { batch: &batch, wants: &[], rows: Sink::Each(&mut |_, _| ()), keep: None, taps: Some(&mut sink) };
    let error = engine.run(0, io).unwrap_err();
    assert!(error.message.contains("does not show the inputs of products"), "{error}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut engine = engine(1, 0);
    let mut refused = |texts: &[Vec<i32>], change: &dyn Fn(&mut Moments), status: Status, says: &str| {
        let mut sums = NONE_YET;
        let mut moments = sums.moments(0);
        change(&mut moments);
        let (tokens, lengths) = (texts.concat(), texts.iter().map(Vec::len).collect::<Vec<_>>());
        let rows = Rows { tokens: &tokens, lengths: &lengths, types: &[] };
        let error = tap(&mut engine, &rows, &mut [moments]).unwrap_err();
        assert!(error.status == status && error.message.contains(says), "{error}");
        assert_eq!(sums, NONE_YET, "nothing is added");
    };
    let nothing = |_: &mut Moments| ();
    refused(&[vec![1], vec![]], &nothing, Status::Invalid, "row 1 has no tokens");
    refused(&[vec![1, 99]], &nothing, Status::Invalid, "token 99 at index 1");
    refused(&[vec![1; 500]], &nothing, Status::ContextFull, "row 0 has 500 tokens");
    refused(&[vec![1]], &|m| m.tap = 2, Status::Invalid, "tap 2 does not exist: the model has 2");
    refused(&[vec![1]], &|m| m.count = &mut [], Status::Invalid, "arrays for 1 experts and 1 columns");
    refused(&[vec![1]], &|m| m.squares = Box::leak(Box::new([0.0; 2])), Status::Invalid, "arrays for 1 experts");
}

#[test]
fn damaged_taps_are_refused() {
    let refused = |what: &str, change: &dyn Fn(&mut TapDesc, &mut EntryDesc)| {
        let error = toy_image_from(data(change).leak()).err().expect("refused");
        assert!(error.message.contains(what), "{what}: {}", error.message);
    };
    refused("out of order", &|t, _| t.call = 1);
    for (i, change) in [
        (|t| t.columns = 0) as fn(&mut TapDesc),
        |t| t.columns = 1 << 40,
        |t| t.columns = 2,
        |t| t.buffer = 4,
        |t| t.buffer = u64::MAX,
        |t| t.rows = 2,
        |t| t.flags = 2,
        |t| t.flags = tap_flags::APART,
        |t| t.top = 1,
        |t| t.routes = 1,
        |t| (t.experts, t.top) = (4, 0),
        |t| (t.experts, t.top) = (4, 5),
        // A buffer of routes has two columns for each expert of a token.
        |t| (t.experts, t.top) = (4, 1),
        |t| (t.experts, t.top) = (1 << 20, 1),
        |t| t.weights.count = 0,
    ]
    .into_iter()
    .enumerate()
    {
        println!("change {i}");
        refused("a tap of entry `tap`", &|t, _| change(t));
    }
    refused("tapped weights", &|t, _| t.weights.off = u64::MAX);
    refused("taps", &|_, e| e.taps.count = 1 << 40);
    refused("has no output", &|_, e| e.taps.count = u64::MAX - 1);
}

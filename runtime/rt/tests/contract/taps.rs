//! Inputs of products: refusals of models without any, and of arrays and rows that do not fit.

use super::*;

/// Moments of the toy's only tap, with arrays of `o`.
fn moments(o: &mut Outs) -> llmcc_moments {
    let (min, max) = o.logits.split_at_mut(1);
    let (squares, products) = o.logprobs.split_at_mut(1);
    llmcc_moments {
        tap: 0,
        count: &mut o.count,
        squares: squares.as_mut_ptr(),
        min: min.as_mut_ptr(),
        max: max.as_mut_ptr(),
        products: products.as_mut_ptr(),
    }
}

/// A call with two rows, of two tokens and one.
fn tap(w: &World, o: &mut Outs, change: impl Fn(&mut llmcc_embed_rows, &mut llmcc_moments)) -> i32 {
    let (tokens, lengths) = ([1, 2, 3], [2, 1]);
    let (mut given, mut wanted) = (rows(&tokens, &lengths), moments(o));
    change(&mut given, &mut wanted);
    // SAFETY: as for the rows.
    unsafe { llmcc_tap_moments(w.tapped.0, &given, &wanted, 1) }
}

pub fn about_taps<'a>() -> Vec<Row<'a>> {
    macro_rules! tap {
        ($status:expr, $part:expr, $change:expr) => {
            ("llmcc_tap_moments", $status, $part, Box::new(move |w: &World, o: &mut Outs| tap(w, o, $change)))
        };
    }
    static EMPTY: [usize; 2] = [1, 0];
    static ENDLESS: [usize; 2] = [usize::MAX, 2];
    static STRANGE: [i32; 3] = [1, 2, -1];
    vec![
        row!(llmcc_taps, Invalid, "model is a null", |_w, o| (null(), &mut o.len)),
        row!(llmcc_taps, Invalid, "closed", |w, o| (w.closed, &mut o.len)),
        row!(llmcc_taps, Invalid, "n is a null", |w, _o| (w.model.0, null_mut())),
        row!(llmcc_tap, Invalid, "model is a null", |_w, o| (null(), 0, &mut o.tap)),
        row!(llmcc_tap, Unsupported, "compile the model with --tap", |w, o| (w.model.0, 0, &mut o.tap)),
        row!(llmcc_tap, Invalid, "tap 1 does not exist: the model has 1", |w, o| (w.tapped.0, 1, &mut o.tap)),
        row!(llmcc_tap, Invalid, "llmcc_tap_info is a null", |w, _o| (w.tapped.0, 0, null_mut())),
        row!(llmcc_tap_weight, Invalid, "model is a null", |_w, o| (
            null(),
            0,
            0,
            &mut o.number,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_tap_weight, Unsupported, "--tap", |w, o| (
            w.model.0,
            0,
            0,
            &mut o.number,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_tap_weight, Invalid, "weight 1 of tap 0 does not exist: it has 1", |w, o| (
            w.tapped.0,
            0,
            1,
            &mut o.number,
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_tap_weight, Invalid, "expert is a null", |w, o| (
            w.tapped.0,
            0,
            0,
            null_mut(),
            o.text.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_tap_weight, Buffer, "the buffer has 1 bytes, 2 are needed", |w, o| (
            w.tapped.0,
            0,
            0,
            &mut o.number,
            o.text.as_mut_ptr(),
            1,
            &mut o.needed
        )),
        row!(llmcc_tap_moments, Invalid, "model is a null", |_w, _o| (null(), null(), null(), 0)),
        row!(llmcc_tap_moments, Invalid, "rows is a null", |w, _o| (w.tapped.0, null(), null(), 0)),
        row!(llmcc_tap_moments, Invalid, "moments is a null", |w, _o| (w.tapped.0, &rows(&[1], &[1]), null(), 1)),
        row!(llmcc_tap_moments, Unsupported, "compile the model with --tap", |w, _o| (
            w.model.0,
            &rows(&[1], &[1]),
            null(),
            0
        )),
        tap!(Invalid, "rows.flags and rows.pool are for llmcc_embed", |r, _| r.flags = 1),
        tap!(Invalid, "rows.flags and rows.pool are for llmcc_embed", |r, _| r.pool = 1),
        tap!(Invalid, "rows.lengths is a null", |r, _| r.lengths = null()),
        tap!(Invalid, "rows.tokens is a null", |r, _| r.tokens = null()),
        tap!(Invalid, "add up to more tokens than fit in memory", |r, _| r.lengths = ENDLESS.as_ptr()),
        tap!(Invalid, "row 1 has no tokens", |r, _| r.lengths = EMPTY.as_ptr()),
        tap!(Invalid, "token -1 at index 2 is outside the vocabulary of 7", |r, _| r.tokens = STRANGE.as_ptr()),
        tap!(Invalid, "tap 1 does not exist", |_, m| m.tap = 1),
        tap!(Invalid, "moments.count is a null", |_, m| m.count = null_mut()),
        tap!(Invalid, "moments.squares is a null", |_, m| m.squares = null_mut()),
        tap!(Invalid, "moments.squares is misaligned", |_, m| m.squares = m.squares.wrapping_byte_add(1)),
        tap!(Invalid, "moments.min is a null", |_, m| m.min = null_mut()),
        tap!(Invalid, "moments.max is a null", |_, m| m.max = null_mut()),
    ]
}

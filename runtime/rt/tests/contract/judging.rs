//! Log-probabilities.

use super::*;

pub fn about_judging<'a>() -> Vec<Row<'a>> {
    static LOGITS: [f32; 3] = [0.0, 1.0, 2.0];
    static NAN: [f32; 3] = [0.0, f32::NAN, 2.0];
    static TOKENS: [i32; 2] = [1, 3];
    let (l, t) = (LOGITS.as_ptr(), TOKENS.as_ptr());
    /// A step of two tokens, judged after the second.
    fn step(w: &World, o: &mut Outs, targets: *const i32, n_top: usize, out: bool) -> i32 {
        let (tokens, seqs, rows) = ([1, 2], [w.seq; 2], [1]);
        let to = if out { o.logprobs.as_mut_ptr() } else { null_mut() };
        let top = (o.ids.as_mut_ptr(), o.logprobs.as_mut_ptr().wrapping_add(1));
        // SAFETY: as for the rows.
        unsafe { llmcc_step_logprobs(w.model.0, &batch(&tokens, &seqs, &rows), targets, to, n_top, top.0, top.1) }
    }
    static STRANGE: [i32; 1] = [7];
    static ROW: [f32; VOCAB] = [0.0; VOCAB];
    vec![
        row!(llmcc_gen_take, Invalid, "gen is a null", |_w, o| (null(), ROW.as_ptr(), VOCAB, &mut o.piece)),
        row!(llmcc_gen_take, Invalid, "freed", |w, o| (w.freed_gen, ROW.as_ptr(), VOCAB, &mut o.piece)),
        row!(llmcc_gen_take, Invalid, "logits is a null", |w, o| (w.generation, null(), VOCAB, &mut o.piece)),
        row!(llmcc_gen_take, Invalid, "logits has 1 elements", |w, o| (w.generation, ROW.as_ptr(), 1, &mut o.piece)),
        row!(llmcc_gen_take, Invalid, "llmcc_piece is a null", |w, _o| (w.generation, ROW.as_ptr(), VOCAB, null_mut())),
        row!(llmcc_gen_take, Numeric, "NaN", |w, o| (w.generation, [f32::NAN; VOCAB].as_ptr(), VOCAB, &mut o.piece)),
        row!(llmcc_logprobs, Invalid, "logits is a null", |_w, o| (
            null(),
            3,
            t,
            1,
            o.logprobs.as_mut_ptr(),
            0,
            null_mut(),
            null_mut()
        )),
        row!(llmcc_logprobs, Numeric, "", |_w, o| (
            NAN.as_ptr(),
            3,
            t,
            1,
            o.logprobs.as_mut_ptr(),
            0,
            null_mut(),
            null_mut()
        )),
        row!(llmcc_logprobs, Invalid, "token 3 is outside the vocabulary of 3", |_w, o| (
            l,
            3,
            t,
            2,
            o.logprobs.as_mut_ptr(),
            2,
            o.ids.as_mut_ptr(),
            o.logprobs.as_mut_ptr()
        )),
        row!(llmcc_logprobs, Invalid, "tokens is a null", |_w, o| (
            l,
            3,
            null(),
            1,
            o.logprobs.as_mut_ptr(),
            0,
            null_mut(),
            null_mut()
        )),
        row!(llmcc_logprobs, Invalid, "logprobs is a null", |_w, _o| (
            l,
            3,
            t,
            1,
            null_mut(),
            0,
            null_mut(),
            null_mut()
        )),
        row!(llmcc_logprobs, Invalid, "misaligned", |_w, o| (l, 3, t, 1, odd(o), 0, null_mut(), null_mut())),
        row!(llmcc_logprobs, Invalid, "n_top is 4", |_w, o| (
            l,
            3,
            t,
            0,
            null_mut(),
            4,
            o.ids.as_mut_ptr(),
            o.logprobs.as_mut_ptr()
        )),
        row!(llmcc_logprobs, Invalid, "top_tokens or top_logprobs is a null", |_w, o| (
            l,
            3,
            t,
            0,
            null_mut(),
            1,
            o.ids.as_mut_ptr(),
            null_mut()
        )),
        row!(llmcc_step_logprobs, Invalid, "model is a null", |_w, o| (
            null(),
            null(),
            null(),
            o.logprobs.as_mut_ptr(),
            0,
            null_mut(),
            null_mut()
        )),
        row!(llmcc_step_logprobs, Invalid, "batch is a null", |w, o| (
            w.model.0,
            null(),
            null(),
            o.logprobs.as_mut_ptr(),
            0,
            null_mut(),
            null_mut()
        )),
        ("llmcc_step_logprobs", Invalid, "targets is a null", Box::new(|w, o| step(w, o, null(), 0, true))),
        ("llmcc_step_logprobs", Invalid, "token 7 is outside", Box::new(|w, o| step(w, o, STRANGE.as_ptr(), 0, true))),
        ("llmcc_step_logprobs", Invalid, "logprobs is a null", Box::new(|w, o| step(w, o, TOKENS.as_ptr(), 0, false))),
        ("llmcc_step_logprobs", Invalid, "n_top is 8", Box::new(|w, o| step(w, o, TOKENS.as_ptr(), 8, true))),
    ]
}

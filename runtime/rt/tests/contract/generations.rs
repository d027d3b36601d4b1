//! Generations.

use super::*;

/// Generations, and `llmcc_generate`, which makes one.
pub fn about_generations<'a>() -> Vec<Row<'a>> {
    macro_rules! with {
        ($status:expr, $part:expr, $change:expr) => {
            [
                (
                    "llmcc_gen_new",
                    $status,
                    $part,
                    Box::new(move |w: &World, o: &mut Outs| {
                        let mut p = params();
                        let change: fn(&mut llmcc_gen_params) = $change;
                        change(&mut p);
                        // SAFETY: as for the rows.
                        unsafe { llmcc_gen_new(w.model.0, -1, [1].as_ptr(), 1, &p, &mut o.generation) }
                    }) as Box<dyn Fn(&World, &mut Outs) -> i32>,
                ),
                (
                    "llmcc_generate",
                    $status,
                    $part,
                    Box::new(move |w: &World, o: &mut Outs| {
                        let mut p = params();
                        let change: fn(&mut llmcc_gen_params) = $change;
                        change(&mut p);
                        // SAFETY: as for the rows.
                        unsafe {
                            llmcc_generate(w.model.0, c"a".as_ptr(), 1, &p, Some(called), null_mut(), &mut o.stats)
                        }
                    }),
                ),
            ]
        };
    }
    static NULLS: [usize; 1] = [0];
    static NOT_UTF8: &[u8] = b"\xff\0";
    let long: &[i32] = vec![0; 201].leak();
    let both: Vec<Row> = [
        with!(Invalid, "llmcc_gen_params.size is 1", |p| p.size = 1),
        with!(Invalid, "0x40", |p| p.flags = 64),
        with!(Invalid, "llmcc_gen_params.reserved must be zero", |p| p.reserved = 1),
        with!(Invalid, "LLMCC_GEN_LOGPROBS", |p| p.top_logprobs = 1),
        with!(Invalid, "llmcc_gen_params.guesses is 9", |p| p.guesses = 9),
        with!(Invalid, "llmcc_gen_params.guess goes with", |p| p.guesses = LLMCC_GUESS_CALLER),
        with!(Invalid, "32 guesses for a step are too many", |p| (p.guesses, p.most_guesses) =
            (LLMCC_GUESS_LOOKUP, 32)),
        with!(Invalid, "corpus is a null", |p| p.guesses = LLMCC_GUESS_CORPUS),
        with!(Unsupported, "has no draft heads", |p| p.guesses = LLMCC_GUESS_HEADS),
        with!(Invalid, "llmcc_sampling.bias is a null", |p| p.sampling.n_bias = 1),
        with!(Invalid, "stop is a null", |p| p.n_stop = 1),
        with!(Invalid, "a stop string is a null", |p| (p.stop, p.n_stop) = (NULLS.as_ptr().cast(), 1)),
        with!(Invalid, "a stop string is not UTF-8", |p| {
            let list: &[*const c_char; 1] = Box::leak(Box::new([NOT_UTF8.as_ptr().cast()]));
            (p.stop, p.n_stop) = (list.as_ptr(), 1)
        }),
        with!(Invalid, "stop_tokens is a null", |p| p.n_stop_tokens = 1),
        with!(Invalid, "expected is a null", |p| p.n_expected = 1),
        with!(Invalid, "top_p is 1.5", |p| p.sampling.top_p = 1.5),
        with!(Invalid, "top_p is NaN", |p| p.sampling.top_p = f32::NAN),
        with!(Invalid, "top_p is 0; use a number above 0", |p| p.sampling.top_p = 0.0),
        with!(Invalid, "repetition_penalty is 0; use a positive", |p| p.sampling.repetition_penalty = 0.0),
        with!(Invalid, "repetition_penalty is -1; use a positive", |p| p.sampling.repetition_penalty = -1.0),
        with!(Invalid, "repetition_penalty is inf", |p| p.sampling.repetition_penalty = f32::INFINITY),
        with!(Invalid, "temperature is -1", |p| p.sampling.temperature = -1.0),
        with!(Invalid, "reserved must be zero", |p| p.reserved_1_4 = 1),
        with!(Invalid, "min_p is -1", |p| p.sampling.min_p = -1.0),
        with!(Invalid, "temperature is inf", |p| p.sampling.temperature = f32::INFINITY),
        with!(Invalid, "repetition_penalty is NaN", |p| p.sampling.repetition_penalty = f32::NAN),
        with!(Invalid, "reserved", |p| p.sampling.reserved = 1),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut rows: Vec<Row> = vec![
        row!(llmcc_gen_new, Invalid, "model is a null", |_w, o| (
            null(),
            -1,
            [1].as_ptr(),
            1,
            null(),
            &mut o.generation
        )),
        row!(llmcc_gen_new, Invalid, "out is a null", |w, _o| (w.model.0, -1, [1].as_ptr(), 1, null(), null_mut())),
        row!(llmcc_gen_new, Invalid, "prompt is a null", |w, o| (w.model.0, -1, null(), 1, null(), &mut o.generation)),
        row!(llmcc_gen_new, Invalid, "no tokens", |w, o| (w.model.0, w.seq, null(), 0, null(), &mut o.generation)),
        row!(llmcc_gen_new, Invalid, "token 9 at index 0", |w, o| (
            w.model.0,
            w.seq,
            [9].as_ptr(),
            1,
            null(),
            &mut o.generation
        )),
        row!(llmcc_gen_new, Invalid, "does not exist", |w, o| (
            w.model.0,
            w.freed_seq,
            [1].as_ptr(),
            1,
            null(),
            &mut o.generation
        )),
        row!(llmcc_gen_new, ContextFull, "shorten", |w, o| (
            w.model.0,
            w.seq,
            long.as_ptr(),
            201,
            null(),
            &mut o.generation
        )),
        row!(llmcc_gen_next, Invalid, "gen is a null", |_w, o| (null(), &mut o.piece)),
        row!(llmcc_gen_next, Invalid, "freed", |w, o| (w.freed_gen, &mut o.piece)),
        row!(llmcc_gen_next, Invalid, "not an open handle", |w, o| (w.model.0.cast(), &mut o.piece)),
        row!(llmcc_gen_next, Invalid, "llmcc_piece is a null", |w, _o| (w.generation, null_mut())),
        row!(llmcc_gen_next, Invalid, "llmcc_piece is misaligned", |w, o| (w.generation, odd(o))),
        row!(llmcc_gen_next, Invalid, "llmcc_piece.size is 0", |w, _o| (w.generation, empty())),
        row!(llmcc_gen_next_batch, Invalid, "gens is a null", |_w, o| (null(), 1, &mut o.piece)),
        row!(llmcc_gen_next_batch, Invalid, "gen is a null", |_w, o| ([null_mut()].as_ptr(), 1, &mut o.piece)),
        row!(llmcc_gen_next_batch, Invalid, "freed", |w, o| ([w.freed_gen].as_ptr(), 1, &mut o.piece)),
        row!(llmcc_gen_next_batch, Invalid, "pieces is a null", |w, _o| ([w.generation].as_ptr(), 1, null_mut())),
        row!(llmcc_gen_next_batch, Invalid, "llmcc_piece.size is 0", |w, _o| ([w.generation].as_ptr(), 1, empty())),
        row!(llmcc_gen_next_batch, Invalid, "are the same", |w, _o| (
            [w.generation; 2].as_ptr(),
            2,
            Box::leak(Box::new([llmcc_piece::default(); 2])).as_mut_ptr()
        )),
        row!(llmcc_gen_stats, Invalid, "gen is a null", |_w, o| (null(), &mut o.stats)),
        row!(llmcc_gen_stats, Invalid, "freed", |w, o| (w.freed_gen, &mut o.stats)),
        row!(llmcc_gen_stats, Invalid, "llmcc_gen_stats_t is a null", |w, _o| (w.generation, null_mut())),
        row!(llmcc_generate, Invalid, "model is a null", |_w, o| (
            null(),
            c"a".as_ptr(),
            1,
            null(),
            Some(called),
            null_mut(),
            &mut o.stats
        )),
        row!(llmcc_generate, Invalid, "prompt is a null", |w, o| (
            w.model.0,
            null(),
            1,
            null(),
            Some(called),
            null_mut(),
            &mut o.stats
        )),
        row!(llmcc_generate, Invalid, "prompt is not UTF-8", |w, o| (
            w.model.0,
            c"\xff".as_ptr(),
            1,
            null(),
            Some(called),
            null_mut(),
            &mut o.stats
        )),
        row!(llmcc_generate, Invalid, "0x2", |w, o| (
            w.model.0,
            c"a".as_ptr(),
            1,
            &llmcc_gen_params { flags: LLMCC_GEN_NO_TEXT, ..params() },
            Some(called),
            null_mut(),
            &mut o.stats
        )),
        row!(llmcc_generate, Invalid, "llmcc_gen_stats_t.size is 0", |w, _o| (
            w.model.0,
            c"a".as_ptr(),
            1,
            null(),
            Some(called),
            null_mut(),
            empty()
        )),
    ];
    rows.extend(both);
    rows
}

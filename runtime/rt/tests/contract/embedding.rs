//! Embeddings, and refusals of models with or without them.

use super::*;

/// Two rows, of two tokens and one.
fn embed(w: &World, o: &mut Outs, capacity: usize, change: impl Fn(&mut llmcc_embed_rows)) -> i32 {
    let (tokens, lengths) = ([1, 2, 3], [2, 1]);
    let mut given = rows(&tokens, &lengths);
    change(&mut given);
    // SAFETY: as for the rows.
    unsafe { llmcc_embed(w.embedder.0, &given, o.logits.as_mut_ptr(), capacity) }
}

fn pair(first: &CStr) -> llmcc_pair {
    let len = first.count_bytes();
    llmcc_pair { first: first.as_ptr(), first_len: len, second: c"b".as_ptr(), second_len: 1 }
}

fn about_pairs<'a>() -> Vec<Row<'a>> {
    macro_rules! tokens {
        ($status:expr, $part:expr, |$w:ident, $o:ident| $model:expr, $pair:expr, $most:expr, $types:expr, $n:expr) => {
            row!(llmcc_tokenize_pair, $status, $part, |$w, $o| (
                $model,
                $pair,
                $most,
                $o.ids.as_mut_ptr(),
                $types,
                $n,
                &mut $o.needed
            ))
        };
    }
    let (good, bad) = (pair(c"a"), pair(c"\xff"));
    let null_text = llmcc_pair { second: null(), ..good };
    vec![
        tokens!(Invalid, "model is a null", |_w, o| null(), &good, 0, null_mut(), 8),
        tokens!(Invalid, "pair is a null", |w, o| w.model.0, null(), 0, null_mut(), 8),
        tokens!(Invalid, "pair 0: first is not UTF-8", |w, o| w.model.0, &bad, 0, null_mut(), 8),
        tokens!(Invalid, "pair 0: second is a null", |w, o| w.model.0, &null_text, 0, null_mut(), 8),
        tokens!(Invalid, "types is misaligned", |w, o| w.model.0, &good, 0, odd(o), 8),
        tokens!(Buffer, "2 are needed", |w, o| w.model.0, &good, 0, null_mut(), 1),
        row!(llmcc_score_pairs, Invalid, "model is a null", |_w, o| (
            null(),
            &good,
            1,
            0,
            o.logits.as_mut_ptr(),
            VOCAB
        )),
        row!(llmcc_score_pairs, Invalid, "unknown flags 0x2", |w, o| (
            w.model.0,
            &good,
            1,
            2,
            o.logits.as_mut_ptr(),
            VOCAB
        )),
        row!(llmcc_score_pairs, Invalid, "pairs is a null", |w, o| (w.model.0, null(), 1, 0, o.logits.as_mut_ptr(), 1)),
        row!(llmcc_score_pairs, Unsupported, "does not compare pairs of texts", |w, o| (
            w.embedder.0,
            &good,
            1,
            0,
            o.logits.as_mut_ptr(),
            VOCAB
        )),
    ]
}

/// A step of the encoder.
fn encode(w: &World, tokens: &[i32], seqs: &[i32]) -> i32 {
    // SAFETY: as for the rows.
    unsafe { llmcc_step(w.encoder.0, &batch(tokens, seqs, &[]), null_mut(), 0) }
}

pub fn about_embedding<'a>() -> Vec<Row<'a>> {
    about_pairs().into_iter().chain(about_rows()).collect()
}

fn about_rows<'a>() -> Vec<Row<'a>> {
    macro_rules! embed {
        ($status:expr, $part:expr, $change:expr) => {
            ("llmcc_embed", $status, $part, Box::new(move |w: &World, o: &mut Outs| embed(w, o, 2 * VOCAB, $change)))
        };
    }
    static LONG: [usize; 2] = [201, 1];
    static EMPTY: [usize; 2] = [1, 0];
    static ENDLESS: [usize; 2] = [usize::MAX, 2];
    static SEVENTEEN: [usize; 1] = [17];
    static CACHE: [usize; 1] = [49];
    static TOKENS: [i32; 202] = [1; 202];
    static STRANGE: [i32; 3] = [1, 2, -1];
    static TYPES: [i32; 3] = [0, 0, 1];
    let long = |b: &mut llmcc_embed_rows| (b.lengths, b.tokens) = (LONG.as_ptr(), TOKENS.as_ptr());
    let cache = |b: &mut llmcc_embed_rows| (b.lengths, b.tokens, b.n_rows) = (CACHE.as_ptr(), TOKENS.as_ptr(), 1);
    let seventeen = rows(&TOKENS[..17], &SEVENTEEN);
    let generation: fn(&World, &mut Outs) -> i32 = |w, o| {
        // SAFETY: as for the rows.
        unsafe { llmcc_gen_new(w.embedder.0, -1, [1].as_ptr(), 1, null(), &mut o.generation) }
    };
    vec![
        row!(llmcc_embed, Invalid, "model is a null", |_w, o| (null(), null(), o.logits.as_mut_ptr(), 0)),
        row!(llmcc_embed, Invalid, "closed", |w, o| (w.closed, null(), o.logits.as_mut_ptr(), 0)),
        row!(llmcc_embed, Invalid, "rows is a null", |w, o| (w.embedder.0, null(), o.logits.as_mut_ptr(), 0)),
        row!(llmcc_embed, Unsupported, "compile the model with --also-embed", |w, o| (
            w.model.0,
            &rows(&[1], &[1]),
            o.logits.as_mut_ptr(),
            VOCAB
        )),
        embed!(Invalid, "llmcc_embed_rows.size is 0", |b| b.size = 0),
        embed!(Invalid, "flags are 0x3", |b| b.flags = 3),
        embed!(Invalid, "there is no pooling 7", |b| b.pool = 7),
        embed!(Invalid, "rows.lengths is a null", |b| b.lengths = null()),
        embed!(Invalid, "misaligned", |b| b.lengths = b.lengths.wrapping_byte_add(1)),
        embed!(Invalid, "add up to more tokens than fit in memory", |b| b.lengths = ENDLESS.as_ptr()),
        embed!(Invalid, "rows.tokens is a null", |b| b.tokens = null()),
        embed!(Invalid, "row 1 has no tokens; give at least one", |b| b.lengths = EMPTY.as_ptr()),
        embed!(Invalid, "token -1 at index 2 is outside the vocabulary of 7", |b| b.tokens = STRANGE.as_ptr()),
        embed!(Invalid, "rows.types is misaligned", |b| b.types = TYPES.as_ptr().wrapping_byte_add(1)),
        embed!(Invalid, "type 1 of the token at index 2: tokens of this model have no types", |b| b.types =
            TYPES.as_ptr()),
        embed!(ContextFull, "row 0 has 201 tokens: the model's longest context is 200", long),
        embed!(CacheFull, "is full", cache),
        ("llmcc_embed", Buffer, "room for 13 floats; 2 rows of 7", Box::new(|w, o| embed(w, o, 2 * VOCAB - 1, |_| ()))),
        row!(llmcc_embed, Invalid, "out is a null", |w, _o| (w.embedder.0, &rows(&[1], &[1]), null_mut(), VOCAB)),
        row!(llmcc_embed, Invalid, "out is misaligned", |w, o| (w.embedder.0, &rows(&[1], &[1]), odd(o), VOCAB)),
        row!(llmcc_embed, Invalid, "row 0 has 17 tokens, which see each other", |w, o| (
            w.encoder.0,
            &seventeen,
            o.logits.as_mut_ptr(),
            VOCAB
        )),
        ("llmcc_gen_new", Unsupported, "makes embeddings and does not write text", Box::new(generation)),
        row!(llmcc_generate, Unsupported, "use llmcc_embed", |w, _o| (
            w.embedder.0,
            c"a".as_ptr(),
            1,
            null(),
            Some(called),
            null_mut(),
            null_mut()
        )),
        row!(llmcc_step_logprobs, Unsupported, "makes embeddings", |w, o| (
            w.embedder.0,
            &batch(&[1], &[0], &[0]),
            [1].as_ptr(),
            o.logprobs.as_mut_ptr(),
            0,
            null_mut(),
            null_mut()
        )),
        ("llmcc_step", Invalid, "already has 1 tokens", Box::new(|w, _o| encode(w, &[1], &[w.encoded]))),
        ("llmcc_step", Invalid, "a step of 17 tokens", Box::new(|w, _o| encode(w, &TOKENS[..17], &[w.encoded; 17]))),
    ]
}

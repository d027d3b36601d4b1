//! Entries by number, trees of tokens, and models that guess.

use super::*;

pub fn about_trees<'a>() -> Vec<Row<'a>> {
    fn tree(w: &World, o: &mut Outs, (parents, rows, branches): ([i32; 2], usize, usize), out_rows: &[u32]) -> i32 {
        let (tokens, seqs) = ([1, 2], [w.seq; 2]);
        let (batch, ids) = (batch(&tokens, &seqs, out_rows), o.ids.as_mut_ptr());
        let (rows_out, needed) = (o.logits.as_mut_ptr(), &mut o.needed);
        // SAFETY: as for the rows.
        unsafe { llmcc_run_tree(w.model.0, 0, &batch, parents.as_ptr(), rows_out, rows, ids, branches, needed) }
    }
    macro_rules! tree {
        ($status:expr, $part:expr, $shape:expr, $out:expr) => {
            ("llmcc_run_tree", $status, $part, Box::new(move |w: &World, o: &mut Outs| tree(w, o, $shape, $out)))
        };
    }
    vec![
        row!(llmcc_run, Invalid, "model is a null", |_w, o| (null(), 0, null(), o.logits.as_mut_ptr(), 0)),
        row!(llmcc_run, Invalid, "batch is a null", |w, o| (w.model.0, 0, null(), o.logits.as_mut_ptr(), 0)),
        row!(llmcc_run, Invalid, "1 entries, none of number 1", |w, _o| (
            w.model.0,
            1,
            &batch(&[1], &[w.seq], &[]),
            null_mut(),
            0
        )),
        row!(llmcc_run_tree, Invalid, "batch is a null", |w, o| (
            w.model.0,
            0,
            null(),
            null(),
            null_mut(),
            0,
            o.ids.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        row!(llmcc_run_tree, Invalid, "parents is a null", |w, o| (
            w.model.0,
            0,
            &batch(&[1], &[w.seq], &[]),
            null(),
            null_mut(),
            0,
            o.ids.as_mut_ptr(),
            8,
            &mut o.needed
        )),
        tree!(Invalid, "the parent of token 1 is 1", ([-1, 1], VOCAB, 2), &[]),
        tree!(Buffer, "the tree has 2 ways", ([-1, -1], VOCAB, 1), &[]),
        tree!(Buffer, "room for 2 and 6", ([-1, 0], VOCAB - 1, 2), &[0]),
        tree!(Invalid, "beyond the 2 of the tree", ([-1, 0], VOCAB, 2), &[2]),
    ]
}

pub fn about_drafters<'a>() -> Vec<Row<'a>> {
    vec![
        row!(llmcc_drafter_new, Invalid, "model is a null", |_w, o| (null(), (&raw mut o.model).cast())),
        row!(llmcc_drafter_new, Invalid, "out is a null", |w, _o| (w.model.0, null_mut())),
        row!(llmcc_drafter_new, Unsupported, "does not write text", |w, o| (w.embedder.0, (&raw mut o.model).cast())),
    ]
}

pub fn about_corpora<'a>() -> Vec<Row<'a>> {
    macro_rules! corpus {
        ($status:expr, $part:expr, $tokens:expr, $n:expr) => {
            row!(llmcc_corpus_new, $status, $part, |w, o| (w.model.0, $tokens, $n, (&raw mut o.model).cast()))
        };
    }
    vec![
        row!(llmcc_corpus_new, Invalid, "model is a null", |_w, o| (null(), null(), 0, (&raw mut o.model).cast())),
        row!(llmcc_corpus_new, Invalid, "out is a null", |w, _o| (w.model.0, null(), 0, null_mut())),
        corpus!(Invalid, "tokens is a null", null(), 1),
        corpus!(Invalid, "token 7 at index 1 of the corpus is outside the vocabulary of 7", [1, 7].as_ptr(), 2),
    ]
}

pub fn about_compression<'a>() -> Vec<Row<'a>> {
    static MANY: [i32; 100] = [1; 100];
    macro_rules! compress {
        ($status:expr, $part:expr, $tokens:expr, $n:expr, $context:expr, $share:expr, $keep:expr) => {
            row!(llmcc_compress, $status, $part, |w, _o| (w.model.0, $tokens, $n, $context, $share, $keep, null_mut()))
        };
    }
    fn zeros() -> *mut u8 {
        vec![0; 100].leak().as_mut_ptr()
    }
    vec![
        row!(llmcc_compress, Invalid, "model is a null", |_w, _o| (null(), null(), 0, 0, 0.5, null_mut(), null_mut())),
        row!(llmcc_compress, Unsupported, "embeddings", |w, _o| (
            w.embedder.0,
            null(),
            0,
            0,
            0.5,
            null_mut(),
            null_mut()
        )),
        compress!(Invalid, "tokens is a null", null(), 1, 0, 0.5, zeros()),
        compress!(Invalid, "keep is a null", MANY.as_ptr(), 1, 0, 0.5, null_mut()),
        compress!(Invalid, "keep[0] is 2; use 1", MANY.as_ptr(), 1, 0, 0.5, Box::leak(Box::new(2u8))),
        compress!(Invalid, "the share of tokens to keep is 2", MANY.as_ptr(), 9, 0, 2.0, zeros()),
        compress!(Invalid, "the context is 10 of 9 tokens", MANY.as_ptr(), 9, 10, 0.5, zeros()),
        compress!(Invalid, "token 7 at index 0", [7].as_ptr(), 1, 0, 0.5, zeros()),
        compress!(CacheFull, "cache", MANY.as_ptr(), 100, 0, 0.5, zeros()),
    ]
}

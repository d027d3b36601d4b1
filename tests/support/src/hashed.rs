//! Kernels about ids of tokens.

use crate::Gen;
use llmcc_ir::kernel::{Body, EmbedHashed, GivenRows, RowElem, Substitute, TokenIds};
use llmcc_ir::quant::Format;
use llmcc_ir::ty::Dim;

impl Gen {
    /// Ids as numbers.
    pub fn token_ids(&mut self) -> Body {
        self.rows = Dim::Tokens;
        Body::TokenIds(TokenIds { out: self.output(1, RowElem::F32) })
    }

    /// Rows that come with the tokens.
    pub fn given_rows(&mut self, cols: usize) -> Body {
        self.rows = Dim::Tokens;
        self.batch.hidden = (0..self.batch.tokens.len() * cols).map(|i| i as f32 / 3.0 - 7.0).collect();
        Body::GivenRows(GivenRows { out: self.output(cols, RowElem::F32) })
    }

    /// Rows for one of the batch's tokens, or for a token that it does not have; then no rows are given.
    pub fn substitute(&mut self, cols: usize) -> Body {
        self.rows = Dim::Tokens;
        let there = self.rng.chance(2);
        let token = if there { self.rng.pick(&self.batch.tokens.clone()) as usize } else { 1 << 20 };
        let given = if there { self.batch.tokens.len() * cols } else { 0 };
        self.batch.hidden = (0..given).map(|i| i as f32 / 3.0 - 7.0).collect();
        let x = self.input(self.rows, cols);
        Body::Substitute(Substitute { x, token, out: self.output(cols, RowElem::F32) })
    }

    /// Rows of a table by hashes of up to five ids, whose products with their factors have 63 bits.
    pub fn embed_hashed(&mut self, cols: usize, format: Format) -> Body {
        self.rows = Dim::Tokens;
        let (count, each) = (self.rng.below(2, 6), self.rng.below(1, 4));
        let sizes: Vec<usize> = (0..(count - 1) * each).map(|_| self.rng.below(1, 40)).collect();
        let rows = sizes.iter().sum::<usize>() + self.rng.below(0, 20);
        let table = self.matrix(rows, cols, format);
        let ids = self.input(self.rows, count);
        self.change_rows(ids, |x| (x.abs() * 8_388_607.0).floor());
        let factors = (0..count).map(|_| self.rng.below(1, 1 << 20) << 19 | self.rng.below(1, 1 << 19)).collect();
        let out = self.output(cols * sizes.len(), RowElem::F32);
        Body::EmbedHashed(EmbedHashed { table, ids, factors, sizes, out })
    }
}

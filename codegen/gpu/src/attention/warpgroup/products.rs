//! Products of a group of four warps: `S = Q·Kᵀ` from shared memory, `O += P·V` with the
//! probabilities in registers.
//!
//! Keys and values lie in shared memory as in the cache, tokens and columns adjacent: both are
//! right operands in the order that PTX calls N-major (the last sign of the instructions), which
//! 16-bit types have. Descriptors name, in units of 16 bytes, where a matrix starts; `leading`:
//! from one block of columns as wide as the swizzle to the next; `stride`: from eight lines of `k`
//! to the next eight.

use super::{LINE, Plan, TILE};
use crate::mlir::{Builder, Elem, I64, Left, Products, V};
use llmcc_abi::PAGE_TOKENS;
use llmcc_ir::gpu::layout::Swizzle;
use llmcc_ir::gpu::program::Atom;
use std::fmt::Write;

impl Plan {
    /// Bytes of a page of keys or values.
    pub(super) fn page_bytes(&self) -> usize {
        self.d * PAGE_TOKENS * 2
    }

    /// Queries at `at`: lines of 128 bytes, blocks of eight of them 1024 apart. Their order is
    /// K-major, and blocks are named one by one: no `leading`.
    pub(super) fn query_matrix(&self, b: &mut Builder, at: V) -> Matrix {
        Matrix::new(b, at, Swizzle::B128, 16, 8 * LINE)
    }

    /// Keys at `at`: two blocks of 64 tokens.
    pub(super) fn key_matrix(&self, b: &mut Builder, at: V) -> Matrix {
        Matrix::new(b, at, Swizzle::B128, self.d * LINE, 8 * LINE)
    }

    /// Values at `at`.
    pub(super) fn value_matrix(&self, b: &mut Builder, at: V) -> Matrix {
        let line = self.values().row_bytes() as usize;
        Matrix::new(b, at, self.values(), PAGE_TOKENS * line, 8 * line)
    }

    fn types(&self) -> &'static str {
        if self.elem == Elem::Bf16 { "k16.f32.bf16.bf16" } else { "k16.f32.f16.f16" }
    }

    /// Starts the products of 64 queries with the keys of a tile: the scores, for
    /// [`Builder::wait_products`] only.
    pub(super) fn start_scores(&self, b: &mut Builder, queries: Matrix, keys: Matrix) -> Vec<V> {
        let n = TILE / 2;
        let list = registers(0, n);
        let mut text = head("setp.ne.b32 p, 0, 0;");
        for step in 0..self.d / 16 {
            // Four steps go through a line of queries; a step of keys has 16 lines.
            let (q, k) = ((step / 4 * 64 * LINE + step % 4 * 32) / 16, step * 16 * LINE / 16);
            let _ = write!(
                text,
                "add.s64 x, ${}, {q}; add.s64 y, ${}, {k}; wgmma.mma_async.sync.aligned.m64n{TILE}{} {{{list}}}, x, y, p, 1, 1, 0, 1; ",
                n,
                n + 1,
                self.types()
            );
            if step == 0 {
                // The first step overwrites the registers.
                text.push_str("setp.eq.b32 p, 0, 0; ");
            }
        }
        text.push_str("wgmma.commit_group.sync.aligned; }");
        let constraints = format!("{},l,l,~{{memory}}", vec!["=f"; n].join(","));
        let products = Products {
            atom: Atom::M64K16(TILE as u32),
            left: Left::Shared(queries.at),
            right: keys.at,
            sums: &[],
            count: n,
        };
        b.start_products(&products, &text, &constraints, &[queries.descriptor, keys.descriptor])
    }

    /// Starts the products of probabilities (four words for every 16 tokens) with the values of a
    /// tile, added to `sums`. The result is for [`Builder::wait_products`] only.
    pub(super) fn start_values(&self, b: &mut Builder, probabilities: &[V], values: Matrix, sums: &[V]) -> Vec<V> {
        let (n, words) = (sums.len(), probabilities.len());
        let list = registers(0, n);
        let mut text = head("setp.eq.b32 p, 0, 0;");
        for page in 0..words / 4 {
            let a = registers(2 * n + 4 * page, 4);
            let _ = write!(
                text,
                "add.s64 y, ${}, {}; wgmma.mma_async.sync.aligned.m64n{}{} {{{list}}}, {{{a}}}, y, p, 1, 1, 1; ",
                2 * n + words,
                page * self.page_bytes() / 16,
                self.d,
                self.types()
            );
        }
        text.push_str("wgmma.commit_group.sync.aligned; }");
        let constraints =
            format!("{},{},{},l,~{{memory}}", vec!["=f"; n].join(","), tied(n), vec!["r"; words].join(","));
        let args = [sums, probabilities, &[values.descriptor]].concat();
        let left = Left::Registers(probabilities);
        let products = Products { atom: Atom::M64K16(self.d as u32), left, right: values.at, sums, count: n };
        b.start_products(&products, &text, &constraints, &args)
    }
}

/// Head of the assembly text: `p` says whether a product is added to the sums so far.
fn head(p: &str) -> String {
    format!("{{ .reg .pred p; .reg .b64 x, y; {p} wgmma.fence.sync.aligned; ")
}

fn registers(first: usize, count: usize) -> String {
    (first..first + count).map(|i| format!("${i}")).collect::<Vec<_>>().join(", ")
}

fn tied(n: usize) -> String {
    (0..n).map(|i| i.to_string()).collect::<Vec<_>>().join(",")
}

/// A matrix in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    at: V,
    descriptor: V,
}

impl Matrix {
    fn new(b: &mut Builder, at: V, swizzle: Swizzle, leading: usize, stride: usize) -> Matrix {
        Matrix { at, descriptor: descriptor(b, at, swizzle, leading, stride) }
    }
}

fn descriptor(b: &mut Builder, at: V, swizzle: Swizzle, leading: usize, stride: usize) -> V {
    let code: u64 = match swizzle {
        Swizzle::None => 0,
        Swizzle::B128 => 1,
        Swizzle::B64 => 2,
        Swizzle::B32 => 3,
    };
    let address = b.shared_address(at);
    let address = b.shrc(address, 4);
    let address = b.andc(address, 0x3fff);
    let address = b.zext(address, I64);
    b.orc(address, (code << 62 | (stride as u64 / 16) << 32 | (leading as u64 / 16) << 16) as i64)
}

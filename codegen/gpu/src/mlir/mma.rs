//! Tensor cores: their operands and products.

use super::{Builder, Elem, I32, StructElem, Ty, V};

impl Builder {
    /// Loads four 8×8 matrices of 16-bit elements; lane `l` gives the address of row `l % 8` of
    /// matrix `l / 8`.
    pub fn ldmatrix(&mut self, p: V, transposed: bool) -> Vec<V> {
        self.record_matrices(p);
        let layout = if transposed { "col" } else { "row" };
        let s = self.op(
            Ty::Struct(4, StructElem::S(Elem::I32)),
            format!(
                "nvvm.ldmatrix {p} {{num = 4 : i32, layout = #nvvm.mma_layout<{layout}>, shape = #nvvm.ld_st_matrix_shape<m = 8, n = 8>, \
                 eltType = #nvvm.ld_st_matrix_elt_type<b16>}} : (!llvm.ptr<3>) -> !llvm.struct<(i32, i32, i32, i32)>"
            ),
        );
        self.members(s)
    }

    /// `m16n8k32`: `C + A·B` with A (4 words) and B (2 words) of e4m3 numbers and C (4 × f32).
    pub fn mma_e4m3(&mut self, a: &[V], b: &[V], c: &[V]) -> Vec<V> {
        let text = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};";
        let args: Vec<V> = a.iter().chain(b).chain(c).copied().collect();
        let ty = Ty::Struct(4, StructElem::S(Elem::F32));
        let s = self.asm(ty, text, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", &args);
        self.members(s)
    }

    /// `m16n8k16`: `C + A·B` with A (4 words), B (2 words) of `elem` (f16 or bf16) and C (4 × f32).
    pub fn mma(&mut self, elem: Elem, a: &[V], b: &[V], c: &[V]) -> Vec<V> {
        // For f16, MLIR wants pairs; for bf16, words.
        let (kind, pair) = if elem == Elem::F16 { ("f16", Ty::Vec(2, Elem::F16)) } else { ("bf16", I32) };
        let a: Vec<String> = a.iter().map(|v| self.bitcast(*v, pair).to_string()).collect();
        let b: Vec<String> = b.iter().map(|v| self.bitcast(*v, pair).to_string()).collect();
        let c: Vec<String> = c.iter().map(V::to_string).collect();
        // The types of f16 operands follow from their vectors; giving them would be an error.
        let types = match elem {
            Elem::F16 => String::new(),
            _ => format!(
                ", multiplicandAPtxType = #nvvm.mma_type<{kind}>, multiplicandBPtxType = #nvvm.mma_type<{kind}>"
            ),
        };
        let text = format!(
            "nvvm.mma.sync A[{}] B[{}] C[{}] {{layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>{types}, \
             shape = #nvvm.shape<m = 16, n = 8, k = 16>}} : ({pair}, {pair}, f32) -> !llvm.struct<(f32, f32, f32, f32)>",
            a.join(", "),
            b.join(", "),
            c.join(", ")
        );
        let s = self.op(Ty::Struct(4, StructElem::S(Elem::F32)), text);
        self.members(s)
    }
}

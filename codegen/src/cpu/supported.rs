//! The kernels CPUs support: everything that the backend refuses is refused here, before code is
//! made.

use crate::CodegenError;
use llmcc_ir::kernel::{Attention, Body, Checked, ParamKind, RowElem};
use llmcc_ir::quant::{Float, Format, Packing};
use llmcc_ir::target::{RowKind, TargetSpec};

/// Refuses kernels that CPUs do not support. `portable`: without microkernels.
///
/// # Errors
/// Names the operand.
pub(super) fn check(kernel: Checked<'_>, target: &TargetSpec, portable: bool) -> Result<(), CodegenError> {
    let refuse = |what: String| Err(CodegenError::unsupported(&kernel, what));
    for p in &kernel.params {
        match p.kind {
            ParamKind::Rows { elem, .. } if !target.multiplies(elem) => {
                let kinds: Vec<String> = target.rows().iter().map(ToString::to_string).collect();
                let kinds = kinds.join(", ");
                return refuse(format!(
                    "operand `{}` must be a matrix of rows that `{}` multiplies: {kinds}",
                    p.name, target.name
                ));
            }
            ParamKind::Matrix { format, .. } if format.packing != Packing::Panel => {
                return refuse(format!("operand `{}` must be packed in panels, for a CPU", p.name));
            }
            ParamKind::Rows { .. } | ParamKind::Matrix { .. } | ParamKind::Vector { .. } | ParamKind::State(_) => {}
        }
    }
    if kernel.body.product().is_some() {
        return multiplies(kernel, portable);
    }
    if let Body::Attention(k) = &kernel.body {
        return attends(kernel, k, portable);
    }
    if portable && matches!(kernel.body, Body::Select(_) | Body::SelectWindows(_)) {
        return refuse("the choice of rows of a cache needs its microkernel".into());
    }
    if portable && matches!(kernel.body, Body::EvictingAttention(_)) {
        return refuse("attention to a cache that drops tokens needs its microkernel".into());
    }
    if let Body::TopK(_) = &kernel.body {
        return refuse("CPUs need no candidates: the runtime reads logits in memory".into());
    }
    Ok(())
}

/// Queries are f32 rows; without its microkernel, only the usual softmax is made.
fn attends(kernel: Checked<'_>, k: &Attention, portable: bool) -> Result<(), CodegenError> {
    let refuse = |what: &str| Err(CodegenError::unsupported(&kernel, what.into()));
    let Attention { q, own, kv, out, heads: _, scale: _, softcap, sinks, bias, .. } = *k;
    let Attention { causal, chunked, sums, selected, by_head: _, tile_m: _, .. } = *k;
    if [Some(q), own].into_iter().flatten().any(|q| kernel.rows(q).elem != RowElem::F32) {
        return refuse("queries must be f32 rows");
    }
    if portable && kernel.rows(out).elem.is_half() {
        return refuse("16-bit rows need the attention microkernel");
    }
    if portable && (softcap.is_some() || sinks.is_some() || bias.is_some() || !causal || chunked) {
        return refuse("softcap, sinks, biases, chunks and attention to later tokens need the attention microkernel");
    }
    if portable && selected.is_some() {
        return refuse("attention over selected rows needs the attention microkernel");
    }
    if portable && kernel.kv(kv).first.is_some() {
        return refuse("attention to first tokens needs the attention microkernel");
    }
    let rows_alone = kernel.kv(kv).latent && own.is_none();
    if portable && (sums || rows_alone) {
        return refuse("keys that are values, and sums, need the attention microkernel");
    }
    if portable && kernel.kv(kv).dtype.bits() == 4 {
        return refuse("int4 caches need the attention microkernel");
    }
    Ok(())
}

/// f32 rows are multiplied with any matrix, int8 rows with integers in the same groups (as the
/// verifier demands), bf16 rows with bf16 ones.
fn multiplies(kernel: Checked<'_>, portable: bool) -> Result<(), CodegenError> {
    let Some(rows) = multiplied(kernel) else { return Ok(()) };
    let mut weights = kernel.body.segments().iter().flat_map(|s| &s.weights);
    let is_bf16 = |format: Format| format.encoding().float() == Some(Float::Bf16);
    let fits = match rows {
        RowElem::F32 | RowElem::Q8 { .. } | RowElem::I8 { .. } => true,
        RowElem::Bf16 => !portable && weights.all(|w| is_bf16(kernel.matrix(*w).format)),
        RowElem::F16 | RowElem::Fp8 => false,
    };
    if fits {
        return Ok(());
    }
    let rows = RowKind::from(rows);
    let what = format!(
        "{rows} rows cannot be multiplied by its weights: among 16-bit and fp8 rows, only bf16 microkernels exist"
    );
    Err(CodegenError::unsupported(&kernel, what))
}

/// Storage of the rows that a product multiplies; `None` of what is no product.
pub(super) fn multiplied(kernel: Checked<'_>) -> Option<RowElem> {
    let product = kernel.body.product()?;
    Some(product.prologue.map_or_else(|| kernel.rows(product.x).elem, |p| p.elem))
}

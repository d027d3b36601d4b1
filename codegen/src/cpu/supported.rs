//! What of the kernel level CPUs have: everything that the backend refuses is refused here, before
//! code is made.

use super::unsupported;
use crate::CodegenError;
use llmcc_ir::kernel::{Body, Checked, Matmul, ParamKind, RowElem};
use llmcc_ir::quant::{Float, Format, Packing};
use llmcc_ir::target::{RowKind, TargetSpec};

/// Refuses what CPUs lack. `portable`: without microkernels.
///
/// # Errors
/// Names the operand.
pub(super) fn check(kernel: Checked<'_>, target: &TargetSpec, portable: bool) -> Result<(), CodegenError> {
    let refuse = |what: String| Err(unsupported(&kernel, what));
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
            ParamKind::Rows { .. } | ParamKind::Matrix { .. } | ParamKind::Vector { .. } | ParamKind::Kv(_) => {}
        }
    }
    match &kernel.body {
        Body::Matmul(k) => multiplies(kernel, k, portable),
        Body::Attention(k) if kernel.rows(k.q).elem != RowElem::F32 => refuse("queries must be f32 rows".into()),
        Body::Attention(k) if portable && kernel.rows(k.out).elem.is_half() => {
            refuse("16-bit rows need the attention microkernel".into())
        }
        Body::TopK(_) => refuse("the runtime reads logits where they are: there are no candidates on CPUs".into()),
        Body::Attention(_) | Body::RowNorm(_) | Body::Pointwise(_) | Body::Embed(_) | Body::RopeTable(_) => Ok(()),
    }
}

/// f32 rows are multiplied with any matrix, int8 rows with integers in the same groups (as the
/// verifier demands), bf16 rows with bf16 ones.
fn multiplies(kernel: Checked<'_>, k: &Matmul, portable: bool) -> Result<(), CodegenError> {
    let rows = k.prologue.map_or_else(|| kernel.rows(k.x).elem, |p| p.elem);
    let mut weights = k.segments.iter().flat_map(|s| &s.weights);
    let is_bf16 = |format: Format| format.encoding().float() == Some(Float::Bf16);
    let fits = match rows {
        RowElem::F32 | RowElem::Q8 { .. } => true,
        RowElem::Bf16 => !portable && weights.all(|w| is_bf16(kernel.matrix(*w).format)),
        RowElem::F16 | RowElem::Fp8 => false,
    };
    if fits {
        return Ok(());
    }
    let rows = RowKind::from(rows);
    let what = format!(
        "{rows} rows are not multiplied by its weights: of 16-bit and fp8 rows, only bf16 ones are, by bf16 microkernels"
    );
    Err(unsupported(&kernel, what))
}

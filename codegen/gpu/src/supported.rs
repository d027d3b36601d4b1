//! The kernels GPUs support: everything that the backend refuses is refused here, before code is
//! made.

use crate::cx::Cx;
use crate::{attention, causal_conv, experts, matmul, pointwise, recurrence, sample, select};
use llmcc_codegen::CodegenError;
use llmcc_ir::gpu::schedule;
use llmcc_ir::kernel::{Body, Checked, ExpertMatmul, Kernel, Matmul, ParamKind, RowNorm};
use llmcc_ir::match_family;
use llmcc_ir::quant::{BLOCK, Packing};
use llmcc_ir::target::{GpuArch, TargetSpec};

/// The architecture of a GPU target.
///
/// # Errors
/// It is no GPU.
pub fn arch<'t>(kernel: &Kernel, target: &'t TargetSpec) -> Result<&'t GpuArch, CodegenError> {
    let what = || format!("the GPU backend does not serve target `{}`", target.name);
    target.gpu().ok_or_else(|| CodegenError::unsupported(kernel, what()))
}

/// A kernel that GPUs support; products are checked by [`product`].
///
/// # Errors
/// Names the operand, or the excess, and the remedy; or all errors of a kernel that the verifier
/// refuses.
pub fn check<'k>(kernel: &'k Kernel, target: &'k TargetSpec) -> Result<Cx<'k>, CodegenError> {
    let gpu = arch(kernel, target)?;
    let cx = Cx { kernel: kernel.check().map_err(|errors| CodegenError::unverified(kernel, &errors))?, target, gpu };
    operands(cx.kernel, target).and_then(|()| family(&cx)).map_err(|what| CodegenError::unsupported(kernel, what))?;
    Ok(cx)
}

/// A product with its schedule, which decides the limits.
///
/// # Errors
/// There is none for such rows or tiles, or its blocks have no room.
pub fn product<'k>(cx: &'k Cx<'k>, body: &'k Matmul) -> Result<matmul::Plan<'k>, CodegenError> {
    let schedule = schedule::matmul(&cx.kernel, cx.target).ok_or_else(|| unscheduled(cx, body));
    let plan = schedule.and_then(|schedule| {
        let plan = matmul::Plan::new(cx, body, schedule);
        fits(cx, "blocks", plan.shared_bytes()).map(|()| plan)
    });
    plan.map_err(|what| CodegenError::unsupported(&cx.kernel, what))
}

/// Rows that the target multiplies, and matrices in the order of its tensor cores.
fn operands(kernel: Checked<'_>, target: &TargetSpec) -> Result<(), String> {
    for p in &kernel.params {
        match p.kind {
            ParamKind::Rows { elem, .. } if !target.multiplies(elem) => {
                let kinds: Vec<String> = target.rows().iter().map(ToString::to_string).collect();
                let (name, kinds) = (&p.name, kinds.join(", "));
                return Err(format!(
                    "operand `{name}` must be a matrix of rows that `{}` multiplies: {kinds}",
                    target.name
                ));
            }
            ParamKind::Matrix { format, .. } if format.packing != Packing::Fragment => {
                return Err(format!("operand `{}` must be packed in fragments, for a GPU", p.name));
            }
            ParamKind::Rows { .. } | ParamKind::Matrix { .. } | ParamKind::Vector { .. } | ParamKind::State(_) => {}
        }
    }
    Ok(())
}

/// Refuses kernels of a family that exceed the threads, registers or shared memory.
fn family(cx: &Cx<'_>) -> Result<(), String> {
    let unless = |fine: bool, what: String| if fine { Ok(()) } else { Err(what) };
    let body = &cx.kernel.body;
    match_family! { match body {
        Body::RowNorm(k) => row_norm(cx, k),
        Body::Pointwise(k) => fits(cx, "rows that are normalized or become codes", pointwise::shared_bytes(cx, k)),
        Body::Attention(k) if k.by_head => {
            Err("attention whose KV heads select rows of their own has no GPU kernel yet; compile for a CPU".into())
        }
        Body::Attention(k) => {
            let spec = cx.kernel.kv(k.kv);
            fits(cx, &format!("values of {} elements", spec.value_dim), attention::shared_bytes(&spec))
        }
        Body::Select(k) => {
            let what = format!("{} heads of an indexer that selects {} rows", k.heads, k.top);
            fits(cx, &what, select::shared_bytes(cx, k))
        }
        Body::ExpertMatmul(k) => products_of_experts(cx, k),
        Body::TopK(k) => {
            let (k, vocab) = (k.k, cx.cols(k.x));
            unless(sample::joins(k, vocab), format!("{k} candidates of {vocab} logits are too many for one block"))
        }
        Body::CausalConv(k) => {
            let most = causal_conv::MOST;
            let what = format!("convolutions over {} tokens have no GPU kernel; supported are 2 to {most}", k.width);
            unless(k.width <= most, format!("{what}; compile for a CPU"))
        }
        Body::Recurrence(k) => {
            let (rows, most) = (cx.kernel.fixed(k.state).rows, recurrence::MOST);
            let what = format!("linear recurrences over states of {rows} rows have no GPU kernel; supported are \
                up to {most}");
            unless(rows <= most, format!("{what}; compile for a CPU"))
        }
        Body::EvictingAttention(_) => Err(
            "attention to a cache that drops tokens by their weights has no GPU kernel yet; compile for a CPU, or use \
                a policy without scores"
                .into(),
        ),
        Body::SelectWindows(_) | Body::WindowBounds(_) => {
            Err("the choice of windows by bounds of keys has no GPU kernel yet; compile for a CPU".into())
        }
        Body::Matmul(_)
        | Body::Embed(_)
        | Body::RopeTable(_)
        | Body::Route(_)
        | Body::Wkv(_)
        | Body::WindowMeans(_)
        | Body::TokenIds(_)
        | Body::GivenRows(_)
        | Body::Substitute(_)
        | Body::EmbedHashed(_)
        | Body::Sinkhorn(_)
        | Body::AbsMaxScale(_)
        | Body::AdapterMatmul(_) => Ok(()),
    } in tests {
        Body::Climb(_) => Err("rows that climb have no GPU kernel; compile for a CPU".into()),
    }}
}

/// The scale of an fp8 row is known to who has the row.
fn row_norm(cx: &Cx<'_>, k: &RowNorm) -> Result<(), String> {
    let (cols, out) = cx.rows(k.out);
    if out.by_row() && k.norm.is_some_and(|norm| norm.width != cols) {
        return Err(format!("{out} rows have one scale, so they must be made from rows normalized as a whole"));
    }
    Ok(())
}

fn products_of_experts(cx: &Cx<'_>, k: &ExpertMatmul) -> Result<(), String> {
    let s = &k.segment;
    let elem = cx.kernel.rows(k.x).elem;
    let rows = experts::ROWS;
    if s.tile_n != BLOCK || ![1, rows].contains(&k.tile_m) {
        let have = format!("not of {} and {}", k.tile_m, s.tile_n);
        return Err(format!("products of experts have tiles of 1 or {rows} rows and {BLOCK} columns, {have}"));
    }
    if elem.is_quantized() {
        return Err(format!("products of experts support f32 or 16-bit rows, not {elem}"));
    }
    if s.weights.iter().any(|w| schedule::is_fp8(cx.kernel.matrix(*w).format)) {
        return Err("products of experts with fp8 weights are not supported yet: compile with another format".into());
    }
    fits(cx, &format!("sums of {} matrices", s.weights.len()), experts::shared_bytes(cx, k))
}

/// Why a product has no schedule.
fn unscheduled(cx: &Cx<'_>, body: &Matmul) -> String {
    if let Some(elem) = body.prologue.map(|p| p.elem).filter(|elem| elem.is_quantized()) {
        return format!("the prologue of a product supports f32, f16 or bf16 rows, not {elem}");
    }
    if let Some(s) = body.segments.iter().find(|s| !s.tile_n.is_multiple_of(BLOCK)) {
        return format!("tiles of {} columns must be multiples of {BLOCK}", s.tile_n);
    }
    let (cols, elem) = cx.rows(body.x);
    if body.k_parts != 1 {
        return format!(
            "columns of the input in {} parts: `wgmma` of `sm90` has them, in output tiles of 128 columns of one \
             format, each part an even number of four stages and more; leave `k_parts` out",
            body.k_parts
        );
    }
    if elem.is_quantized() {
        let tiles = "tiles whose sums the registers hold, of a multiple of 16 rows up to 256";
        return format!("{elem} rows are multiplied in {tiles}, not of {}", body.tile_m);
    }
    let room = format!("a few rows of {cols} columns, and the sums of a tile, must fit in shared memory");
    format!("no schedule: {room}; compile for a CPU")
}

fn fits(cx: &Cx<'_>, what: &str, bytes: usize) -> Result<(), String> {
    let most = cx.shared_limit();
    if bytes <= most {
        return Ok(());
    }
    let target = cx.target.name;
    Err(format!("{what} need {bytes} bytes of shared memory, but a block of `{target}` has {most}; compile for a CPU"))
}

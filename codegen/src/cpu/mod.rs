//! The CPU backend: Cranelift emits every kernel.
//!
//! A kernel becomes one function: tile loops, addresses, norms, rotations, stores to the cache are
//! 128-bit vector code made here. Most of the work is calls to a table of microkernels of the
//! runtime ([`llmcc_abi::Uk`]) whose vectors are as long as the processor's: the inner product of a
//! matmul tile, attention, rounding to int8, and expressions that are a function of one operand
//! joined with another (`wide.rs`), such as `silu(gate)·up`. When asked for
//! ([`CpuBackend::portable`]), and for weights that no microkernel reads, all of that is made here
//! as well, with the same bits but for attention.
//!
//! # Facts this is built on (Cranelift 0.135, measured)
//!
//! - `opt_level=none`, and the generator schedules: `speed` sinks pure operations towards their
//!   uses and spills, 2–3 times slower.
//! - Vectors have 128 bits. The baseline must avoid operations that become library calls there:
//!   `fma` (made of f64 operations), `nearest`, byte shuffles.
//! - F16 values load but neither convert nor compute: `convert.rs` does it in integer arithmetic.
//! - There are no relocations: operands come through pointers, microkernels through a table,
//!   constants lie behind the code.
//!
//! # Invariants
//!
//! - A row of the result depends on its own inputs only, never on `m`, `lo..hi` or the tile sizes:
//!   sums run in an order fixed by the shape.
//! - Equal expressions give equal bits wherever they are evaluated (`expr.rs`), and arithmetic in
//!   expressions is never contracted.
//! - No byte outside the operands is read or written.

mod absmax;
mod adapters;
mod attend;
mod attention;
mod codes;
mod convert;
mod embed;
mod embed_hashed;
mod emit;
mod evict;
mod experts;
mod expr;
mod frame;
mod given_rows;
mod loops;
mod lowering;
mod math;
mod matmul;
mod microkernel;
mod pairs;
mod panel;
mod pointwise;
mod quant;
mod ready;
mod recurrent;
mod rope;
mod route;
mod rownorm;
mod runs;
mod select;
mod sinkhorn;
mod span;
mod store;
mod substitute;
mod supported;
mod token_ids;
mod trellis;
mod wide;
mod windows;

llmcc_ir::dummies! { mod dummy; }

#[cfg(test)]
mod tests;

use crate::{Backend, Code, CodegenError, NativeCode, Object};
use cranelift_codegen::ir::{Function, InstBuilder, UserFuncName};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, isa};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use emit::{Emit, I64};
use frame::Frame;
use llmcc_ir::kernel::{Body, Checked, Kernel};
use llmcc_ir::match_family;
use llmcc_ir::target::{CpuIsa, TargetSpec, microkernel_of};
use lowering::{Args, Lowering};

/// Cranelift code for CPUs.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuBackend {
    /// Make inner products here even where the target has microkernels.
    pub portable: bool,
}

impl Backend for CpuBackend {
    fn name(&self) -> &str {
        "cpu"
    }

    fn lower(&self, kernel: &Kernel, target: &TargetSpec) -> Result<Object, CodegenError> {
        let Some(level) = target.cpu() else {
            return Err(CodegenError::unsupported(
                kernel,
                format!("the CPU backend does not serve target `{}`", target.name),
            ));
        };
        let isa = cranelift_isa(level).map_err(|what| CodegenError::internal(kernel, what))?;
        let kernel = kernel.check().map_err(|errors| CodegenError::unverified(kernel, &errors))?;
        supported::check(kernel, target, self.portable)?;
        let built = build(kernel, isa.as_ref(), level.has_fma(), self.portable);
        let mut object = compile(&kernel, isa.as_ref(), built)?;
        object.generic = generic(kernel, self.portable);
        Ok(object)
    }
}

/// The generic path that a kernel takes, if it does. Only products have one: functions of
/// elementwise work are microkernels everywhere, and the rest of it waits for memory.
fn generic(kernel: Checked<'_>, portable: bool) -> Option<&'static str> {
    kernel.body.product()?;
    match (portable, lacks_microkernel(kernel)) {
        (true, _) => Some("128-bit inner products instead of microkernels"),
        (false, true) => Some("128-bit inner products: no microkernel multiplies its weights"),
        (false, false) => None,
    }
}

/// Whether a product multiplies a matrix for which there is no microkernel.
fn lacks_microkernel(kernel: Checked<'_>) -> bool {
    let Some(rows) = supported::multiplied(kernel) else { return false };
    let mut weights = kernel.body.segments().iter().flat_map(|s| &s.weights);
    weights.any(|w| microkernel_of(kernel.matrix(*w).format, rows).is_none())
}

/// Cranelift's description of an instruction-set level.
fn cranelift_isa(level: CpuIsa) -> Result<OwnedTargetIsa, String> {
    let triple = format!("{}-unknown-linux-gnu", level.machine().name());
    let features: &[&str] = match level {
        // (NEON is no feature of Cranelift's: it takes it for granted.)
        CpuIsa::X86_64 | CpuIsa::AArch64 => &[],
        CpuIsa::X86_64V3 | CpuIsa::X86_64V4 => {
            &["sse3", "ssse3", "sse41", "sse42", "popcnt", "avx", "avx2", "fma", "bmi1", "bmi2", "lzcnt"]
        }
    };
    let mut flags = settings::builder();
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    let options = [
        ("opt_level", "none"),
        ("is_pic", "true"),
        ("enable_verifier", verify),
        ("unwind_info", "false"),
        ("enable_probestack", "false"),
    ];
    for (name, value) in options {
        flags.set(name, value).map_err(|e| e.to_string())?;
    }
    let triple = triple.parse().map_err(|e| format!("{e}"))?;
    let mut builder = isa::lookup(triple).map_err(|e| e.to_string())?;
    for feature in features {
        builder.enable(&format!("has_{feature}")).map_err(|e| e.to_string())?;
    }
    builder.finish(settings::Flags::new(flags)).map_err(|e| e.to_string())
}

/// A function and the scratch it needs.
struct Built {
    func: Function,
    scratch: usize,
    scratch_per_m: usize,
    shared_per_block: usize,
}

fn build(kernel: Checked<'_>, isa: &dyn isa::TargetIsa, has_fma: bool, portable: bool) -> Built {
    let signature = microkernel::signature(&[I64; 6], &[]);
    let mut func = Function::with_name_signature(UserFuncName::testcase(kernel.name.as_bytes()), signature);
    let mut context = FunctionBuilderContext::new();
    let mut e = Emit { b: FunctionBuilder::new(&mut func, &mut context), has_fma };
    let entry = e.b.create_block();
    e.b.append_block_params_for_function_params(entry);
    e.b.switch_to_block(entry);
    let p = e.b.block_params(entry).to_vec();
    let operands = (0..kernel.params.len()).map(|i| e.load(I64, p[0], i * 8)).collect();
    let args = Args { operands, ctx: p[1], m: p[2], lo: p[3], hi: p[4], scratch: p[5] };
    let low = Lowering { kernel, args, portable };
    let mut frame = Frame::default();
    let (mut scratch_per_m, mut shared_per_block) = (0, 0);
    let body = &kernel.kernel().body;
    match_family! { match body {
        Body::Matmul(body) => scratch_per_m = matmul::lower(&low, &mut e, &mut frame, body),
        Body::RowNorm(body) => rownorm::lower(&low, &mut e, &mut frame, body),
        Body::Attention(body) if portable => attention::lower(&low, &mut e, &mut frame, body),
        Body::Attention(body) => shared_per_block = attend::lower(&low, &mut e, &mut frame, body),
        Body::Pointwise(body) => pointwise::lower(&low, &mut e, &mut frame, body),
        Body::Embed(body) => embed::lower(&low, &mut e, &mut frame, body),
        Body::TokenIds(body) => token_ids::lower(&low, &mut e, body),
        Body::Substitute(body) => substitute::lower(&low, &mut e, body),
        Body::GivenRows(body) => given_rows::lower(&low, &mut e, body),
        Body::EmbedHashed(body) => embed_hashed::lower(&low, &mut e, &mut frame, body),
        Body::RopeTable(body) => rope::lower(&low, &mut e, &mut frame, body),
        Body::Route(body) => route::lower(&low, &mut e, body),
        Body::SelectWindows(body) => windows::lower(&low, &mut e, &mut frame, body),
        Body::WindowBounds(body) => recurrent::window_bounds(&low, &mut e, body),
        Body::Select(body) => shared_per_block = select::lower(&low, &mut e, &mut frame, body),
        Body::EvictingAttention(body) => evict::lower(&low, &mut e, &mut frame, body),
        Body::ExpertMatmul(body) => scratch_per_m = experts::lower(&low, &mut e, &mut frame, body),
        Body::CausalConv(body) => recurrent::convolution(&low, &mut e, body),
        Body::Recurrence(body) => recurrent::recurrence(&low, &mut e, body),
        Body::Wkv(body) => recurrent::wkv(&low, &mut e, body),
        Body::WindowMeans(body) => recurrent::window_means(&low, &mut e, body),
        Body::Sinkhorn(body) => sinkhorn::lower(&low, &mut e, body),
        Body::AbsMaxScale(body) => absmax::lower(&low, &mut e, body),
        Body::AdapterMatmul(body) => adapters::lower(&low, &mut e, body),
        Body::TopK(_) => unreachable!("`supported` refuses it"),
    } in tests {
        Body::Climb(body) => dummy::lower(&low, &mut e, body),
    }}
    e.b.ins().return_(&[]);
    e.b.seal_all_blocks();
    e.b.finalize(isa.frontend_config());
    Built { func, scratch: frame.size(), scratch_per_m, shared_per_block }
}

fn compile(kernel: &Kernel, isa: &dyn isa::TargetIsa, built: Built) -> Result<Object, CodegenError> {
    let clif = built.func.display().to_string();
    let mut context = Context::for_function(built.func);
    context.set_disasm(false);
    let code = context
        .compile(isa, &mut Default::default())
        .map_err(|e| CodegenError::internal(kernel, format!("{:?}", e.inner)))?;
    if let Some(reloc) = code.buffer.relocs().first() {
        return Err(CodegenError::internal(kernel, format!("the code has a relocation: {reloc:?}")));
    }
    let listing = isa
        .to_capstone()
        .map_err(|e| e.to_string())
        .and_then(|cs| code.disassemble(None, &cs).map_err(|e| e.to_string()))
        .map_err(|what| CodegenError::internal(kernel, what))?;
    let native = NativeCode {
        bytes: code.code_buffer().to_vec(),
        shared_per_block: built.shared_per_block as u64,
        clif,
        listing,
    };
    Ok(Object {
        code: Code::Native(native),
        scratch: built.scratch as u64,
        scratch_per_m: built.scratch_per_m as u64,
        generic: None,
    })
}

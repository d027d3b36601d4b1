//! The data segment of an artifact: every table the runtime walks, from a [`Plan`].

use crate::Object;
use llmcc_abi as abi;
use llmcc_ir::kernel::{Body, Kernel};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::plan::{Operand, Plan, Regime};
use llmcc_ir::target::{CpuIsa, TargetSpec};
use llmcc_ir::ty::Dim;

/// Texts stored beside the tables; all may be empty.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    /// JSON manifest.
    pub manifest: Vec<u8>,
    /// `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// Special tokens and chat template, as JSON.
    pub text_config: Vec<u8>,
}

/// The code segment: kernels one after the other, each at a multiple of 64 bytes.
pub struct Code {
    /// Machine code.
    pub bytes: Vec<u8>,
    /// Offset of each kernel, in plan order.
    pub offsets: Vec<u64>,
}

/// Lays out the kernels' machine code.
pub fn layout_code(objects: &[Object]) -> Code {
    let mut code = Code { bytes: vec![], offsets: vec![] };
    for o in objects {
        // 0xCC (int3 on x86): a jump into padding traps instead of running on.
        code.bytes.resize(code.bytes.len().next_multiple_of(64), 0xCC);
        code.offsets.push(code.bytes.len() as u64);
        code.bytes.extend_from_slice(&o.code);
    }
    code
}

/// Builds the data segment.
///
/// `weight_offsets` has the byte offset of each of the plan's weights in the weights segment.
pub fn data_segment(plan: &Plan, target: &TargetSpec, objects: &[Object], code: &Code, weight_offsets: &[u64], texts: &Texts) -> Vec<u8> {
    let mut b = Builder { bytes: vec![0; size_of::<abi::ModelDesc>()] };
    let kernels: Vec<abi::KernelDesc> = plan
        .kernels
        .iter()
        .zip(objects)
        .zip(&code.offsets)
        .map(|((k, o), at)| abi::KernelDesc {
            code: *at,
            name: b.span(k.name.as_bytes()),
            scratch: o.scratch,
            scratch_per_m: o.scratch_per_m,
        })
        .collect();
    let (regimes, steps, operands) = launches(plan, weight_offsets);
    let desc = abi::ModelDesc {
        magic: abi::MODEL_MAGIC,
        version: abi::ABI_VERSION,
        isa: match target.isa {
            CpuIsa::X86_64 => abi::isa::X86_64,
            CpuIsa::X86_64V3 => abi::isa::X86_64_V3,
            CpuIsa::X86_64V4 => abi::isa::X86_64_V4,
        },
        vocab: plan.info.vocab as u64,
        hidden: plan.info.hidden as u64,
        max_context: plan.info.max_context as u64,
        logits_buffer: plan.logits as u64,
        buffers: b.table(
            &plan
                .slots
                .iter()
                .map(|s| abi::BufferDesc { per_token: s.per_token as u64, per_row: s.per_row as u64, fixed: 64 })
                .collect::<Vec<_>>(),
        ),
        kernels: b.table(&kernels),
        regimes: b.table(&regimes),
        steps: b.table(&steps),
        operands: b.table(&operands),
        kv: b.table(&plan.kv.iter().map(kv_desc).collect::<Vec<_>>()),
        manifest: b.span(&texts.manifest),
        tokenizer: b.span(&texts.tokenizer),
        text_config: b.span(&texts.text_config),
    };
    b.bytes[..size_of::<abi::ModelDesc>()].copy_from_slice(bytes_of(std::slice::from_ref(&desc)));
    b.bytes
}

fn launches(plan: &Plan, weight_offsets: &[u64]) -> (Vec<abi::RegimeDesc>, Vec<abi::StepDesc>, Vec<abi::OperandDesc>) {
    let (mut regimes, mut steps, mut operands) = (vec![], vec![], vec![]);
    for r in &plan.regimes {
        regimes.push(abi::RegimeDesc {
            max_tokens: r.max_tokens.map_or(abi::NONE, |m| m as u32),
            first_step: steps.len() as u32,
            steps: r.launches.len() as u32,
            reserved: 0,
        });
        for l in &r.launches {
            let kernel = &plan.kernels[l.kernel];
            let (items, per_m) = kernel.items();
            steps.push(abi::StepDesc {
                kernel: l.kernel as u32,
                rows: if kernel.rows == Dim::Rows { abi::rows::OUT } else { abi::rows::TOKENS },
                items: items as u32,
                items_per_m: per_m.into(),
                chunk: chunk(kernel),
                first_operand: operands.len() as u32,
                operands: l.operands.len() as u32,
                layer: l.call as u32,
            });
            operands.extend(l.operands.iter().map(|o| operand(o, r, weight_offsets)));
        }
    }
    (regimes, steps, operands)
}

/// Attention over a causal prefix costs more for later tokens, so its items are dealt out one by one.
fn chunk(kernel: &Kernel) -> u32 {
    match kernel.body {
        Body::Attention(_) => 1,
        Body::Matmul(_) | Body::RowNorm(_) | Body::Pointwise(_) | Body::Embed(_) | Body::RopeTable(_) => 0,
    }
}

fn operand(o: &Operand, regime: &Regime, weight_offsets: &[u64]) -> abi::OperandDesc {
    match *o {
        Operand::Buffer(b) => abi::OperandDesc { kind: abi::operand::BUFFER, index: regime.buffers[b].slot as u32, offset: 0 },
        Operand::Weight(w) => abi::OperandDesc { kind: abi::operand::WEIGHT, index: 0, offset: weight_offsets[w] },
        Operand::Kv(k) => abi::OperandDesc { kind: abi::operand::KV, index: k as u32, offset: 0 },
    }
}

fn kv_desc(kv: &KvSpec) -> abi::KvDesc {
    abi::KvDesc {
        kv_heads: kv.kv_heads as u32,
        head_dim: kv.head_dim as u32,
        dtype: match kv.dtype {
            KvDType::F32 => abi::kv_dtype::F32,
            KvDType::F16 => abi::kv_dtype::F16,
            KvDType::Bf16 => abi::kv_dtype::BF16,
            KvDType::Int8 => abi::kv_dtype::INT8,
        },
        window: kv.window.unwrap_or(0) as u32,
        page_bytes: abi::layout::page(kv.kv_heads, kv.head_dim, kv.dtype.bytes()).bytes as u64,
    }
}

struct Builder {
    bytes: Vec<u8>,
}

impl Builder {
    fn span(&mut self, data: &[u8]) -> abi::Span {
        let off = self.bytes.len() as u64;
        self.bytes.extend_from_slice(data);
        abi::Span { off, len: data.len() as u64 }
    }

    fn table<T: Descriptor>(&mut self, items: &[T]) -> abi::Table {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let off = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytes_of(items));
        abi::Table { off, count: items.len() as u64 }
    }
}

/// Marks the `#[repr(C)]` descriptors of the ABI: integers only, no padding.
pub(crate) trait Descriptor: Copy {}
impl Descriptor for abi::ImageRef {}
impl Descriptor for abi::ModelDesc {}
impl Descriptor for abi::BufferDesc {}
impl Descriptor for abi::KernelDesc {}
impl Descriptor for abi::RegimeDesc {}
impl Descriptor for abi::StepDesc {}
impl Descriptor for abi::OperandDesc {}
impl Descriptor for abi::KvDesc {}

pub(crate) fn bytes_of<T: Descriptor>(items: &[T]) -> &[u8] {
    // SAFETY: `Descriptor` types are `repr(C)` integers without padding (checked by the size test below), so every byte is initialised.
    unsafe { std::slice::from_raw_parts(items.as_ptr().cast(), size_of_val(items)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_have_no_padding() {
        assert_eq!(size_of::<abi::ImageRef>(), 16 + 8 + 7 * 8);
        assert_eq!(size_of::<abi::ModelDesc>(), 8 + 8 + 4 * 8 + 6 * 16 + 3 * 16);
        assert_eq!(size_of::<abi::BufferDesc>(), 24);
        assert_eq!(size_of::<abi::KernelDesc>(), 8 + 16 + 16);
        assert_eq!(size_of::<abi::RegimeDesc>(), 16);
        assert_eq!(size_of::<abi::StepDesc>(), 32);
        assert_eq!(size_of::<abi::OperandDesc>(), 16);
        assert_eq!(size_of::<abi::KvDesc>(), 24);
    }
}

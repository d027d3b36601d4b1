//! Types of activations and of cached keys and values, as options name them.

use clap::ValueEnum;
use llmcc_ir::kv::KvDType;
use llmcc_passes::ActPolicy;

/// Activation types of quantized matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ActType {
    /// Exact
    F32,
    /// int8 with a scale per group: faster
    Int8,
    /// 8-bit floats (e4m3) with a scale per token: with --fp8, on GPUs that multiply them
    Fp8,
}

/// KV cache types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KvType {
    /// IEEE binary32
    F32,
    /// IEEE binary16
    F16,
    /// bfloat16
    Bf16,
    /// int8 with a scale per token and head
    Int8,
    /// int4 with a scale per token and head
    Int4,
    /// The fastest of f16, bf16, int8 and int4 that is exact enough: error at most 0.01, or the
    /// --error-budget
    Auto,
}

impl From<ActType> for ActPolicy {
    fn from(act: ActType) -> ActPolicy {
        match act {
            ActType::F32 => ActPolicy::F32,
            ActType::Int8 => ActPolicy::Int8,
            ActType::Fp8 => ActPolicy::Fp8,
        }
    }
}

impl From<KvType> for Option<KvDType> {
    fn from(kv: KvType) -> Option<KvDType> {
        match kv {
            KvType::F32 => Some(KvDType::F32),
            KvType::F16 => Some(KvDType::F16),
            KvType::Bf16 => Some(KvDType::Bf16),
            KvType::Int8 => Some(KvDType::Int8),
            KvType::Int4 => Some(KvDType::Int4),
            KvType::Auto => None,
        }
    }
}

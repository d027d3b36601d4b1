//! Options of a compilation.

use crate::damage::Damage;
use crate::inside::Inside;
use crate::trial::Trial;
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::{Float, Format};
use llmcc_ir::target::{Family, TargetSpec};
use llmcc_ir::ty::Env;

/// Rounding of activations before every product that takes such rows:
/// [`rows`](ActPolicy::rows).
pub use llmcc_ir::target::RowKind as ActPolicy;

/// Options of a compilation: the machine, the formats, and the error budget.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine.
    pub target: &'static TargetSpec,
    /// Allowed storage of matmul weights; at least one. Among several the fastest combination
    /// within [`Options::error_budget`] is taken.
    pub formats: Vec<Format>,
    /// Rounding of activations.
    pub act: ActPolicy,
    /// Largest root mean square relative error of the weights that products read, weighted by
    /// parameters: √(Σ nᵢ·eᵢ² / Σ nᵢ). `None`: any. Applies where there are several formats. Cache
    /// types are allowed whose own error ([`storage::cache_error`](crate::storage::cache_error)) is not larger.
    pub error_budget: Option<f64>,
    /// Damage by weight, and its bound, in place of [`Options::error_budget`]: applies where there are several formats.
    pub damage: Option<Damage>,
    /// Whether matrices that the checkpoint has as codes are stored as these, instead of in one of
    /// [`Options::formats`].
    pub keep_codes: bool,
    /// Whether matrices that the checkpoint has in another float type than the one format keep that: nobody
    /// has asked for the format, which is that of most.
    pub keep_types: bool,
    /// Whether matrices stay as the module has them, in formats that could take gains of their inputs, too: a method
    /// has moved scales between the two ([`crate::method::move_scales`]), which taking the gains would undo.
    pub keep_scales: bool,
    /// Allowed types of cached keys and values; empty: as the module says.
    pub kv: Vec<KvDType>,
    /// The only weights that may be stored, where the checkpoint is not at hand. With several formats each matrix has
    /// the one that it has there.
    pub inside: Option<Inside>,
    /// Parts of the compilation that are left out.
    pub trial: Trial,
    /// Explanations to return.
    pub explain: Explain,
}

/// Explanations beside the plan. Each takes compile time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explain {
    /// Cost of the next best choice, in [`Compiled::stored`](crate::Compiled::stored) and
    /// [`Compiled::explain`](crate::Compiled::explain) (empty without). Each entry takes a further
    /// solution of the program.
    pub alternatives: bool,
    /// The e-graphs as text, in [`Compiled::egraph`](crate::Compiled::egraph).
    pub egraph: bool,
}

impl Options {
    /// The usual options for weights of a format. CPUs: int8 activations when it is quantized to
    /// integers, where the target multiplies such rows; bf16 ones with bf16 weights on processors
    /// that multiply them faster than f32. GPUs: activations of the weights' own type, bf16 with
    /// quantized ones.
    pub fn new(target: &'static TargetSpec, weights: Format) -> Options {
        let encoding = weights.encoding();
        let act = match (target.family(), encoding.float()) {
            (Family::Cpu, Some(Float::Bf16)) if target.macs(ActPolicy::Bf16) > target.macs(ActPolicy::F32) => {
                ActPolicy::Bf16
            }
            (_, Some(Float::F32)) | (Family::Cpu, Some(_)) => ActPolicy::F32,
            (Family::Cpu, None) if encoding.integer_group().is_some() => of_codes(target),
            (Family::Cpu, None) => ActPolicy::F32,
            (Family::Nvidia, Some(Float::F16)) => ActPolicy::F16,
            (Family::Nvidia, _) => ActPolicy::Bf16,
        };
        let formats = vec![weights.with_packing(target.packing())];
        Options {
            target,
            formats,
            act,
            error_budget: None,
            damage: None,
            keep_codes: true,
            keep_types: false,
            keep_scales: false,
            kv: vec![],
            inside: None,
            trial: Trial::default(),
            explain: Explain::default(),
        }
    }

    /// The fastest combination of formats within an error budget. Activations: int8 for products
    /// with quantized weights (CPUs that multiply them), bf16 (GPUs).
    pub fn within(target: &'static TargetSpec, formats: Vec<Format>, error_budget: f64) -> Options {
        let act = of_codes(target);
        let formats = formats.into_iter().map(|f| f.with_packing(target.packing())).collect();
        Options {
            target,
            formats,
            act,
            error_budget: Some(error_budget),
            damage: None,
            keep_codes: true,
            keep_types: false,
            keep_scales: false,
            kv: vec![],
            inside: None,
            trial: Trial::default(),
            explain: Explain::default(),
        }
    }

    /// The fastest combination of formats within a bound of predicted damage. Activations: as [`Options::within`].
    pub fn damaged(target: &'static TargetSpec, formats: Vec<Format>, damage: Damage) -> Options {
        Options { error_budget: None, damage: Some(damage), ..Options::within(target, formats, f64::INFINITY) }
    }
}

/// To what inputs of products with codes are rounded, if nothing else is said: int8 on CPUs that
/// multiply such rows, bf16 on GPUs.
pub fn of_codes(target: &TargetSpec) -> ActPolicy {
    match target.family() {
        Family::Cpu if target.multiplies(ActPolicy::Int8) => ActPolicy::Int8,
        Family::Cpu => ActPolicy::F32,
        Family::Nvidia => ActPolicy::Bf16,
    }
}

/// A range of step sizes with the size at which it is costed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegimeSpec {
    /// Largest `T`; `None` = any.
    pub max_tokens: Option<usize>,
    /// Step size for the cost model.
    pub env: Env,
}

/// The regimes of a plan for `target`.
pub fn regimes(target: &TargetSpec) -> &'static [RegimeSpec] {
    match target.family() {
        Family::Cpu => REGIMES,
        Family::Nvidia => GPU_REGIMES,
    }
}

/// Regimes of GPUs: products that only read weights; products of few rows, each in one tile of
/// rows, so that weights are read once; products whose tiles would leave multiprocessors idle if
/// they were those of long prompts; and prompts.
///
/// Up to 64 tokens are taken to be of as many sequences. More may be a prompt with one row of
/// logits or so many sequences with a row each; tiles of 64 rows read the head's weights at most
/// four times for the latter, and no slower than need be for the former.
pub const GPU_REGIMES: &[RegimeSpec] = &[
    RegimeSpec { max_tokens: Some(8), env: Env { tokens: 1, rows: 1 } },
    RegimeSpec { max_tokens: Some(16), env: Env { tokens: 16, rows: 16 } },
    RegimeSpec { max_tokens: Some(32), env: Env { tokens: 32, rows: 32 } },
    RegimeSpec { max_tokens: Some(64), env: Env { tokens: 64, rows: 64 } },
    RegimeSpec { max_tokens: Some(128), env: Env { tokens: 128, rows: 64 } },
    RegimeSpec { max_tokens: Some(256), env: Env { tokens: 256, rows: 64 } },
    RegimeSpec { max_tokens: None, env: Env { tokens: 512, rows: 1 } },
];

/// The step size for which the kernels of all regimes are chosen where a token's bits may not depend on the
/// regime: as many sequences as one tile of rows has.
pub const INVARIANT: Env = Env { tokens: 64, rows: 64 };

/// Regimes of CPUs.
pub const REGIMES: &[RegimeSpec] = &[
    RegimeSpec { max_tokens: Some(4), env: Env { tokens: 1, rows: 1 } },
    RegimeSpec { max_tokens: Some(32), env: Env { tokens: 16, rows: 16 } },
    RegimeSpec { max_tokens: None, env: Env { tokens: 256, rows: 1 } },
];

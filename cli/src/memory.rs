//! The memory that a version needs at the longest context, by the arithmetic with which the runtime
//! makes room ([`llmcc_abi::pools`]).

use crate::lowered::Version;
use crate::units::bytes;
use llmcc_abi::StateDesc;
use llmcc_abi::pools::{self, Group};
use llmcc_codegen::artifact;
use llmcc_ir::plan::Plan;
use llmcc_ir::target::{Family, TargetSpec};
use llmcc_ir::ty::Dim;

/// Bytes of memory with one sequence of the longest context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Packed weights.
    pub weights: usize,
    /// Pages and slots of the sequence, its snapshots among them: layers with a window keep no more
    /// than the window, a step and some pages.
    pub sequence: usize,
    /// Adapters, all there is room for.
    pub adapters: usize,
    /// Tokens of the largest step.
    pub step_tokens: usize,
    /// Activations of that step, and memory of its kernels.
    pub step: usize,
}

impl Need {
    /// The needs of a version.
    pub fn of(v: &Version) -> Need {
        Need::at(v, usize::MAX)
    }

    /// The needs of a version with a sequence of at most `context` tokens.
    pub fn at(v: &Version, context: usize) -> Need {
        let plan = &v.compiled.plan;
        let step_tokens = step_tokens(plan, v.target.family());
        let groups = groups(&artifact::states(plan));
        let of_group = |g: &Group| g.sequence_bytes(plan.track_context(g.track).min(context), step_tokens);
        Need {
            weights: plan.weight_bytes(),
            sequence: groups.iter().map(of_group).sum(),
            adapters: groups.iter().map(Group::adapter_bytes).sum(),
            step_tokens,
            step: step(v, step_tokens),
        }
    }

    /// All of it.
    pub fn total(&self) -> usize {
        [self.sequence, self.adapters, self.step].iter().fold(self.weights, |sum, x| sum.saturating_add(*x))
    }

    /// A warning where no machine of the target has as much; `None` where one has, or the target does not
    /// say how much memory there is.
    pub fn too_much(&self, target: &TargetSpec, context: usize) -> Option<String> {
        let (has, machine) = target.capacity()?;
        (self.total() as u64 > has).then(|| {
            format!(
                "no GPU of {} holds this: weights take {} and a sequence of {context} tokens {}, together {} with the \
                 memory of a step; {machine} has {}. A shorter --max-context or fewer bits (--w4, --kv) may fit",
                target.name,
                bytes(self.weights as f64),
                bytes(self.sequence as f64),
                bytes(self.total() as f64),
                bytes(has as f64),
            )
        })
    }
}

/// Tokens of the largest step by default: all of a sequence where tokens see later ones.
pub fn step_tokens(plan: &Plan, family: Family) -> usize {
    let usual = match family {
        Family::Cpu => pools::STEP_TOKENS,
        Family::Nvidia => pools::GPU_STEP_TOKENS,
    };
    let whole = (0..plan.entries.len()).filter(|entry| artifact::whole(plan, *entry));
    whole.map(|entry| plan.context(entry)).fold(usual, usize::max)
}

/// The groups of states. (Each has a state; a table that skips some is none of this compiler's.)
pub fn groups(descs: &[StateDesc]) -> Vec<Group> {
    let count = descs.iter().map(|d| d.group as usize + 1).max().unwrap_or(0);
    let mut groups = vec![Group::EMPTY; count.min(descs.len())];
    for desc in descs {
        groups.get_mut(desc.group as usize).into_iter().for_each(|group| group.add(desc));
    }
    groups
}

/// Bytes of a step of so many tokens. A prompt wants one row of output; a GPU has memory for as many rows as
/// [`pools::GPU_OUTPUT_BYTES`] hold.
fn step(v: &Version, tokens: usize) -> usize {
    let plan = &v.compiled.plan;
    let gpu = v.target.family() == Family::Nvidia;
    let rows = match (artifact::whole(plan, 0), gpu) {
        (true, _) => tokens,
        (false, true) => (pools::GPU_OUTPUT_BYTES / (4 * plan.columns().max(1))).clamp(1, tokens),
        (false, false) => 1,
    };
    let (per_token, per_row) = plan.arena();
    let of_kernel = |(kernel, object): (&llmcc_ir::kernel::Kernel, &llmcc_codegen::Object)| {
        let m = if kernel.rows == Dim::Rows { rows } else { tokens };
        object.scratch as usize + (object.scratch_per_m as usize).saturating_mul(m)
    };
    let kernels = plan.kernels.iter().zip(&v.objects).map(of_kernel);
    // A GPU's kernels have memory of their own, a processor's threads use theirs again.
    let own: usize = if gpu { kernels.sum() } else { kernels.max().unwrap_or(0) * v.target.cores };
    per_token.saturating_mul(tokens).saturating_add(per_row.saturating_mul(rows)).saturating_add(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmcc_ir::target::find;

    /// The warning has both numbers, and says nothing where there is room or nobody knows.
    #[test]
    fn models_that_no_gpu_holds() {
        let need = |weights| Need { weights, sequence: 20 << 30, adapters: 0, step_tokens: 2048, step: 1 << 30 };
        let said = |weights, name| need(weights).too_much(find(name).expect("a target"), 4096);
        let text = said(140 << 30, "sm90").expect("a warning");
        for part in
            ["no GPU of sm90", "weights take 140.0 GiB", "sequence of 4096 tokens 20.0 GiB", "161.0 GiB", "131.3 GiB"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(said(70 << 30, "sm90").is_none() && said(70 << 30, "sm90:h100").is_some());
        assert!(said(1 << 50, "native").is_none());
    }
}

//! Models that are left out, or taken, because of their kernels.

use llmcc_cli::backends::Backends;
use llmcc_codegen::{Backend, Code, CodegenError, Object};
use llmcc_gpu::assembler::Ptxas;
use llmcc_ir::kernel::Kernel;
use llmcc_ir::target::{Arch, TargetSpec};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The compiler's backends, which make no code of some kernels.
pub struct Unless<F> {
    backends: Backends,
    leave_out: F,
    left_out: Cell<bool>,
}

impl<F: Fn(&[Kernel]) -> bool> Unless<F> {
    /// `leave_out`: whether no code is made of all kernels of a plan.
    pub fn new(leave_out: F) -> Unless<F> {
        Unless { backends: Backends::new(None), leave_out, left_out: Cell::new(false) }
    }

    /// Whether that was so.
    pub fn left_out(&self) -> bool {
        self.left_out.get()
    }
}

impl<F: Fn(&[Kernel]) -> bool> Backend for Unless<F> {
    fn name(&self) -> &str {
        self.backends.name()
    }

    fn lower(&self, kernel: &Kernel, target: &TargetSpec) -> Result<Object, CodegenError> {
        self.backends.lower(kernel, target)
    }

    fn lower_all(&self, kernels: &[Kernel], target: &TargetSpec) -> Result<Vec<Object>, CodegenError> {
        if let Some(first) = kernels.first().filter(|_| (self.leave_out)(kernels)) {
            self.left_out.set(true);
            return Err(CodegenError::unsupported(first, "left out".into()));
        }
        self.backends.lower_all(kernels, target)
    }
}

/// A compiler to PTX that shows `ptxas`, if there is one, a kernel of each kind.
pub struct Emulated<'a> {
    backends: Backends,
    ptxas: Option<Ptxas>,
    assembled: &'a Kinds,
}

impl<'a> Emulated<'a> {
    /// `assembled`: kinds that it has been shown before.
    pub fn new(assembled: &'a Kinds) -> Emulated<'a> {
        Emulated { backends: Backends::ptx(), ptxas: Ptxas::find(), assembled }
    }

    fn assemble(&self, kernel: &Kernel, target: &TargetSpec, object: &Object) -> Result<(), CodegenError> {
        let (Some(ptxas), Code::Gpu(code), Arch::Gpu(gpu)) = (&self.ptxas, &object.code, &target.arch) else {
            return Ok(());
        };
        if self.assembled.all_known(std::slice::from_ref(kernel)) {
            return Ok(());
        }
        let done = ptxas.assemble(&code.ptx, gpu.processor);
        done.map(drop).map_err(|e| CodegenError::internal(kernel, e))
    }
}

impl Backend for Emulated<'_> {
    fn name(&self) -> &str {
        self.backends.name()
    }

    fn lower(&self, kernel: &Kernel, target: &TargetSpec) -> Result<Object, CodegenError> {
        let object = self.backends.lower(kernel, target)?;
        self.assemble(kernel, target, &object)?;
        Ok(object)
    }

    fn lower_all(&self, kernels: &[Kernel], target: &TargetSpec) -> Result<Vec<Object>, CodegenError> {
        let objects = self.backends.lower_all(kernels, target)?;
        kernels.iter().zip(&objects).try_for_each(|(k, o)| self.assemble(k, target, o))?;
        Ok(objects)
    }
}

/// Kinds of kernels of a plan: their texts but for names and sizes.
pub fn kinds(kernels: &[Kernel]) -> BTreeSet<String> {
    let kind = |k: &Kernel| {
        let text = llmcc_ir::text::print_kernel(k);
        let body = text.split_once('\n').map_or("", |(_, body)| body);
        body.chars().filter(|c| !matches!(c, '0'..='9' | '.' | '-')).collect()
    };
    kernels.iter().map(kind).collect()
}

/// Features of kinds of kernels in pairs, each with the kernels' family: words and operators of their texts. Whole
/// kernels are combinations of these, which random kernels have in larger numbers.
fn features(kinds: &BTreeSet<String>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for kind in kinds {
        let body = kind.lines().map(str::trim_start).find(|line| !line.starts_with("param "));
        let family = body.and_then(|line| line.split_whitespace().next()).unwrap_or_default();
        let words = kind.split(|c: char| !c.is_ascii_lowercase() && c != '_').filter(|word| word.len() > 1);
        let operators = kind.matches(['+', '*', '/']);
        let words: BTreeSet<&str> = words.chain(operators).collect();
        for (i, a) in words.iter().enumerate() {
            all.extend(words.iter().skip(i).map(|b| format!("{family}: {a} {b}")));
        }
    }
    all
}

/// Kinds of kernels that some model has had.
#[derive(Default)]
pub struct Kinds(Mutex<BTreeSet<String>>);

impl Kinds {
    /// Whether all of these are of a kind that was there before.
    pub fn all_known(&self, kernels: &[Kernel]) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kinds(kernels).into_iter().filter(|kind| known.insert(kind.clone())).count() == 0
    }
}

/// A model's number of kernels, and their features.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    /// Kernels of different kinds; none where a model is left out.
    pub kernels: usize,
    /// Pairs of words and operators of their texts, each with their family.
    pub features: BTreeSet<String>,
}

impl Planned {
    /// The number and the features of a plan's kernels.
    pub fn of(kernels: &[Kernel]) -> Planned {
        let kinds = kinds(kernels);
        Planned { kernels: kinds.len(), features: features(&kinds) }
    }
}

/// Few models whose kernels have all features of all of them: each time the one with the most that are not there yet,
/// for its number of kernels and what a model costs beside them. The `first` models are there in any case, unless they
/// have no kernels.
pub fn cover(models: &[Planned], first: usize) -> Vec<usize> {
    let mut chosen: Vec<usize> = (0..first.min(models.len())).filter(|i| models[*i].kernels > 0).collect();
    let mut there: BTreeSet<&String> = chosen.iter().flat_map(|i| &models[*i].features).collect();
    loop {
        let share = |i: &usize| {
            let new = models[*i].features.iter().filter(|feature| !there.contains(feature)).count();
            // In thousandths; of equals, the first.
            (1000 * new / (models[*i].kernels + 8), usize::MAX - i)
        };
        let Some(best) = (0..models.len()).max_by_key(share).filter(|i| share(i).0 > 0) else { return chosen };
        there.extend(&models[best].features);
        chosen.push(best);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_models_have_all_features() {
        let set = |features: &str| {
            let features: BTreeSet<_> = features.split(' ').map(str::to_owned).collect();
            Planned { kernels: features.len(), features }
        };
        let models = ["a b", "a c", "c d e f", "b d", "f"].map(set);
        assert_eq!(cover(&models, 0), [2, 0]);
        assert_eq!(cover(&models, 2), [0, 1, 2]);
        assert!(cover(&[], 4).is_empty());
    }
}

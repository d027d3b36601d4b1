//! Models that are left out because of their kernels.

use llmcc_cli::backends::Backends;
use llmcc_codegen::{Backend, CodegenError, Object};
use llmcc_ir::kernel::Kernel;
use llmcc_ir::target::TargetSpec;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

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

/// Kernels but for their names and sizes.
#[derive(Default)]
pub struct Kinds(RefCell<BTreeSet<String>>);

impl Kinds {
    /// Whether all of these are of a kind that was there before.
    pub fn all_known(&self, kernels: &[Kernel]) -> bool {
        let kind = |k: &Kernel| {
            let text = llmcc_ir::text::print_kernel(k);
            let body = text.split_once('\n').map_or("", |(_, body)| body);
            body.chars().filter(|c| !matches!(c, '0'..='9' | '.' | '-')).collect()
        };
        let kinds: Vec<String> = kernels.iter().map(kind).collect();
        let mut known = self.0.borrow_mut();
        kinds.into_iter().filter(|kind| known.insert(kind.clone())).count() == 0
    }
}

//! A problem of extraction, and its solution.

use egg::Id;
use llmcc_ir::kernel::Kernel;
use llmcc_ir::target::TargetSpec;
use llmcc_ir::ty::Env;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A way to compute a class.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The kernel with its tiles chosen, or which result of another class's kernel.
    pub how: How,
    /// Which member of its class it is, in their order; `None`: it is no member.
    pub node: Option<usize>,
    /// Children of the node.
    pub children: Vec<Id>,
    /// Classes that must be computed first.
    pub needs: Vec<Id>,
    /// Stored forms, of those that [`Problem::decisions`] are about, that must be taken.
    pub requires: Vec<Id>,
    /// Predicted seconds.
    pub seconds: f64,
}

/// See [`Candidate`].
#[derive(Clone, Debug)]
pub enum How {
    /// A launch.
    Kernel(Arc<Kernel>),
    /// A result of the kernel in the child class.
    Proj(usize),
    /// An attention state, cached in the form of the child class.
    Stored,
}

/// All candidates of the classes that the roots may need.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Candidates by class.
    pub classes: BTreeMap<Id, Vec<Candidate>>,
    /// Classes to compute.
    pub roots: Vec<Id>,
    /// Forms to choose from.
    pub decisions: Vec<Decision>,
    /// Most that the errors of the taken options may add up to.
    pub budget: f64,
    /// Share of the least cost by which a solution may be dearer; 0: it is exact.
    pub tolerance: f64,
    pub(super) solutions: Cell<usize>,
}

/// A value that may be stored in several forms.
#[derive(Clone, Debug)]
pub struct Decision {
    /// At most one of them is taken. In order of preference where nothing else decides.
    pub options: Vec<Alternative>,
}

/// A form of a [`Decision`].
#[derive(Clone, Debug)]
pub struct Alternative {
    /// Classes (`Term::Store`) that can be used when it is taken.
    pub stores: Vec<Id>,
    /// Its share of [`Problem::budget`].
    pub error: f64,
    /// Seconds that the form itself costs, whatever candidates use it.
    pub seconds: f64,
}

/// The chosen candidate of each computed class.
pub type Chosen = BTreeMap<Id, usize>;

/// Candidates still considered, by class.
pub(super) type Alive = BTreeMap<Id, Vec<usize>>;

/// Objective of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Predicted time, within the budget.
    Seconds,
    /// The sum of errors.
    Error,
}

/// Scaled cost of a solution during elimination. Costs that break ties are small against it, and
/// large against rounding.
pub(super) const SOLUTION: f64 = 1e3;

/// Part of a budget that is left over, since errors are added up in another order when they are
/// reported.
pub(super) const MARGIN: f64 = 1e-12;

/// A solved problem.
#[derive(Clone, Debug)]
pub struct Solved {
    /// Choices.
    pub chosen: Chosen,
    /// Sum of the predicted seconds of candidates and taken forms.
    pub seconds: f64,
}

/// Classes of stored forms.
pub type Stores = BTreeSet<Id>;

/// Conditions of a problem: the machine, the step, and the stored forms.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The machine.
    pub target: &'a TargetSpec,
    /// Step size.
    pub env: Env,
    /// The only stored forms that may be used; `None`: any.
    pub only: Option<&'a Stores>,
    /// Stored forms about which there will be decisions.
    pub open: &'a Stores,
}

/// Candidates that are not all chosen together.
pub(super) type Cut = Vec<(Id, usize)>;

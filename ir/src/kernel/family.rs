//! The trait of every family of kernels, and the table of families.

use super::part::Parts;
use super::{Kernel, Norm, Param, ParamId, Prologue, RowElem, Segment, Store};
use crate::eval::{EvalError, KernelRun, RowValues};
use crate::graph::F32;
use crate::state::{FixedSpec, State};
use crate::verify::KernelVerifier;
use std::ops::Range;

/// One use of an operand by a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Use {
    /// Written, else read.
    pub write: bool,
    /// Columns; `None`: all there are.
    pub cols: Option<Range<usize>>,
    /// The segment whose expression reads or whose store writes; `None`: the kernel as a whole.
    pub segment: Option<usize>,
}

impl Use {
    /// All of it is read.
    pub const READ: Use = Use { write: false, cols: None, segment: None };
    /// All of it is written.
    pub const WRITE: Use = Use { write: true, cols: None, segment: None };
}

/// A part of a kernel, as text and other notations show it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<'a> {
    /// An operand.
    Operand(ParamId),
    /// An operand, if there is one.
    Optional(Option<ParamId>),
    /// A number.
    Size(usize),
    /// Numbers.
    Sizes(&'a [usize]),
    /// A number that is written if it is not 1.
    SizeOr1(usize),
    /// A number, if there is one.
    SizeIf(Option<usize>),
    /// A real number.
    Real(F32),
    /// A real number, if there is one.
    RealIf(Option<F32>),
    /// A real number that is written if it is not 1.
    RealOr1(F32),
    /// Written by its name alone, if true.
    Flag(bool),
    /// One of a few words.
    Word(&'static str),
    /// A normalization.
    Norm(Option<Norm>),
    /// A prologue.
    Prologue(Option<&'a Prologue>),
    /// Expressions and their destinations.
    Segments(&'a [Segment]),
}

/// A product of rows with matrices, as general passes see it: its outputs are
/// [`super::Body::segments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product<'a> {
    /// Input rows.
    pub x: ParamId,
    /// Operations on them before the product.
    pub prologue: Option<&'a Prologue>,
    /// The experts, if the matrices belong to experts.
    pub experts: Option<Experts>,
}

/// The experts of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Numbers of the experts of each token, as [`super::Route`] stores them; none where a slot has
    /// the expert of its number.
    pub routes: Option<ParamId>,
    /// How many there are.
    pub experts: usize,
    /// Experts of a token.
    pub top: usize,
}

/// The results of a kernel.
pub(crate) struct Outcome {
    /// Rows to store, with their destinations.
    pub stores: Vec<(Store, RowValues)>,
    /// The states that it updates, as they are afterwards.
    pub states: Vec<(ParamId, State)>,
}

impl Outcome {
    /// Rows, and nothing else.
    pub fn rows(stores: Vec<(Store, RowValues)>) -> Outcome {
        Outcome { stores, states: vec![] }
    }

    /// The rows of `out`, and `state` as it is afterwards.
    pub fn recurrent((out, rows): (ParamId, RowValues), (id, state): (ParamId, impl Into<State>)) -> Outcome {
        Outcome { stores: vec![(Store::all(out), rows)], states: vec![(id, state.into())] }
    }
}

/// Channels of a work item of the kernels that take each channel of their state by itself:
/// [`super::CausalConv`], [`super::Wkv`], [`super::WindowMeans`].
pub const CHANNELS: usize = 16;

/// Work items of such a kernel, each with all tokens in order.
pub(super) fn channel_items(params: &[Param], state: ParamId) -> (usize, bool) {
    state_items(params, state, |s| s.cols.div_ceil(CHANNELS))
}

/// Work items of a kernel that has `count` of them for its state, each with all tokens in order.
pub(super) fn state_items(params: &[Param], state: ParamId, count: fn(&FixedSpec) -> usize) -> (usize, bool) {
    // Where the operand is something else, which the verifier refuses, any number does.
    let Some(s) = params.get(state).and_then(|p| p.kind.state()?.fixed()) else { return (1, false) };
    (count(s), false)
}

/// A family of kernels: its file declares its parts by [`family!`](super::part::family), and has its
/// rules and its meaning.
pub(crate) trait Family: Parts {
    /// Outputs that are computed by expressions.
    fn segments(&self) -> &[Segment] {
        &[]
    }

    /// The same, to change them.
    fn segments_mut(&mut self) -> &mut [Segment] {
        &mut []
    }

    /// The product that it is; none in families that multiply no matrices.
    fn product(&self) -> Option<Product<'_>> {
        None
    }

    /// Rows that it processes per pass over a tile's weights, to change them; only products have
    /// that.
    fn tile_m_mut(&mut self) -> Option<&mut usize> {
        None
    }

    /// The share of the rows of its matrices that a step of one token reads in products.
    fn share(&self) -> f64 {
        1.0
    }

    /// Whether each work item has whole groups of columns of rows that are stored as `elem`.
    fn has_whole_groups(&self, _: &[Param], _: RowElem) -> bool {
        false
    }

    /// Whether each item may overwrite data that it alone has read.
    fn in_place(&self) -> bool {
        false
    }

    /// Work items for `m` rows: `(count, whether it is multiplied by m)`.
    fn items(&self, params: &[Param]) -> (usize, bool);

    /// Reports errors beside the operands' own kinds.
    fn verify(&self, v: &mut KernelVerifier<'_>);

    /// Its results.
    ///
    /// # Errors
    /// The batch names tokens or positions that do not exist.
    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError>;
}

/// One line per family: the variant of [`Body`], its name in text, and its name in kernels' names.
/// Families `in tests` are not part of shipped code. Makes `each_family!` too, which calls a macro
/// with the names of all families there are: backends and cost model make their own tables of it.
macro_rules! families {
    (
        ($d:tt)
        $( #[doc = $doc:literal] $family:ident $name:literal $short:literal; )*
      in tests:
        $( #[doc = $test_doc:literal] $test:ident $test_name:literal $test_short:literal; )*
    ) => {
        family::families! { @
            $( [#[doc = $doc]] $family $name $short; )*
            $( [#[doc = $test_doc] #[cfg(any(test, feature = "dummies"))]] $test $test_name $test_short; )*
        }

        impl Body {
            /// Names of the families in `.lir` text.
            pub const NAMES: &'static [&'static str] = &[$($name),*];
        }

        /// Calls a macro with the names of the families of kernels.
        #[cfg(any(test, feature = "dummies"))]
        #[macro_export]
        macro_rules! each_family {
            ($d callback:ident) => { $d callback! { $($family)* $($test)* } };
        }

        /// Calls a macro with the names of the families of kernels.
        #[cfg(not(any(test, feature = "dummies")))]
        #[macro_export]
        macro_rules! each_family {
            ($d callback:ident) => { $d callback! { $($family)* } };
        }
    };
    (@ $( [#[doc = $doc:literal] $(#[$cfg:meta])?] $family:ident $name:literal $short:literal; )*) => {
        /// The computation of a kernel.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Body { $( #[doc = $doc] $(#[$cfg])? $family($family), )* }

        impl Body {
            /// Name of the family in `.lir` text.
            pub fn name(&self) -> &'static str {
                match self { $( $(#[$cfg])? Body::$family(_) => $name, )* }
            }

            /// Name of the family in the names of kernels.
            pub fn short_name(&self) -> &'static str {
                match self { $( $(#[$cfg])? Body::$family(_) => $short, )* }
            }

            /// Whether a family is called that in `.lir` text.
            pub(crate) fn is_name(name: &str) -> bool {
                match name { $( $(#[$cfg])? $name => true, )* _ => false }
            }

            pub(crate) fn family(&self) -> &dyn Family {
                match self { $( $(#[$cfg])? Body::$family(k) => k, )* }
            }

            fn family_mut(&mut self) -> &mut dyn Family {
                match self { $( $(#[$cfg])? Body::$family(k) => k, )* }
            }

            /// The rest of a kernel of the family `name`; `None` if there is none of that name.
            pub(crate) fn read<'a>(name: &str, r: &KernelReader<'a>, p: &mut Parser<'a>) -> Option<Parsed<Body>> {
                match name {
                    $( $(#[$cfg])? $name => Some($family::read(r, p).map(Body::$family)), )*
                    _ => None,
                }
            }
        }
    };
}
pub(super) use families;

impl super::Body {
    /// Calls `f` on every operand and its use, in the order of the text.
    pub fn visit_operands(&mut self, f: &mut dyn FnMut(&mut ParamId, Use)) {
        self.family_mut().operands(f);
    }

    /// Every operand and its use, in the order of the text.
    pub fn operands(&self) -> Vec<(ParamId, Use)> {
        let mut out = vec![];
        self.clone().visit_operands(&mut |p, used| out.push((*p, used)));
        out
    }

    /// The kernel's fields beside its name, rows and operands, in the order of its text.
    pub fn fields(&self) -> Vec<(&'static str, Field<'_>)> {
        self.family().fields()
    }

    /// Outputs that are computed by expressions; none in families without.
    pub fn segments(&self) -> &[Segment] {
        self.family().segments()
    }

    /// The same, to change them.
    pub fn segments_mut(&mut self) -> &mut [Segment] {
        self.family_mut().segments_mut()
    }

    /// The product that it is; none in families that multiply no matrices.
    pub fn product(&self) -> Option<Product<'_>> {
        self.family().product()
    }

    /// Rows that a product processes per pass over a tile's weights, to change them.
    pub fn tile_m_mut(&mut self) -> Option<&mut usize> {
        self.family_mut().tile_m_mut()
    }

    /// The share of the rows of its matrices that a step of one token reads in products.
    pub fn share(&self) -> f64 {
        self.family().share()
    }
}

impl Kernel {
    /// Work items for `m` rows: `(count, whether it is multiplied by m)`.
    pub fn items(&self) -> (usize, bool) {
        self.body.family().items(&self.params)
    }

    /// Whether each work item has whole groups of columns of rows that are stored as `elem`.
    pub fn has_whole_groups(&self, elem: RowElem) -> bool {
        self.body.family().has_whole_groups(&self.params, elem)
    }

    /// Operands that the kernel writes, each once.
    pub fn written(&self) -> Vec<ParamId> {
        let mut out: Vec<ParamId> =
            self.body.operands().into_iter().filter(|(_, used)| used.write).map(|(p, _)| p).collect();
        out.sort_unstable();
        out.dedup();
        out
    }
}

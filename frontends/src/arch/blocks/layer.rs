//! A layer of a decoder, as data.

use crate::arch::blocks::attention::{Attention, Form, Latent};
use crate::arch::blocks::experts::Experts;
use crate::arch::blocks::mlp::Mlp;
use crate::arch::blocks::recurrent_mixer::Mixer;

/// A layer of a decoder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    /// Its attention.
    pub attention: Attention,
    /// The mixer in place of attention, if it has none.
    pub mixer: Option<Mixer>,
    /// The mixer stands beside attention, both reading the same row.
    pub beside: Option<Beside>,
    /// Places of its norms, if they differ from the others'.
    pub norms: Option<Norms>,
    /// It has one of the two blocks only, or none.
    pub only: Option<Half>,
    /// Its MLP.
    pub mlp: Mlp,
    /// Experts in its place.
    pub experts: Option<Experts>,
    /// The output is multiplied by a learned number.
    pub scaled: bool,
    /// Its attention reads the keys and values of this layer, having none of its own; then it has
    /// queries with their norm and rotation, and, unless it is latent, nothing else that attention may
    /// have.
    pub shares: Option<usize>,
}

impl Layer {
    /// The same with an indexer of its own, if it has an earlier layer's.
    pub(crate) fn selecting_alone(mut self) -> Layer {
        if let Form::Latent(Latent { indexer: Some(indexer), .. }) = &mut self.attention.form {
            indexer.shared = false;
        }
        self
    }
}

/// Factors of attention's input and output, and of the output of the mixer beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Beside {
    /// Into attention.
    pub into: Option<f32>,
    /// Out of it.
    pub out: Option<f32>,
    /// Out of the mixer.
    pub mixer: Option<f32>,
}

impl Beside {
    /// Nothing is multiplied.
    pub(crate) const PLAIN: Beside = Beside { into: None, out: None, mixer: None };
}

/// The blocks of a layer that does not have both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// Attention, or the mixer in its place.
    First,
    /// The MLP, or the experts.
    Second,
    /// None: it is passed over.
    Neither,
}

/// Where the norms of a block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Norms {
    /// `x += f(norm(x))`
    Before,
    /// `x = norm(x)`, then `x += f(x)`
    Entering,
    /// `x += attention(x)`, then `x += mlp(norm(x))`
    BeforeMlp,
    /// `x += norm(f(x))`
    After,
    /// `x += norm(f(norm(x)))`
    Both,
    /// `x = norm(x + f(x))`
    Around,
    /// `x += attention(norm(x)) + mlp(norm(x))`
    Parallel {
        /// The MLP has a norm of its own.
        own: bool,
    },
}

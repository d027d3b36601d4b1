//! An entry of the table of architectures, and its reading of a `config.json`.

use crate::arch::blocks::lifter::Lifter;
use crate::arch::blocks::names::Names;
use crate::arch::blocks::outputs::Yields;
use crate::arch::blocks::sound_rows::SoundRows;
use crate::config::ConfigError;
use crate::config::common::Facts;
use crate::config::fields::{Field, Fields};
use crate::config::known::Neutral;
use crate::error::FrontendError;
use std::any::Any;
use std::fmt;

/// The reference of most architectures' goldens.
pub const REFERENCE: &str = "Transformers 5.23.0";

/// How goldens of architectures are called that it has no class for: those were computed by a
/// program written from their papers, as `tests/goldens/rwkv_reference.py`.
const WRITTEN: &str = "_paper";

/// How goldens are called that mlx-lm computed, of architectures that Transformers has no class for.
const MLX: &str = "_mlx";

/// The reference of an architecture's goldens.
pub fn reference(arch: &Arch) -> &'static str {
    let named = |end: &str| arch.goldens.iter().any(|name| name.ends_with(end));
    match () {
        () if named(WRITTEN) => "a reference written from the papers",
        () if named(MLX) => "mlx-lm 0.32.2",
        () => REFERENCE,
    }
}

/// An architecture.
pub struct Arch {
    /// `model_type` in `config.json`.
    pub model_type: &'static str,
    /// Class in `architectures` of `config.json`.
    pub class: &'static str,
    /// The fields of `config.json` that it reads, and the values that they may have, as tables.
    /// Nothing else is read.
    pub fields: &'static [&'static [Field]],
    /// Fields that it does not read because the class leaves no choice, with the values that agree
    /// with it; all others are refused. For `model_type` and `architectures`, other names of the
    /// same.
    pub fixed: &'static [(&'static str, Neutral)],
    /// The fixtures of `tests/goldens` that hold it against Transformers.
    pub goldens: &'static [&'static str],
    /// Names of its tensors in checkpoints.
    pub(crate) names: Names,
    /// Reads a configuration.
    pub(crate) read: fn(&Fields) -> Result<Box<dyn Shape>, ConfigError>,
}

impl Arch {
    /// Whether it is a part of the named model: the encoder of a model that has a decoder too.
    pub(crate) fn is_part(&self) -> bool {
        self.class.ends_with("EncoderModel")
    }

    /// Values of `model_type` or `architectures` in files beside its own names.
    pub(crate) fn also(&self, field: &str) -> &'static [&'static str] {
        let words = |(name, rule): &(&str, Neutral)| match rule {
            Neutral::Words(words) if *name == field => Some(*words),
            _ => None,
        };
        self.fixed.iter().find_map(words).unwrap_or_default()
    }

    /// The declared field that a member of `config.json` is.
    pub(crate) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().copied().flatten().find(|f| f.is(name))
    }
}

impl fmt::Debug for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.class)
    }
}

/// A configuration that an architecture has read: everything needed to build the graph.
pub(crate) trait Shape: fmt::Debug + Any {
    /// Facts common to all models.
    fn facts(&self) -> &Facts;

    /// Columns of the rows that embeddings and scores of classes are made of.
    fn columns(&self) -> usize {
        self.facts().hidden
    }

    /// Kinds of outputs.
    fn yields(&self) -> Yields {
        Yields::Logits
    }

    /// Beginnings of the names of tensors that nothing reads when embeddings are wanted, beside the
    /// head.
    fn spare(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a layer reads the keys and values of another, so that its own projections, norms and
    /// biases of these, which files may still have, are of no use.
    fn shares_keys(&self, _layer: usize) -> bool {
        false
    }

    /// Whether it writes a text about another one, its source, which an entry of its own reads first.
    fn has_source(&self) -> bool {
        false
    }

    /// The way of its encoder from clips of sound, where its source is one.
    fn sound(&self) -> Option<SoundRows> {
        None
    }

    /// Whether its matrices are `Conv1D` of Transformers, stored `[in, out]`.
    fn is_turned(&self) -> bool {
        false
    }

    /// Whether a layer is passed over.
    fn passes(&self, _layer: usize) -> bool {
        false
    }

    /// Whether a tensor is of a part that chooses tokens where there are more than are compiled for, of a
    /// mean of one, or of a part for tokens or entities that no text has.
    fn chooses(&self, _tensor: &str) -> bool {
        false
    }

    /// Contents of a tensor of integers that follow from the configuration.
    fn integers(&self, _tensor: &str) -> Option<Vec<i64>> {
        None
    }

    /// Adds the functions and calls of the model.
    ///
    /// # Errors
    /// When a tensor is missing, or has another shape or type than needed.
    fn lift(&self, l: &mut Lifter) -> Result<(), FrontendError>;
}

/// Methods of [`Shape`] that a part of the shape, which is one itself, answers:
/// `answered_by! { decoder: facts yields }`.
macro_rules! answered_by {
    ($part:tt: $($method:ident)+) => {
        $($crate::arch::blocks::entry::answer! { $part $method })+
    };
}
pub(crate) use answered_by;

/// One method of [`answered_by!`].
macro_rules! answer {
    ($part:tt facts) => {
        fn facts(&self) -> &$crate::config::common::Facts {
            $crate::arch::blocks::entry::Shape::facts(&self.$part)
        }
    };
    ($part:tt yields) => {
        fn yields(&self) -> $crate::arch::blocks::outputs::Yields {
            $crate::arch::blocks::entry::Shape::yields(&self.$part)
        }
    };
    ($part:tt spare) => {
        fn spare(&self) -> &'static [&'static str] {
            $crate::arch::blocks::entry::Shape::spare(&self.$part)
        }
    };
    ($part:tt shares_keys) => {
        fn shares_keys(&self, layer: usize) -> bool {
            $crate::arch::blocks::entry::Shape::shares_keys(&self.$part, layer)
        }
    };
    ($part:tt chooses) => {
        fn chooses(&self, tensor: &str) -> bool {
            $crate::arch::blocks::entry::Shape::chooses(&self.$part, tensor)
        }
    };
}
pub(crate) use answer;

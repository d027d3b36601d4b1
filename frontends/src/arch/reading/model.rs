//! A checked `config.json`, and the graph it describes.

use super::find_arch::{KNOWN, class, first_class};
use super::nested;
use super::normal::Normal;
use crate::arch::blocks::draft_head;
use crate::arch::blocks::entry::{Arch, Shape};
use crate::arch::blocks::lifter::Lifter;
use crate::arch::blocks::origin::{Origin, Source, Wish};
use crate::arch::blocks::outputs::{Entry, Top};
use crate::arch::models::ARCHS;
use crate::checkpoint::Wanted;
use crate::config::fields::{Field, Fields, IDENTITY};
use crate::config::known::{self, Neutral, Unread};
use crate::config::{ConfigError, Facts, common, dictionary};
use crate::error::FrontendError;
use llmcc_ir::graph::Module;
use llmcc_ir::kv::KvDType;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::LazyLock;

/// A checked `config.json`.
#[derive(Debug)]
pub struct Model {
    /// The architecture.
    pub arch: &'static Arch,
    /// Fields that are not read and not known, each as `name` is value.
    pub unread: Vec<String>,
    /// The longest sequence for which LongRoPE has its short factors, of models that have longer ones.
    pub original_context: Option<usize>,
    pub(crate) shape: Box<dyn Shape>,
    /// A part of a larger model.
    pub(crate) nested: bool,
    /// Its class's head.
    pub(crate) top: Top,
    /// Layers after the last, which predict further tokens.
    pub(crate) ahead: usize,
}

impl Model {
    /// Reads and checks a `config.json`.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(json: &Value) -> Result<Model, ConfigError> {
        Model::read(&Normal::of(json, None)?)
    }

    /// Reads and checks a configuration in its normal form.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub(crate) fn read(normal: &Normal) -> Result<Model, ConfigError> {
        let (whole, map, nested) = (&normal.whole, normal.model(), normal.nested);
        let left = RefCell::default();
        let (arch, top) = KNOWN.find(&Fields::new(map, "", &[IDENTITY], &left)?)?;
        let top = match nested.then(|| first_class(whole)) {
            Some(class) => nested::top(class)
                .ok_or_else(|| KNOWN.unknown(arch.model_type, format!("`{}`", class.unwrap_or_default())))?,
            None => top,
        };
        let f = Fields::new(map, "", arch.fields, &left)?.of_part(nested);
        common::refuse_quantized(&f)?;
        let shape = (arch.read)(&f)?;
        if !shape.yields().suits(top) {
            let named = class(&f).or_else(|| first_class(whole)).unwrap_or_default();
            let found = format!("`{named}` of `{}`", arch.model_type);
            return Err(KNOWN.unknown(arch.model_type, found));
        }
        f.leave(known::unread(map, |name| f.reads(name), arch.fixed, elsewhere));
        let Unread { changes, others: mut unread, original_context } = left.take();
        let ahead = ["num_nextn_predict_layers", "num_mtp_layers"]
            .iter()
            .find_map(|name| map.get(*name)?.as_u64())
            .unwrap_or(0);
        let ahead = usize::try_from(ahead).unwrap_or(0);
        unread.extend(nested::left_out(whole).filter(|_| nested));
        match changes {
            fields if fields.is_empty() => Ok(Model { arch, unread, original_context, shape, nested, top, ahead }),
            fields => Err(ConfigError::Unread { fields, class: arch.class }),
        }
    }

    /// Facts common to all models.
    pub fn facts(&self) -> &Facts {
        self.shape.facts()
    }

    /// Whether it writes a text about another one, its source.
    pub fn has_source(&self) -> bool {
        self.shape.has_source()
    }

    /// Numbers of a frame and tokens of a clip, of a model that writes about clips of sound.
    pub fn sound(&self) -> Option<(usize, usize)> {
        self.shape.sound().map(|sound| (sound.mels, sound.tokens))
    }

    /// The graph of a checkpoint that has whatever is asked for, in bf16, and the tensors that are,
    /// in the order of their use.
    ///
    /// # Errors
    /// When the configuration makes no graph.
    pub(crate) fn imagined(&self) -> Result<(Module, Vec<Wanted>), FrontendError> {
        self.wished(Wish::default(), Entry::imagined(&*self.shape))
    }

    /// The tensors that a checkpoint of the model of this `config.json` needs; with `single_experts`, each expert
    /// has matrices of its own.
    ///
    /// # Errors
    /// When the configuration makes no graph, or the architecture has no names for such matrices.
    pub(crate) fn wanted(&self, config: &Value, single_experts: bool) -> Result<Vec<Wanted>, FrontendError> {
        let wish = Wish { single_experts, ..Wish::default() };
        self.wished(wish, Entry::of_config(self, config)).map(|(_, wanted)| wanted)
    }

    fn wished(&self, wish: Wish, entry: Entry) -> Result<(Module, Vec<Wanted>), FrontendError> {
        let (module, source) = self.lift(Source::Wanted(wish), entry, KvDType::F16, self.facts().max_position)?;
        match source {
            Source::Wanted(wish) => Ok((module, wish.tensors)),
            Source::Checkpoint(_) => Ok((module, vec![])),
        }
    }

    pub(crate) fn lift<'a>(
        &'a self,
        source: Source<'a>,
        entry: Entry,
        kv_dtype: KvDType,
        max_context: usize,
    ) -> Result<(Module, Source<'a>), FrontendError> {
        let mut lifter = Lifter::new(self.origin(source), entry, kv_dtype, max_context);
        draft_head::lift(&mut lifter, &*self.shape)?;
        Ok(lifter.finish())
    }

    pub(crate) fn origin<'a>(&'a self, source: Source<'a>) -> Origin<'a> {
        let (names, class, model_type) = (self.arch.names, self.arch.class, self.arch.model_type);
        Origin { source, facts: self.facts(), names, class, model_type, nested: self.nested }
    }
}

/// The neutral value of a field that other architectures read.
fn elsewhere(name: &str) -> Option<Neutral> {
    static RULES: LazyLock<HashMap<&'static str, Neutral>> = LazyLock::new(|| {
        let names = |f: &'static Field| {
            std::iter::once((f.name, f.neutral))
                .chain(f.also.iter().map(|name| (*name, dictionary::neutral(name).unwrap_or(f.neutral))))
        };
        // If several architectures have it, the first counts.
        ARCHS.iter().rev().flat_map(|a| a.fields.iter().rev().copied().flatten()).flat_map(names).collect()
    });
    RULES.get(name).copied()
}

//! Towers: the parts of models that see images. A tower makes rows of an image, which a step of the text model takes
//! in place of tokens.
//!
//! A family is one file here and one line in [`FAMILIES`]: how its configuration is read, the names of its tensors,
//! and the projector between the tower and the text model. Towers that see patches of one size are a [`vit::Vit`].

mod expansion;
mod family;
mod gemma3_images;
mod llava;
mod qwen2_vl_images;
mod vit;

use crate::arch::blocks::lifter::Lifter;
use crate::arch::blocks::origin::{Origin, Source};
use crate::arch::blocks::outputs::Entry;
use crate::arch::reading::model::Model;
use crate::arch::reading::normal::Normal;
use crate::checkpoint::Checkpoint;
use crate::config::ConfigError;
use crate::config::fields::Fields;
use crate::config::known::Unread;
use crate::error::FrontendError;
use crate::image::Processor;
use family::{Family, Tower};
use llmcc_ir::graph::{Arg, Call, Input, Module};
use llmcc_ir::kv::KvDType;
use llmcc_ir::output::Output;
use serde_json::{Map, Value, json};
use std::cell::RefCell;

/// Every family of towers.
const FAMILIES: &[&Family] = &[&llava::FAMILY, &gemma3_images::FAMILY, &qwen2_vl_images::FAMILY];

/// The tower of a checkpoint.
pub(crate) struct Found {
    family: &'static Family,
    /// The tower.
    pub tower: Tower,
}

/// The tower of a checkpoint with the model `model`.
///
/// # Errors
/// The checkpoint has none, or one that is not supported.
pub(crate) fn find(ckpt: &Checkpoint, model: &Model, entry: &Entry) -> Result<Found, FrontendError> {
    let refuse = |what: String| refused(ckpt, what);
    if entry.output != Output::Logits {
        return Err(refuse("the model writes no text, in which images could stand".into()));
    }
    let normal = Normal::of(ckpt.config(), Some(ckpt)).map_err(|source| ckpt.wrong_config(source))?;
    let of = normal.whole.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let Some(family) = FAMILIES.iter().find(|family| family.model_type == of && normal.nested) else {
        let known: Vec<String> = FAMILIES.iter().map(|family| format!("`{}`", family.model_type)).collect();
        let what =
            format!("`{of}` has no tower for images that is supported; supported are towers of {}", known.join(", "));
        return Err(refuse(what));
    };
    let tower = read(family, &normal.whole).map_err(|source| ckpt.wrong_config(source))?;
    let token = tower.expansion.token;
    if token >= model.facts().vocab {
        let vocab = model.facts().vocab;
        return Err(refuse(format!(
            "token {token}, which stands for rows of an image, is none of the {vocab} of the vocabulary"
        )));
    }
    Ok(Found { family, tower })
}

/// Whether `config.json` describes a tower that is supported.
pub fn has_tower(config: &Value) -> bool {
    let of = config.get("model_type").and_then(Value::as_str);
    let sees = config.get("vision_config").is_some_and(Value::is_object);
    sees && FAMILIES.iter().any(|family| Some(family.model_type) == of)
}

/// Reads the tower of a family; fields of its part that change the mathematics and are not read are errors.
fn read(family: &Family, whole: &Map<String, Value>) -> Result<Tower, ConfigError> {
    let left = RefCell::default();
    let f = Fields::new(whole, "", &[], &left)?;
    let tower = (family.read)(&f, whole)?;
    let Unread { changes: fields, .. } = left.take();
    match fields.is_empty() {
        true => Ok(tower),
        false => Err(ConfigError::Unread { fields, class: family.model_type }),
    }
}

fn refused(ckpt: &Checkpoint, what: String) -> FrontendError {
    FrontendError::Output {
        path: ckpt.dir().to_path_buf(),
        what,
        help: "leave out --with-image: then the text model alone is compiled",
    }
}

impl Found {
    /// Whether the step of the text model takes rows of images, and a sequence has room for the rows of one.
    ///
    /// # Errors
    /// They do not.
    pub(crate) fn check_step(&self, ckpt: &Checkpoint, model: &Model, module: &Module) -> Result<(), FrontendError> {
        let takes = |call: &Call| call.args.contains(&Arg::Input(Input::Given));
        if !module.entries.first().is_some_and(|step| step.calls.iter().any(takes)) {
            let what = format!("the text model, {}, does not take rows in place of tokens", model.arch.class);
            return Err(refused(ckpt, what));
        }
        let window = module.states.iter().filter_map(|s| s.paged()?.window).min();
        if let Some(window) = window.filter(|n| self.tower.expansion.both_ways && *n < self.tower.expansion.count) {
            let count = self.tower.expansion.count;
            let what = format!("the {count} tokens of an image see each other, but a layer has a window of {window}");
            return Err(refused(ckpt, what));
        }
        let (tokens, most) = (self.tower.expansion.count, module.info.max_context);
        if tokens > most {
            let what =
                format!("an image has {tokens} tokens, but the longest sequence has {most}: raise --max-context");
            return Err(refused(ckpt, what));
        }
        Ok(())
    }

    /// The module of the tower, whose entry has the name of a step's.
    ///
    /// # Errors
    /// A tensor is missing, or has another shape or type than needed.
    pub(crate) fn lift(
        &self,
        ckpt: &Checkpoint,
        model: &Model,
        (kv_dtype, max_context): (KvDType, usize),
    ) -> Result<Module, FrontendError> {
        let names = self.family.names;
        let origin = Origin { names, nested: true, ..model.origin(Source::Checkpoint(ckpt)) };
        let entry = Entry { output: Output::Image, ..Entry::default() };
        let mut l = Lifter::new(origin, entry, kv_dtype, max_context);
        let x = self.tower.vit.lift(&mut l)?;
        self.tower.projector.lift(&mut l, &self.tower.vit, &x)?;
        let (mut module, _) = l.finish();
        module.entries.iter_mut().for_each(|e| e.context = Some(self.tower.vit.tokens()));
        Ok(module)
    }

    /// The document by which a runtime makes rows of the bytes of an image, and places them in a text.
    ///
    /// # Errors
    /// The checkpoint's files about its processor are malformed, or ask for something that is not supported.
    pub(crate) fn document(&self, ckpt: &Checkpoint) -> Result<Value, FrontendError> {
        let Tower { vit, rows, expansion, .. } = &self.tower;
        let processor = Processor::of(ckpt, (self.family.processor)(&self.tower))?;
        processor.suits(ckpt, (vit.grid > 0).then(|| vit.image()))?;
        Ok(json!({
            "image": {
                "processor": processor.document(),
                "patches": vit.document(),
                "rows": { "first": rows.0, "every": rows.1 },
                "text": expansion.document(),
            }
        }))
    }
}

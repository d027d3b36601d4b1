//! Which published draft lies beside a model: its `config.json`, held against the model and the draft's tensors.

use super::find_arch::by_model_type;
use super::model::Model;
use super::options::Options;
use crate::arch::blocks::decoder::Decoder;
use crate::arch::blocks::eagle::{Eagle, EagleForm};
use crate::arch::blocks::families::draft_names::{JOIN, ROW_NORM};
use crate::arch::blocks::families::drafter_names::{BLOCK, BLOCK_HEAD, DrafterNames};
use crate::arch::blocks::lifter::Lifter;
use crate::arch::blocks::medusa::Medusa;
use crate::arch::blocks::names::{Kind, Names, Part, TABLE};
use crate::arch::blocks::origin::Source;
use crate::arch::blocks::outputs::{Entry, Fused};
use crate::checkpoint::{Checkpoint, DRAFT, DraftFiles};
use crate::config::known;
use crate::config::show;
use crate::error::FrontendError;
use llmcc_ir::graph::Module;
use llmcc_ir::kv::KvDType;
use llmcc_ir::ty::DType;
use serde_json::{Map, Value};
use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

/// A published draft, held against its model.
#[derive(Debug)]
pub(crate) struct Drafter<'a> {
    base: &'a Decoder,
    form: Form,
    names: DrafterNames,
    /// Rows that the model leaves to it, where they are not its hidden states.
    pub(crate) fused: Option<Fused>,
}

#[derive(Debug)]
enum Form {
    Eagle(Box<Eagle>),
    Medusa(Medusa),
}

/// Fields of EAGLE's configurations that say nothing about what a draft computes, or that its tensors say.
const EAGLE_SAYS_NOTHING: [&str; 12] = [
    "bias",
    "has_no_defaults_at_init",
    "embed_requires_grad",
    "num_lookahead_tokens",
    "eagle_model_type",
    "speculators_config",
    "speculators_model_type",
    "speculators_version",
    "target_model_type",
    "architectures",
    "model_type",
    "tie_word_embeddings",
];
/// Fields of Medusa's that say nothing about what its heads compute.
const MEDUSA_SAYS_NOTHING: [&str; 5] =
    ["base_model_name_or_path", "version", "max_paths", "topk", "num_lookahead_tokens"];
/// Tensors of numbers that say which tokens a draft has.
const TO_TARGET: [&str; 2] = ["d2t", "model.d2t"];
/// The same the other way round, which follow from the first.
const TO_DRAFT: [&str; 2] = ["t2d", "model.t2d"];
/// Objects in which some files have the fields of the layer.
const INSIDE: [&str; 2] = ["model", "transformer_layer_config"];

/// The draft beside a model; `None` where there is none.
///
/// # Errors
/// It is of a kind that is not compiled, or belongs to another model, or its files say something that nothing reads.
pub(crate) fn read<'a>(
    ckpt: &Checkpoint,
    model: &'a Model,
    options: &Options,
) -> Result<Option<Drafter<'a>>, FrontendError> {
    let Some(files) = ckpt.draft() else { return Ok(None) };
    let Some(base) = (&*model.shape as &dyn Any).downcast_ref::<Decoder>() else {
        let what =
            format!("drafts (--draft) for {} are not supported; supported are those of decoders", model.arch.class);
        return Err(FrontendError::Output { path: ckpt.dir().to_path_buf(), what, help: "leave out --draft" });
    };
    let reading = Reading { ckpt, files, base, class: model.arch.class };
    let fields = fields(files)?;
    let (form, names, fused) = match is_medusa(&fields) {
        true => (Form::Medusa(reading.medusa(&fields)?), DrafterNames::Medusa, None),
        false => reading.eagle(fields)?,
    };
    if fused.is_some() && options.hidden_states {
        return Err(FrontendError::Output {
            path: ckpt.dir().to_path_buf(),
            what: "with a draft of EAGLE-3, the model leaves rows made of three layers, and not its hidden states"
                .into(),
            help: "leave out --hidden-states or --draft",
        });
    }
    Ok(Some(Drafter { base, form, names, fused }))
}

/// The kind of draft beside a model, in words; `None` where there is none.
pub fn kind(ckpt: &Checkpoint) -> Option<&'static str> {
    let files = ckpt.draft()?;
    let fields = fields(files).ok()?;
    Some(match (is_medusa(&fields), is_third(ckpt, &fields)) {
        (true, _) => "heads of Medusa",
        (false, true) => "EAGLE-3",
        (false, false) => "EAGLE",
    })
}

/// The fields of a draft's `config.json`, also where some of them are in an object of their own.
fn fields(files: &DraftFiles) -> Result<Map<String, Value>, FrontendError> {
    let Some(object) = files.config.as_object() else {
        let what = "it holds no object with the fields of a draft".into();
        return Err(refused(&files.config_path, what, "use the draft's own"));
    };
    let mut all = object.clone();
    for name in INSIDE {
        if let Some(Value::Object(inside)) = all.get(name).cloned() {
            all.remove(name);
            for (name, v) in inside {
                all.entry(name).or_insert(v);
            }
        }
    }
    Ok(all)
}

/// Whether a draft's heads are Medusa's.
fn is_medusa(fields: &Map<String, Value>) -> bool {
    fields.contains_key("medusa_num_heads") || fields.get("model_type").and_then(Value::as_str) == Some("medusa")
}

/// Whether a draft is of EAGLE-3: it says so, or has the norm of rows that only these have.
fn is_third(ckpt: &Checkpoint, fields: &Map<String, Value>) -> bool {
    let class = show(fields.get("architectures").unwrap_or(&Value::Null)).to_lowercase();
    let norm = own_name(ckpt, DrafterNames::Eagle { table: true }, (ROW_NORM, Kind::Gain), (None, None));
    class.contains("eagle3") || norm.is_some_and(|name| ckpt.info(&name).is_some())
}

/// A tensor's name among a draft's.
fn own_name(
    ckpt: &Checkpoint,
    names: DrafterNames,
    part: (Part, Kind),
    place: (Option<usize>, Option<usize>),
) -> Option<String> {
    names.tensor_of(Names(&[]), part, place, |name| ckpt.info(name).is_some())
}

impl Drafter<'_> {
    /// How many entries it has.
    pub(crate) fn entries(&self) -> usize {
        match &self.form {
            Form::Eagle(_) => 1,
            Form::Medusa(medusa) => medusa.heads,
        }
    }

    /// The module of entry `i`.
    ///
    /// # Errors
    /// A tensor is missing, or has another shape.
    pub(crate) fn lift(
        &self,
        (ckpt, model): (&Checkpoint, &Model),
        i: usize,
        (kv_dtype, max_context): (KvDType, usize),
    ) -> Result<Module, FrontendError> {
        let entry = Entry { drafter: Some(self.names), ..Entry::default() };
        let mut l = Lifter::new(model.origin(Source::Checkpoint(ckpt)), entry, kv_dtype, max_context);
        match &self.form {
            Form::Eagle(eagle) => eagle.lift(&mut l, self.base)?,
            Form::Medusa(medusa) => medusa.lift(&mut l, self.base, i)?,
        }
        Ok(l.finish().0)
    }

    /// Refuses tensors of the draft that `module`, which has its entries, does not read.
    ///
    /// # Errors
    /// There are some.
    pub(crate) fn check_all_read(&self, ckpt: &Checkpoint, module: &Module) -> Result<(), FrontendError> {
        let Some(files) = ckpt.draft() else { return Ok(()) };
        let used: BTreeSet<&str> = module.weights.iter().map(|w| w.name.as_str()).collect();
        let known = |name: &str| {
            let own = name.strip_prefix(DRAFT).unwrap_or(name);
            let table = matches!(self.names, DrafterNames::Eagle { table: false })
                && ["embed_tokens.weight", "model.embed_tokens.weight"].contains(&own);
            table || TO_TARGET.contains(&own) || TO_DRAFT.contains(&own) || own.ends_with("rotary_emb.inv_freq")
        };
        let left: Vec<&str> = ckpt.names().filter(|n| n.starts_with(DRAFT) && !used.contains(n) && !known(n)).collect();
        let Some(first) = left.first() else { return Ok(()) };
        let more = if left.len() > 1 { format!(" and {} more", left.len() - 1) } else { String::new() };
        let name = first.strip_prefix(DRAFT).unwrap_or(first);
        Err(refused(
            &files.tensors,
            format!("tensor `{name}`{more} of the draft has no use by its config.json"),
            "its files belong to different drafts, or this kind of draft is not supported: EAGLE-1, -2 and -3 with \
             one layer, and Medusa are",
        ))
    }
}

/// A draft that is being read.
struct Reading<'a> {
    ckpt: &'a Checkpoint,
    files: &'a DraftFiles,
    base: &'a Decoder,
    class: &'static str,
}

impl Reading<'_> {
    fn medusa(&self, fields: &Map<String, Value>) -> Result<Medusa, FrontendError> {
        let count = |names: [&str; 2], usual: usize| self.whole(fields, names, usual);
        let heads = count(["medusa_num_heads", "num_heads"], 0)?;
        let blocks = count(["medusa_num_layers", "num_hidden_layers"], 1)?;
        if !(1..=MOST_HEADS).contains(&heads) || !(1..=MOST_BLOCKS).contains(&blocks) {
            let what = format!("it says {heads} heads of {blocks} blocks each");
            return Err(self.wrong(what, "supported are 1 to 31 heads of 1 to 16 blocks each"));
        }
        self.same(fields, "hidden_size", self.base.facts.hidden, "rows of the model have")?;
        self.same(fields, "vocab_size", self.base.facts.vocab, "the model's vocabulary has")?;
        self.same(fields, "truncated_vocab_size", self.base.facts.vocab, "the model's vocabulary has")?;
        let read = |name: &str| {
            let sizes = ["hidden_size", "vocab_size", "truncated_vocab_size", "num_heads", "num_hidden_layers"];
            let own = ["medusa_num_heads", "medusa_num_layers", "medusa_fc_bias", "model_type", "architectures"];
            // Some files have the model's fields beside.
            let of_model = || by_model_type("llama").is_some_and(|arch| arch.field(name).is_some());
            MEDUSA_SAYS_NOTHING.contains(&name) || sizes.contains(&name) || own.contains(&name) || of_model()
        };
        self.all_known(known::unread(fields, read, &[], |_| None))?;
        let has = |part, kind, block| self.has(DrafterNames::Medusa, part, kind, (Some(0), Some(block)));
        let (bias, own_head) = (has(BLOCK, Kind::Bias, 0), has(BLOCK_HEAD, Kind::Matrix, blocks));
        Ok(Medusa { heads, blocks, bias, own_head })
    }

    fn eagle(&self, fields: Map<String, Value>) -> Result<(Form, DrafterNames, Option<Fused>), FrontendError> {
        let names = DrafterNames::Eagle { table: self.has_own_table() };
        let has = |part, kind| self.has(names, part, kind, (None, None));
        let three = is_third(self.ckpt, &fields);
        let decoder = self.layer(&fields, three)?;
        let Some(layer) = decoder.layers.first().copied() else {
            return Err(self.wrong("`num_hidden_layers` is 0".into(), "drafts of one layer are supported"));
        };
        let form = match three {
            false => EagleForm::One { bias: has(JOIN, Kind::Bias) },
            true => EagleForm::Three {
                norm_first: fields.get("norm_before_residual").is_some_and(|v| *v == Value::Bool(true)),
                tokens: self.tokens(&fields)?,
            },
        };
        let fused = match three {
            true => Some(Fused { layers: self.layers(&fields)?, tensor: self.name(names, JOIN, Kind::Matrix) }),
            false => None,
        };
        Ok((Form::Eagle(Box::new(Eagle { decoder, layer, form })), names, fused))
    }

    /// EAGLE's layer, as a decoder of Llama's.
    fn layer(&self, fields: &Map<String, Value>, three: bool) -> Result<Decoder, FrontendError> {
        let model_type = fields.get("model_type").and_then(Value::as_str).unwrap_or("llama");
        let speculator = fields.contains_key("speculators_config");
        if !["llama", "eagle", "eagle3"].contains(&model_type) && !speculator {
            return Err(self.wrong(
                format!("`model_type` is `{model_type}`"),
                "supported are drafts whose layer is one of Llama (`llama`), and Medusa",
            ));
        }
        let mut own = fields.clone();
        let mut flag = |name: &str| own.remove(name).is_some_and(|v| v == Value::Bool(true));
        let (qkv_bias, before) = (flag("qkv_bias"), flag("norm_before_fc"));
        flag("norm_before_residual");
        if before || flag("norm_output") || flag("fc_norm") {
            let what = "`norm_before_fc`, `fc_norm` or `norm_output` is true".into();
            return Err(self.wrong(what, "drafts with norms around `fc` are not supported; take another draft"));
        }
        self.same(fields, "target_hidden_size", self.base.facts.hidden, "rows of the model have")?;
        self.same(fields, "truncated_vocab_size", self.base.facts.vocab, "the model's vocabulary has")?;
        let read_here = ["target_hidden_size", "truncated_vocab_size"];
        let of_three = ["draft_vocab_size", "eagle_config", "eagle_aux_hidden_state_layer_ids"];
        let said = EAGLE_SAYS_NOTHING.iter().chain(&read_here).chain(if three { &of_three[..] } else { &[] });
        said.for_each(|name| drop(own.remove(*name)));
        own.insert("model_type".into(), "llama".into());
        let draft = Model::parse(&Value::Object(own))
            .map_err(|source| FrontendError::Config { path: self.files.config_path.clone(), source })?;
        self.all_known(known::Unread { others: draft.unread.clone(), ..known::Unread::default() })?;
        let decoder = (&*draft.shape as &dyn Any).downcast_ref::<Decoder>().cloned();
        let decoder = decoder.ok_or_else(|| self.wrong("it describes no decoder".into(), "use the draft's own"))?;
        let (ours, theirs) = (&self.base.facts, &decoder.facts);
        if decoder.layers.len() != 1 {
            let what = format!("`num_hidden_layers` is {}", decoder.layers.len());
            return Err(self.wrong(what, "drafts of one layer are supported"));
        }
        self.agree("hidden_size", theirs.hidden, ours.hidden, "rows of the model have")?;
        self.agree("vocab_size", theirs.vocab, ours.vocab, "the model's vocabulary has")?;
        Ok(decoder.with_heads(|_, _, heads| heads.qkv_bias |= qkv_bias))
    }

    /// The layers whose inputs EAGLE-3 takes: as the file says, else the third, the middle and the third from the end.
    /// Numbers at the top of the file are of these layers, as vLLM reads them; in `eagle_config` of the layers before,
    /// whose outputs these are, as SGLang does.
    fn layers(&self, fields: &Map<String, Value>) -> Result<[usize; 3], FrontendError> {
        const IDS: &str = "eagle_aux_hidden_state_layer_ids";
        let count = self.base.layers.len();
        let inside = fields.get("eagle_config").and_then(Value::as_object);
        if inside.is_some_and(|of| of.get("use_aux_hidden_state") == Some(&Value::Bool(false))) {
            let what = "`use_aux_hidden_state` is false".into();
            return Err(self.wrong(what, "drafts of EAGLE-3 that take one row of the model are not supported"));
        }
        let own = fields.get(IDS).filter(|v| !v.is_null()).map(|v| (v, 0));
        let said = own.or_else(|| inside?.get(IDS).filter(|v| !v.is_null()).map(|v| (v, 1)));
        let Some((said, more)) = said else {
            if count < LEAST_LAYERS {
                let what = format!("EAGLE-3 takes rows of the third layer and the third from the end, of {count}");
                return Err(self.wrong(what, "give the layers as `eagle_aux_hidden_state_layer_ids`"));
            }
            return Ok([2, count / 2, count - 3]);
        };
        let layer = |v: &Value| usize::try_from(v.as_u64()?).ok()?.checked_add(more);
        let layers: Vec<usize> = said.as_array().into_iter().flatten().filter_map(layer).collect();
        let fits = layers.iter().all(|n| *n <= count) && layers.is_sorted_by(|a, b| a < b);
        <[usize; 3]>::try_from(layers).ok().filter(|_| fits).ok_or_else(|| {
            let what = format!("`{IDS}` is {}", show(said));
            self.wrong(what, "it must be three numbers of layers of the model, ascending")
        })
    }

    /// The model's token for each of the draft's; `None` where they are the same.
    fn tokens(&self, fields: &Map<String, Value>) -> Result<Option<Vec<usize>>, FrontendError> {
        let vocab = self.base.facts.vocab;
        let own = self.whole(fields, ["draft_vocab_size"; 2], vocab)?;
        if own == 0 || own > vocab {
            let what = format!("`draft_vocab_size` is {own}, of the model's {vocab} tokens");
            return Err(self.wrong(what, "give a draft that was trained for this model"));
        }
        let Some(name) = TO_TARGET.iter().map(|name| format!("{DRAFT}{name}")).find(|n| self.ckpt.info(n).is_some())
        else {
            return match own == vocab {
                true => Ok(None),
                false => Err(refused(
                    &self.files.tensors,
                    format!(
                        "there is no tensor `d2t`, which says which {own} of the model's {vocab} tokens it guesses"
                    ),
                    "download the draft again, or take another one",
                )),
            };
        };
        let data = self.ckpt.tensor(&name).filter(|t| t.shape == [own]);
        let addends: Option<Vec<i64>> = data.and_then(|t| match t.dtype {
            DType::I64 => Some(t.data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()),
            DType::I32 => Some(t.data.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect()),
            _ => None,
        });
        let targets = addends.and_then(|addends| {
            let target = |(i, n): (usize, i64)| usize::try_from(i64::try_from(i).ok()?.checked_add(n)?).ok();
            addends.into_iter().enumerate().map(target).collect::<Option<Vec<usize>>>()
        });
        let fits = |targets: &Vec<usize>| {
            let different: BTreeSet<&usize> = targets.iter().collect();
            different.len() == own && targets.iter().all(|t| *t < vocab)
        };
        targets.filter(fits).map(Some).ok_or_else(|| {
            refused(
                &self.files.tensors,
                format!("tensor `d2t` does not lead to {own} different tokens of the model's {vocab}"),
                "it must be whole numbers, [draft_vocab_size], to be added to the draft's tokens; download the draft \
                 again",
            )
        })
    }

    /// Whether the draft has a table of embeddings that is another than the model's.
    fn has_own_table(&self) -> bool {
        let names = DrafterNames::Eagle { table: true };
        let own = self.name(names, TABLE, Kind::Table);
        if self.ckpt.info(&own).is_none() {
            return false;
        }
        let model = self.ckpt.own_names().find(|name| name.ends_with("embed_tokens.weight"));
        !model.is_some_and(|model| self.ckpt.equal(&own, model))
    }

    /// A tensor's name among the draft's.
    fn name(&self, names: DrafterNames, part: Part, kind: Kind) -> String {
        own_name(self.ckpt, names, (part, kind), (None, None)).unwrap_or_default()
    }

    /// Whether the draft has a tensor.
    fn has(&self, names: DrafterNames, part: Part, kind: Kind, place: (Option<usize>, Option<usize>)) -> bool {
        own_name(self.ckpt, names, (part, kind), place).is_some_and(|name| self.ckpt.info(&name).is_some())
    }

    /// A whole number by one of two names.
    fn whole(&self, fields: &Map<String, Value>, names: [&str; 2], usual: usize) -> Result<usize, FrontendError> {
        let Some((name, v)) = names.iter().find_map(|name| Some((name, fields.get(*name).filter(|v| !v.is_null())?)))
        else {
            return Ok(usual);
        };
        v.as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .ok_or_else(|| self.wrong(format!("`{name}` is {}", show(v)), "it must be a whole number"))
    }

    /// Holds a size, if the file says it, against the model's.
    fn same(&self, fields: &Map<String, Value>, name: &str, ours: usize, of: &str) -> Result<(), FrontendError> {
        self.agree(name, self.whole(fields, [name; 2], ours)?, ours, of)
    }

    fn agree(&self, name: &str, theirs: usize, ours: usize, of: &str) -> Result<(), FrontendError> {
        match theirs == ours {
            true => Ok(()),
            false => Err(self.wrong(
                format!("`{name}` of the draft is {theirs}, but {of} {ours} ({})", self.class),
                "the draft was trained for another model: give one for this model",
            )),
        }
    }

    /// Refuses fields that nothing reads.
    fn all_known(&self, unread: known::Unread) -> Result<(), FrontendError> {
        let fields: Vec<String> = unread.changes.into_iter().chain(unread.others).collect();
        match fields.is_empty() {
            true => Ok(()),
            false => Err(self.wrong(
                format!("{}, which this kind of draft is not known to have", fields.join(", ")),
                "if it changes what the draft computes, that is not supported; else remove it from the file",
            )),
        }
    }

    fn wrong(&self, what: String, help: &'static str) -> FrontendError {
        refused(&self.files.config_path, what, help)
    }
}

/// The most heads of Medusa: as many as a step may guess.
const MOST_HEADS: usize = 31;
/// The most blocks of one.
const MOST_BLOCKS: usize = 16;
/// Layers of a model, at the least, whose three usual ones are different.
const LEAST_LAYERS: usize = 7;

fn refused(path: &Path, what: String, help: &'static str) -> FrontendError {
    FrontendError::NotACheckpoint { path: path.to_path_buf(), what, help: Cow::Borrowed(help) }
}

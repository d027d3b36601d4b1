//! Architectures: from checked tensors to the graph level.
//!
//! One file per architecture over shared `blocks`, one line in the table [`ARCHS`].

mod altup;
mod attention_residuals;
mod averaged;
mod beyond;
mod blocks;
mod chunks;
mod command;
mod convolved;
mod cosmos3;
mod decoder;
mod defaults;
mod differential;
mod disentangled;
mod disentangled_fields;
mod draft_head;
mod draft_names;
mod drafts;
mod encoder;
mod ends;
mod entry;
mod ernie_decoder;
mod exaone;
mod experts;
mod experts_like;
mod find;
mod gated_layers;
mod gated_linear;
mod gated_linear_fields;
mod gates;
mod gemma4;
mod granite_experts;
mod granite_windows;
mod groups;
mod half_rotated;
mod hunyuan;
mod independent_streams;
mod kimi_delta;
mod latent;
mod latent_decoder;
mod latent_experts;
mod layer;
mod layer_rows;
mod learned_positions;
mod lifter;
mod lightning;
mod limits;
mod linear_unit;
mod mamba_fields;
mod masks;
mod mixed;
mod mixer;
mod mixers;
mod mlp;
mod names;
mod neighbours;
mod nested;
mod norm_gates;
mod olmo_experts;
mod options;
mod origin;
mod other_parts;
mod output;
mod phi_decoder;
mod plain_attention;
mod qwen_experts;
mod recurrent;
mod rotated_kinds;
mod rounded;
mod rounded_inputs;
mod row_sums;
mod rwkv_blocks;
mod scores;
mod selected;
mod selective;
mod shared_block;
mod shared_cache;
mod short_names;
mod short_windows;
mod sines;
mod soft_caps;
mod state_spaces;
mod streams;
mod t5_encoder;
mod tensors;
mod weights;
mod which;
mod windowed_latents;
mod xielu;
mod yields;

use crate::checkpoint::Checkpoint;
use crate::config::fields::{Field, Fields, IDENTITY};
use crate::config::known::{self, Neutral, Unread};
use crate::config::{ConfigError, Facts, common};
use crate::error::FrontendError;
use entry::Shape;
pub use entry::{Arch, REFERENCE, reference};
use find::{Supported, class, first_class, kind};
use lifter::Lifter;
use llmcc_ir::graph::Module;
use llmcc_ir::kv::KvDType;
pub use options::Options;
pub(crate) use origin::Wanted;
use origin::{Origin, Source};
use serde_json::Value;
use state_spaces::translated;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::LazyLock;
use yields::{Entry, Top};

/// Declares the file of each architecture and puts it in the table.
macro_rules! archs {
    ($($(#[$cfg:meta])? mod $name:ident;)*) => {
        $($(#[$cfg])? mod $name;)*

        /// Every supported architecture.
        pub const ARCHS: &[&Arch] = &[$($(#[$cfg])? &$name::ARCH),*];

        #[cfg(test)]
        const FILES: &[&str] = &[$(stringify!($name)),*];
    };
}

archs! {
    mod llama;
    mod mistral;
    mod qwen2;
    mod qwen2_vl_text;
    mod qwen2_5_vl_text;
    mod qwen2_5_omni_text;
    mod qwen3;
    mod qwen3_moe;
    mod flint;
    mod qwen3_vl_text;
    mod qwen3_vl_moe_text;
    mod qwen3_omni_moe_text;
    mod qwen2_moe;
    mod mixtral;
    mod aria_text;
    mod olmoe;
    mod granitemoe;
    mod gpt_oss;
    mod glm4_moe;
    mod granite;
    mod granite4_vision_text;
    mod granite_docling_text;
    mod cosmos3_edge_text;
    mod olmo2;
    mod phi3;
    mod phi4_multimodal_text;
    mod seed_oss;
    mod smollm3;
    mod gemma;
    mod gemma2;
    mod gemma3;
    mod minicpm3;
    mod youtu;
    mod deepseek_v2;
    mod deepseek_ocr2_text;
    mod deepseek_v3;
    mod kimi_k2;
    mod axk1;
    mod axk2;
    mod step3p5;
    mod mistral_large4;
    mod hy_v4;
    mod deepseek_v32;
    mod deepseek_v4;
    mod glm_moe_dsa;
    mod dots3_note_text;
    mod glm5_next_text;
    mod gpt2;
    mod openai_gpt;
    mod gpt_neox;
    mod gpt_neox_japanese;
    mod phi;
    mod starcoder2;
    mod stablelm;
    mod opt;
    mod biogpt;
    mod bert_generation;
    mod xglm;
    mod ctrl;
    mod falcon;
    mod cohere;
    mod cohere2;
    mod cohere2_moe;
    mod cohere_compass_text;
    mod olmo;
    mod olmo3;
    mod glm4;
    mod glm4v_text;
    mod glm4v_moe_text;
    mod glm_ocr_text;
    mod exaone4;
    mod nemotron;
    mod persimmon;
    mod helium;
    mod bert;
    mod roberta;
    mod xlm_roberta;
    mod camembert;
    mod ibert;
    mod electra;
    mod albert;
    mod xlm;
    mod flaubert;
    mod longformer;
    mod big_bird;
    mod distilbert;
    mod ernie;
    mod xlm_roberta_xl;
    mod roberta_prelayernorm;
    mod data2vec_text;
    mod megatron_bert;
    mod rembert;
    mod esm;
    mod mobilebert;
    mod roformer;
    mod t5;
    mod mt5;
    mod umt5;
    mod switch_transformers;
    mod modernbert;
    mod modernbert_decoder;
    mod eurobert;
    mod ultrabert;
    mod esmc;
    mod gte;
    mod jina_bert;
    mod jina_embeddings_v3;
    mod nomic_bert;
    mod neobert;
    mod luke;
    mod deberta;
    mod deberta_v2;
    mod mamba2;
    mod qwen3_5;
    mod lfm2;
    mod bamba;
    mod arcee;
    mod diffllama;
    mod bitnet;
    mod bitllama2c;
    mod internlm3;
    mod iquestcoder;
    mod ministral;
    mod ministral3;
    mod apertus;
    mod glm;
    mod ernie4_5;
    mod paddleocr_vl_text;
    mod gptj;
    mod codegen;
    mod gpt_neo;
    mod hunyuan_v1_dense;
    mod hunyuan_vl_text;
    mod phimoe;
    mod ernie4_5_moe;
    mod ernie4_5_vl_moe_text;
    mod minimax;
    mod minimax_m2;
    mod minimax_m3_vl_text;
    mod hunyuan_v1_moe;
    mod dots1;
    mod flex_olmo;
    mod lfm2_moe;
    mod lfm3;
    mod qwen3_5_moe;
    mod qwen3_next;
    mod qwen4_exp_text;
    mod granitemoeshared;
    mod granite_swa;
    mod granitemoe_swa;
    mod granitemoehybrid;
    mod falcon_h1;
    mod nemotron_h;
    mod llama4_text;
    mod emu3_text_model;
    mod molmo2_text;
    mod mllama_text_model;
    mod glm4_moe_lite;
    mod mistral4;
    mod kimi_linear;
    mod kimi_k3_text;
    mod bailing_hybrid;
    mod afmoe;
    mod dbrx;
    mod kolibri1;
    mod beam;
    mod laguna;
    mod mimo_v2_flash;
    mod muse_glimmer_text;
    mod muse_spark_text;
    mod olmo_hybrid;
    mod gemma4_text;
    mod gemma4_unified_text;
    mod embedding_gemma2_text;
    mod gemma3n_text;
    mod minicpm;
    mod mobilellm;
    mod internlm2;
    mod cwm;
    mod vaultgemma;
    mod gpt_bigcode;
    mod nanochat;
    mod hyperclovax;
    mod jais2;
    mod solar_open;
    mod mellum;
    mod hy_v3;
    mod exaone_moe;
    mod mamba1;
    mod falcon_mamba;
    mod recurrent_gemma;
    mod rwkv;
    mod rwkv5;
    mod rwkv6;
    mod rwkv7;
    mod zamba;
    mod zamba2;
    mod zaya;
    mod xlstm;
    mod jamba;
    mod bloom;
    mod mpt;
    mod baichuan;
    mod mpnet;
    mod longcat_flash;
    mod gla;
    mod retnet;
    mod doge;
    mod jetmoe;
    #[cfg(test)]
    mod dummy;
}

const KNOWN: Supported = Supported(ARCHS);

/// The architecture with a `model_type`.
pub fn by_model_type(name: &str) -> Option<&'static Arch> {
    KNOWN.by_model_type(name)
}

/// A checked `config.json`.
#[derive(Debug)]
pub struct Model {
    /// The architecture.
    pub arch: &'static Arch,
    /// Fields that are not read and not known, each as `name` is value.
    pub unread: Vec<String>,
    /// The longest sequence for which LongRoPE has its short factors, of models that have longer ones.
    pub original_context: Option<usize>,
    shape: Box<dyn Shape>,
    /// A part of a larger model.
    nested: bool,
    /// What its class has on top of its layers.
    top: Top,
    /// Layers after the last, which predict further tokens.
    ahead: usize,
}

impl Model {
    /// Reads and checks a `config.json`.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(json: &Value) -> Result<Model, ConfigError> {
        let whole = &*translated(json.as_object().ok_or(ConfigError::NotAnObject { found: kind(json) })?)?;
        let inside = nested::text_model(whole, |name| by_model_type(name).is_some());
        let plain = plain_attention::translated(inside.as_ref().unwrap_or(whole));
        let map = &*plain;
        let left = RefCell::default();
        let (arch, top) = KNOWN.find(&Fields::new(map, "", &[IDENTITY], &left)?)?;
        let top = match inside.as_ref().map(|_| first_class(whole)) {
            Some(class) => nested::top(class)
                .ok_or_else(|| KNOWN.unknown(arch.model_type, format!("`{}`", class.unwrap_or_default())))?,
            None => top,
        };
        let f = Fields::new(map, "", arch.fields, &left)?.of_part(inside.is_some());
        common::refuse_quantized(&f)?;
        let shape = (arch.read)(&f)?;
        if !shape.yields().suits(top) {
            let named = class(&f).or_else(|| first_class(whole)).unwrap_or_default();
            let found = format!("`{named}` of `{}`", arch.model_type);
            return Err(KNOWN.unknown(arch.model_type, found));
        }
        f.leave(known::unread(map, |name| f.reads(name), arch.fixed, elsewhere));
        let Unread { changes, others: mut unread, original_context } = left.take();
        let nested = inside.is_some();
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

    /// What is known of any model.
    pub fn facts(&self) -> &Facts {
        self.shape.facts()
    }

    /// The graph of a checkpoint that has whatever is asked for, in bf16, and the tensors that are,
    /// in the order of their use.
    ///
    /// # Errors
    /// When the configuration makes no graph.
    pub(crate) fn imagined(&self) -> Result<(Module, Vec<Wanted>), FrontendError> {
        let (module, source) =
            self.lift(Source::Wanted(vec![]), Entry::imagined(&*self.shape), KvDType::F16, self.facts().max_position)?;
        match source {
            Source::Wanted(list) => Ok((module, list)),
            Source::Checkpoint(_) => Ok((module, vec![])),
        }
    }

    fn lift<'a>(
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

    fn origin<'a>(&'a self, source: Source<'a>) -> Origin<'a> {
        let (names, class, model_type) = (self.arch.names, self.arch.class, self.arch.model_type);
        Origin { source, facts: self.facts(), names, class, model_type, nested: self.nested }
    }
}

/// What a field that other architectures read must be for one that does not.
fn elsewhere(name: &str) -> Option<Neutral> {
    static RULES: LazyLock<HashMap<&'static str, Neutral>> = LazyLock::new(|| {
        let names =
            |f: &'static Field| std::iter::once(f.name).chain(f.also.iter().copied()).map(|name| (name, f.neutral));
        // Of several architectures the first counts.
        ARCHS.iter().rev().flat_map(|a| a.fields.iter().rev().copied().flatten()).flat_map(names).collect()
    });
    RULES.get(name).copied()
}

/// The fixtures of `tests/goldens` that hold architectures against Transformers.
pub fn goldens() -> impl Iterator<Item = &'static str> {
    ARCHS.iter().flat_map(|a| a.goldens).copied()
}

/// Reads and checks the `config.json` of a checkpoint.
///
/// # Errors
/// When it describes something impossible or unsupported.
pub fn config(ckpt: &Checkpoint) -> Result<Model, FrontendError> {
    let settled = nested::settled(ckpt, |name| by_model_type(name).is_some());
    Model::parse(settled.as_ref().unwrap_or(ckpt.config())).map_err(|source| ckpt.wrong_config(source))
}

/// Builds the graph of a checkpoint. Reads no tensor data.
///
/// # Errors
/// When the configuration is unsupported, or a tensor is missing or has another shape or type than
/// needed.
pub fn lift(ckpt: &Checkpoint, options: &Options) -> Result<Module, FrontendError> {
    let model = config(ckpt)?;
    let most = model.facts().max_position;
    let max_context = match options.max_context {
        Some(asked) if asked == 0 || asked > most => return Err(FrontendError::Context { asked, most }),
        asked => asked.unwrap_or(most),
    };
    let entry = match options.draft_head {
        Some(number) => draft_head::entry(ckpt, &model, number)?,
        None => output::entry(ckpt, &model, options)?,
    };
    let wants_hidden = entry.hidden;
    let (module, _) = model.lift(Source::Checkpoint(ckpt), entry, options.kv_dtype, max_context)?;
    if wants_hidden && module.hidden.is_none() {
        return Err(output::without_hidden(ckpt, model.arch.class));
    }
    Ok(module)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::dummy_config;

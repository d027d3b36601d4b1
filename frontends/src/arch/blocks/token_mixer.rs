//! The first block of a layer: attention, or a mixer in its place or beside it.

use crate::arch::blocks::attention::{Form, HeadForm, Norm, ScoreForm, attention, scaled};
use crate::arch::blocks::differential_attention;
use crate::arch::blocks::indexer::Indexer;
use crate::arch::blocks::latent_attention::{self, Latent, Over};
use crate::arch::blocks::layer::{Beside, Half, Layer};
use crate::arch::blocks::lifter::{Carried, Draft};
use crate::arch::blocks::shared_kv::attention_over;
use llmcc_ir::graph::{Input, Value};

/// The inputs of a layer's first block beside a row.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    rope: Option<Value>,
    attended: Option<Attended>,
    /// The tokens that an earlier layer has selected.
    selection: Option<Value>,
}

/// The sequence state that attention reads.
#[derive(Clone, Copy)]
struct Attended {
    positions: Value,
    kv: Value,
}

impl Context {
    /// That of a layer.
    pub(crate) fn of(f: &mut Draft, spec: &Layer, ropes: &[Carried]) -> Context {
        let a = &spec.attention;
        let mixes = spec.mixer.filter(|_| spec.beside.is_none());
        let rotates = spec.only != Some(Half::Second) && mixes.is_none_or(|m| m.rotates());
        let rope = a.rotary.filter(|_| rotates).and_then(|table| ropes.get(table)).map(|rope| f.carried("rope", rope));
        if mixes.is_some() || spec.only == Some(Half::Second) {
            return Context { rope, attended: None, selection: None };
        }
        let positions = f.input(Input::Positions);
        let kv = match (&a.form, spec.shares) {
            (_, Some(of)) => f.kv_of("kv", of),
            (Form::Latent(l), None) => f.latent_kv("kv", (l.rope + l.kv_rank, l.kv_rank), a.window),
            (Form::Heads(_), None) => f.kv("kv", a.heads.kv, (a.heads.dim, a.value_dim()), a.window),
        };
        Context { rope, attended: Some(Attended { positions, kv }), selection: None }
    }

    /// The same for a layer that reads the tokens which an earlier one has selected, if it is such a layer.
    pub(crate) fn selecting(self, f: &mut Draft, spec: &Layer, selection: Option<&Carried>) -> Context {
        let shared = |i: &Indexer| i.shared && i.selects(f);
        let reads = matches!(&spec.attention.form, Form::Latent(Latent { indexer: Some(i), .. }) if shared(i));
        let selection = selection.filter(|_| reads).map(|s| f.carried("selection", s));
        Context { selection, ..self }
    }
}

/// The output for a row `h` of attention, or of the mixer in its place or beside it.
pub(crate) fn mixed(f: &mut Draft, eps: Norm, spec: &Layer, context: Context, h: Value) -> Value {
    selecting(f, eps, spec, context, h).0
}

/// The same, and the tokens that attention reads, where those are not all.
pub(crate) fn selecting(f: &mut Draft, eps: Norm, spec: &Layer, context: Context, h: Value) -> (Value, Option<Value>) {
    let (a, rope, selection) = (&spec.attention, context.rope, context.selection);
    let attended = |f: &mut Draft, Attended { positions, kv }, h| match &a.form {
        Form::Latent(latent) => {
            let over = Over { stored: spec.shares.is_some(), kv, positions, rope, selection };
            latent_attention::attention(f, (a, latent), eps, h, over)
        }
        Form::Heads(_) if spec.shares.is_some() => (attention_over(f, a, eps, h, kv, positions, rope), None),
        Form::Heads(HeadForm { scores: ScoreForm::Differential(first), .. }) => {
            (differential_attention::attention(f, (a, *first), eps, h, kv, positions, rope), None)
        }
        Form::Heads(_) => (attention(f, a, eps, h, kv, positions, rope), None),
    };
    match (&spec.mixer, context.attended) {
        (Some(mixer), Some(over)) => {
            let Beside { into, out, mixer: of_mixer } = spec.beside.unwrap_or(Beside::PLAIN);
            let y = mixer.mix(f, eps, None, h);
            let y = scaled(f, y, of_mixer);
            let h = scaled(f, h, into);
            let (z, selected) = attended(f, over, h);
            let z = scaled(f, z, out);
            (f.add(y, z), selected)
        }
        (Some(mixer), None) => (mixer.mix(f, eps, rope, h), None),
        (None, Some(over)) => attended(f, over, h),
        (None, None) => (f.stop(), None),
    }
}

//! The first block of a layer: attention, or a mixer in its place or beside it.

use super::blocks::{Norm, attention, scaled};
use super::latent;
use super::layer::{Beside, Half, Layer};
use super::lifter::{Carried, Draft};
use super::shared_cache::attention_over;
use llmcc_ir::graph::{Input, Value};

/// What attention reads beside a row.
#[derive(Clone, Copy)]
pub(super) struct Context {
    rope: Option<Value>,
    positions: Value,
    kv: Value,
}

impl Context {
    /// That of a layer; nothing where it has no attention.
    pub(super) fn of(f: &mut Draft, spec: &Layer, ropes: &[Carried]) -> Option<Context> {
        let a = &spec.attention;
        if spec.mixer.is_some() && spec.beside.is_none() || spec.only == Some(Half::Second) {
            return None;
        }
        let rope = a.rotary.and_then(|table| ropes.get(table)).map(|rope| f.carried("rope", rope));
        let positions = f.input(Input::Positions);
        let kv = match (&a.latent, spec.shares) {
            (_, Some(of)) => f.kv_of("kv", of),
            (Some(l), None) => f.latent_kv("kv", (l.rope + l.kv_rank, l.kv_rank), a.window),
            (None, None) => f.kv("kv", a.heads.kv, a.heads.dim, a.window),
        };
        Some(Context { rope, positions, kv })
    }
}

/// What attention makes of a row `h`, or the mixer in its place or beside it.
pub(super) fn mixed(f: &mut Draft, eps: Norm, spec: &Layer, context: Option<Context>, h: Value) -> Value {
    let a = &spec.attention;
    let attended = |f: &mut Draft, Context { rope, positions, kv }, h| match &a.latent {
        _ if spec.shares.is_some() => attention_over(f, a, eps, h, kv, positions, rope),
        Some(latent) => latent::attention(f, (a, latent), eps, h, kv, positions, rope),
        None => attention(f, a, eps, h, kv, positions, rope),
    };
    match (&spec.mixer, context) {
        (Some(mixer), Some(context)) => {
            let Beside { into, out, mixer: of_mixer } = spec.beside.unwrap_or(Beside::PLAIN);
            let y = mixer.mix(f, eps, h);
            let y = scaled(f, y, of_mixer);
            let h = scaled(f, h, into);
            let z = attended(f, context, h);
            let z = scaled(f, z, out);
            f.add(y, z)
        }
        (Some(mixer), None) => mixer.mix(f, eps, h),
        (None, Some(context)) => attended(f, context, h),
        (None, None) => f.stop(),
    }
}

//! The cost model's prediction for each kernel, as it stands in the manifest: enough for `llmcc
//! bench` to compare with its measurements.

use crate::lowered::Version;
use llmcc_codegen::artifact;
use llmcc_ir::output::{Output, Pool};
use llmcc_ir::plan::{Launch, Plan, Regime};
use llmcc_ir::target::{RowKind, TargetSpec};
use llmcc_ir::ty::{Dim, Env};
use llmcc_passes::cost::work;
use llmcc_passes::cost::{CONTEXT, seconds_at};
use serde::{Deserialize, Serialize};

/// Largest step that is predicted: as many tokens as the runtime takes through the kernels at once.
const LARGEST: usize = 512;

/// Predictions of an artifact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// Seconds of a step of one token.
    pub decode_seconds: f64,
    /// A text, of a model that makes rows of texts and does not write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    /// The machine they are for.
    pub machine: Machine,
    /// By regime and kernel, in plan order.
    pub kernels: Vec<KernelCost>,
}

/// Rates of the target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub target: String,
    /// Cores assumed.
    pub cores: usize,
    /// Bytes per second of main memory.
    pub memory: f64,
    /// f32 multiply-adds per second and core.
    pub f32_macs: f64,
    /// Multiply-adds of 8-bit rows (int8, fp8) per second and core; 0 where it multiplies none.
    pub int8_macs: f64,
}

/// A text that becomes one row: an embedding, scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Text {
    /// Its tokens.
    pub tokens: usize,
    /// Predicted seconds of the step that computes it alone.
    pub seconds: f64,
}

/// Predictions for one kernel in one regime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelCost {
    /// Largest step of the regime; -1: any.
    pub regime: i64,
    /// Kernel.
    pub kernel: String,
    /// Whether its rows are the logits' rows, not the tokens'.
    pub of_logits: bool,
    /// Multiply-adds per second and core of the kind that it does, at most.
    pub peak: f64,
    /// Ascending by [`Point::m`].
    pub points: Vec<Point>,
}

/// One launch with `m` rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Rows.
    pub m: f64,
    /// Predicted µs with nothing to attend to.
    pub us: f64,
    /// More for every token of context.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub us_per_context: f64,
    /// Bytes from memory, without context.
    pub bytes: f64,
    /// More for every token of context.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_per_context: f64,
    /// Multiply-adds, without context.
    pub macs: f64,
    /// More for every token of context.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub macs_per_context: f64,
}

fn is_zero(v: &f64) -> bool {
    *v == 0.0
}

/// The predictions for a plan on its target.
pub fn predict(v: &Version) -> Predicted {
    let (plan, target, decode_seconds) = (&v.compiled.plan, v.target, v.compiled.predicted_decode_seconds());
    let machine = Machine {
        target: target.name.into(),
        cores: target.cores,
        memory: target.memory,
        f32_macs: target.macs(RowKind::F32),
        int8_macs: target.macs(RowKind::Int8).max(target.macs(RowKind::Fp8)),
    };
    let mut kernels = vec![];
    let mut smallest = 1;
    for regime in plan.regimes_of(0) {
        let largest = regime.max_tokens.unwrap_or(LARGEST).max(smallest);
        kernels.extend(of_regime(plan, regime, target, smallest, largest));
        smallest = largest + 1;
    }
    Predicted { decode_seconds, text: text(v), machine, kernels }
}

/// The prediction for a text, of a model that makes rows of texts.
pub fn text(v: &Version) -> Option<Text> {
    let plan = &v.compiled.plan;
    let Output::Rows(output) = plan.output() else { return None };
    let tokens = LARGEST.min(plan.info.max_context.max(1));
    let regime = plan.regime_for(0, tokens)?;
    let rows = if matches!(output.pool, Pool::First | Pool::Last) { 1 } else { tokens };
    // Attention of a token is over the tokens before it, or over all.
    let context = if artifact::whole(plan, 0) { tokens } else { tokens / 2 };
    let seconds = |l: &Launch| {
        let kernel = plan.kernels.get(l.kernel)?;
        Some(seconds_at(kernel, v.target, Env { tokens, rows }, context))
    };
    Some(Text { tokens, seconds: regime.launches.iter().filter_map(seconds).sum() })
}

/// The predicted speed in words.
pub fn speed(v: &Version) -> String {
    in_words(text(v), v.compiled.predicted_decode_seconds())
}

/// The same of a manifest.
pub fn in_words(text: Option<Text>, decode_seconds: f64) -> String {
    match text {
        Some(Text { tokens, seconds }) => format!(
            "{:.1} texts/s of {tokens} tokens one by one, {:.0} tokens/s",
            1.0 / seconds,
            tokens as f64 / seconds
        ),
        None => format!("{:.1} tokens/s at batch 1", 1.0 / decode_seconds),
    }
}

fn of_regime(plan: &Plan, regime: &Regime, target: &TargetSpec, smallest: usize, largest: usize) -> Vec<KernelCost> {
    let mut seen = vec![];
    for l in &regime.launches {
        if !seen.contains(&l.kernel) {
            seen.push(l.kernel);
        }
    }
    let any = regime.max_tokens.is_none();
    let cost = |index: &usize| {
        let kernel = plan.kernels.get(*index)?;
        let of_logits = kernel.rows == Dim::Rows;
        // Short steps decode a token of each of several sequences; long ones are prompts.
        let env = |m: usize| Env { tokens: m, rows: if any && !of_logits { 1 } else { m } };
        let point = |m: usize| {
            let (base, more) = (seconds_at(kernel, target, env(m), 0), seconds_at(kernel, target, env(m), CONTEXT));
            let (w0, w1) = (work(kernel, env(m), 0), work(kernel, env(m), CONTEXT));
            let each = |a: f64, b: f64| (b - a) / CONTEXT as f64;
            Point {
                m: m as f64,
                us: base * 1e6,
                us_per_context: each(base, more) * 1e6,
                bytes: w0.bytes,
                bytes_per_context: each(w0.bytes, w1.bytes),
                macs: w0.macs,
                macs_per_context: each(w0.macs, w1.macs),
            }
        };
        let sizes = sizes(if of_logits { 1 } else { smallest }, largest);
        Some(KernelCost {
            regime: regime.max_tokens.map_or(-1, |m| m as i64),
            kernel: kernel.name.clone(),
            of_logits,
            peak: work(kernel, env(1), 0).peak(target),
            points: sizes.into_iter().map(point).collect(),
        })
    };
    seen.iter().filter_map(cost).collect()
}

/// Both ends and the powers of two between.
fn sizes(smallest: usize, largest: usize) -> Vec<usize> {
    let mut all = vec![smallest];
    let mut next = (smallest + 1).next_power_of_two();
    while next < largest {
        all.push(next);
        next *= 2;
    }
    all.extend((largest > smallest).then_some(largest));
    all
}

impl KernelCost {
    /// A launch with `m` rows: between the points by proportion, beyond the last as if costs grew
    /// in proportion to the rows.
    pub fn at(&self, m: f64) -> Point {
        let after = self.points.iter().position(|p| p.m >= m);
        match (after, self.points.last()) {
            (Some(0), _) => self.points[0].scaled(m / self.points[0].m, m),
            (Some(i), _) => {
                let (a, b) = (self.points[i - 1], self.points[i]);
                a.towards(&b, (m - a.m) / (b.m - a.m))
            }
            (None, Some(last)) => last.scaled(m / last.m, m),
            (None, None) => Point::default(),
        }
    }
}

impl Point {
    fn scaled(&self, by: f64, m: f64) -> Point {
        if by == 1.0 {
            return *self;
        }
        // Weights are read once whatever the rows.
        Point {
            m,
            us: self.us * by.max(1.0),
            us_per_context: self.us_per_context * by,
            macs: self.macs * by,
            macs_per_context: self.macs_per_context * by,
            ..*self
        }
    }

    fn towards(&self, b: &Point, by: f64) -> Point {
        let mix = |x: f64, y: f64| x + (y - x) * by;
        Point {
            m: mix(self.m, b.m),
            us: mix(self.us, b.us),
            us_per_context: mix(self.us_per_context, b.us_per_context),
            bytes: mix(self.bytes, b.bytes),
            bytes_per_context: mix(self.bytes_per_context, b.bytes_per_context),
            macs: mix(self.macs, b.macs),
            macs_per_context: mix(self.macs_per_context, b.macs_per_context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_cover_a_regime() {
        assert_eq!(sizes(1, 4), [1, 2, 4]);
        assert_eq!(sizes(5, 32), [5, 8, 16, 32]);
        assert_eq!(sizes(33, 512), [33, 64, 128, 256, 512]);
        assert_eq!(sizes(1, 1), [1]);
    }

    #[test]
    fn predictions_between_and_beyond_points() {
        let point = |m: f64, us: f64| Point { m, us, bytes: 10.0, macs: m, us_per_context: m, ..Point::default() };
        let k = KernelCost { points: vec![point(2.0, 10.0), point(4.0, 30.0)], ..KernelCost::default() };
        assert_eq!(k.at(2.0), point(2.0, 10.0));
        assert_eq!(k.at(3.0), point(3.0, 20.0));
        assert_eq!(k.at(8.0), point(8.0, 60.0));
        assert_eq!(k.at(1.0), Point { us: 10.0, ..point(1.0, 10.0) });
        assert_eq!(KernelCost::default().at(1.0), Point::default());
    }
}

//! Taps of an image's entries: inputs of products that a caller may see.

use std::ops::Range;

use llmcc_abi::{BufferDesc, NO_EXPERT, RegimeDesc, StepDesc, TapDesc, TappedWeightDesc, route, rows, tap_flags};

use super::segment::{Tables, check_text, damaged, table, text_of};
use crate::error::Result;

/// Rows that products of an entry multiply, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Names of the weights that multiply them, and the only expert that each belongs to.
    pub weights: Vec<(String, Option<usize>)>,
    /// Columns of a product's input.
    pub columns: usize,
    /// Their buffer.
    pub buffer: usize,
    /// The call at whose end they are there.
    pub call: u32,
    /// They are rows that the caller asks for, instead of rows of all tokens.
    pub requested: bool,
    /// The experts that they are for.
    pub routes: Option<Routes>,
}

/// The experts that the rows of a tap are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routes {
    /// Buffer of the routes.
    pub buffer: usize,
    /// Experts.
    pub experts: usize,
    /// Experts of a token.
    pub top: usize,
    /// A row has an input for each of the token's experts.
    pub apart: bool,
}

impl Tap {
    /// Columns of the rows.
    pub fn width(&self) -> usize {
        self.columns * self.routes.filter(|r| r.apart).map_or(1, |r| r.top)
    }

    /// Experts of the products; 1 where they are the same for all tokens.
    pub fn experts(&self) -> usize {
        self.routes.map_or(1, |r| r.experts)
    }

    /// Whether a caller sees no difference.
    pub(super) fn is_like(&self, other: &Tap) -> bool {
        let seen = |t: &Tap| (t.columns, t.call, t.requested, t.routes.map(|r| (r.experts, r.top, r.apart)));
        self.weights == other.weights && seen(self) == seen(other)
    }

    /// Reads the taps of the entry that is called `name` and checks them.
    pub(super) fn read_all(tables: &Tables, name: &str, descs: &[TapDesc]) -> Result<Vec<Tap>> {
        if !descs.is_sorted_by_key(|t| t.call) {
            return Err(damaged(format_args!("the taps of entry `{name}` are out of order")));
        }
        descs.iter().map(|t| Tap::read(tables, name, t)).collect()
    }

    fn read(tables: &Tables, name: &str, t: &TapDesc) -> Result<Tap> {
        let wrong = || damaged(format_args!("a tap of entry `{name}`: {t:?}"));
        let routed = t.experts > 0;
        let apart = t.flags & tap_flags::APART != 0;
        let sizes = (1..=i32::MAX as u64).contains(&t.columns)
            && t.flags & !tap_flags::APART == 0
            && (t.rows == rows::TOKENS || t.rows == rows::OUT)
            && if routed {
                t.experts as usize <= route::MOST_EXPERTS
                    && (1..=t.experts).contains(&t.top)
                    && t.top as usize <= route::MOST_CHOSEN
            } else {
                (t.top, t.routes, apart) == (0, 0, false)
            };
        if !sizes {
            return Err(wrong());
        }
        let routes = Routes { buffer: t.routes as usize, experts: t.experts as usize, top: t.top as usize, apart };
        let tap = Tap {
            weights: weights(tables, t)?,
            columns: t.columns as usize,
            buffer: t.buffer as usize,
            call: t.call,
            requested: t.rows == rows::OUT,
            routes: routed.then_some(routes),
        };
        let routes = tap.routes.map(|r| (r.buffer, 2 * r.top));
        for (buffer, columns) in [Some((tap.buffer, tap.width())), routes].into_iter().flatten() {
            if tables.buffers.get(buffer).is_none_or(|b| room(b, tap.requested) < 4 * columns as u64) {
                return Err(wrong());
            }
        }
        if tap.weights.is_empty() || tap.weights.iter().any(|(_, e)| e.is_some_and(|e| !routed || e >= tap.experts())) {
            return Err(wrong());
        }
        Ok(tap)
    }
}

/// Bytes of a buffer for each row: there is room per token for the rows that are asked for, too.
fn room(b: &BufferDesc, requested: bool) -> u64 {
    if requested { b.per_token.saturating_add(b.per_row) } else { b.per_token }
}

fn weights(tables: &Tables, t: &TapDesc) -> Result<Vec<(String, Option<usize>)>> {
    let descs = table::<TappedWeightDesc>(tables.data, t.weights, "tapped weights")?;
    let weight = |w: &TappedWeightDesc| {
        check_text(tables.data, w.name, "name of a tapped weight")?;
        let expert = (w.expert != NO_EXPERT).then(|| usize::try_from(w.expert).unwrap_or(usize::MAX));
        Ok((text_of(tables.data, w.name).to_string(), expert))
    };
    descs.iter().map(weight).collect()
}

/// Where the parts of a regime end after which taps are read: for each call that has taps the steps from the part
/// before on, and its taps; then the rest.
pub fn parts(regime: &RegimeDesc, steps: &[StepDesc], taps: &[Tap]) -> Vec<(Range<usize>, Range<usize>)> {
    let all = regime.first_step as usize..(regime.first_step + regime.steps) as usize;
    let (mut parts, mut from, mut tap) = (vec![], all.start, 0);
    for of_call in taps.chunk_by(|a, b| a.call == b.call) {
        let to = all.start + steps[all.clone()].partition_point(|s| s.layer <= of_call[0].call);
        parts.push((from..to, tap..tap + of_call.len()));
        (from, tap) = (to, tap + of_call.len());
    }
    if from < all.end {
        parts.push((from..all.end, tap..tap));
    }
    parts
}

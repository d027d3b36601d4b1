//! A picture of a frontier: divergence by bits, in SVG.

use crate::budget::frontier::Point;
use crate::chart::{self, Axes, Chart, Scale, color};
use crate::{Error, template};
use serde::Serialize;

const TEMPLATE: &str = include_str!("picture.svg");

#[derive(Serialize)]
struct Picture<'a> {
    title: &'a str,
    c: Chart,
}

/// The picture: a line through the mixtures, and a named dot for each uniform format. Points without a divergence have
/// no place on its scale.
///
/// # Errors
/// A template that is wrong.
pub fn svg(title: &str, points: &[Point]) -> Result<String, Error> {
    let shown: Vec<&Point> = points.iter().filter(|p| p.kl() > 0.0).collect();
    let bits = || shown.iter().map(|p| p.bits);
    let low = bits().fold(f64::INFINITY, f64::min).min(16.0).floor();
    let high = bits().fold(low + 1.0, f64::max).ceil();
    let axes = Axes {
        x: Scale::whole(low as i64, high as i64, |n| n.to_string()),
        y: Scale::log(shown.iter().map(|p| p.kl())),
    };
    let mixtures: Vec<(f64, f64)> = shown.iter().filter(|p| p.uniform.is_none()).map(|p| (p.bits, p.kl())).collect();
    let dot = |p: &&Point| {
        let name = p.uniform.clone().unwrap_or_default();
        let kind = if name.is_empty() { "mixture" } else { &name };
        let label = format!("{kind}: {:.3} bits, KL {:.6}", p.bits, p.kl());
        chart::Point { at: (p.bits, p.kl()), color: color(if name.is_empty() { 0 } else { 3 }), label, name }
    };
    template::filled(TEMPLATE, &Picture { title, c: axes.chart(shown.iter().map(dot), &mixtures) })
}

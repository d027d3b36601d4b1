//! A picture of a frontier: divergence by bits, in SVG.

use crate::budget::frontier::Point;
use std::fmt::Write;

/// Size of the picture, and of its margins.
const SIZE: (f64, f64) = (760.0, 460.0);
const MARGIN: (f64, f64) = (70.0, 50.0);

/// Places of points in the picture: bits on a linear scale, divergences on a logarithmic one.
struct Scale {
    bits: (f64, f64),
    /// Powers of ten.
    kl: (f64, f64),
}

impl Scale {
    fn of(points: &[&Point]) -> Scale {
        let ends = |of: fn(&Point) -> f64| {
            let low = points.iter().map(|p| of(p)).fold(f64::INFINITY, f64::min);
            let high = points.iter().map(|p| of(p)).fold(f64::NEG_INFINITY, f64::max);
            (low.floor(), high.ceil().max(low.floor() + 1.0))
        };
        Scale { bits: ends(|p| p.bits), kl: ends(|p| p.kl().log10()) }
    }

    fn x(&self, bits: f64) -> f64 {
        MARGIN.0 + (SIZE.0 - 2.0 * MARGIN.0) * (bits - self.bits.0) / (self.bits.1 - self.bits.0)
    }

    fn y(&self, log: f64) -> f64 {
        SIZE.1 - MARGIN.1 - (SIZE.1 - 2.0 * MARGIN.1) * (log - self.kl.0) / (self.kl.1 - self.kl.0)
    }

    fn place(&self, p: &Point) -> (f64, f64) {
        (self.x(p.bits), self.y(p.kl().log10()))
    }
}

/// The picture: a line through the mixtures, and a named dot for each uniform format. Points without a divergence have
/// no place on its scale.
pub fn svg(title: &str, points: &[Point]) -> String {
    let shown: Vec<&Point> = points.iter().filter(|p| p.kl() > 0.0).collect();
    let (width, height) = SIZE;
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{:.0}\" y=\"24\" text-anchor=\"middle\" font-size=\"14\">{}</text>\n",
        width / 2.0,
        escaped(title)
    );
    if !shown.is_empty() {
        let scale = Scale::of(&shown);
        s += &grid(&scale);
        s += &mixtures(&scale, &shown);
        s += &uniform(&scale, &shown);
    }
    s + "</svg>\n"
}

fn grid(scale: &Scale) -> String {
    let ((left, right), (top, bottom)) = ((MARGIN.0, SIZE.0 - MARGIN.0), (MARGIN.1, SIZE.1 - MARGIN.1));
    let mut s = String::new();
    for power in scale.kl.0 as i32..=scale.kl.1 as i32 {
        let y = scale.y(f64::from(power));
        let _ = writeln!(
            s,
            "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#ddd\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">1e{power}</text>",
            left - 6.0,
            y + 4.0
        );
    }
    for bits in scale.bits.0 as i32..=scale.bits.1 as i32 {
        let x = scale.x(f64::from(bits));
        let _ = writeln!(
            s,
            "<path d=\"M{x:.1} {top}V{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{bits}</text>",
            bottom + 16.0
        );
    }
    let _ = writeln!(
        s,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">bits per weight</text>\
         <text transform=\"translate(18 {:.0}) rotate(-90)\" text-anchor=\"middle\">KL, nats per token</text>",
        SIZE.0 / 2.0,
        SIZE.1 - 12.0,
        SIZE.1 / 2.0
    );
    s
}

fn mixtures(scale: &Scale, points: &[&Point]) -> String {
    let places: Vec<(f64, f64)> = points.iter().filter(|p| p.uniform.is_none()).map(|p| scale.place(p)).collect();
    let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut s = format!("<polyline points=\"{}\" fill=\"none\" stroke=\"#1b6ac9\"/>\n", line.join(" "));
    for (x, y) in places {
        let _ = writeln!(s, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"#1b6ac9\"/>");
    }
    s
}

fn uniform(scale: &Scale, points: &[&Point]) -> String {
    let mut s = String::new();
    for (p, name) in points.iter().filter_map(|p| Some((p, p.uniform.as_ref()?))) {
        let (x, y) = scale.place(p);
        let _ = writeln!(
            s,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"#c0392b\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#c0392b\">{}</text>",
            x + 6.0,
            y - 6.0,
            escaped(name)
        );
    }
    s
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

//! Charts: places of points on scales, which the template `chart.svg` draws.

use serde::Serialize;

/// Width and height, and the margins around the plot.
const SIZE: (f64, f64) = (760.0, 340.0);
const MARGIN: (f64, f64) = (80.0, 30.0);

/// Colours that are told apart, for as many kinds of things.
const COLORS: [&str; 8] = ["#3b82c4", "#e08a2e", "#4aa564", "#c04f4f", "#8a63b8", "#8c6d4f", "#d07aa8", "#7f7f7f"];

/// The colour of the `i`th kind.
pub fn color(i: usize) -> &'static str {
    COLORS[i % COLORS.len()]
}

/// A chart, ready to be drawn.
#[derive(Debug, Default, Serialize)]
pub struct Chart {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    rows: Vec<Line>,
    columns: Vec<Line>,
    points: Vec<Dot>,
    /// Places of a line, as SVG has them; empty: none.
    line: String,
}

/// A line of the grid.
#[derive(Debug, Serialize)]
pub struct Line {
    at: f64,
    label: String,
}

/// A point.
#[derive(Debug, Serialize)]
pub struct Dot {
    x: f64,
    y: f64,
    color: &'static str,
    /// Shown when it is pointed at.
    label: String,
    /// Shown beside it.
    name: String,
}

/// A point to be drawn.
pub struct Point {
    /// On both axes.
    pub at: (f64, f64),
    /// CSS colour.
    pub color: &'static str,
    /// Shown when it is pointed at.
    pub label: String,
    /// Shown beside it.
    pub name: String,
}

/// A scale: values and their labels at lines of the grid, and whether distances are ratios.
pub struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
    lines: Vec<(f64, String)>,
}

impl Scale {
    /// Whole numbers, with their names.
    pub fn whole(low: i64, high: i64, name: impl Fn(i64) -> String) -> Scale {
        let step = (high - low) / 16 + 1;
        let lines = (low..=high).filter(|n| *n < 0 || n % step == 0).map(|n| (n as f64, name(n))).collect();
        Scale { low: low as f64 - 0.5, high: high as f64 + 0.5, is_log: false, lines }
    }

    /// Powers of ten around positive values.
    pub fn log(values: impl Iterator<Item = f64>) -> Scale {
        let logs: Vec<f64> = values.filter(|v| *v > 0.0 && v.is_finite()).map(f64::log10).collect();
        let low = logs.iter().copied().fold(f64::INFINITY, f64::min).min(300.0).floor();
        let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max).max(low + 1.0).ceil();
        let step = ((high - low) / 8.0).ceil().max(1.0) as i64;
        let lines = (low as i64..=high as i64).step_by(step as usize).map(|p| (10f64.powi(p as i32), format!("1e{p}")));
        Scale { low, high, is_log: true, lines: lines.collect() }
    }

    /// The place of a value: 0 is the low end, 1 the high one.
    fn share(&self, value: f64) -> f64 {
        let value = if self.is_log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// Axes of a chart.
pub struct Axes {
    /// From left to right.
    pub x: Scale,
    /// From bottom to top.
    pub y: Scale,
}

impl Axes {
    /// A chart of points, with a line through some places.
    pub fn chart(&self, points: impl Iterator<Item = Point>, line: &[(f64, f64)]) -> Chart {
        let grid = |at: f64, label: &String| Line { at, label: label.clone() };
        let dot = |Point { at, color, label, name }: Point| {
            let (x, y) = self.place(at);
            Dot { x, y, color, label, name }
        };
        let places = line.iter().map(|v| self.place(*v)).map(|(x, y)| format!("{x},{y}"));
        Chart {
            width: SIZE.0,
            height: SIZE.1,
            left: MARGIN.0,
            right: SIZE.0 - MARGIN.0,
            top: MARGIN.1,
            bottom: SIZE.1 - MARGIN.1,
            rows: self.y.lines.iter().map(|(v, label)| grid(self.place((0.0, *v)).1, label)).collect(),
            columns: self.x.lines.iter().map(|(v, label)| grid(self.place((*v, 0.0)).0, label)).collect(),
            points: points.map(dot).collect(),
            line: places.collect::<Vec<_>>().join(" "),
        }
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let tenth = |v: f64| (v * 10.0).round() / 10.0;
        let (width, height) = (SIZE.0 - 2.0 * MARGIN.0, SIZE.1 - 2.0 * MARGIN.1);
        (tenth(MARGIN.0 + width * self.x.share(x)), tenth(SIZE.1 - MARGIN.1 - height * self.y.share(y)))
    }
}

//! `llmcc bench --kernels`: measured against predicted time, kernel by kernel.

use crate::predicted::{KernelCost, Machine, Point, Predicted};
use crate::report::count;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Time per `(regime, kernel)`, all layers together: calls and µs.
pub type Times = BTreeMap<(i64, String), (u64, f64)>;

/// One pass through the kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Tokens.
    pub tokens: usize,
    /// Logits rows.
    pub rows: usize,
    /// Tokens that a token attends to, on average.
    pub context: f64,
}

/// A measurement: the steps that ran, and one profile per repetition.
pub struct Measured {
    /// For the heading.
    pub title: String,
    /// Passes of one repetition.
    pub shapes: Vec<Shape>,
    /// Profiles.
    pub times: Vec<Times>,
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    regime: i64,
    kernel: String,
    /// Calls in one repetition.
    calls: u64,
    /// Median over the repetitions.
    us: f64,
    predicted: Option<Prediction>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Prediction {
    us: f64,
    /// GB/s or GOP/s reached, and the share of the target's; `None` for work in the caches.
    rate: Option<(f64, &'static str, f64)>,
}

/// The profile of an artifact (`llmcc_stats`) so far.
pub fn times(stats: &str) -> Times {
    let stats: Value = serde_json::from_str(stats).unwrap_or_default();
    let mut by = Times::new();
    for step in stats["profile"]["steps"].as_array().into_iter().flatten() {
        let key = (step["regime"].as_i64().unwrap_or(-1), step["kernel"].as_str().unwrap_or("?").to_owned());
        let sum = by.entry(key).or_default();
        sum.0 += step["calls"].as_u64().unwrap_or(0);
        sum.1 += step["ns"].as_f64().unwrap_or(0.0) * 1e-3;
    }
    by
}

/// The difference between two looks at the profile.
pub fn since(before: &Times, after: &Times) -> Times {
    let mut out = Times::new();
    for (key, (calls, us)) in after {
        let (had, took) = before.get(key).copied().unwrap_or_default();
        if *calls > had {
            out.insert(key.clone(), (calls - had, us - took));
        }
    }
    out
}

impl Measured {
    /// Joins measured and predicted times, most expensive kernel first.
    fn lines(&self, predicted: &Predicted) -> Vec<Line> {
        let mut by: BTreeMap<&(i64, String), Vec<(u64, f64)>> = BTreeMap::new();
        for (key, (calls, us)) in self.times.iter().flatten() {
            by.entry(key).or_default().push((*calls, us / *calls as f64));
        }
        let line = |((regime, kernel), mut all): (&(i64, String), Vec<(u64, f64)>)| {
            all.sort_by(|a, b| a.1.total_cmp(&b.1));
            let (calls, us) = all[all.len() / 2];
            let cost = predicted.kernels.iter().find(|k| (k.regime, &k.kernel) == (*regime, kernel));
            let prediction = cost.and_then(|c| self.predict(c, predicted, us));
            Line { regime: *regime, kernel: kernel.clone(), calls, us, predicted: prediction }
        };
        let mut lines: Vec<Line> = by.into_iter().map(line).collect();
        lines.sort_by(|a, b| (b.us * b.calls as f64).total_cmp(&(a.us * a.calls as f64)));
        lines
    }

    /// The mean prediction over the passes that this regime serves.
    fn predict(&self, cost: &KernelCost, all: &Predicted, measured: f64) -> Option<Prediction> {
        let rows = |s: &Shape| if cost.of_logits { s.rows } else { s.tokens };
        let mine: Vec<&Shape> =
            self.shapes.iter().filter(|s| rows(s) > 0 && regime(all, s.tokens) == Some(cost.regime)).collect();
        let (mut us, mut bytes, mut macs) = (0.0, 0.0, 0.0);
        for s in &mine {
            let Point { us: base, us_per_context, bytes: b, bytes_per_context, macs: o, macs_per_context, .. } =
                cost.at(rows(s) as f64);
            us += base + us_per_context * s.context;
            bytes += b + bytes_per_context * s.context;
            macs += o + macs_per_context * s.context;
        }
        let n = mine.len() as f64;
        (n > 0.0).then(|| Prediction {
            us: us / n,
            rate: rate(&all.machine, cost.peak, bytes / n, macs / n, measured * 1e-6),
        })
    }
}

/// The regime that serves a pass of so many tokens.
fn regime(all: &Predicted, tokens: usize) -> Option<i64> {
    let limits = || all.kernels.iter().map(|k| k.regime);
    limits().filter(|r| *r >= tokens as i64).min().or_else(|| limits().find(|r| *r < 0))
}

/// The rate of the resource that takes longer by itself, and its share of the peak.
fn rate(m: &Machine, peak: f64, bytes: f64, macs: f64, seconds: f64) -> Option<(f64, &'static str, f64)> {
    let (memory, compute) = (bytes / m.memory, macs / (peak * m.cores as f64));
    if !(memory.max(compute) > 0.0 && memory.is_finite() && compute.is_finite()) {
        return None;
    }
    Some(match memory >= compute {
        true => (bytes / seconds * 1e-9, "GB/s", memory / seconds),
        false => (2.0 * macs / seconds * 1e-9, "GOP/s", compute / seconds),
    })
}

/// All measurements as text.
pub fn text(all: &[Measured], predicted: &Predicted) -> String {
    let m = &predicted.machine;
    let mut s = format!(
        "\npredicted for {}: {}, {:.1} GB/s, per core {:.1} f32 and {:.1} 8-bit GOP/s; µs per call\n",
        m.target,
        count(m.cores, "core"),
        m.memory * 1e-9,
        m.f32_macs * 2e-9,
        m.int8_macs * 2e-9
    );
    for measured in all {
        let lines = measured.lines(predicted);
        let total: f64 = lines.iter().map(|l| l.us * l.calls as f64).sum();
        let foreseen: f64 = lines.iter().filter_map(|l| Some(l.predicted?.us * l.calls as f64)).sum();
        let _ = writeln!(
            s,
            "\n{:<28}{:<7}{:>7}{:>11}{:>11}{:>7}{:>8}{:>15}{:>9}",
            measured.title, "step", "calls", "measured", "predicted", "ratio", "share", "rate", "of bound"
        );
        for l in &lines {
            let size = if l.regime < 0 { "any".to_owned() } else { format!("<= {}", l.regime) };
            let _ = write!(s, "  {:<26}{size:<7}{:>7}{:>11.1}", l.kernel, l.calls, l.us);
            let share = l.us * l.calls as f64 / total * 100.0;
            let _ = match l.predicted {
                Some(p) => write!(s, "{:>11.1}{:>7.2}{share:>6.1} %", p.us, l.us / p.us),
                None => write!(s, "{:>11}{:>7}{share:>6.1} %", "?", "?"),
            };
            if let Some((rate, unit, of_bound)) = l.predicted.and_then(|p| p.rate) {
                let _ = write!(s, "{rate:>9.1} {unit:<5}{:>7.0} %", of_bound * 100.0);
            }
            s.push('\n');
        }
        let _ = writeln!(s, "  {:<40}{total:>11.1}{foreseen:>11.1}{:>7.2}", "all", total / foreseen);
    }
    s
}

/// All measurements as JSON.
pub fn json(all: &[Measured], predicted: &Predicted) -> Value {
    let line = |l: Line| {
        let p = l.predicted;
        let rate = p.and_then(|p| p.rate);
        json!({
            "regime": l.regime, "kernel": l.kernel, "calls": l.calls, "us": l.us, "predicted_us": p.map(|p| p.us),
            "rate": rate.map(|r| r.0), "unit": rate.map(|r| r.1), "share_of_bound": rate.map(|r| r.2),
        })
    };
    all.iter().map(|m| json!({ "measurement": m.title, "kernels": m.lines(predicted).into_iter().map(line).collect::<Vec<_>>() })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(entries: &[(i64, &str, u64, u64)]) -> Times {
        let steps: Vec<Value> = entries
            .iter()
            .map(|(r, k, calls, ns)| json!({ "regime": r, "kernel": k, "layer": 0, "calls": calls, "ns": ns }))
            .collect();
        times(&json!({ "profile": { "steps": steps } }).to_string())
    }

    fn cost(regime: i64, kernel: &str, of_logits: bool, points: Vec<Point>) -> KernelCost {
        KernelCost { regime, kernel: kernel.into(), of_logits, peak: 50e9, points }
    }

    fn predicted() -> Predicted {
        let point = |m: f64| Point { m, us: 10.0 * m, bytes: 1e6, macs: 1e6 * m, ..Point::default() };
        let attention = Point { m: 2.0, us: 1.0, us_per_context: 0.5, ..Point::default() };
        Predicted {
            decode_seconds: 0.0,
            text: None,
            machine: Machine { target: "x86-64-v3".into(), cores: 2, memory: 10e9, f32_macs: 50e9, int8_macs: 100e9 },
            kernels: vec![
                cost(4, "a", false, vec![point(1.0), point(4.0)]),
                cost(4, "attention", false, vec![attention]),
                cost(4, "head", true, vec![point(1.0), point(4.0)]),
                cost(-1, "a", false, vec![point(5.0), point(512.0)]),
            ],
        }
    }

    #[test]
    fn profiles_are_joined_with_predictions_by_regime_and_kernel() {
        let before = stats(&[(4, "a", 10, 999), (-1, "a", 1, 1)]);
        let after = stats(&[
            (4, "a", 12, 100_999),
            (4, "a", 2, 20_000),
            (4, "attention", 2, 8_000),
            (4, "head", 2, 30_000),
            (4, "new", 1, 1_000),
            (-1, "a", 1, 1),
        ]);
        let times = since(&before, &after);
        assert_eq!(times.len(), 4, "what did not run is left out: {times:?}");
        let shapes = vec![Shape { tokens: 2, rows: 1, context: 16.0 }; 2];
        let lines = Measured { title: String::new(), shapes, times: vec![times] }.lines(&predicted());
        let get = |k: &str| lines.iter().find(|l| l.kernel == k).expect("a line");
        // Layers are summed; 1 MB in 30 µs of the 100 that 10 GB/s allow, more than 2 MMAC at 100
        // G/s need.
        assert_eq!((get("a").calls, get("a").us), (4, 30.0));
        let p = get("a").predicted.expect("predicted");
        assert_eq!(p.us, 20.0);
        let (rate, unit, share) = p.rate.expect("bound");
        assert!((rate - 1e6 / 30e-6 * 1e-9).abs() < 1e-9 && unit == "GB/s" && (share - 100.0 / 30.0).abs() < 1e-9);
        assert_eq!(get("attention").predicted.expect("predicted").us, 9.0);
        assert_eq!(get("attention").predicted.expect("predicted").rate, None);
        assert_eq!(get("head").predicted.expect("predicted").us, 10.0, "rows of logits, not tokens");
        assert_eq!(get("new").predicted, None);
        assert_eq!(lines[0].kernel, "a", "the most expensive first");
    }

    #[test]
    fn passes_count_in_the_regime_that_serves_them() {
        // A prompt in two chunks; the second is a short step.
        let shapes = vec![Shape { tokens: 512, rows: 0, context: 256.0 }, Shape { tokens: 2, rows: 1, context: 513.0 }];
        let times = stats(&[(-1, "a", 1, 6_000_000), (4, "a", 1, 20_000), (4, "head", 1, 10_000)]);
        let all = [Measured { title: "prefill".into(), shapes, times: vec![times] }];
        let lines = all[0].lines(&predicted());
        let us: Vec<f64> = lines.iter().map(|l| l.predicted.expect("predicted").us).collect();
        assert_eq!(us, [5120.0, 20.0, 10.0]);
        let said = text(&all, &predicted());
        assert!(said.contains("prefill") && said.contains("any") && said.contains("GOP/s"), "{said}");
        assert_eq!(json(&all, &predicted())[0]["kernels"][1]["predicted_us"], 20.0);
    }

    #[test]
    fn medians_over_repetitions() {
        let times = [40, 10, 20].map(|us| stats(&[(4, "a", 1, us * 1000)]));
        let m = Measured {
            title: String::new(),
            shapes: vec![Shape { tokens: 1, rows: 1, context: 1.0 }],
            times: times.into(),
        };
        assert_eq!(m.lines(&predicted())[0].us, 20.0);
    }

    #[test]
    fn nonsense_in_a_manifest_is_harmless() {
        let m = Measured {
            title: String::new(),
            shapes: vec![Shape { tokens: 1, rows: 1, context: 1.0 }],
            times: vec![stats(&[(4, "a", 1, 0)]), times("nonsense")],
        };
        let zero = Predicted { kernels: vec![cost(4, "a", false, vec![])], ..Predicted::default() };
        assert!(text(&[m], &zero).contains("a "));
    }
}

//! Predictions beside times measured on an H200: `benches/gpu`.

use crate::cost::{matmul::by_product, seconds_at};
use llmcc_ir::gpu::schedule::{self, Input, MatmulSchedule, Phase, Variant};
use llmcc_ir::kernel::{Body, Kernel};
use llmcc_ir::target::{TargetSpec, find};
use llmcc_ir::ty::Env;
use std::collections::BTreeMap;

const KERNELS: &str = include_str!("../../../benches/gpu/h200-kernels.lir");
const ROWS: &str = include_str!("../../../benches/gpu/h200.tsv");
const DIRECT: &str = include_str!("../../../benches/gpu/h200-direct.tsv");
/// Seconds between launches of a graph while this was measured.
const LAUNCH: f64 = 0.51e-6;

/// A kernel's time.
struct Row<'a> {
    kernel: &'a Kernel,
    /// The schedule that was asked for, of the compiler's none.
    asked: &'a str,
    sequences: usize,
    past: usize,
    new: usize,
    seconds: f64,
    /// The schedule of a product.
    schedule: Option<MatmulSchedule>,
}

impl Row<'_> {
    fn predicted(&self, target: &TargetSpec) -> f64 {
        let m = self.sequences * self.new;
        if let (Body::Matmul(body), Some(s)) = (&self.kernel.body, &self.schedule) {
            return LAUNCH + by_product(self.kernel, body, s, target, m);
        }
        let context = self.past + self.new.div_ceil(2);
        seconds_at(self.kernel, target, Env { tokens: m, rows: self.sequences }, context)
    }
}

fn kernels() -> BTreeMap<String, Kernel> {
    let texts = KERNELS.split("\nkernel ").map(|t| format!("kernel {}", t.trim_start_matches("kernel ")));
    let parsed = |t: String| llmcc_ir::text::parse_kernel(&t).unwrap_or_else(|e| panic!("{t}: {e:?}"));
    texts.map(parsed).map(|k| (k.name.clone(), k)).collect()
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn schedule_of(columns: &[&str], k: usize) -> Option<MatmulSchedule> {
    let [variant, rows, warps, producers, resident, blocks, input, apart, depth, phases] = columns else { panic!() };
    let variants = [Variant::Gemv, Variant::Fma, Variant::Mma, Variant::Wgmma, Variant::WgmmaFp8];
    let direct = *variant == "Direct";
    let variant = variants.into_iter().find(|v| if direct { "Gemv" } else { *variant } == format!("{v:?}"))?;
    let phase = |text: &str| {
        let n: Vec<usize> = text.split(',').map(number).collect();
        let [first, segments, tiles, strips, columns, parts, cut, stages] = n[..] else { panic!("{text}") };
        Phase { first, segments, tiles, strips, columns, parts, cut: cut == 1, stages }
    };
    let input = match *input {
        "whole" => Input::Whole,
        "global" => Input::Global,
        "tiles" => Input::Tiles,
        rows => Input::Fitting(number(rows)),
    };
    Some(MatmulSchedule {
        variant,
        rows: number(rows),
        warps: number(warps),
        producers: number(producers),
        resident: number(resident),
        blocks: number(blocks),
        input,
        apart: *apart == "1",
        k,
        depth: number(depth),
        direct,
        phases: phases.split(';').map(phase).collect(),
        slow: None,
    })
}

fn rows<'a>(kernels: &'a BTreeMap<String, Kernel>, table: &'static str) -> Vec<Row<'a>> {
    let row = |line: &'static str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let kernel = kernels.get(columns[0]).unwrap_or_else(|| panic!("no kernel {}", columns[0]));
        let k = match &kernel.body {
            Body::Matmul(body) => crate::cost::cpu::cols(kernel, body.x),
            _ => 0,
        };
        let us: f64 = columns[5].parse().expect("microseconds");
        Row {
            kernel,
            asked: columns[1],
            sequences: number(columns[2]),
            past: number(columns[3]),
            new: number(columns[4]),
            seconds: us / 1e6,
            schedule: schedule_of(&columns[6..], k),
        }
    };
    table.lines().filter(|l| !l.starts_with('#')).map(row).collect()
}

fn h200() -> &'static TargetSpec {
    find("sm90").expect("a target")
}

#[test]
fn nine_of_ten_predictions_are_close() {
    let kernels = kernels();
    let rows = rows(&kernels, ROWS);
    assert_eq!(rows.len(), 364);
    let off = |r: &&Row<'_>| !(0.85..=1.18).contains(&(r.predicted(h200()) / r.seconds));
    let far: Vec<String> = rows
        .iter()
        .filter(off)
        .map(|r| {
            format!(
                "{} {}: {:.2} of {:.1} µs",
                r.kernel.name,
                r.asked,
                r.predicted(h200()) / r.seconds,
                r.seconds * 1e6
            )
        })
        .collect();
    assert!(10 * far.len() <= rows.len(), "{} of {}:\n{}", far.len(), rows.len(), far.join("\n"));
}

/// Products of a token as they are compiled: weights straight to registers. And the schedules are
/// still those that were measured.
#[test]
fn products_of_a_token_are_predicted() {
    let kernels = kernels();
    let rows = rows(&kernels, DIRECT);
    assert_eq!(rows.len(), 10);
    for r in &rows {
        let ratio = r.predicted(h200()) / r.seconds;
        assert!((0.85..=1.18).contains(&ratio), "{}: {ratio:.2}", r.kernel.name);
        assert_eq!(schedule::matmul(r.kernel, h200()), r.schedule, "{}", r.kernel.name);
    }
}

/// For each shape that was tried in other schedules, the one that is predicted to be the fastest is.
#[test]
fn fastest_schedules_are_chosen() {
    let kernels = kernels();
    let mut shapes: BTreeMap<&str, Vec<Row<'_>>> = BTreeMap::new();
    for row in rows(&kernels, ROWS).into_iter().filter(|r| r.asked != "-") {
        shapes.entry(&row.kernel.name).or_default().push(row);
    }
    assert_eq!(shapes.len(), 16);
    let mut wrong = vec![];
    for (name, rows) in &shapes {
        let least = |f: &dyn Fn(&Row<'_>) -> f64| rows.iter().min_by(|a, b| f(a).total_cmp(&f(b))).expect("a schedule");
        let (best, chosen) = (least(&|r| r.seconds), least(&|r| r.predicted(h200())));
        if chosen.seconds > 1.05 * best.seconds {
            wrong.push(format!(
                "{name}: {} takes {:.2}, {} {:.2}",
                chosen.asked,
                chosen.seconds / best.seconds,
                best.asked,
                1.0
            ));
        }
        // The compiler chooses among more: that one, or one predicted to be faster.
        let s = schedule::matmul(chosen.kernel, h200()).expect("a schedule");
        if s.direct {
            // Not by prediction: these rows were measured with rings in shared memory.
            continue;
        }
        let Body::Matmul(body) = &chosen.kernel.body else { panic!() };
        let predicted = LAUNCH + by_product(chosen.kernel, body, &s, h200(), chosen.sequences * chosen.new);
        if predicted > 1.05 * chosen.predicted(h200()) {
            wrong.push(format!("{name}: compiled as {s:?}, {:.2} µs", predicted * 1e6));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

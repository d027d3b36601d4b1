//! `llmcc frontier`: divergences by size, as a table, a document or a picture.

mod picture;

use crate::args::FrontierArgs;
use crate::backends::Backends;
use crate::bounds::Bound;
use crate::budget::frontier::{Point, frontier};
use crate::budget::{Job, Text};
use crate::golden::inherit;
use crate::options::{CompileOptions, find_target};
use crate::report::{bytes, plain};
use crate::{Error, calib, output, program};
use llmcc_passes::method::LEAST_SQUARES;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Measures and prints.
///
/// # Errors
/// As `compile --budget`; a picture that cannot be written.
pub fn run(args: &FrontierArgs) -> Result<(), Error> {
    args.calib.check(false)?;
    let (program, texts) = (program::this()?, Text::read(&args.texts)?);
    let options = CompileOptions {
        act: args.act.map(Into::into),
        kv: args.kv.and_then(Into::into),
        max_context: args.max_context,
        method: args.calib.method.unwrap_or(&LEAST_SQUARES),
        calibration: args.calib.calibration(program.clone()),
        ..CompileOptions::new(&args.checkpoint, vec![find_target(&args.target)?])
    };
    let backends = Backends::new(Some(program.clone()));
    let (options, _) = calib::collected(&options)?;
    let say = |line: &str| {
        if !args.quiet {
            eprintln!("{line}");
        }
    };
    // Any size will do, so that all forms are tried: tables, too.
    let bounds = [Bound::Memory(f64::INFINITY, None)];
    let out = std::env::temp_dir().join("llmcc");
    let job = Job {
        options: &options,
        bounds: &bounds,
        texts: &texts,
        backends: &backends,
        out: &out,
        program: &program,
        say: &say,
    };
    let speed = |artifact: &Path| tokens_per_second(&program, artifact);
    let points = frontier(&job, args.points as usize, args.bench.then_some(&speed))?;
    let name = args.checkpoint.display().to_string();
    if let Some(path) = &args.svg {
        output::write_text(path, &picture::svg(&name, &points)?)?;
    }
    match args.json {
        true => crate::json::print(&json!({ "checkpoint": name, "target": args.target, "points": points })),
        false => super::print(&plain(&table(&points))),
    }
}

/// The measured speed of decoding one sequence.
fn tokens_per_second(program: &Path, artifact: &Path) -> Result<f64, Error> {
    let mut child = Command::new(program);
    child.arg("bench").arg(artifact).args(["--prefill", "1", "--batch", "1", "--json"]).env("LLMCC_DEVICE", "cpu");
    inherit(&mut child, artifact);
    let done = child.stderr(Stdio::inherit()).output().map_err(|e| Error::io("run", program, e))?;
    let said: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    let rate = said["decode"][0]["tokens_per_second"].as_f64();
    rate.ok_or_else(|| Error::Failed(format!("--bench: the artifact's speed cannot be measured ({})", done.status)))
}

/// The points, a line each.
fn table(points: &[Point]) -> String {
    let mut s = format!(
        "{:>10} {:>6} {:>10} {:>21} {:>7} {:>10}  {:<12} {}\n",
        "bytes", "bits", "KL", "95 %", "top-1", "tokens/s", "", "formats"
    );
    for p in points {
        let interval = match &p.domains[..] {
            [one] => one.found.kl.mean.interval(6, 1.0),
            _ => String::new(),
        };
        let top1 = p.domains.iter().map(|d| d.found.top1.mean).sum::<f64>() / p.domains.len().max(1) as f64;
        let what = match (&p.uniform, p.to_best_uniform) {
            (Some(_), _) => "uniform".to_owned(),
            (None, Some(ratio)) => format!("mixture {ratio:.2}"),
            (None, None) => "mixture".to_owned(),
        };
        let _ = writeln!(
            s,
            "{:>10} {:>6.3} {:>10.6} {:>21} {:>5.1} % {:>10.1}  {what:<12} {}",
            bytes(p.bytes),
            p.bits,
            p.kl(),
            interval.trim().trim_matches(['(', ')']),
            top1 * 100.0,
            p.measured.unwrap_or(p.predicted),
            formats(p)
        );
    }
    s + "KL: nats per token on text kept aside. A number behind `mixture`: its KL as a share of that of the best \
         uniform format of at most as many bytes.\n"
}

/// The formats of a point with their shares of its bytes, largest first.
fn formats(p: &Point) -> String {
    let mut all: Vec<(&String, f64)> = p.by_format.iter().map(|(name, of)| (name, of / p.bytes.max(1.0))).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.iter().map(|(name, share)| format!("{name} {:.0} %", share * 100.0)).collect::<Vec<_>>().join(", ")
}

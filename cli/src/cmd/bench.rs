//! `llmcc bench`: how fast an artifact is on this machine, and how close to the bound of its
//! memory.

mod depth;
mod energy;
mod kernels;
mod prompt;
mod serve;
mod stream;

use crate::Error;
use crate::args::BenchArgs;
use crate::loaded::{EngineOptions, Model};
use crate::manifest::{Manifest, Version};
use crate::predicted::Predicted;
use crate::progress;
use crate::report::{bytes, count};
use crate::workload::Workload;
use crate::workload::figures::Figures;
use depth::peak_rss;
use kernels::{Measured, Shape};
use llmcc_codegen::artifact::isa;
use llmcc_ir::target::Family;
use prompt::{prompt, token};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Instant;

/// Measures and prints.
///
/// # Errors
/// Not an artifact; sizes that do not fit its context.
pub fn run(args: &BenchArgs) -> Result<(), Error> {
    let start = Instant::now();
    let options = EngineOptions { profile: args.kernels, ..args.engine.options() };
    let model = args.engine.open_with(&args.artifact, options)?;
    let load = start.elapsed().as_secs_f64();
    let info = model.info();
    let workloads = checked_workloads(args, &model)?;
    // Whole texts are read in one step.
    let batches: &[usize] = if info.whole { &[] } else { &args.batch };
    let mut kernels = vec![];
    let rounds = args.repeat * (args.prefill.len() + batches.len()) + args.depth.len();
    let bar = progress::steps(rounds, "measuring");
    let mut measure = |title: String, shapes: Vec<Shape>, f: &dyn Fn() -> Result<Rate, Error>| -> Result<Rate, Error> {
        let (rate, times) = median(&model, args.repeat, &|| f().inspect(|_| bar.inc(1)))?;
        kernels.push(Measured { title, shapes, times });
        Ok(rate)
    };
    let chunks = |n: &usize| prefill_shapes(*n, info.max_batch_tokens);
    let each = |n: &usize| measure(format!("prefill of {n} tokens"), chunks(n), &|| prefill(&model, *n));
    let prefill: Vec<Rate> = args.prefill.iter().map(each).collect::<Result<_, _>>()?;
    for batch in batches {
        decode(&model, *batch, 1)?;
    }
    // All kinds of steps have run once; the memory that is streamed for comparison would add to it.
    let rss = peak_rss();
    let deep = |n: &usize| depth::decode(&model, args, *n).inspect(|_| bar.inc(1));
    let depth = args.depth.iter().map(deep).collect::<Result<_, _>>()?;
    let (version, state_bytes) = version_for(&model)?;
    let gpu = version.spec().is_some_and(|t| t.family() == Family::Nvidia);
    let served = serve::all(&model, args, &workloads, (version.weights, gpu))?;
    let said = if gpu { model.memory_rate()? } else { None };
    let roofline = Roofline::of(gpu.then(|| said.unwrap_or(version.predicted.machine.memory)), info.threads);
    let each = |b: &usize| {
        let beside = |f: &dyn Fn() -> Result<Rate, Error>| roofline.beside(f);
        measure(format!("decode, {b} at once"), vec![decode_shape(*b, args.steps)], &|| {
            beside(&|| decode(&model, *b, args.steps))
        })
    };
    let decode: Vec<Rate> = batches.iter().map(each).collect::<Result<_, _>>()?;
    bar.finish_and_clear();
    let mut predicted = version.predicted;
    predicted.machine.memory = said.unwrap_or(predicted.machine.memory);
    let machine = Machine { device: model.device()?, target: version.target, gpu, memory_said: said.is_some() };
    let results = Results {
        args,
        model: &model,
        load,
        prefill,
        decode,
        depth,
        served,
        machine,
        rss,
        step_bytes: version.read_per_step as f64,
        state_bytes,
        kernels,
        predicted,
    };
    super::print(&if args.json { format!("{}\n", results.json()) } else { results.text() })
}

/// The workloads, with all sizes checked.
fn checked_workloads(args: &BenchArgs, model: &Model) -> Result<Vec<Workload>, Error> {
    let workloads = serve::workloads(args)?;
    check_sizes(args, &workloads, model).map(|()| workloads)
}

/// Lengths and counts that the artifact has room for.
fn check_sizes(args: &BenchArgs, workloads: &[Workload], model: &Model) -> Result<(), Error> {
    let info = model.info();
    let deepest = args.depth.iter().map(|n| depth::tokens(args, *n)).max().unwrap_or(0);
    let prefill = args.prefill.iter().copied().max().unwrap_or(0);
    let counts: [(&str, &[usize]); 7] = [
        ("--prefill", &args.prefill),
        ("--batch", &args.batch),
        ("--depth", &args.depth),
        ("--serve", &args.serve),
        ("--requests", std::slice::from_ref(&args.requests)),
        ("--steps", std::slice::from_ref(&args.steps)),
        ("--repeat", std::slice::from_ref(&args.repeat)),
    ];
    if let Some((option, _)) = counts.iter().find(|(_, counts)| counts.contains(&0)) {
        return Err(Error::Usage(format!("{option} 0: there is nothing to measure; give a positive number")));
    }
    if let (true, Some(option)) = (workloads.is_empty(), args.workload.given()) {
        return Err(Error::Usage(format!("{option}: there is no workload; give --serve or --scenario, too")));
    }
    let lengths = [
        ("--prefill", prefill),
        ("--steps", args.steps.saturating_add(1)),
        ("--depth", deepest),
        (
            if args.serve.is_empty() { "--scenario" } else { "--serve-tokens" },
            workloads.iter().map(Workload::longest).max().unwrap_or(0),
        ),
    ];
    if let Some((option, tokens)) = lengths.iter().find(|(_, n)| *n > info.max_context) {
        return Err(Error::Usage(format!(
            "{option}: a sequence would have {tokens} tokens, but the longest context is {}: give a smaller {option}",
            info.max_context
        )));
    }
    for (option, asked) in [("--depth", !args.depth.is_empty()), ("--serve", !workloads.is_empty())] {
        if info.whole && asked {
            return Err(Error::Usage(format!(
                "{option}: tokens of this model see later ones, so it does not decode; leave {option} out"
            )));
        }
    }
    Ok(())
}

/// The manifest's version that runs here, and the bytes of a sequence's states of fixed size.
fn version_for(model: &Model) -> Result<(Version, f64), Error> {
    let manifest = Manifest::parse(model.manifest().as_bytes()).map_err(|e| Error::Artifact {
        path: model.path().to_owned(),
        message: format!("its manifest is unreadable: {e}"),
    })?;
    let runs = |v: &Version| v.spec().is_some_and(|t| isa(t) == model.info().isa);
    let found = manifest.versions.into_iter().find(runs);
    let version = found.unwrap_or_else(|| Version { target: "?".into(), ..Version::default() });
    Ok((version, manifest.memory.per_sequence as f64))
}

/// One measurement.
#[derive(Clone, Copy)]
struct Rate {
    /// Tokens of the prompt, or sequences at once.
    size: usize,
    /// Tokens per second.
    tokens_per_second: f64,
    /// Seconds of the whole (prefill: to the first token) or of one step (decode).
    seconds: f64,
    /// Bytes per second of the memory around that time; 0 where it was not measured.
    memory: f64,
}

/// The median of some repetitions, and the time per kernel of each (nothing without a profile).
fn median(
    model: &Model,
    repeat: usize,
    f: &dyn Fn() -> Result<Rate, Error>,
) -> Result<(Rate, Vec<kernels::Times>), Error> {
    let (mut all, mut times) = (vec![], vec![]);
    let mut before = kernels::times(&model.stats()?);
    for _ in 0..repeat {
        all.push(f()?);
        let after = kernels::times(&model.stats()?);
        times.push(kernels::since(&before, &after));
        before = after;
    }
    all.sort_by(|a, b| a.tokens_per_second.total_cmp(&b.tokens_per_second));
    Ok((all[all.len() / 2], times))
}

/// The passes of [`prefill`].
fn prefill_shapes(n: usize, chunk: usize) -> Vec<Shape> {
    let shape = |at: usize| {
        let m = chunk.min(n - at);
        Shape { tokens: m, rows: usize::from(at + m == n), context: at as f64 + (m as f64 + 1.0) / 2.0 }
    };
    (0..n).step_by(chunk.max(1)).map(shape).collect()
}

/// The average pass of [`decode`].
fn decode_shape(batch: usize, steps: usize) -> Shape {
    Shape { tokens: batch, rows: batch, context: 1.0 + steps as f64 / 2.0 }
}

fn prefill(model: &Model, n: usize) -> Result<Rate, Error> {
    let vocab = model.info().vocab;
    let ids: Vec<i32> = (0..n).map(|i| token(i, vocab)).collect();
    let seq = model.trial_seq()?;
    let start = Instant::now();
    prompt(model, seq, &ids)?;
    let seconds = start.elapsed().as_secs_f64();
    model.seq_free(seq)?;
    Ok(Rate { size: n, tokens_per_second: n as f64 / seconds, seconds, memory: 0.0 })
}

fn decode(model: &Model, batch: usize, steps: usize) -> Result<Rate, Error> {
    let vocab = model.info().vocab;
    let seqs: Vec<i32> = (0..batch).map(|_| model.trial_seq()).collect::<Result<_, _>>()?;
    let rows: Vec<u32> = (0..batch as u32).collect();
    let step = |i: usize| {
        let ids: Vec<i32> = (0..batch).map(|b| token(i * 31 + b, vocab)).collect();
        model.trial(0, &ids, &seqs, &rows)
    };
    step(0)?;
    let start = Instant::now();
    for i in 1..=steps {
        step(i)?;
    }
    let seconds = start.elapsed().as_secs_f64() / steps as f64;
    for s in seqs {
        model.seq_free(s)?;
    }
    Ok(Rate { size: batch, tokens_per_second: batch as f64 / seconds, seconds, memory: 0.0 })
}

/// How fast the memory is that weights come from.
enum Roofline {
    /// By a GPU's driver or the target's line, in bytes per second.
    Known(f64),
    /// As so many threads stream it.
    Streamed(stream::Memory, usize),
}

impl Roofline {
    /// The rate that a GPU's driver, or else the line of its target, says: this process cannot stream its
    /// memory. A processor's is to be measured.
    fn of(known: Option<f64>, threads: usize) -> Roofline {
        known.map_or_else(|| Roofline::streamed(threads), Roofline::Known)
    }

    /// To be measured; 0 without memory to stream.
    fn streamed(threads: usize) -> Roofline {
        stream::Memory::new(512 << 20, true).map_or(Roofline::Known(0.0), |memory| Roofline::Streamed(memory, threads))
    }

    fn now(&self) -> f64 {
        match self {
            Roofline::Known(rate) => *rate,
            Roofline::Streamed(memory, threads) => stream::bandwidth(memory, *threads),
        }
    }

    /// Runs a measurement between two measurements of the memory: the bandwidth a virtual machine
    /// gets changes by half within minutes, and the share of it with the moment.
    fn beside(&self, f: &dyn Fn() -> Result<Rate, Error>) -> Result<Rate, Error> {
        let before = self.now();
        let rate = f()?;
        Ok(Rate { memory: (before + self.now()) / 2.0, ..rate })
    }
}

/// The machine that computed.
struct Machine {
    /// `CPU`, or the GPU's name.
    device: String,
    /// Target of the version that ran.
    target: String,
    gpu: bool,
    /// Whether the driver says how fast the GPU's memory is.
    memory_said: bool,
}

struct Results<'a> {
    args: &'a BenchArgs,
    model: &'a Model,
    load: f64,
    prefill: Vec<Rate>,
    decode: Vec<Rate>,
    /// Rates of one sequence after so many tokens, and the most memory the process held then.
    depth: Vec<depth::Deep>,
    /// Workloads.
    served: Vec<Figures>,
    machine: Machine,
    rss: f64,
    /// Bytes of weights a step reads: all but tables with only some rows looked up.
    step_bytes: f64,
    /// Bytes of states of fixed size that a sequence has: a step reads and writes them.
    state_bytes: f64,
    kernels: Vec<Measured>,
    predicted: Predicted,
}

impl Results<'_> {
    fn share(&self, r: &Rate) -> f64 {
        (self.step_bytes + 2.0 * self.state_bytes * r.size as f64) / r.seconds / r.memory
    }

    /// Bytes per second of the memory, the least and the most beside any measurement.
    fn memory(&self) -> (f64, f64) {
        let rates = || self.decode.iter().map(|r| r.memory);
        (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max))
    }

    fn json(&self) -> Value {
        json!({
            "artifact": self.args.artifact.display().to_string(),
            "device": self.machine.device,
            "target": self.machine.target,
            "threads": self.model.info().threads,
            "load_seconds": self.load,
            "peak_rss_bytes": self.rss,
            "weights_read_per_step": self.step_bytes,
            "state_per_sequence": self.state_bytes,
            "prefill": self.prefill.iter().map(|r| json!({
                "tokens": r.size, "tokens_per_second": r.tokens_per_second, "time_to_first_token": r.seconds })).collect::<Vec<_>>(),
            "decode": self.decode.iter().map(|r| json!({
                "sequences": r.size, "tokens_per_second": r.tokens_per_second, "step_seconds": r.seconds,
                "stream_bytes_per_second": r.memory, "share_of_roofline": self.share(r) })).collect::<Vec<_>>(),
            "depth": self.depth.iter().map(depth::Deep::json).collect::<Vec<_>>(),
            "serve": self.served.iter().map(Figures::json).collect::<Vec<_>>(),
            "kernels": if self.args.kernels { kernels::json(&self.kernels, &self.predicted) } else { Value::Null },
        })
    }

    fn text(&self) -> String {
        let mut s = String::new();
        let Machine { device, target, gpu, memory_said } = &self.machine;
        let (least, most) = self.memory();
        let threads = self.model.info().threads;
        let _ = match gpu {
            true => writeln!(s, "{} on {device}, version for {target}", self.args.artifact.display()),
            false => {
                let threads = count(threads, "thread");
                writeln!(s, "{} with {threads}, version for {target}", self.args.artifact.display())
            }
        };
        let _ = writeln!(s, "load                  {:8.1} ms", self.load * 1e3);
        let [what, after] = match self.model.info().whole {
            true => ["text   ", "read in"],
            false => ["prefill", "first token after"],
        };
        for r in &self.prefill {
            let (rate, ms) = (r.tokens_per_second, r.seconds * 1e3);
            let _ = writeln!(s, "{what} {:>5} tokens  {rate:8.1} tokens/s   {after} {ms:.1} ms", r.size);
        }
        for r in &self.decode {
            let _ = writeln!(
                s,
                "decode  {:>5} at once {:8.1} tokens/s   {:.2} ms per step, {}",
                r.size,
                r.tokens_per_second,
                r.seconds * 1e3,
                of_roofline(self.share(r), r.memory)
            );
        }
        self.depth.iter().for_each(|d| s += &d.text());
        self.served.iter().for_each(|served| s += &served.text());
        if !self.decode.is_empty() {
            let _ = writeln!(
                s,
                "roofline              {:.1} to {:.1} GB/s {}; a step reads {} of weights{}",
                least / 1e9,
                most / 1e9,
                match (*gpu, *memory_said) {
                    (true, true) => "of memory, as the driver says",
                    (true, false) => "of memory, by the target's line",
                    (false, _) => "streamed by these threads right before and after",
                },
                bytes(self.step_bytes),
                match self.state_bytes > 0.0 {
                    true => format!(", and reads and writes {} of each sequence's state", bytes(self.state_bytes)),
                    false => String::new(),
                }
            );
        }
        let _ = writeln!(s, "peak RSS              {}", bytes(self.rss));
        if self.args.kernels {
            s += &kernels::text(&self.kernels, &self.predicted);
        }
        s
    }
}

/// A step's time relative to one that only reads its weights from memory at so many bytes per
/// second.
fn of_roofline(share: f64, memory: f64) -> String {
    if !share.is_finite() {
        // Nothing was measured.
        return "roofline unknown".into();
    }
    match share > 1.0 {
        true => format!("{share:.1} times as fast as memory ({:.1} GB/s): weights come from caches", memory / 1e9),
        false => format!("{:.0} % of the roofline ({:.1} GB/s)", share * 100.0, memory / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_more_than_all_of_the_roofline() {
        assert_eq!(of_roofline(0.5, 31e9), "50 % of the roofline (31.0 GB/s)");
        assert_eq!(of_roofline(3.16, 31e9), "3.2 times as fast as memory (31.0 GB/s): weights come from caches");
        assert_eq!(of_roofline(f64::INFINITY, 0.0), "roofline unknown");
    }
}

//! The microkernels at the shapes of a model, as a share of the machine's limits.
//!
//!     cargo run --release -p llmcc-benches --bin kernels
//!
//! First the peaks are measured with all threads: bytes streamed from memory, and multiply-adds per
//! second of the instructions that the kernels use. Then each kernel: for few rows the weights come
//! from memory (many matrices in turn, more than any cache holds), and the bound is the longer of
//! streaming them and multiplying. Every figure is the median of several rounds; peaks and kernels
//! alternate, because machines drift.
//!
//! Random bytes serve as weights and activations: the speed does not depend on them.

mod panels;

use clap::Parser;
use llmcc_benches::peaks::{self, Peaks};
use llmcc_benches::team::Team;
use llmcc_ukernels::{Level, detect};
use panels::{Case, FORMATS, SHAPES};

/// Options.
#[derive(Parser)]
#[command(about = "Microkernels at the shapes of a model, as a share of what this machine can do")]
struct Args {
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Activation rows.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 64, 512])]
    rows: Vec<usize>,
    /// Formats (w4, w4a, w8, bf16, f16, f32), all by default. After a dash the rows: w4-int8,
    /// w4-f32.
    #[arg(long, value_delimiter = ',')]
    format: Vec<String>,
    /// Shapes (qkv, o, gate_up, down, head, small), all but `small` by default.
    #[arg(long, value_delimiter = ',')]
    shape: Vec<String>,
    /// Instruction set (avx2, avx512, avx512bf16, amx), the best by default.
    #[arg(long)]
    level: Option<String>,
    /// Pages of the weights: huge as for an artifact on a file system with large folios, or 4 KiB.
    #[arg(long, default_value = "huge", value_parser = ["huge", "small"])]
    pages: String,
    /// Columns per call, as the tile that the compiler chooses.
    #[arg(long, default_value_t = 128)]
    tile: usize,
    /// MiB of matrices that are gone through before one is read again: more than caches hold,
    /// unless less is asked for.
    #[arg(long, default_value_t = 256)]
    pool: usize,
    /// int8 rows have codes of −128, as rows of fixed scales may, and others have not.
    #[arg(long)]
    least: bool,
    /// Time is the processor's time of the slowest thread, which other work on the machine does not
    /// count in: it takes bandwidth still, from the peaks as from the products.
    #[arg(long)]
    own_time: bool,
    /// Rounds; their median is printed.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

fn main() {
    let args = Args::parse();
    let level = match args.level.as_deref().map(Level::from_name) {
        None => detect(),
        Some(Some(level)) if level <= detect() => level,
        Some(_) => return eprintln!("error: this processor has no such level; the best is {}", detect().name()),
    };
    let team = Team::new(args.threads.max(1)).with_own_time(args.own_time);
    println!("{} threads, {}, {} pages", args.threads, level.name(), args.pages);
    println!(
        "{:14} {:8} {:>5} {:>12} {:>12} {:>9} {:>8}",
        "kernel", "shape", "rows", "time", "GB/s", "GMAC/s", "of bound"
    );
    let wanted = |list: &[String], name: &str| {
        list.is_empty() || list.iter().any(|l| l == name || name.split('-').next() == Some(l))
    };
    for format in FORMATS.iter().filter(|f| wanted(&args.format, f.name)) {
        for shape in SHAPES
            .iter()
            .filter(|s| if args.shape.is_empty() { s.name != "small" } else { wanted(&args.shape, s.name) })
        {
            for &rows in &args.rows {
                let mut case = Case::new(
                    format,
                    shape,
                    rows,
                    args.tile,
                    level,
                    args.pool << 20,
                    args.pages == "huge",
                    args.threads,
                );
                if args.least {
                    case.put_least();
                }
                let mut runs: Vec<(f64, Peaks)> = (0..args.rounds.max(1))
                    .map(|_| {
                        let peaks = peaks::measure(team, level, format.rows);
                        (case.run(team), peaks)
                    })
                    .collect();
                report(&case, &mut runs);
            }
        }
    }
}

/// Prints the median of the runs: seconds of one product, and the peaks of the same moment.
fn report(case: &Case, runs: &mut [(f64, Peaks)]) {
    let share = |(seconds, peaks): &(f64, Peaks)| case.bound(peaks) / seconds;
    runs.sort_by(|a, b| share(a).total_cmp(&share(b)));
    let middle = &runs[runs.len() / 2];
    let (seconds, peaks) = middle;
    let by = if case.bytes() / peaks.bytes > case.macs() / peaks.macs { "memory" } else { "arithmetic" };
    println!(
        "{:14} {:8} {:5} {:9.1} us {:6.1}/{:5.1} {:9.0} {:6.0} % of {by} ({:.0} to {:.0} %)",
        case.format.name,
        case.shape.name,
        case.rows,
        seconds * 1e6,
        case.bytes() / seconds / 1e9,
        peaks.bytes / 1e9,
        case.macs() / seconds / 1e9,
        share(middle) * 100.0,
        share(&runs[0]) * 100.0,
        share(&runs[runs.len() - 1]) * 100.0,
    );
}

//! Instructions in a kernel's hot loops.

use super::{Listing, Loop, listings};
use llmcc_gpu::assembler::{Ptxas, disassemble};
use llmcc_ir::gpu::schedule::{self, Variant};
use llmcc_ir::kernel::{Body, Kernel};
use llmcc_ir::target::TargetSpec;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A kernel's PTX, assembled and disassembled.
///
/// # Errors
/// Errors of `ptxas` or the disassembler.
pub fn assemble(ptxas: &Ptxas, ptx: &str, target: &TargetSpec) -> Result<Listing, String> {
    let processor = target.gpu().ok_or_else(|| format!("{} is no GPU", target.name))?.processor;
    let text = disassemble(&ptxas.assemble(ptx, processor)?.cubin)?;
    listings(&text)?.into_values().next().ok_or_else(|| "no code".to_string())
}

/// A line for each hot loop of a kernel: instructions of a turn, of a unit where it is a product (a
/// strip of 16 rows by 64 columns of weights, by one warp), and of each kind.
///
/// # Errors
/// As [`Listing::loops`].
pub fn report(kernel: &Kernel, target: &TargetSpec, listing: &Listing) -> Result<String, String> {
    let mut out = format!("{}\n", kernel.name);
    for counts in hot(listing)? {
        let _ = write!(out, "  {} a turn", counts.total);
        if let Some(units) = units_of_turn(kernel, target) {
            let _ = write!(out, " of {units} units, {} each", counts.total.div_ceil(units));
        }
        let _ = writeln!(out, ": {}", counts.line());
    }
    Ok(out)
}

/// Units that a warp of a product multiplies in a turn of its loop.
fn units_of_turn(kernel: &Kernel, target: &TargetSpec) -> Option<usize> {
    let (Body::Matmul(body), Some(s)) = (&kernel.body, schedule::matmul(kernel, target)) else { return None };
    Some(match s.variant {
        // Two stages in a turn, so that each has its own registers.
        Variant::Wgmma | Variant::WgmmaFp8 => 2 * s.variant.stage_units(),
        Variant::Gemv | Variant::Fma | Variant::Mma => s.phases.first()?.strips * body.segments.first()?.weights.len(),
    })
}

/// Instructions of a loop by their names without suffixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All.
    pub total: usize,
    /// Count by name.
    pub classes: BTreeMap<String, usize>,
    /// Instructions that never do anything (`@!PT`), which take their slot all the same.
    pub idle: usize,
}

/// The innermost loops that multiply on tensor cores, in the order of their addresses. Inner loops
/// are not counted: a wait for a barrier, as a rule, goes round once or not at all.
///
/// # Errors
/// As [`Listing::loops`].
pub fn hot(listing: &Listing) -> Result<Vec<Counts>, String> {
    let loops = listing.loops()?;
    let multiplies = |l: &Loop| l.body.iter().any(|i| listing.code[*i].multiplies());
    let inside = |inner: &Loop, outer: &Loop| inner.body.len() < outer.body.len() && inner.body.is_subset(&outer.body);
    let mut hot: Vec<&Loop> = loops
        .iter()
        .filter(|l| multiplies(l) && !loops.iter().any(|inner| multiplies(inner) && inside(inner, l)))
        .collect();
    hot.sort_by_key(|l| l.body.first());
    let count = |l: &Loop| {
        let inner = |i: &usize| loops.iter().any(|other| inside(other, l) && other.body.contains(i));
        let mut out = Counts::default();
        for c in l.body.iter().filter(|i| !inner(i)).map(|i| &listing.code[*i]) {
            out.total += 1;
            out.idle += usize::from(c.guard == "!PT");
            *out.classes.entry(c.class().to_string()).or_default() += 1;
        }
        out
    };
    Ok(hot.into_iter().map(count).collect())
}

impl Counts {
    /// The counts in a line, the most frequent first.
    pub fn line(&self) -> String {
        let mut classes: Vec<_> = self.classes.iter().collect();
        classes.sort_by_key(|(name, n)| (usize::MAX - **n, *name));
        let mut out = String::new();
        for (name, n) in classes {
            let _ = write!(out, " {name} {n}");
        }
        if self.idle > 0 {
            let _ = write!(out, " (never executed {})", self.idle);
        }
        out.trim_start().to_string()
    }
}

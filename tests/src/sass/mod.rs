//! The machine code `ptxas` makes of a kernel, read from its disassembly: instructions, the flow
//! between them, loops.
//!
//! [`count`] counts the instructions of a kernel's hot loop; [`flight`], whether a register is
//! written while asynchronous products still read it. The input is the text of `nvdisasm -c`: an
//! instruction a line behind its address, labels, a section `.text.NAME` for each entry.

pub mod count;
pub mod flight;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Bytes from the start of the kernel.
    pub address: u64,
    /// `P0`, `!UP1`: the guard; empty if there is none.
    pub guard: String,
    /// With its suffixes: `LDS.128`.
    pub name: String,
    /// As written.
    pub operands: Vec<String>,
}

/// A kernel's machine code.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// In the order of addresses.
    pub code: Vec<Instruction>,
    /// Number of the instruction that each label stands before.
    labels: BTreeMap<String, usize>,
}

/// A loop: it is entered at its header only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Its instructions, including inner loops.
    pub body: BTreeSet<usize>,
}

impl Instruction {
    /// The name without suffixes.
    pub fn class(&self) -> &str {
        self.name.split('.').next().unwrap_or_default()
    }

    /// Whether the name has this suffix.
    pub fn has(&self, suffix: &str) -> bool {
        self.name.split('.').skip(1).any(|s| s == suffix)
    }

    /// Whether it multiplies on tensor cores.
    pub fn multiplies(&self) -> bool {
        self.class().ends_with("MMA") && self.class() != "UTMMA"
    }

    fn always(&self) -> bool {
        ["", "PT", "UPT"].contains(&self.guard.as_str())
    }

    /// The label it names.
    fn label(&self) -> Option<&str> {
        self.operands.iter().find_map(|o| o.strip_prefix("`(")?.strip_suffix(')'))
    }

    /// General registers that it writes.
    pub fn writes(&self) -> Range<u32> {
        const NONE: [&str; 9] = ["BAR", "WARPSYNC", "BRX", "JMX", "RET", "NANOSLEEP", "R2P", "FCHK", "SYNCS"];
        if NONE.contains(&self.class()) || self.class().contains("SETP") {
            return 0..0;
        }
        let is_predicate = |o: &&String| o.starts_with('P') || o.starts_with("UP");
        let first = self.operands.iter().find(|o| !is_predicate(o)).and_then(|o| register(o));
        first.map_or(0..0, |r| r..r + self.written())
    }

    /// How many registers its result has.
    fn written(&self) -> u32 {
        let shape = || self.name.split('.').find_map(|s| s.strip_prefix("64x")?.split('x').next()?.parse::<u32>().ok());
        match self.class() {
            "HGMMA" | "QGMMA" | "IGMMA" | "BGMMA" => {
                shape().map_or(1, |n| if self.name.contains("F32") || self.class() == "IGMMA" { n / 2 } else { n / 4 })
            }
            "HMMA" if !self.has("F32") => 2,
            "HMMA" | "QMMA" | "IMMA" => 4,
            "CS2R" if !self.has("32") => 2,
            "DADD" | "DMUL" | "DFMA" | "DMMA" => 2,
            _ if self.has("128") || self.class() == "LDSM" && self.has("4") => 4,
            _ if self.has("64") || self.has("WIDE") || self.has("F64") || self.class() == "LDSM" && self.has("2") => 2,
            _ => 1,
        }
    }
}

/// The number of a general register: `R24`, `R24.64`, `R24.reuse`. `RZ` is none.
pub fn register(operand: &str) -> Option<u32> {
    let digits = operand.strip_prefix('R')?;
    digits.split('.').next()?.parse().ok()
}

/// The kernels of a disassembled module, by the names of their entries.
///
/// # Errors
/// The first line that is no instruction where one should be.
pub fn listings(text: &str) -> Result<BTreeMap<String, Listing>, String> {
    let mut all: BTreeMap<String, Listing> = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(section) = trimmed.strip_prefix(".section").filter(|s| s.starts_with(char::is_whitespace)) {
            current = section
                .trim()
                .strip_prefix(".text.")
                .and_then(|s| s.split([',', ' ', '\t']).next())
                .map(|s| s.trim_matches('"').to_string());
        }
        let Some(listing) = current.as_ref().map(|name| all.entry(name.clone()).or_default()) else { continue };
        if let Some(label) = trimmed.strip_suffix(':') {
            listing.labels.insert(label.to_string(), listing.code.len());
        } else if let Some(rest) = trimmed.strip_prefix("/*") {
            listing.code.push(instruction(rest).ok_or_else(|| format!("not an instruction: {trimmed}"))?);
        }
    }
    all.retain(|_, l| !l.code.is_empty());
    Ok(all)
}

/// `0060*/  @P0 LDS.128 R4, [R2+0x10] ;`
fn instruction(text: &str) -> Option<Instruction> {
    let (address, rest) = text.split_once("*/")?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let rest = rest.trim().split(';').next()?.trim();
    // The comments after an indirect branch do not matter.
    let (guard, rest) = match rest.strip_prefix('@') {
        Some(r) => r.split_once(char::is_whitespace)?,
        None => ("", rest),
    };
    let (name, operands) = rest.trim().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
    let operands = operands.split(',').map(|o| o.trim().to_string()).filter(|o| !o.is_empty()).collect();
    (!name.is_empty()).then(|| Instruction { address, guard: guard.to_string(), name: name.to_string(), operands })
}

impl Listing {
    /// Puts an instruction behind number `i`, on the way from there only: to see that it is found.
    pub fn insert_after(&mut self, i: usize, new: Instruction) {
        self.code.insert(i + 1, new);
        self.labels.values_mut().filter(|at| **at > i).for_each(|at| *at += 1);
    }

    /// Numbers of the instructions that may follow instruction `i`.
    ///
    /// # Errors
    /// A branch to somewhere else.
    pub fn after(&self, i: usize) -> Result<Vec<usize>, String> {
        let code = &self.code[i];
        let target = || {
            let label = code.label().ok_or_else(|| format!("{:#x}: where does {} go?", code.address, code.name))?;
            self.labels.get(label).copied().ok_or_else(|| format!("{:#x}: there is no label {label}", code.address))
        };
        // Calls come back, and who has waited for others at `BSYNC` goes on behind it.
        let mut out = match code.class() {
            // A branch also depends on operands that are predicates.
            "BRA" => {
                let own = code.operands.iter().any(|o| !o.starts_with("`(") && !o.ends_with("PT"));
                let on = if code.always() && !own { vec![] } else { vec![i + 1] };
                [vec![target()?], on].concat()
            }
            "EXIT" | "RET" | "KILL" => {
                if code.always() {
                    vec![]
                } else {
                    vec![i + 1]
                }
            }
            "BRX" | "JMX" | "JMP" => return Err(format!("{:#x}: {} goes anywhere", code.address, code.name)),
            _ => vec![i + 1],
        };
        out.retain(|n| *n < self.code.len());
        out.sort_unstable();
        out.dedup();
        Ok(out)
    }

    /// The loops, outer ones before those in them. Two that share a header are one.
    ///
    /// # Errors
    /// As [`Listing::after`].
    pub fn loops(&self) -> Result<Vec<Loop>, String> {
        let after: Vec<Vec<usize>> = (0..self.code.len()).map(|i| self.after(i)).collect::<Result<_, _>>()?;
        let mut before = vec![vec![]; after.len()];
        after.iter().enumerate().for_each(|(i, next)| next.iter().for_each(|n| before[*n].push(i)));
        let dominators = dominators(&after, &before);
        let mut found: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (i, next) in after.iter().enumerate() {
            for head in next.iter().filter(|n| dominates(&dominators, **n, i)) {
                let body = found.entry(*head).or_insert_with(|| BTreeSet::from([*head]));
                let mut rest = vec![i];
                while let Some(i) = rest.pop() {
                    if body.insert(i) {
                        rest.extend(&before[i]);
                    }
                }
            }
        }
        let mut loops: Vec<Loop> = found.into_values().map(|body| Loop { body }).collect();
        loops.sort_by_key(|l| usize::MAX - l.body.len());
        Ok(loops)
    }
}

/// The next instruction that all paths to an instruction pass, its own index where there is none:
/// for the entry, and for unreachable ones (Cooper, Harvey and Kennedy, "A Simple, Fast Dominance
/// Algorithm", 2001).
fn dominators(after: &[Vec<usize>], before: &[Vec<usize>]) -> Vec<usize> {
    let order = postorder(after);
    let mut number = vec![usize::MAX; after.len()];
    order.iter().enumerate().for_each(|(n, i)| number[*i] = n);
    let mut found: Vec<Option<usize>> = vec![None; after.len()];
    found[0] = Some(0);
    let mut changed = true;
    while changed {
        changed = false;
        for i in order.iter().rev().copied().filter(|i| *i != 0) {
            let mut new: Option<usize> = None;
            for p in before[i].iter().copied().filter(|p| found[*p].is_some()) {
                new = Some(new.map_or(p, |other| {
                    let (mut a, mut b) = (p, other);
                    while a != b {
                        let lower = if number[a] < number[b] { &mut a } else { &mut b };
                        *lower = found[*lower].unwrap_or(0);
                    }
                    a
                }));
            }
            changed |= found[i] != new;
            found[i] = new;
        }
    }
    found.iter().enumerate().map(|(i, d)| d.unwrap_or(i)).collect()
}

fn postorder(after: &[Vec<usize>]) -> Vec<usize> {
    let (mut out, mut seen, mut stack) = (vec![], vec![false; after.len()], vec![(0, 0)]);
    seen[0] = true;
    while let Some((i, at)) = stack.pop() {
        match after[i].get(at) {
            Some(next) => {
                stack.push((i, at + 1));
                if !std::mem::replace(&mut seen[*next], true) {
                    stack.push((*next, 0));
                }
            }
            None => out.push(i),
        }
    }
    out
}

fn dominates(dominators: &[usize], a: usize, mut b: usize) -> bool {
    while a != b {
        let up = dominators[b];
        if up == b {
            return false;
        }
        b = up;
    }
    true
}

#[cfg(test)]
mod tests;

//! Registers that asynchronous products (`wgmma`) have as operands, and who writes them before the
//! products are done.
//!
//! The weights of our products are in registers, which the tensor cores read after the instruction
//! has been issued. PTX says that such a register must not be changed before `wgmma.wait_group` has
//! waited for its group; the code of `ptxas`, which moves copies and gives one register to several
//! values, is checked only here.
//!
//! In SASS, a product names its group's barrier (`gsb0`) when it is the last of the group, and
//! `WARPGROUP.DEPBAR.LE gsb0, N` waits until at most `N` groups are under way.

use super::{Instruction, Listing, register};
use std::collections::BTreeSet;
use std::ops::Range;

/// Groups under way that are told apart; older ones count as one, which nothing waits for alone.
const GROUPS: usize = 8;

/// Registers in use at a place of the code, whichever way led there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Flight {
    /// By products whose group is not yet closed.
    open: Registers,
    /// By each closed group, the newest first.
    groups: Vec<Registers>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Registers {
    /// Weights.
    operands: Set,
    /// Sums.
    sums: Set,
}

/// A set of register numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set([u64; 4]);

impl Set {
    fn add(&mut self, registers: Range<u32>) {
        registers.for_each(|r| self.0[r as usize / 64 % 4] |= 1 << (r % 64));
    }

    fn has(&self, r: u32) -> bool {
        self.0[r as usize / 64 % 4] >> (r % 64) & 1 == 1
    }
}

impl Registers {
    fn join(&mut self, other: &Registers) {
        for (own, theirs) in [(&mut self.operands, &other.operands), (&mut self.sums, &other.sums)] {
            own.0.iter_mut().zip(theirs.0).for_each(|(a, b)| *a |= b);
        }
    }
}

fn is_product(c: &Instruction) -> bool {
    c.class().ends_with("GMMA")
}

/// The weights of a product, if they are in registers: four of them.
fn operands(c: &Instruction) -> Option<Range<u32>> {
    let first = register(c.operands.get(1)?)?;
    Some(first..first + 4)
}

/// How many products have their weights in registers.
pub fn products(listing: &Listing) -> usize {
    listing.code.iter().filter(|c| is_product(c) && operands(c).is_some()).count()
}

/// A line for each instruction that writes a register of a product under way.
///
/// # Errors
/// As [`Listing::after`].
pub fn overwritten(listing: &Listing) -> Result<Vec<String>, String> {
    let mut at: Vec<Option<Flight>> = vec![None; listing.code.len()];
    at[0] = Some(Flight::default());
    let mut rest = BTreeSet::from([0]);
    while let Some(i) = rest.pop_first() {
        let out = at[i].clone().unwrap_or_default().after(&listing.code[i]);
        for next in listing.after(i)? {
            let known = at[next].get_or_insert_with(|| {
                rest.insert(next);
                Flight::default()
            });
            if known.join(&out) {
                rest.insert(next);
            }
        }
    }
    let found = listing.code.iter().zip(&at).filter_map(|(c, flight)| flight.as_ref()?.wrong(c));
    Ok(found.collect())
}

impl Flight {
    /// Products under way after an instruction.
    fn after(mut self, c: &Instruction) -> Flight {
        if is_product(c) {
            self.open.sums.add(c.writes());
            self.open.operands.add(operands(c).unwrap_or(0..0));
            if c.operands.iter().any(|o| o == "gsb0") {
                self.groups.insert(0, std::mem::take(&mut self.open));
                if let Some(oldest) = (self.groups.len() > GROUPS).then(|| self.groups.pop()).flatten() {
                    self.groups[GROUPS - 1].join(&oldest);
                }
            }
        }
        if c.class() == "WARPGROUP" && c.has("DEPBAR") {
            let most = c.operands.iter().find_map(|o| u32::from_str_radix(o.strip_prefix("0x")?, 16).ok());
            self.groups.truncate(most.unwrap_or(0) as usize);
        }
        self
    }

    /// Adds the products under way on another path here; whether there are more.
    fn join(&mut self, other: &Flight) -> bool {
        let before = self.clone();
        self.open.join(&other.open);
        self.groups.resize(self.groups.len().max(other.groups.len()), Registers::default());
        self.groups.iter_mut().zip(&other.groups).for_each(|(own, theirs)| own.join(theirs));
        *self != before
    }

    fn wrong(&self, c: &Instruction) -> Option<String> {
        let all = || self.groups.iter().chain([&self.open]);
        let hits = |r: &u32| all().any(|g| g.operands.has(*r) || !is_product(c) && g.sums.has(*r));
        let hit = c.writes().find(hits)?;
        Some(format!(
            "{:#x}: {} {} writes R{hit}, which a product under way has",
            c.address,
            c.name,
            c.operands.join(", ")
        ))
    }
}

//! The tables of an artifact, read from its file: which kernels a step launches, and the states of sequences.
//!
//! No code of the artifact runs, so artifacts for other machines are read as well.

use crate::locate::LocateError;
use crate::sealed::Sealed;
use llmcc_abi::{self as abi, NONE, Span, Table};
use std::mem::offset_of;
use std::path::Path;

/// The tables of one version of the model.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Instruction-set level that its code needs ([`llmcc_abi::isa`]).
    pub isa: u32,
    /// Kernel sequences of the first entry, which appends tokens, ascending by size.
    pub regimes: Vec<Regime>,
    /// States of a sequence.
    pub states: Vec<abi::StateDesc>,
}

/// The kernels of steps of some sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regime {
    /// Most tokens; `None`: any.
    pub max_tokens: Option<usize>,
    /// Each kernel, and how often a step launches it, in the order of their first launches.
    pub kernels: Vec<(String, usize)>,
}

/// Reads the tables of all versions of the artifact at `path`, in the order of preference.
///
/// # Errors
/// Not readable, not an artifact, or damaged.
pub fn tables(path: &Path) -> Result<Vec<Tables>, LocateError> {
    let data = Data(Sealed::open(path)?.data()?);
    let (mut all, mut at) = (vec![], 0);
    let broken = || LocateError::NotAnArtifact {
        path: path.to_owned(),
        what: "its tables make no sense; compile it again".into(),
    };
    loop {
        let (tables, next) = data.version(at).ok_or_else(broken)?;
        all.push(tables);
        // (Later versions lie further on, so this ends.)
        match next {
            0 => return Ok(all),
            next if next <= at => return Err(broken()),
            next => at = next,
        }
    }
}

/// A data segment. Reads fail beyond its end.
struct Data(Vec<u8>);

impl Data {
    fn bytes(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.0.get(at..at.checked_add(len)?)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(at, 4)?.try_into().ok()?))
    }

    fn u64(&self, at: usize) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.bytes(at, 8)?.try_into().ok()?)).ok()
    }

    /// The text of a span at `at`.
    fn text(&self, at: usize) -> Option<String> {
        let (off, len) = (self.u64(at + offset_of!(Span, off))?, self.u64(at + offset_of!(Span, len))?);
        String::from_utf8(self.bytes(off, len)?.to_vec()).ok()
    }

    /// Where the rows of `size` bytes of a table at `at` begin.
    fn rows(&self, at: usize, size: usize) -> Option<Vec<usize>> {
        let (off, count) = (self.u64(at + offset_of!(Table, off))?, self.u64(at + offset_of!(Table, count))?);
        self.bytes(off, count.checked_mul(size)?)?;
        Some((0..count).map(|row| off + row * size).collect())
    }

    /// The version whose descriptor is at `at`, and where the next one is.
    fn version(&self, at: usize) -> Option<(Tables, usize)> {
        macro_rules! at {
            ($field:ident) => {
                at.checked_add(offset_of!(abi::ModelDesc, $field))?
            };
        }
        if self.bytes(at, 8)? != abi::MODEL_MAGIC {
            return None;
        }
        let name = |row: &usize| self.text(row + offset_of!(abi::KernelDesc, name));
        let kernels = self.rows(at!(kernels), size_of::<abi::KernelDesc>())?;
        let names: Vec<String> = kernels.iter().map(name).collect::<Option<_>>()?;
        let entry = *self.rows(at!(entries), size_of::<abi::EntryDesc>())?.first()?;
        let (first, count) = (
            self.u32(entry + offset_of!(abi::EntryDesc, first_regime))? as usize,
            self.u32(entry + offset_of!(abi::EntryDesc, regimes))? as usize,
        );
        let regimes = self.rows(at!(regimes), size_of::<abi::RegimeDesc>())?;
        let steps = self.rows(at!(steps), size_of::<abi::StepDesc>())?;
        let own = regimes.get(first..first.checked_add(count)?)?;
        let regimes = own.iter().map(|row| self.regime(*row, &steps, &names)).collect::<Option<_>>()?;
        let states = self.rows(at!(states), size_of::<abi::StateDesc>())?;
        let states = states.iter().map(|row| self.state(*row)).collect::<Option<_>>()?;
        Some((Tables { isa: self.u32(at!(isa))?, regimes, states }, self.u64(at!(alternative))?))
    }

    fn regime(&self, at: usize, steps: &[usize], names: &[String]) -> Option<Regime> {
        let most = self.u32(at + offset_of!(abi::RegimeDesc, max_tokens))?;
        let first = self.u32(at + offset_of!(abi::RegimeDesc, first_step))? as usize;
        let count = self.u32(at + offset_of!(abi::RegimeDesc, steps))? as usize;
        let mut kernels: Vec<(usize, usize)> = vec![];
        for step in steps.get(first..first.checked_add(count)?)? {
            let kernel = self.u32(step + offset_of!(abi::StepDesc, kernel))? as usize;
            match kernels.iter_mut().find(|(known, _)| *known == kernel) {
                Some((_, launches)) => *launches += 1,
                None => kernels.push((kernel, 1)),
            }
        }
        let named = |(kernel, launches): (usize, usize)| Some((names.get(kernel)?.clone(), launches));
        let kernels = kernels.into_iter().map(named).collect::<Option<_>>()?;
        Some(Regime { max_tokens: (most != NONE).then_some(most as usize), kernels })
    }

    fn state(&self, at: usize) -> Option<abi::StateDesc> {
        self.bytes(at, size_of::<abi::StateDesc>())?;
        let small = |field: usize| self.bytes(at + field, 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        Some(abi::StateDesc {
            kind: self.u32(at + offset_of!(abi::StateDesc, kind))?,
            group: self.u32(at + offset_of!(abi::StateDesc, group))?,
            kv_heads: self.u32(at + offset_of!(abi::StateDesc, kv_heads))?,
            key_dim: small(offset_of!(abi::StateDesc, key_dim))?,
            value_dim: small(offset_of!(abi::StateDesc, value_dim))?,
            dtype: self.u32(at + offset_of!(abi::StateDesc, dtype))?,
            window: self.u32(at + offset_of!(abi::StateDesc, window))?,
            bytes: self.u64(at + offset_of!(abi::StateDesc, bytes))? as u64,
            track: self.u32(at + offset_of!(abi::StateDesc, track))?,
            reserved: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables cut anywhere, and any of their bytes set to ones, are refused or read, without a panic.
    #[test]
    fn broken_tables_are_refused() {
        let mut whole = vec![0; size_of::<abi::ModelDesc>() + size_of::<abi::EntryDesc>()];
        whole[..8].copy_from_slice(&abi::MODEL_MAGIC);
        let entries = offset_of!(abi::ModelDesc, entries);
        whole[entries..entries + 8].copy_from_slice(&(size_of::<abi::ModelDesc>() as u64).to_le_bytes());
        whole[entries + 8] = 1;
        assert!(Data(whole.clone()).version(0).is_some_and(|(tables, next)| tables.regimes.is_empty() && next == 0));
        assert!(Data(whole.clone()).version(1).is_none() && Data(whole.clone()).version(usize::MAX).is_none());
        for cut in 0..whole.len() {
            let _ = Data(whole[..cut].to_vec()).version(0);
        }
        for at in 8..whole.len() {
            let mut data = Data(whole.clone());
            data.0[at..(at + 4).min(whole.len())].fill(0xFF);
            let _ = data.version(0);
        }
        assert!(Data(vec![]).version(0).is_none());
    }
}

//! Checks of an image: every index, offset and span lies inside its target.

use std::ffi::CStr;

use llmcc_abi::{GPU_MAX_SHARED, GPU_MAX_THREADS, Span, StateDesc, kv_dtype, layout, operand, rows, state};

use super::Image;
use super::segment::{check_text, damaged};
use crate::error::Result;

/// Groups of states of a model: a step has block tables for each.
const MAX_GROUPS: usize = 64;
/// The most tokens per row of a strided state.
const MAX_STRIDE: u32 = 1 << 20;
/// Most first tokens that alone have rows.
const MAX_FIRST: u32 = 1 << 20;
/// The most adapters.
const MAX_ADAPTERS: u32 = 1 << 12;
/// The most bytes of a fixed state of one layer.
const MAX_STATE: u64 = 1 << 40;

impl Image {
    /// Checks every table against its targets.
    pub(super) fn check_all(&self) -> Result<()> {
        self.check_sizes()?;
        self.check_weights()?;
        self.check_kernels()?;
        self.check_gpu()?;
        self.check_regimes()?;
        self.check_steps()?;
        self.check_operands()?;
        self.check_states()?;
        self.check_groups()?;
        let d = &self.desc;
        for (span, what) in [(d.manifest, "manifest"), (d.tokenizer, "tokenizer"), (d.text_config, "text config")] {
            check_text(self.data, span, what)?;
        }
        Ok(())
    }

    fn check_weights(&self) -> Result<()> {
        let Span { off, len } = self.desc.weights;
        if off.checked_add(len).is_none_or(|end| end > self.weights.len) || len > isize::MAX as u64 {
            return Err(damaged("weights outside their segment"));
        }
        Ok(())
    }

    fn check_gpu(&self) -> Result<()> {
        let expected = if self.gpu_level().is_some() { self.kernels.len() } else { 0 };
        if self.gpu.len() != expected {
            return Err(damaged(format_args!("{} GPU kernels instead of {expected}", self.gpu.len())));
        }
        for (i, g) in self.gpu.iter().enumerate() {
            check_text(self.data, g.entry, "GPU kernel entry")?;
            let bad_entry = self.gpu_entry(i).is_empty() || self.gpu_entry(i).contains('\0');
            let bad_launch = g.threads == 0
                || g.threads > GPU_MAX_THREADS
                || g.shared > GPU_MAX_SHARED
                || g.grid.iter().any(|d| d.fixed == 0);
            if bad_entry || bad_launch {
                return Err(damaged(format_args!("GPU kernel {i}: {g:?}")));
            }
            for span in [g.ptx, g.cubin] {
                if span.off.checked_add(span.len).is_none_or(|end| end > self.code.len) || span.len > isize::MAX as u64
                {
                    return Err(damaged(format_args!("GPU kernel {i} outside the code")));
                }
            }
            // One NUL, at the end: the driver reads up to it.
            if CStr::from_bytes_with_nul(self.code_bytes(g.ptx)).is_err() {
                return Err(damaged(format_args!("the PTX of GPU kernel {i} does not end properly")));
            }
            if g.cubin.len > 0 && !self.cubin(i).starts_with(b"\x7fELF") {
                return Err(damaged(format_args!("the cubin of GPU kernel {i} is not a cubin")));
            }
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<()> {
        let d = &self.desc;
        let small = |x: u64| x > 0 && x <= i32::MAX as u64;
        if !small(d.vocab) || !small(d.max_context) || !small(d.hidden) {
            return Err(damaged(format_args!(
                "sizes: vocabulary {}, context {}, width {}",
                d.vocab, d.max_context, d.hidden
            )));
        }
        Ok(())
    }

    fn check_kernels(&self) -> Result<()> {
        for (i, kernel) in self.kernels.iter().enumerate() {
            if kernel.code >= self.code.len {
                return Err(damaged(format_args!("kernel {i} starts outside the code")));
            }
            check_text(self.data, kernel.name, "kernel name")?;
        }
        Ok(())
    }

    fn check_regimes(&self) -> Result<()> {
        for (i, r) in self.regimes.iter().enumerate() {
            if u64::from(r.first_step) + u64::from(r.steps) > self.steps.len() as u64 {
                return Err(damaged(format_args!("regime {i} has steps outside the table")));
            }
        }
        Ok(())
    }

    fn check_steps(&self) -> Result<()> {
        for (i, s) in self.steps.iter().enumerate() {
            let end = u64::from(s.first_operand) + u64::from(s.operands);
            let known = s.rows == rows::TOKENS || s.rows == rows::OUT;
            if s.kernel as usize >= self.kernels.len()
                || end > self.operands.len() as u64
                || !known
                || s.items_per_m > 1
            {
                return Err(damaged(format_args!("step {i}: {s:?}")));
            }
        }
        Ok(())
    }

    fn check_operands(&self) -> Result<()> {
        for (i, o) in self.operands.iter().enumerate() {
            let index = o.index as usize;
            let good = match o.kind {
                operand::BUFFER => index < self.buffers.len() && o.offset == 0,
                operand::WEIGHT => {
                    o.offset.checked_sub(self.desc.weights.off).is_some_and(|at| at < self.desc.weights.len)
                }
                operand::STATE => index < self.states.len() && o.offset == 0,
                _ => false,
            };
            if !good {
                return Err(damaged(format_args!("operand {i}: {o:?}")));
            }
        }
        Ok(())
    }

    fn check_states(&self) -> Result<()> {
        for (i, s) in self.states.iter().enumerate() {
            let good = match s.kind {
                state::PAGED => page_bytes(s) == Some(s.bytes),
                state::STRIDED => page_bytes(s) == Some(s.bytes) && (2..=MAX_STRIDE).contains(&s.window),
                state::FIRST => page_bytes(s) == Some(s.bytes) && (1..=MAX_FIRST).contains(&s.window),
                state::ADAPTER => {
                    (64..=MAX_STATE).contains(&s.bytes)
                        && s.bytes.is_multiple_of(64)
                        && (1..=MAX_ADAPTERS).contains(&s.window)
                }
                state::FIXED => s.bytes > 0 && s.bytes.is_multiple_of(64) && s.bytes <= MAX_STATE && s.window == 0,
                _ => false,
            };
            if !good {
                return Err(damaged(format_args!("state {i}: {s:?}")));
            }
        }
        Ok(())
    }

    /// Groups count up, their states have one kind, one window and one track, and the states of a step are of
    /// one group.
    fn check_groups(&self) -> Result<()> {
        let mut groups: Vec<(u32, u32, u32)> = Vec::new();
        for (i, s) in self.states.iter().enumerate() {
            let group = s.group as usize;
            if group == groups.len() && group < MAX_GROUPS {
                groups.push((s.kind, s.window, s.track));
            }
            if groups.get(group) != Some(&(s.kind, s.window, s.track))
                || s.track as usize >= MAX_GROUPS
                || s.reserved != 0
            {
                return Err(damaged(format_args!(
                    "state {i} is of kind {} with a window of {} in track {}, in group {group}",
                    s.kind, s.window, s.track
                )));
            }
        }
        for (i, step) in self.steps.iter().enumerate() {
            let mut groups = self.groups_of(step);
            let first = groups.next();
            if groups.any(|g| Some(g) != first) {
                return Err(damaged(format_args!("step {i} uses states of several groups")));
            }
        }
        Ok(())
    }
}

/// Bytes of a page of a state that is made of pages.
fn page_bytes(s: &StateDesc) -> Option<u64> {
    let bits = kv_dtype::bits(s.dtype)?;
    let key = usize::from(s.key_dim);
    let value = if s.value_dim == 0 { key } else { s.value_dim.into() };
    // Keys that are values are stored as those.
    let good = s.kv_heads > 0 && value > 0 && s.kv_heads <= 1 << 16;
    let good = good && (bits >= 8 || key.is_multiple_of(2) && value.is_multiple_of(2));
    good.then(|| layout::page(s.kv_heads as usize, key, value, bits).bytes as u64)
}

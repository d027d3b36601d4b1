//! Results of a step: for each row its candidates or its output (logits, or others), as requested;
//! the output also later, as long as no other step has run.
//!
//! The device copies to pinned memory, which is as large as the largest request so far: most models
//! never return more than candidates, and 64 MiB take 40 ms to pin.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use llmcc_abi::OutputDesc;
use llmcc_abi::layout::candidate_cols;

use super::copier::{Copier, Disjoint};
use super::device::{Device, Pinned};
use crate::candidates::Want;
use crate::engine::{Limits, Tapped};
use crate::error::Result;
use crate::image::{Entry, Tap};

/// Values that a thread copies at once.
const PART: usize = 1 << 16;

/// Rows of f32 on the device and their place on the host.
struct Rows {
    host: Option<Pinned>,
    /// Rows for which there is room on the host.
    room: usize,
    device: u64,
    /// Columns; 0: there are no such rows.
    cols: usize,
    /// Most rows.
    limit: usize,
    /// Their purpose, for errors.
    purpose: &'static str,
}

/// Results of the last step of an entry.
pub(crate) struct Results {
    output: Rows,
    candidates: Rows,
    /// Hidden states, a row for each token.
    kept: Rows,
    /// Rows of the tap that was read last, and their routes.
    tapped: [Rows; 2],
    /// Which rows of the output are on the host.
    present: Vec<bool>,
    fetched_bytes: u64,
}

impl Results {
    /// Results of steps within `limits`; `address` tells where an activation slot lies on the
    /// device.
    pub fn new(entry: &Entry, limits: Limits, address: impl Fn(u64) -> u64) -> Results {
        let rows = |cols: usize, (slot, limit): (u64, usize), purpose| {
            let device = if cols > 0 { address(slot) } else { 0 };
            Rows { host: None, room: 0, device, cols, limit, purpose }
        };
        let slot = |o: Option<OutputDesc>| o.map_or(0, |o| o.buffer);
        let cols = if entry.candidates > 0 { candidate_cols(entry.candidates) } else { 0 };
        Results {
            output: rows(entry.columns(), (slot(entry.output), limits.rows), "the output of steps"),
            candidates: rows(cols, (entry.candidates_buffer as u64, limits.rows), "candidates"),
            kept: rows(entry.kept(), (slot(entry.hidden), limits.tokens), "hidden states"),
            tapped: [0; 2].map(|slot| rows(0, (slot, limits.tokens), "inputs of products")),
            present: Vec::new(),
            fetched_bytes: 0,
        }
    }

    /// Makes room for the requested results of a step. No copy is under way.
    pub fn make_room(&mut self, device: &Arc<Device>, wants: &[Want]) -> Result<()> {
        self.present.clear();
        let logits = wants.contains(&Want::Logits);
        // More may be wanted of any row later.
        self.output.make_room(device, if logits { wants.len() } else { 0 })?;
        self.candidates.make_room(device, if wants.iter().all(|w| *w == Want::Logits) { 0 } else { wants.len() })
    }

    /// Bytes fetched so far.
    pub fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes
    }

    /// Starts fetching the requested results of the step under way, for which there is room. The
    /// device's context is current.
    pub fn fetch(&mut self, device: &Device, wants: &[Want]) -> Result<()> {
        self.present.clear();
        self.present.extend(wants.iter().map(|w| *w == Want::Logits));
        let mut row = 0;
        for run in wants.chunk_by(|a, b| (*a == Want::Logits) == (*b == Want::Logits)) {
            let rows = if run[0] == Want::Logits { &self.output } else { &self.candidates };
            self.fetched_bytes += rows.fetch(device, row, run.len())?;
            row += run.len();
        }
        Ok(())
    }

    /// A row of the output, fetched now if it was not wanted before.
    pub fn output(&mut self, device: &Arc<Device>, row: usize) -> Result<&[f32]> {
        if !self.present.get(row).copied().unwrap_or(true) {
            let _current = device.current()?;
            // None is there yet where there is no room.
            self.output.make_room(device, self.present.len())?;
            self.fetched_bytes += self.output.fetch(device, row, 1)?;
            device.synchronize("cannot fetch the output from the GPU")?;
            self.present[row] = true;
        }
        Ok(self.output.row(row))
    }

    /// Copies rows of the output, each to row `.1` of `out`, on several threads.
    pub fn store(
        &mut self,
        device: &Arc<Device>,
        copier: &mut Copier,
        rows: &[(usize, usize)],
        out: &mut [MaybeUninit<f32>],
    ) -> Result<()> {
        for &(row, _) in rows {
            self.output(device, row)?;
        }
        let cols = self.output.cols;
        assert!(rows.iter().all(|(_, to)| (to + 1) * cols <= out.len()), "rows without a place");
        let from = Disjoint::new(self.output.start());
        let to = Disjoint::new(out.as_mut_ptr());
        let all = cols * rows.len();
        copier.run(all.div_ceil(PART), || (), &|part| {
            let (mut at, end) = (part * PART, all.min((part + 1) * PART));
            while at < end {
                let ((row, index), skip) = (rows[at / cols], at % cols);
                let n = (cols - skip).min(end - at);
                let (from, to) = (from.place(row * cols + skip), to.place(index * cols + skip));
                // SAFETY: all these rows were fetched; their places are in `out` and are different.
                unsafe { ptr::copy_nonoverlapping(from.cast_const(), to.cast(), n) };
                at += n;
            }
        });
        Ok(())
    }

    /// `n` rows of a tap whose call has just ended.
    pub fn tapped(
        &mut self,
        device: &Arc<Device>,
        tap: &Tap,
        n: usize,
        address: impl Fn(u64) -> u64,
    ) -> Result<Tapped<'_>> {
        let _current = device.current()?;
        let wanted = [(tap.buffer, tap.width()), tap.routes.map_or((0, 0), |r| (r.buffer, 2 * r.top))];
        for (rows, (slot, cols)) in self.tapped.iter_mut().zip(wanted) {
            // Room is counted in rows of these columns.
            let room = rows.host.as_ref().map_or(0, |_| rows.room * rows.cols);
            (rows.device, rows.room) = (address(slot as u64), room.checked_div(cols).unwrap_or(0));
            rows.cols = cols;
            if n > 0 && cols > 0 {
                rows.make_room(device, n)?;
                self.fetched_bytes += rows.fetch(device, 0, n)?;
            }
        }
        device.synchronize("cannot fetch inputs of products from the GPU")?;
        let [rows, routes] = &self.tapped;
        let rows_of = |rows: &'_ Rows| if rows.cols == 0 { 0 } else { n };
        Ok(Tapped { rows: rows.rows(0, rows_of(rows)), routes: routes.rows(0, rows_of(routes)), pool: None })
    }

    /// The hidden states of the step's tokens.
    pub fn hidden(&mut self, device: &Arc<Device>, tokens: usize) -> Result<&[f32]> {
        let _current = device.current()?;
        self.kept.make_room(device, tokens)?;
        self.fetched_bytes += self.kept.fetch(device, 0, tokens)?;
        device.synchronize("cannot fetch the hidden states from the GPU")?;
        Ok(self.kept.rows(0, tokens))
    }

    /// The candidates of a row for which they were requested.
    pub fn candidates(&self, row: usize) -> &[f32] {
        self.candidates.row(row)
    }
}

impl Rows {
    /// Makes room for `rows` rows on the host; those that were there are lost if there was less.
    /// The device's context is current, and no copy is under way.
    fn make_room(&mut self, device: &Arc<Device>, rows: usize) -> Result<()> {
        debug_assert!(rows <= self.limit);
        if rows <= self.room {
            return Ok(());
        }
        let room = rows.next_power_of_two().min(self.limit).max(rows);
        (self.host, self.room) = (None, 0);
        self.host = Some(Pinned::unwritten(device, 4 * self.cols * room, self.purpose)?);
        self.room = room;
        Ok(())
    }

    /// The first value on the host.
    fn start(&self) -> *mut f32 {
        self.host.as_ref().map_or(ptr::null_mut(), |host| host.ptr().cast())
    }

    /// Starts copying `n` rows to the host. Returns their bytes.
    fn fetch(&self, device: &Device, first: usize, n: usize) -> Result<u64> {
        let (at, bytes) = (4 * self.cols * first, 4 * self.cols * n);
        assert!(first + n <= self.room && bytes > 0, "rows without room on the host");
        // SAFETY: the pinned block has room for these rows, and is read after the stream has been
        // waited for.
        let code = unsafe {
            let to = self.start().byte_add(at).cast();
            (device.api().copy_to_host)(to, self.device + at as u64, bytes, device.stream())
        };
        device.check(code, "cannot fetch the results of a step from the GPU")?;
        Ok(bytes as u64)
    }

    fn row(&self, row: usize) -> &[f32] {
        self.rows(row, 1)
    }

    /// Rows that were fetched; none where there is no room for them.
    fn rows(&self, first: usize, n: usize) -> &[f32] {
        if n == 0 || first + n > self.room {
            return &[];
        }
        // SAFETY: within the block, which is page aligned; the rows were fetched, and no copy to
        // them is under way.
        unsafe { std::slice::from_raw_parts(self.start().add(first * self.cols), n * self.cols) }
    }
}

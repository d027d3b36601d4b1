//! The arrays of a step on their way to the device: one pinned block, one device block, one copy.

use std::sync::Arc;

use llmcc_abi::{Array, Arrays, GpuCtx};

use super::device::{Device, DeviceMemory, Pinned};
use crate::engine::Inputs;
use crate::error::Result;

/// The contexts lie first, the arrays behind them; all at multiples of this.
const ALIGN: usize = 16;

/// From one context to the next.
const CTX_BYTES: usize = size_of::<GpuCtx>().next_multiple_of(ALIGN);

/// A [`GpuCtx`] per group of attention states at fixed device addresses, followed by the arrays
/// they point to, wherever they fit.
pub(crate) struct InputBlock {
    /// The track of each group.
    tracks: Vec<usize>,
    host: Pinned,
    device: DeviceMemory,
}

impl InputBlock {
    /// A block for steps of up to `tokens` tokens, groups of these tracks, and block tables of an ordinary size.
    pub fn new(device: &Arc<Device>, tokens: usize, tracks: Vec<usize>) -> Result<InputBlock> {
        let last = tracks.iter().copied().max().unwrap_or(0);
        let bytes = tracks.len() * CTX_BYTES + 4096 + (32 + 4 * last) * tokens;
        InputBlock::with_bytes(device, tracks, bytes)
    }

    fn with_bytes(device: &Arc<Device>, tracks: Vec<usize>, bytes: usize) -> Result<InputBlock> {
        let bytes = bytes.next_power_of_two().max(1 << 16);
        Ok(InputBlock {
            tracks,
            host: Pinned::zeroed(device, bytes, "inputs of steps")?,
            device: DeviceMemory::new(device, bytes, "inputs of steps")?,
        })
    }

    /// Address of the [`GpuCtx`] of a group.
    pub fn context(&self, group: usize) -> u64 {
        self.device.address() + (group * CTX_BYTES) as u64
    }

    /// Bytes on the device.
    pub fn len(&self) -> usize {
        self.device.len()
    }

    /// Makes room for `inputs`. Returns whether the block has moved (and with it the contexts). No
    /// copy is under way.
    pub fn grow(&mut self, device: &Arc<Device>, inputs: &Inputs) -> Result<bool> {
        let bytes = Places::of(inputs, self.tracks.len()).end;
        if bytes <= self.host.len() {
            return Ok(false);
        }
        *self = InputBlock::with_bytes(device, std::mem::take(&mut self.tracks), bytes)?;
        Ok(true)
    }

    /// Writes `inputs`, for which there is room, into the pinned block and starts the copy of the
    /// used part. The device's context is current.
    pub fn send(&mut self, device: &Device, inputs: &Inputs) -> Result<()> {
        let Places { at, arrays, end: used } = Places::of(inputs, self.tracks.len());
        let base = self.device.address();
        let [tokens, positions, seqs, out_rows, wanted, scales, block_tables, ends] =
            at.map(|offset| base + offset as u64);
        let ctx = GpuCtx {
            tokens,
            positions,
            seqs,
            out_rows,
            block_tables,
            block_stride: inputs.stride as u64,
            n_tokens: inputs.tokens.len() as u64,
            n_rows: inputs.out_rows.len() as u64,
            n_seqs: inputs.slots.len() as u64,
            wanted,
            scales,
            ends,
            arrays: Arrays::new(|array| base + arrays[array as usize] as u64),
        };
        let bytes = self.host.bytes();
        for (group, track) in self.tracks.iter().enumerate() {
            let block_tables = block_tables + (4 * group * inputs.table_len()) as u64;
            let ends = ends + (4 * inputs.first_end(*track)) as u64;
            put(bytes, group * CTX_BYTES, std::slice::from_ref(&GpuCtx { block_tables, ends, ..ctx }));
        }
        for (offset, array) in at.into_iter().zip([&inputs.tokens, &inputs.positions, &inputs.seqs, &inputs.out_rows]) {
            put(bytes, offset, array);
        }
        put_each(bytes, at[4], inputs.wants.iter().map(|w| w.count()));
        put_each(bytes, at[5], inputs.wants.iter().map(|w| w.scale()));
        put(bytes, at[6], &inputs.tables);
        put(bytes, at[7], &inputs.ends);
        for (array, offset) in Array::ALL.iter().zip(&arrays) {
            put(bytes, *offset, inputs.array(*array));
        }
        // SAFETY: both blocks have `used` bytes and live on; nobody writes the pinned one before
        // the stream has been waited for.
        let code = unsafe { (device.api().copy_to_device)(base, self.host.ptr().cast(), used, device.stream()) };
        device.check(code, "cannot send the inputs of a step to the GPU")
    }
}

/// Where the arrays of a step lie in the block.
struct Places {
    /// Tokens, positions, sequences, rows, kinds of results, scales, tables, and lengths of sequences.
    at: [usize; 8],
    /// Those of [`Array::ALL`].
    arrays: [usize; Array::ALL.len()],
    /// All bytes.
    end: usize,
}

impl Places {
    fn of(inputs: &Inputs, groups: usize) -> Places {
        let (n, rows) = (inputs.tokens.len(), inputs.out_rows.len());
        let mut end = groups * CTX_BYTES;
        let mut place = |bytes: usize| {
            let at = end.next_multiple_of(ALIGN);
            end = at + bytes;
            at
        };
        let at = [n, n, n, rows, rows, rows, inputs.tables.len(), inputs.ends.len()].map(|len| place(4 * len));
        let mut arrays = [0; Array::ALL.len()];
        for (at, array) in arrays.iter_mut().zip(Array::ALL) {
            *at = place(inputs.array(*array).len());
        }
        Places { at, arrays, end }
    }
}

/// Plain integers: every byte is initialised.
trait Plain: Copy {}
impl Plain for i32 {}
impl Plain for u8 {}
impl Plain for u32 {}
impl Plain for f32 {}
impl Plain for GpuCtx {}

fn put_each<T: Plain>(bytes: &mut [u8], at: usize, items: impl Iterator<Item = T>) {
    items.enumerate().for_each(|(i, item)| put(bytes, at + i * size_of::<T>(), std::slice::from_ref(&item)));
}

fn put<T: Plain>(bytes: &mut [u8], at: usize, items: &[T]) {
    // SAFETY: `Plain` types have no padding.
    let from = unsafe { std::slice::from_raw_parts(items.as_ptr().cast::<u8>(), size_of_val(items)) };
    bytes[at..at + from.len()].copy_from_slice(from);
}

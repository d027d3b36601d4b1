//! Global memory: registered buffers with guard zones between them, and a bit for every byte that
//! says whether it was written.

use std::collections::HashMap;

use crate::blocks::{Blocks, MOST_WATCHED, Shadow, Touch};
use crate::fault::{Access, FaultKind};

/// Where global addresses begin: beyond 32 bits, so that an address cut to 32 bits is found out.
const BASE: u64 = 0x20_0000_0000;
/// Unmapped bytes between buffers.
const GUARD: u64 = 1 << 16;
const ALIGN: u64 = 512;

/// A buffer of global memory.
#[derive(Debug)]
pub(crate) struct Buffer {
    base: u64,
    bytes: Vec<u8>,
    /// One bit for each byte; empty once all are written.
    init: Vec<u64>,
    missing: u64,
    read_only: bool,
    shadow: Shadow,
}

impl Buffer {
    /// Whether `len` bytes from `at` are all written; `len` bytes lie in one aligned group of 64,
    /// or are checked piecewise.
    fn first_missing(&self, at: usize, len: usize) -> Option<usize> {
        if self.init.is_empty() {
            return None;
        }
        let mut i = at;
        while i < at + len {
            let n = (64 - i % 64).min(at + len - i);
            let mask = (u64::MAX >> (64 - n)) << (i % 64);
            let missing = !self.init[i / 64] & mask;
            if missing != 0 {
                return Some(i / 64 * 64 + missing.trailing_zeros() as usize);
            }
            i += n;
        }
        None
    }

    fn mark(&mut self, at: usize, len: usize) {
        if self.init.is_empty() {
            return;
        }
        let mut i = at;
        while i < at + len {
            let n = (64 - i % 64).min(at + len - i);
            let mask = (u64::MAX >> (64 - n)) << (i % 64);
            let word = &mut self.init[i / 64];
            self.missing -= u64::from((!*word & mask).count_ones());
            *word |= mask;
            i += n;
        }
        if self.missing == 0 {
            self.init = Vec::new();
        }
    }
}

/// The device's global memory. Addresses are those that kernels see.
#[derive(Debug, Default)]
pub struct Memory {
    /// By base address.
    buffers: Vec<Buffer>,
    next: u64,
    last: usize,
    allocated: u64,
    /// Addresses of the variables of each module used so far.
    pub(crate) modules: HashMap<u64, Vec<u64>>,
    pub(crate) blocks: Blocks,
}

impl Memory {
    /// No buffers.
    pub fn new() -> Self {
        Memory::default()
    }

    /// A new buffer of `bytes` unwritten bytes: reading them is reported. Its address is a multiple
    /// of 512; around it nothing is mapped.
    pub fn alloc(&mut self, bytes: usize) -> u64 {
        let base = if self.next == 0 { BASE } else { self.next };
        self.next = (base + bytes as u64 + GUARD).next_multiple_of(ALIGN);
        self.allocated += bytes as u64;
        self.buffers.push(Buffer {
            base,
            bytes: vec![0; bytes],
            init: vec![0; bytes.div_ceil(64)],
            missing: bytes as u64,
            read_only: false,
            shadow: Shadow::default(),
        });
        base
    }

    /// A new buffer that holds `data`.
    pub fn alloc_from(&mut self, data: &[u8]) -> u64 {
        let base = self.alloc(data.len());
        if let Some(b) = self.buffers.last_mut() {
            b.bytes.copy_from_slice(data);
            b.init = Vec::new();
            b.missing = 0;
        }
        base
    }

    /// A buffer that kernels may only read.
    pub(crate) fn alloc_constant(&mut self, data: &[u8]) -> u64 {
        let base = self.alloc_from(data);
        if let Some(b) = self.buffers.last_mut() {
            b.read_only = true;
        }
        base
    }

    /// Unmaps the buffer at `base`.
    ///
    /// # Errors
    /// `base` is not the start of a buffer.
    pub fn free(&mut self, base: u64) -> Result<(), FaultKind> {
        let i =
            self.buffers.binary_search_by_key(&base, |b| b.base).map_err(|_| self.outside(Access::Write, base, 0))?;
        self.allocated -= self.buffers[i].bytes.len() as u64;
        self.buffers.remove(i);
        self.last = 0;
        Ok(())
    }

    /// Bytes of all buffers.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Base and size of the buffer that contains `address`.
    pub fn buffer_of(&self, address: u64) -> Option<(u64, u64)> {
        let i = self.find(address)?;
        Some((self.buffers[i].base, self.buffers[i].bytes.len() as u64))
    }

    fn find(&self, address: u64) -> Option<usize> {
        let i = self.buffers.partition_point(|b| b.base <= address).checked_sub(1)?;
        let b = &self.buffers[i];
        (address < b.base + b.bytes.len() as u64).then_some(i)
    }

    fn outside(&self, access: Access, address: u64, bytes: u64) -> FaultKind {
        let i = self.buffers.partition_point(|b| b.base <= address);
        let mut nearest = String::from("no buffer is near");
        if let Some(b) = i.checked_sub(1).map(|i| &self.buffers[i]) {
            let end = b.base + b.bytes.len() as u64;
            nearest = format!(
                "{} bytes beyond the end of the {}-byte buffer at {:#x}",
                address.wrapping_sub(end),
                b.bytes.len(),
                b.base
            );
        }
        if let Some(b) = self.buffers.get(i).filter(|b| b.base - address < GUARD) {
            nearest = format!("{} bytes before the {}-byte buffer at {:#x}", b.base - address, b.bytes.len(), b.base);
        }
        FaultKind::OutOfBounds { space: "global", access, address, bytes, nearest: nearest.into() }
    }

    /// Index of the buffer that holds all of the range, and the offset in it.
    #[inline]
    fn locate(&mut self, access: Access, address: u64, len: u64) -> Result<(usize, usize), FaultKind> {
        let fits = |b: &Buffer| {
            address >= b.base
                && address.wrapping_add(len) <= b.base + b.bytes.len() as u64
                && address.checked_add(len).is_some()
        };
        if let Some(b) = self.buffers.get(self.last)
            && fits(b)
        {
            return Ok((self.last, (address - b.base) as usize));
        }
        match self.find(address).filter(|i| fits(&self.buffers[*i])) {
            Some(i) => {
                self.last = i;
                Ok((i, (address - self.buffers[i].base) as usize))
            }
            None => Err(self.outside(access, address, len)),
        }
    }

    /// Checks an access against other blocks' accesses.
    #[inline]
    pub(crate) fn touch(&mut self, len: u64, t: Touch) -> Result<(), FaultKind> {
        let (i, at) = self.locate(t.access, t.address, len)?;
        self.touch_at(i, at, len, t)
    }

    #[inline]
    fn touch_at(&mut self, buffer: usize, at: usize, len: u64, t: Touch) -> Result<(), FaultKind> {
        let b = &mut self.buffers[buffer];
        if !self.blocks.on() || b.read_only || b.bytes.len() > MOST_WATCHED {
            return Ok(());
        }
        self.blocks.touch(&mut b.shadow, at, len as usize, t)
    }

    /// A thread's read of `len` bytes, which is checked against other blocks' accesses. With `check`, bytes never
    /// written are a fault; a read through the read-only cache (`constant`) must see nothing that the launch wrote.
    #[inline]
    pub(crate) fn read_as(&mut self, len: u64, t: Touch, constant: bool, check: bool) -> Result<&[u8], FaultKind> {
        let (i, at) = self.locate(t.access, t.address, len)?;
        if constant
            && self.blocks.on()
            && let Some(line) = self.blocks.writer(&self.buffers[i].shadow, at, len as usize)
        {
            return Err(FaultKind::Stale { address: t.address, line });
        }
        self.touch_at(i, at, len, t)?;
        self.bytes_at(i, at, len, check)
    }

    /// A thread's write, which is checked against other blocks' accesses.
    #[inline]
    pub(crate) fn write_as(&mut self, data: &[u8], t: Touch) -> Result<(), FaultKind> {
        let (i, at) = self.locate(t.access, t.address, data.len() as u64)?;
        self.touch_at(i, at, data.len() as u64, t)?;
        self.put_at(i, at, data, t.address)
    }

    #[inline]
    fn bytes_at(&self, buffer: usize, at: usize, len: u64, check: bool) -> Result<&[u8], FaultKind> {
        let b = &self.buffers[buffer];
        if check && let Some(m) = b.first_missing(at, len as usize) {
            return Err(FaultKind::Uninitialised { space: "global", address: b.base + m as u64 });
        }
        Ok(&b.bytes[at..at + len as usize])
    }

    #[inline]
    fn put_at(&mut self, buffer: usize, at: usize, data: &[u8], address: u64) -> Result<(), FaultKind> {
        let b = &mut self.buffers[buffer];
        if b.read_only {
            return Err(FaultKind::Constant { address });
        }
        b.bytes[at..at + data.len()].copy_from_slice(data);
        b.mark(at, data.len());
        Ok(())
    }

    /// A kernel's read of `len` bytes. With `check`, bytes never written are a fault.
    #[inline]
    pub(crate) fn load(&mut self, address: u64, len: u64, check: bool) -> Result<&[u8], FaultKind> {
        let (i, at) = self.locate(Access::Read, address, len)?;
        self.bytes_at(i, at, len, check)
    }

    /// A kernel's write.
    #[inline]
    pub(crate) fn store(&mut self, address: u64, data: &[u8]) -> Result<(), FaultKind> {
        let (i, at) = self.locate(Access::Write, address, data.len() as u64)?;
        self.put_at(i, at, data, address)
    }

    /// Writes `data` at `address`.
    ///
    /// # Errors
    /// The range is not inside one buffer.
    pub fn write(&mut self, address: u64, data: &[u8]) -> Result<(), FaultKind> {
        self.store(address, data)
    }

    /// The bytes at `address`; those never written read as zero.
    ///
    /// # Errors
    /// The range is not inside one buffer.
    pub fn read(&mut self, address: u64, len: usize) -> Result<&[u8], FaultKind> {
        self.load(address, len as u64, false)
    }

    /// Copies `len` bytes; those never written stay so at the destination.
    ///
    /// # Errors
    /// A range is not inside one buffer.
    pub fn copy(&mut self, to: u64, from: u64, len: usize) -> Result<(), FaultKind> {
        let data = self.load(from, len as u64, false)?.to_vec();
        let (i, at) = self.locate(Access::Read, from, len as u64)?;
        let missing: Vec<usize> = (0..len).filter(|j| self.buffers[i].first_missing(at + j, 1).is_some()).collect();
        self.store(to, &data)?;
        missing.iter().try_for_each(|j| self.poison(to + *j as u64, 1))
    }

    /// Marks `len` bytes as never written and fills them with 0xff.
    ///
    /// # Errors
    /// The range is not inside one buffer.
    pub fn poison(&mut self, address: u64, len: usize) -> Result<(), FaultKind> {
        let (i, at) = self.locate(Access::Write, address, len as u64)?;
        let b = &mut self.buffers[i];
        if b.init.is_empty() {
            b.init = vec![u64::MAX; b.bytes.len().div_ceil(64)];
            b.missing = 0;
        }
        for j in at..at + len {
            b.bytes[j] = 0xff;
            let bit = 1u64 << (j % 64);
            b.missing += u64::from(b.init[j / 64] & bit != 0);
            b.init[j / 64] &= !bit;
        }
        Ok(())
    }

    /// Address of the first byte of the range that was never written.
    ///
    /// # Errors
    /// The range is not inside one buffer.
    pub fn first_unwritten(&mut self, address: u64, len: usize) -> Result<Option<u64>, FaultKind> {
        let (i, at) = self.locate(Access::Read, address, len as u64)?;
        let b = &self.buffers[i];
        Ok(b.first_missing(at, len).map(|m| b.base + m as u64))
    }
}

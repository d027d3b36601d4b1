//! Memory accesses of threads, in every state space, and the banks of shared memory.

use crate::blocks::Touch;
use crate::fault::{Access, FaultKind};
use crate::machine::{Cx, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOWS_END};

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Shared,
    Local,
    Param,
    Const,
    /// By the address.
    Generic,
}

/// How a thread reads.
#[derive(Clone, Copy)]
pub(crate) struct How {
    /// Volatile, relaxed or acquiring.
    pub atomic: bool,
    /// Through the read-only cache.
    pub constant: bool,
}

impl How {
    /// As an asynchronous copy reads.
    pub const COPY: How = How { atomic: false, constant: false };
}

/// Number of banks of shared memory, each four bytes wide.
const BANKS: usize = 32;

impl Space {
    /// Space and address in it.
    pub fn resolve(self, address: u64) -> (Space, u64) {
        if self != Space::Generic || !(SHARED_WINDOW..WINDOWS_END).contains(&address) {
            return (if self == Space::Generic { Space::Global } else { self }, address);
        }
        match address {
            a if a >= PARAM_WINDOW => (Space::Param, a - PARAM_WINDOW),
            a if a >= LOCAL_WINDOW => (Space::Local, a - LOCAL_WINDOW),
            a => (Space::Shared, a - SHARED_WINDOW),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Space::Global => "global",
            Space::Shared => "shared",
            Space::Local => "local",
            Space::Param => "parameter",
            Space::Const => "constant",
            Space::Generic => "generic",
        }
    }
}

/// Checks that `address` is a multiple of `bytes`.
pub(crate) fn aligned(space: Space, address: u64, bytes: u64) -> Result<(), FaultKind> {
    if address & (bytes - 1) == 0 { Ok(()) } else { Err(FaultKind::Misaligned { space: space.name(), address, bytes }) }
}

/// The range in a block of `size` bytes.
fn within(space: Space, access: Access, address: u64, len: usize, size: usize) -> Result<usize, FaultKind> {
    let at = usize::try_from(address).unwrap_or(usize::MAX);
    if at.checked_add(len).is_none_or(|end| end > size) {
        let nearest = format!("it is {size} bytes").into();
        return Err(FaultKind::OutOfBounds { space: space.name(), access, address, bytes: len as u64, nearest });
    }
    Ok(at)
}

impl Cx<'_> {
    /// Reads `len` bytes. The space is resolved.
    #[inline]
    pub fn load(&mut self, space: Space, lane: u32, address: u64, len: usize, how: How) -> Result<&[u8], FaultKind> {
        aligned(space, address, len as u64)?;
        Ok(match space {
            Space::Global | Space::Const | Space::Generic => {
                self.count.read += len as u64;
                self.load_global(address, len as u64, how)?
            }
            Space::Shared => {
                let who = self.who(lane);
                self.cta.shared.read(who, address, len as u64, how.atomic)?
            }
            Space::Local => {
                let size = self.env.kernel.local_bytes;
                let at = within(space, Access::Read, address, len, size)? + size * lane as usize;
                &self.warp.local[at..at + len]
            }
            Space::Param => {
                let at = within(space, Access::Read, address, len, self.env.params.len())?;
                &self.env.params[at..at + len]
            }
        })
    }

    /// Reads `len` bytes of global memory.
    #[inline]
    pub fn load_global(&mut self, address: u64, len: u64, how: How) -> Result<&[u8], FaultKind> {
        let touch = Touch { access: Access::Read, address, pc: self.pc, atomic: how.atomic };
        self.mem.read_as(len, touch, how.constant, self.env.options.check_uninitialised)
    }

    /// Writes `data`. The space is resolved.
    #[inline]
    pub fn store(&mut self, space: Space, lane: u32, address: u64, atomic: bool, data: &[u8]) -> Result<(), FaultKind> {
        aligned(space, address, data.len() as u64)?;
        match space {
            Space::Global | Space::Generic => {
                self.count.written += data.len() as u64;
                self.mem.write_as(data, Touch { access: Access::Write, address, pc: self.pc, atomic })
            }
            Space::Shared => {
                let who = self.who(lane);
                self.cta.shared.write(who, address, data, atomic)
            }
            Space::Local => {
                let size = self.env.kernel.local_bytes;
                let at = within(space, Access::Write, address, data.len(), size)? + size * lane as usize;
                self.warp.local[at..at + data.len()].copy_from_slice(data);
                Ok(())
            }
            Space::Param | Space::Const => Err(FaultKind::Constant { address }),
        }
    }

    /// Reads, changes and writes `len` bytes at once; returns those before.
    pub fn atomic(
        &mut self,
        space: Space,
        lane: u32,
        address: u64,
        len: u64,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<u64, FaultKind> {
        aligned(space, address, len)?;
        if space == Space::Shared {
            let who = self.who(lane);
            return self.cta.shared.atomic(who, address, len, change);
        }
        if space != Space::Global {
            return Err(FaultKind::Operand(format!("atomic operation on {} memory", space.name())));
        }
        self.touch(Access::Atomic, address, len, true)?;
        let mut old = [0; 8];
        old[..len as usize].copy_from_slice(self.mem.load(address, len, self.env.options.check_uninitialised)?);
        let old = u64::from_le_bytes(old);
        self.mem.store(address, &change(old).to_le_bytes()[..len as usize])?;
        self.count.read += len;
        self.count.written += len;
        Ok(old)
    }

    /// Checks an access of global memory against other blocks.
    #[inline]
    pub fn touch(&mut self, access: Access, address: u64, len: u64, atomic: bool) -> Result<(), FaultKind> {
        self.mem.touch(len, Touch { access, address, pc: self.pc, atomic })
    }

    /// Counts the bank conflicts of one access of `size` bytes at each of `addresses` (lane and
    /// address, by lane), as the hardware splits it: so many lanes at once that each bank gives one
    /// word.
    pub fn banks(&mut self, addresses: &[(u32, u64)], size: u64) {
        let words = size.div_ceil(4);
        let per_phase = (BANKS as u64 / words).max(1) as u32;
        let mut i = 0;
        let mut worst = 1;
        let mut extra = 0;
        while i < addresses.len() {
            let phase = addresses[i].0 / per_phase;
            let n = addresses[i..].iter().take_while(|a| a.0 / per_phase == phase).count();
            let degree = degree(&addresses[i..i + n], words);
            extra += u64::from(degree - 1);
            worst = worst.max(degree);
            i += n;
        }
        let c = &mut self.count.code[self.pc as usize];
        c.conflicts += extra;
        c.degree = c.degree.max(worst);
    }
}

/// Most different words that one bank must give.
fn degree(addresses: &[(u32, u64)], words: u64) -> u32 {
    let mut owner = [u64::MAX; BANKS];
    let all = || addresses.iter().flat_map(|(_, a)| (0..words).map(move |w| a / 4 + w));
    let clash = |w: u64, owner: &mut [u64; BANKS]| {
        let o = &mut owner[w as usize % BANKS];
        let clash = *o != u64::MAX && *o != w;
        *o = w;
        clash
    };
    if !all().any(|w| clash(w, &mut owner)) {
        return 1;
    }
    let mut list: Vec<u64> = all().collect();
    list.sort_unstable();
    list.dedup();
    let mut count = [0; BANKS];
    for w in list {
        count[w as usize % BANKS] += 1;
    }
    count.into_iter().max().unwrap_or(1)
}

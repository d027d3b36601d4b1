//! Stand-in for machine code: an ELF file for CUDA around PTX text.

/// `EM_CUDA`.
const MACHINE: u16 = 190;
/// Bytes of an ELF header and of a program header, of 64 bits.
const HEADER: usize = 64;
const PROGRAM: usize = 56;
/// Offsets of fields: flags; and of the only program header, offset and bytes in the file.
const FLAGS: usize = 48;
const OFFSET: usize = HEADER + 8;
const BYTES: usize = HEADER + 32;

/// A cubin for compute capability `sm` (times ten) with the kernels of `ptx`.
#[must_use]
pub fn cubin(sm: u32, ptx: &str) -> Vec<u8> {
    let mut out = vec![0; HEADER + PROGRAM];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    // ET_EXEC, the machine, version 1.
    put(16, &2u16.to_le_bytes());
    put(18, &MACHINE.to_le_bytes());
    put(20, &1u32.to_le_bytes());
    // Program headers follow, one.
    put(32, &(HEADER as u64).to_le_bytes());
    put(FLAGS, &sm.to_le_bytes());
    put(52, &(HEADER as u16).to_le_bytes());
    put(54, &(PROGRAM as u16).to_le_bytes());
    put(56, &1u16.to_le_bytes());
    // PT_LOAD.
    put(HEADER, &1u32.to_le_bytes());
    put(OFFSET, &((HEADER + PROGRAM) as u64).to_le_bytes());
    put(BYTES, &(ptx.len() as u64).to_le_bytes());
    out.extend_from_slice(ptx.as_bytes());
    out
}

/// The PTX in a cubin for `sm`; `None`: it is for another, or none of ours.
///
/// # Safety
/// A complete ELF file lies at `image`.
pub(crate) unsafe fn ptx<'a>(image: *const u8, sm: u32) -> Option<&'a str> {
    // SAFETY: a complete file has its header.
    let head = unsafe { std::slice::from_raw_parts(image, HEADER) };
    let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let machine = word(18)? & 0xffff;
    if machine != u32::from(MACHINE) || word(FLAGS)? != sm || word(56)? & 0xffff != 1 {
        return None;
    }
    // SAFETY: it has one program header, and the bytes it describes.
    unsafe {
        let number = |at: usize| u64::from_le_bytes(image.add(at).cast::<[u8; 8]>().read()) as usize;
        std::str::from_utf8(std::slice::from_raw_parts(image.add(number(OFFSET)), number(BYTES))).ok()
    }
}

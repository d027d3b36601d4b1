//! Which level the processor at hand supports.

use crate::Level;

/// The levels that the processor at hand runs, ascending.
pub fn levels() -> impl Iterator<Item = Level> {
    let best = detect();
    Level::ALL.into_iter().filter(move |level| *level <= best && level.is_of_this_architecture())
}

/// The best level of this processor whose registers the operating system saves.
#[cfg(target_arch = "x86_64")]
pub fn detect() -> Level {
    use core::arch::x86_64::{__cpuid, __cpuid_count};

    let has = |word: u32, bits: &[u32]| bits.iter().all(|bit| word >> bit & 1 == 1);
    if __cpuid(0).eax < 7 {
        return Level::Sse2;
    }
    let (one, seven) = (__cpuid(1).ecx, __cpuid_count(7, 0));
    // FMA, OSXSAVE, AVX, F16C; AVX2.
    if !has(one, &[12, 27, 28, 29]) || !has(seven.ebx, &[5]) {
        return Level::Sse2;
    }
    // SAFETY: OSXSAVE says that the instruction may be used.
    let saved = unsafe { xcr0() };
    // XMM and YMM.
    if !has(saved, &[1, 2]) {
        return Level::Sse2;
    }
    // Opmask and ZMM; AVX-512 F, DQ, BW, VL; VNNI.
    if has(saved, &[5, 6, 7]) && has(seven.ebx, &[16, 17, 30, 31]) && has(seven.ecx, &[11]) {
        // VBMI, VBMI2; AVX512_BF16, in subleaf 1 where there is one.
        if has(seven.ecx, &[1, 6]) && seven.eax >= 1 && has(__cpuid_count(7, 1).eax, &[5]) {
            // Tile configuration and data; AMX-BF16, AMX-TILE, AMX-INT8; GFNI.
            let tiles =
                has(saved, &[17, 18]) && has(seven.edx, &[22, 24, 25]) && has(seven.ecx, &[8]) && may_use_tiles();
            return if tiles { Level::Amx } else { Level::Avx512Bf16 };
        }
        return Level::Avx512;
    }
    Level::Avx2
}

/// Asks Linux to let this process use tiles, whose 8 KB it saves only for those who asked. It
/// refuses if a thread has too small a stack for signals.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn may_use_tiles() -> bool {
    const ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILE_DATA: usize = 18;
    let mut result = ARCH_PRCTL;
    // SAFETY: the system call reads no memory of ours; it overwrites these two registers.
    unsafe {
        core::arch::asm!("syscall", inout("rax") result, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") XFEATURE_XTILE_DATA,
            out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn may_use_tiles() -> bool {
    false
}

/// State components that the operating system saves.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "xsave")]
fn xcr0() -> u32 {
    // SAFETY: register 0 exists wherever the instruction does.
    unsafe { core::arch::x86_64::_xgetbv(0) as u32 }
}

/// The best level of this processor.
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub fn detect() -> Level {
    unsafe extern "C" {
        /// A value that the kernel tells each process (`getauxval(3)`); 0 where it does not.
        fn getauxval(kind: usize) -> usize;
    }
    const AT_HWCAP: usize = 16;
    const HWCAP_ASIMDDP: usize = 1 << 20;
    // SAFETY: it takes any number, and is in every C library for Linux.
    let has = unsafe { getauxval(AT_HWCAP) };
    if has & HWCAP_ASIMDDP != 0 { Level::Dotprod } else { Level::Neon }
}

/// The best level that every processor of the architecture has.
#[cfg(all(target_arch = "aarch64", not(target_os = "linux")))]
pub fn detect() -> Level {
    Level::Neon
}

/// The best level of this processor.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn detect() -> Level {
    Level::Scalar
}

//! What the machine can do at best: bytes streamed and f32 operations per second.

use std::hint::black_box;
use std::sync::{Barrier, OnceLock};
use std::time::Instant;

/// Runs `work` on `threads` threads at once, several times; what they do per second together, at best.
fn rate(threads: usize, amount: f64, work: &(dyn Fn(usize) + Sync)) -> f64 {
    let barrier = Barrier::new(threads);
    let run = |thread: usize| {
        let mut best = f64::MAX;
        for _ in 0..5 {
            barrier.wait();
            let start = Instant::now();
            work(thread);
            barrier.wait();
            best = best.min(start.elapsed().as_secs_f64());
        }
        best
    };
    let seconds = std::thread::scope(|s| {
        let others: Vec<_> = (1..threads).map(|t| s.spawn(move || run(t))).collect();
        let mine = run(0);
        others.into_iter().for_each(|o| drop(o.join()));
        mine
    });
    amount * threads as f64 / seconds
}

/// Zeros as the runtime has them: aligned, in huge pages where the system has any.
pub struct Memory {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Memory {
    pub fn new(len: usize) -> Memory {
        const HUGE: usize = 2 << 20;
        let bytes = vec![0u8; len + HUGE];
        let start = bytes.as_ptr().align_offset(HUGE);
        // SAFETY: a hint about our own memory, none of which has been touched.
        unsafe { libc::madvise(bytes.as_ptr().add(start).cast_mut().cast(), len, libc::MADV_HUGEPAGE) };
        Memory { bytes, start, len }
    }

    pub fn get(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }

    pub fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

/// Bytes per second that `threads` threads read from memory. Measured again at each call, since the machine's other tenants change it.
pub fn bandwidth(threads: usize) -> f64 {
    const BYTES: usize = 96 << 20;
    static MEMORY: OnceLock<Memory> = OnceLock::new();
    let memory = MEMORY.get_or_init(|| {
        let mut memory = Memory::new(BYTES * threads);
        memory.get_mut().fill(1);
        memory
    });
    rate(threads, BYTES as f64, &|thread| {
        black_box(sum(&memory.get()[thread * BYTES..][..BYTES]));
    })
}

fn sum(bytes: &[u8]) -> u64 {
    let mut sums = [0u64; 32];
    for chunk in bytes.as_chunks::<256>().0 {
        sums.iter_mut().zip(chunk.as_chunks::<8>().0).for_each(|(s, w)| *s = s.wrapping_add(u64::from_le_bytes(*w)));
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}

/// f32 operations per second of `threads` threads, two per fused multiply-add.
pub fn flops(threads: usize) -> f64 {
    static FLOPS: OnceLock<f64> = OnceLock::new();
    *FLOPS.get_or_init(|| {
        const TURNS: usize = 1 << 20;
        let lanes = if is_x86_feature_detected!("avx512f") { 16 } else { 8 };
        rate(threads, (TURNS * 12 * lanes * 2) as f64, &|_| {
            // SAFETY: the features are there (the microkernels above the scalar level need AVX2 and FMA as well).
            unsafe { if lanes == 16 { multiply_512(TURNS) } else { multiply_256(TURNS) } }
        })
    })
}

macro_rules! multiply {
    ($name:ident, $features:literal, $set:ident, $fma:ident, $cast:ident) => {
        #[target_feature(enable = $features)]
        fn $name(turns: usize) {
            use std::arch::x86_64::*;
            let (x, y) = ($set(black_box(1.000_001)), $set(black_box(1e-6)));
            let mut acc = [y; 12];
            for _ in 0..turns {
                for a in &mut acc {
                    *a = $fma(*a, x, y);
                }
            }
            black_box(acc.map(|a| $cast(a)));
        }
    };
}
multiply!(multiply_512, "avx512f", _mm512_set1_ps, _mm512_fmadd_ps, _mm512_cvtss_f32);
multiply!(multiply_256, "avx2,fma", _mm256_set1_ps, _mm256_fmadd_ps, _mm256_cvtss_f32);

//! Artifacts of the hand-made model with versions for GPUs.
#![allow(dead_code)]

use llmcc_abi::*;
use llmcc_rt::{Image, Result};

use crate::common::*;

/// Rows of a block of `attend`.
const ATTEND_ROWS: u32 = 3;

/// Differences between the artifacts of these tests.
#[derive(Clone, Copy, Default)]
pub struct Toy {
    /// Versions for these GPUs, in this order.
    pub gpus: &'static [u32],
    /// A version for this processor, in front.
    pub cpu: bool,
    pub cubin: bool,
    /// Candidates that versions for GPUs find.
    pub candidates: usize,
}

/// A cubin for no GPU.
fn foreign(_kernel: usize) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..4].copy_from_slice(b"\x7fELF");
    bytes
}

/// Code and data of an artifact, with this PTX for each kernel; both live as long as the process.
pub fn artifact(toy: Toy, ptx: fn(usize) -> String) -> (&'static [u8], &'static [u8]) {
    artifact_with(toy, ptx, foreign)
}

fn artifact_with(toy: Toy, ptx: fn(usize) -> String, cubin: fn(usize) -> Vec<u8>) -> (&'static [u8], &'static [u8]) {
    // CPU kernels, never run here, lie at its start.
    let mut code = vec![0u8; 64];
    let mut data = Data::new();
    let texts = ["{\"fat\":1}", "", ""].map(|t| data.text(t));
    let mut descs = Vec::new();
    if toy.cpu {
        let kernels = data.kernels(&[0; 5]);
        descs.push(toy_desc(&mut data, host_isa(), &kernels, texts));
    }
    let n = KERNELS.len() + usize::from(toy.candidates > 0);
    for sm in toy.gpus {
        let mut place = |bytes: &[u8]| {
            let off = code.len() as u64;
            code.extend_from_slice(bytes);
            Span { off, len: bytes.len() as u64 }
        };
        let ptx: Vec<Span> = (0..n).map(|i| place((ptx(i) + "\0").as_bytes())).collect();
        let cubin: Vec<Span> = (0..n).map(|i| if toy.cubin { place(&cubin(i)) } else { Span::default() }).collect();
        let gpu: Vec<GpuKernelDesc> = (0..n)
            .map(|i| GpuKernelDesc {
                entry: data.text(&format!("k_{}", kernel_name(i))),
                ptx: ptx[i],
                cubin: cubin[i],
                threads: 32 * (i as u32 + 1),
                shared: if i == 2 { 100 << 10 } else { 0 },
                grid: grid(i),
            })
            .collect();
        let kernels = data.kernels(&ptx.iter().map(|p| p.off).collect::<Vec<_>>());
        let gpu = data.table(&gpu);
        descs.push(ModelDesc { gpu, ..toy_desc_with(&mut data, isa::SM + sm, &kernels, texts, toy.candidates) });
    }
    // From the last, so that each knows where the next one is; offsets have to ascend, so their
    // places are computed first.
    let size = size_of::<ModelDesc>() as u64;
    let first = (data.len() as u64).next_multiple_of(8);
    for i in 1..descs.len() {
        let next = if i + 1 < descs.len() { first + size * i as u64 } else { 0 };
        let at = data.version(ModelDesc { alternative: next, ..descs[i] });
        assert_eq!(at, first + size * (i as u64 - 1));
    }
    let root = ModelDesc { alternative: if descs.len() > 1 { first } else { 0 }, ..descs[0] };
    (code.leak(), data.finish(root).leak())
}

/// Grid of each kernel.
pub fn grid(kernel: usize) -> [GpuDim; 3] {
    let dim = |fixed, per_m| GpuDim { fixed, per_m };
    match kernel {
        0 => [dim(1, 8), dim(1, 0), dim(1, 0)],
        1 => [dim(2, 1), dim(1, 0), dim(1, 0)],
        2 => [dim(1, 0), dim(1, ATTEND_ROWS), dim(1, 0)],
        5 => [dim(2, 1), dim(1, 0), dim(1, 0)],
        _ => [dim(VOCAB as u32, 0), dim(1, 0), dim(1, 1)],
    }
}

/// The versions of the artifact.
pub fn images(toy: Toy, ptx: fn(usize) -> String) -> Result<Vec<Image>> {
    images_with(toy, ptx, foreign)
}

/// As [`images`], with these cubins.
pub fn images_with(toy: Toy, ptx: fn(usize) -> String, cubin: fn(usize) -> Vec<u8>) -> Result<Vec<Image>> {
    let (code, data) = artifact_with(toy, ptx, cubin);
    // SAFETY: leaked; CPU kernels are never run here.
    unsafe { images_of(code, data) }
}

/// The versions of an artifact with these code and data segments and [`WEIGHTS`].
///
/// # Safety
/// As of [`Image::all_from_parts`]: `code` outlives the images, and is run as `data` says.
pub unsafe fn images_of(code: &[u8], data: &[u8]) -> Result<Vec<Image>> {
    // SAFETY: passed on.
    unsafe {
        Image::all_from_parts(
            code.as_ptr(),
            code.len() as u64,
            data,
            WEIGHTS.as_ptr().cast(),
            size_of_val(&WEIGHTS) as u64,
        )
    }
}

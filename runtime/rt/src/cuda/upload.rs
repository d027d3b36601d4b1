//! Weights on their way to the device.
//!
//! They go through two pinned blocks: while one is on the bus, several threads fill the other from
//! the artifact's file. Beside them the calling thread loads the code, a kernel for each block, as
//! long as there is some.

use std::ptr;
use std::sync::Arc;

use super::copier::{Copier, Disjoint};
use super::device::{Device, Pinned};
use super::event::Event;
use crate::error::Result;
use crate::image::Image;

/// Bytes of a pinned block.
pub const BLOCK: usize = 16 << 20;
/// Bytes that a thread copies at once.
const PART: usize = 1 << 20;
/// The system is asked so many blocks ahead to read the file.
const AHEAD: usize = 16;

/// Copies the weights of `image` to `to`, where the device has room for them, and waits until they
/// are there. `beside` is called a few times meanwhile. The device's context is current.
///
/// # Errors
/// Errors of the driver, and of `beside`.
pub(crate) fn upload(
    image: &Image,
    device: &Arc<Device>,
    copier: &mut Copier,
    to: u64,
    beside: &mut (dyn FnMut() -> Result<()> + Send),
) -> Result<()> {
    let mut blocks = Vec::new();
    let sent = send(image, device, copier, &mut blocks, to, beside);
    // After an error, too: blocks are given back when nothing reads them any more.
    let done = device.synchronize("cannot copy the weights to the GPU");
    image.release_weights(image.own_weights());
    sent.and(done)
}

/// Starts all copies, from `blocks`.
fn send(
    image: &Image,
    device: &Arc<Device>,
    copier: &mut Copier,
    blocks: &mut Vec<(Pinned, Event)>,
    to: u64,
    beside: &mut (dyn FnMut() -> Result<()> + Send),
) -> Result<()> {
    let weights = image.own_weights();
    for (i, block) in weights.chunks(BLOCK).enumerate() {
        if blocks.len() < 2 {
            let len = BLOCK.min(weights.len());
            blocks.push((Pinned::unwritten(device, len, "loading weights")?, Event::new(device)?));
        }
        let (pinned, sent) = &blocks[i % 2];
        sent.wait()?;
        let mut worked = Ok(());
        fill(image, copier, (weights, i), pinned, || worked = beside());
        worked?;
        let at = to + (i * BLOCK) as u64;
        // SAFETY: both sides have room for the block, which was filled and is not written before
        // the event.
        let code = unsafe { (device.api().copy_to_device)(at, pinned.ptr().cast(), block.len(), device.stream()) };
        device.check(code, "cannot copy the weights to the GPU")?;
        sent.record()?;
    }
    Ok(())
}

/// Copies block `i` of the weights into `pinned`.
fn fill(
    image: &Image,
    copier: &mut Copier,
    (weights, i): (&[u8], usize),
    pinned: &Pinned,
    beside: impl FnOnce() + Send,
) {
    let block = &weights[i * BLOCK..weights.len().min((i + 1) * BLOCK)];
    let to = Disjoint::new(pinned.ptr());
    // The first part is about other blocks.
    copier.run(block.len().div_ceil(PART) + 1, beside, &|part| {
        let Some(from) = part.checked_sub(1).map(|part| part * PART) else { return around(image, weights, i) };
        let bytes = &block[from..block.len().min(from + PART)];
        // SAFETY: the pinned block is as long as the longest block, and each thread has its part.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.place(from), bytes.len()) };
    });
}

/// Asks for the blocks that come some time after block `i`, and gives the one before it back: of all
/// the weights few are in memory.
fn around(image: &Image, weights: &[u8], i: usize) {
    let soon = if i == 0 { 0 } else { i + AHEAD } * BLOCK;
    if i.is_multiple_of(AHEAD) && soon < weights.len() {
        image.prefetch_weights(&weights[soon..weights.len().min((i + 2 * AHEAD) * BLOCK)]);
    }
    if i > 0 {
        image.release_weights(&weights[(i - 1) * BLOCK..i * BLOCK]);
    }
}

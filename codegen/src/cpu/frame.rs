//! Layout of a kernel's scratch memory.

/// Scratch of a kernel as it is laid out: offsets are multiples of 64 bytes.
#[derive(Default)]
pub(super) struct Frame {
    bytes: usize,
}

impl Frame {
    /// Reserves bytes.
    pub fn bytes(&mut self, bytes: usize) -> usize {
        let at = self.bytes;
        self.bytes += bytes.next_multiple_of(64);
        at
    }

    /// Reserves f32 elements.
    pub fn floats(&mut self, count: usize) -> usize {
        self.bytes(count * 4)
    }

    /// Total so far.
    pub fn size(&self) -> usize {
        self.bytes
    }
}

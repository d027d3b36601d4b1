//! Layers that share their weights.

/// Groups of layers that share their weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups {
    /// How many there are, of as many layers each as can be.
    pub count: usize,
    /// Layers of a group; all of them compute in the place of each of the model's.
    pub inner: usize,
}

impl Groups {
    /// The group of layer `i` of so many: rounded as in Transformers, where quotients of floats may
    /// lie below the whole number that they stand for.
    pub(crate) fn of(&self, i: usize, layers: usize) -> usize {
        (i as f64 / (layers as f64 / self.count as f64)) as usize
    }
}

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

#[cfg(test)]
mod tests {
    use super::Groups;

    /// `int(i / (layers / groups))` in Python, which puts layer 9 of these into group 6, not 7.
    #[test]
    fn groups_are_those_of_transformers() {
        let groups = |count, layers| (0..layers).map(|i| Groups { count, inner: 1 }.of(i, layers)).collect::<Vec<_>>();
        assert_eq!(groups(14, 18), [0, 0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 10, 10, 11, 12, 13]);
        assert_eq!(groups(2, 4), [0, 0, 1, 1]);
        assert_eq!(groups(1, 3), [0; 3]);
    }
}

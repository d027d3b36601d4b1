//! Vector clocks: the order of accesses of warps.
//!
//! Warp `w` advances its own clock at every synchronisation. An access of `w` at clock `c` is
//! ordered before an access of `v` if `v` has seen `c`, that is, if barriers lead from the one to
//! the other. Two lanes of one warp are ordered if the warp's epoch advanced between them, as it
//! does at `bar.warp.sync` and at every barrier that the warp waited for, but not where a lane only
//! arrives somewhere.

/// Most warps of a block.
pub(crate) const WARPS: usize = 32;

/// The times a warp, or a barrier, has seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Accesses of each warp that are ordered before.
    pub seen: [u32; WARPS],
    /// The same for the async proxy: the accesses that a `fence.proxy.async` covers.
    pub fenced: [u32; WARPS],
}

impl Default for Clock {
    fn default() -> Self {
        Clock { seen: [0; WARPS], fenced: [0; WARPS] }
    }
}

impl Clock {
    pub fn join(&mut self, other: &Clock) {
        for i in 0..WARPS {
            self.seen[i] = self.seen[i].max(other.seen[i]);
            self.fenced[i] = self.fenced[i].max(other.fenced[i]);
        }
    }
}

/// The clocks of a block.
pub(crate) struct Clocks {
    pub warps: Vec<Clock>,
    /// For each warp, how often its lanes were synchronised.
    epochs: Vec<u32>,
    barriers: Vec<Clock>,
}

impl Clocks {
    pub fn new(warps: usize, barriers: usize) -> Self {
        let mut all = vec![Clock::default(); warps];
        for (w, c) in all.iter_mut().enumerate() {
            c.seen[w] = 1;
        }
        Clocks { warps: all, epochs: vec![1; warps], barriers: vec![Clock::default(); barriers] }
    }

    /// The time of warp `w`.
    #[inline]
    pub fn now(&self, w: usize) -> u32 {
        self.warps[w].seen[w]
    }

    /// The epoch of warp `w`.
    #[inline]
    pub fn epoch(&self, w: usize) -> u32 {
        self.epochs[w]
    }

    fn advance(&mut self, w: usize) {
        self.warps[w].seen[w] += 1;
    }

    /// The lanes of `w` are synchronised with each other.
    pub fn synchronise(&mut self, w: usize) {
        self.advance(w);
        self.epochs[w] += 1;
    }

    /// Separates the past of `w` from its future, for everyone who sees the returned time.
    pub fn mark(&mut self, w: usize) -> u32 {
        self.advance(w);
        self.now(w) - 1
    }

    /// Publishes the actions and knowledge of `w` into a barrier's clock.
    pub fn publish(&mut self, w: usize, into: &mut Clock) {
        into.join(&self.warps[w]);
        self.advance(w);
    }

    /// `w` passed a barrier.
    pub fn observe(&mut self, w: usize, from: &Clock) {
        let own = self.now(w);
        self.warps[w].join(from);
        self.warps[w].seen[w] = own + 1;
        self.epochs[w] += 1;
    }

    pub fn arrive(&mut self, id: usize, w: usize) {
        let mut c = self.barriers[id];
        self.publish(w, &mut c);
        self.barriers[id] = c;
    }

    pub fn depart(&mut self, id: usize, w: usize) {
        let c = self.barriers[id];
        self.observe(w, &c);
    }

    pub fn reset(&mut self, id: usize) {
        self.barriers[id] = Clock::default();
    }

    /// `fence.proxy.async`: all accesses that `w` has made or seen are visible to asynchronous
    /// reads that come after.
    pub fn fence_proxy(&mut self, w: usize) {
        self.warps[w].fenced = self.warps[w].seen;
        self.advance(w);
    }
}

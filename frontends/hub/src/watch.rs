//! Whoever watches a download.

/// Hears of a download's progress, from several threads.
pub trait Watch: Sync {
    /// So many bytes are to come, and of these the first are there.
    fn begin(&self, total: u64) {
        let _ = total;
    }
    /// So many further bytes are there; where a file begins anew, fewer.
    fn moved(&self, bytes: i64) {
        let _ = bytes;
    }
    /// Something that a user should know: a pause, say.
    fn say(&self, line: &str);
}

/// Nobody.
pub struct Unwatched;

impl Watch for Unwatched {
    fn say(&self, _: &str) {}
}

//! Invariants of sequences and pages between two steps.

use super::Kv;

impl Kv {
    /// Checks that each page is free, or has as many users as sequences and snapshots refer to it, and that a sequence
    /// has the pages of its tokens.
    ///
    /// # Errors
    /// Which group and page, or sequence, are wrong: a bug in the runtime.
    pub fn audit(&self) -> Result<(), String> {
        for (group, (pool, shape)) in self.pools.iter().zip(&self.layout.groups).enumerate() {
            if shape.adapters > 0 {
                continue;
            }
            let mut users = vec![0usize; pool.handed_out()];
            for slot in 0..self.slots() {
                let Some(table) = self.seqs[slot].tables.get(group) else { continue };
                for page in table.held().iter().chain(table.snapshots.iter().map(|(_, page)| page)) {
                    match users.get_mut(*page as usize) {
                        Some(count) => *count += 1,
                        None => return Err(format!("group {group}: slot {slot} has page {page}, never handed out")),
                    }
                }
                let (len, pages) = (self.slot_len(slot, shape.track), table.pages.len());
                if self.seqs[slot].tracks.get(shape.track).is_some() && pages != shape.pages_at(len) {
                    return Err(format!("group {group}: slot {slot} of {len} tokens has {pages} pages"));
                }
            }
            if let Some(page) = (0..users.len()).find(|page| users[*page] != pool.users(*page as u32)) {
                let (found, counted) = (users[page], pool.users(page as u32));
                return Err(format!("group {group}: page {page} has {found} users, {counted} by its count"));
            }
            pool.audit().map_err(|what| format!("group {group}: {what}"))?;
        }
        Ok(())
    }
}

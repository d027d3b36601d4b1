//! Rows of images that come with the tokens of a generation's steps.

use super::Generation;
use crate::engine::{Engine, STEP};
use crate::error::{Error, Result, Status};
use crate::kv::places::append;
use crate::reserve::need;

impl Generation {
    /// The positions along axes that the next `count` tokens come with, where rows of images come with some of them;
    /// else nothing: a step gives them the usual ones.
    ///
    /// # Errors
    /// The sequence does not exist; there is not enough memory.
    pub(crate) fn positions_of(&self, engine: &Engine, count: usize, images: bool) -> Result<Vec<i32>> {
        let axes = engine.image().entries[STEP].axes;
        if axes == 0 || !images {
            return Ok(vec![]);
        }
        need(4 * axes * count)?;
        let mut next = engine.kv().next_position(engine.kv().slot(self.cursor.seq)?, 0);
        let mut all = Vec::with_capacity(axes * count);
        for i in self.cursor.evaluated..self.cursor.evaluated + count {
            append(&mut all, self.request.positions.get(axes * i..axes * (i + 1)), axes, &mut next);
        }
        Ok(all)
    }

    /// The rows that come with the next `count` tokens of the history: of tokens that stand for rows of images those,
    /// of others zeros; nothing where there are only others.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn images_of(&self, engine: &Engine, count: usize) -> Result<Vec<f32>> {
        let Some(token) = engine.placeholder().filter(|_| !self.request.params.images.rows.is_empty()) else {
            return Ok(vec![]);
        };
        let (seen, next) = self.cursor.history.split_at(self.cursor.evaluated);
        let next = &next[..next.len().min(count)];
        if !next.contains(&token) {
            return Ok(vec![]);
        }
        let width = engine.image().entries[STEP].given;
        need(4 * count * width)?;
        let before = seen.iter().filter(|t| **t == token).count();
        let mut rows = self.request.params.images.rows.chunks_exact(width.max(1)).skip(before);
        let mut given = vec![0.0; count * width];
        let places = given.chunks_exact_mut(width.max(1)).zip(next).filter(|(_, t)| **t == token);
        for (place, _) in places {
            match rows.next() {
                Some(row) => place.copy_from_slice(row),
                // (The rows were counted, and a generation never chooses this token.)
                None => return Err(Error::new(Status::Internal, "a token stands for a row that nobody has given")),
            }
        }
        Ok(given)
    }
}

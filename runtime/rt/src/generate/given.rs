//! Rows of images that come with the tokens of a generation's steps.

use super::Generation;
use crate::engine::{Engine, STEP};
use crate::error::{Error, Result};
use crate::reserve::need;

impl Generation {
    /// The rows that come with the next `count` tokens of the history: of tokens that stand for rows of images those,
    /// of others zeros; nothing where there are only others.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn images_of(&self, engine: &Engine, count: usize) -> Result<Vec<f32>> {
        let Some(token) = engine.placeholder().filter(|_| !self.request.params.images.is_empty()) else {
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
        let mut rows = self.request.params.images.chunks_exact(width.max(1)).skip(before);
        let mut given = vec![0.0; count * width];
        let places = given.chunks_exact_mut(width.max(1)).zip(next).filter(|(_, t)| **t == token);
        for (place, _) in places {
            match rows.next() {
                Some(row) => place.copy_from_slice(row),
                None => return Err(written(token)),
            }
        }
        Ok(given)
    }
}

/// The error where the model itself has written a token that stands for a row of an image.
fn written(token: i32) -> Error {
    Error::invalid(format!(
        "the model wrote token {token}, which stands for a row of an image that nobody has: give that token a bias of \
         minus infinity"
    ))
}

//! Functions of rows in f64, shared by the evaluators.

/// The angle of RoPE: `f32(position · inv_freq)`, the product rounded to f32 as in Transformers;
/// its sine and cosine are not rounded.
pub fn rope_angle(position: i32, inv_freq: f32) -> f64 {
    f64::from(position as f32 * inv_freq)
}

/// The row of a table for a position, where `every` positions have a row in common and `shift` is added to
/// them first.
pub(crate) fn row_of_position(position: i32, every: usize, shift: usize) -> i64 {
    i64::from(position).saturating_add(shift as i64) / (every as i64).max(1)
}

/// Subtracts from each run of `width` values their mean.
pub(crate) fn subtract_mean(x: &mut [f64], width: usize) {
    for run in x.chunks_mut(width) {
        let mean = run.iter().sum::<f64>() / run.len() as f64;
        run.iter_mut().for_each(|v| *v -= mean);
    }
}

/// Divides each run of `width` values by its root mean square.
pub(crate) fn normalize(x: &mut [f64], width: usize, eps: f64) {
    for run in x.chunks_mut(width) {
        let mean = run.iter().map(|v| v * v).sum::<f64>() / run.len() as f64;
        let factor = 1.0 / (mean + eps).sqrt();
        run.iter_mut().for_each(|v| *v *= factor);
    }
}

/// Rotates each head of a row; `table` holds `D/2` cosines, then `D/2` sines. Columns from `D` on
/// are not rotated.
pub(crate) fn rope(x: &mut [f64], head_dim: usize, table: &[f64]) {
    let half = table.len() / 2;
    for head in x.chunks_mut(head_dim) {
        for j in 0..half {
            let (a, b) = (head[j], head[j + half]);
            head[j] = a * table[j] - b * table[half + j];
            head[j + half] = b * table[j] + a * table[half + j];
        }
    }
}

/// The frequencies of a position: those before the border, of two sets, or all there are.
pub(crate) fn rope_set(inv_freq: &[f32], border: Option<usize>, position: i32) -> &[f32] {
    let Some(border) = border else { return inv_freq };
    let (before, after) = inv_freq.split_at(inv_freq.len() / 2);
    if usize::try_from(position).is_ok_and(|p| p >= border) { after } else { before }
}

/// A position, or the largest one if it is beyond that.
pub(crate) fn nearest(position: i32, most: Option<usize>) -> i32 {
    most.map_or(position, |most| position.min(i32::try_from(most).unwrap_or(i32::MAX)))
}

/// The table for one position.
pub(crate) fn rope_row(position: i32, inv_freq: &[f32], scale: f64) -> Vec<f64> {
    rope_row_of(&[position], inv_freq, scale)
}

/// The table for positions along several axes; `inv_freq` has a row of frequencies for each. An angle is the sum, in
/// f32, of those along the axes.
pub(crate) fn rope_row_of(positions: &[i32], inv_freq: &[f32], scale: f64) -> Vec<f64> {
    let half = inv_freq.len() / positions.len().max(1);
    let turn = |(p, set): (&i32, &[f32]), j: usize| rope_angle(*p, set.get(j).copied().unwrap_or(0.0)) as f32;
    let angle = |j: usize| {
        let turns = positions.iter().zip(inv_freq.chunks_exact(half.max(1))).map(|each| turn(each, j));
        f64::from(turns.reduce(|sum, turn| sum + turn).unwrap_or(0.0))
    };
    let angles = || (0..half).map(angle);
    angles().map(|a| scale * a.cos()).chain(angles().map(|a| scale * a.sin())).collect()
}

/// Inner product of two vectors of the same length.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

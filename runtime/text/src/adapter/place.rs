//! Where the factors of an adapter go.

use super::file::{AdaptedModule, Adapter};
use super::names::names;
use super::{AdaptedMatrix, AdapterTable, PlaceOfRows, bf16};
use crate::{Error, Kind, Result};
use std::collections::{BTreeMap, BTreeSet};

/// An adapter's content of a state: `[rows, columns]`, zero where the adapter has nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Number of the state.
    pub state: usize,
    /// Columns.
    pub columns: usize,
    /// Row by row; as in the adapter if [`AdapterTable::wide`], else rounded to bf16.
    pub numbers: Vec<f32>,
}

impl AdapterTable {
    /// The contents of every state.
    ///
    /// # Errors
    /// The adapter changes a matrix without room for factors, or has factors of other sizes; a
    /// number is too large. The table is not the compiler's.
    pub fn place(&self, adapter: &Adapter) -> Result<Vec<Placed>> {
        let mut states: BTreeMap<usize, Placed> = BTreeMap::new();
        for m in &self.matrices {
            for place in [m.a, m.b] {
                let [rows, columns] = place.shape;
                let len = rows.checked_mul(columns).filter(|n| (1..=1 << 28).contains(n)).ok_or_else(damaged)?;
                states.entry(place.state).or_insert_with(|| Placed {
                    state: place.state,
                    columns,
                    numbers: vec![0.0; len],
                });
            }
        }
        let stems: BTreeSet<&str> = self.matrices.iter().map(|m| stem(&m.name)).collect();
        for (module, factors) in &adapter.modules {
            // The first of its names that there is: parts of one matrix have one name.
            let found = names(module).into_iter().find(|name| stems.contains(name.as_str()));
            let found = found.ok_or_else(|| self.no_room(module))?;
            for m in self.matrices.iter().filter(|m| stem(&m.name) == found) {
                self.put(m, module, factors, &mut states)?;
            }
        }
        Ok(states.into_values().collect())
    }

    fn put(
        &self,
        m: &AdaptedMatrix,
        module: &str,
        f: &AdaptedModule,
        states: &mut BTreeMap<usize, Placed>,
    ) -> Result<()> {
        if [f.inputs, f.outputs] != [m.inputs, m.outputs] {
            return Err(Error::new(
                Kind::Invalid,
                format!(
                    "module `{module}` of the adapter has {} inputs and {} outputs, that of the model {} and {}: load \
                     an adapter that was trained for this model",
                    f.inputs, f.outputs, m.inputs, m.outputs
                ),
            ));
        }
        if f.rank > self.rank {
            return Err(Error::new(
                Kind::Invalid,
                format!(
                    "module `{module}` of the adapter is of rank {}, the artifact has room for {}: compile it with \
                     `--lora-rank {}`",
                    f.rank, self.rank, f.rank
                ),
            ));
        }
        let mut row = |place: PlaceOfRows, i: usize, values: &[f32]| {
            let placed = states.get_mut(&place.state).filter(|p| p.columns == place.shape[1]).ok_or_else(damaged)?;
            let at = (place.row + i).checked_mul(placed.columns).ok_or_else(damaged)?;
            let to = placed.numbers.get_mut(at..at + values.len()).filter(|_| values.len() <= placed.columns);
            for (to, x) in to.ok_or_else(damaged)?.iter_mut().zip(values) {
                *to = if self.wide { *x } else { f32::from_bits(u32::from(bf16(*x)) << 16) };
                if !to.is_finite() {
                    let what = if self.wide { "f32" } else { "bf16" };
                    return Err(Error::new(
                        Kind::Invalid,
                        format!(
                            "module `{module}` of the adapter has numbers beyond what {what} holds; train it again"
                        ),
                    ));
                }
            }
            Ok(())
        };
        for (i, values) in f.a.chunks_exact(f.inputs).enumerate() {
            row(m.a, i, values)?;
        }
        let order = m.rows.iter().flat_map(|[first, count, step]| (0..*count).map(move |i| first + i * step));
        for (i, from) in order.enumerate() {
            let values = f.b.get(from * f.rank..(from + 1) * f.rank).ok_or_else(damaged)?;
            row(m.b, i, values)?;
        }
        Ok(())
    }

    fn no_room(&self, module: &str) -> Error {
        let kinds = self.kinds().join(", ");
        Error::new(
            Kind::Invalid,
            format!(
                "the adapter changes module `{module}`, for which the artifact has no room (it has for: {kinds}): \
                 compile it with `--lora-targets` that name it, or merge the adapter (`--lora`)"
            ),
        )
    }
}

fn stem(tensor: &str) -> &str {
    tensor.strip_suffix(".weight").unwrap_or(tensor)
}

fn damaged() -> Error {
    Error::damaged("adapters")
}

//! Adapters that are loaded while a model runs: LoRA (arXiv 2106.09685) and rsLoRA (arXiv 2312.03732)
//! as PEFT saves them. The compiler writes down in the manifest which matrices have room for one
//! ([`AdapterTable`]); the runtime reads files of strangers ([`Adapter::open`]) and finds the place of each
//! factor ([`AdapterTable::place`]).

mod file;
pub mod names;
mod place;
pub mod settings;
pub mod targets;
#[cfg(test)]
mod tests;
mod wrong;

use serde::{Deserialize, Serialize};

pub use file::{AdaptedModule, Adapter};
pub use place::Placed;

/// An artifact's room for adapters: the member `adapters` of its manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdapterTable {
    /// Adapters at a time.
    pub slots: usize,
    /// The largest rank of a factor.
    pub rank: usize,
    /// Factors are kept as f32, else as bf16.
    pub wide: bool,
    /// Matrices for which adapters may have factors.
    pub matrices: Vec<AdaptedMatrix>,
}

/// A matrix `[outputs, inputs]` of the checkpoint, or a part of its rows, and where its factors go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdaptedMatrix {
    /// The tensor.
    pub name: String,
    /// Columns of the first factor.
    pub inputs: usize,
    /// Rows of the second factor in the file.
    pub outputs: usize,
    /// State of the first factor, and its first row there.
    pub a: PlaceOfRows,
    /// State of the second factor, and its first row there.
    pub b: PlaceOfRows,
    /// Rows of the second factor in the order in which the model has them: runs of a first row, a
    /// number of rows, and the distance from one to the next.
    pub rows: Vec<[usize; 3]>,
}

/// Rows of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlaceOfRows {
    /// Number of the state.
    pub state: usize,
    /// Its rows and columns.
    pub shape: [usize; 2],
    /// First row.
    pub row: usize,
}

impl AdapterTable {
    /// The table in a manifest; `None` if the artifact was compiled without room for adapters.
    ///
    /// # Errors
    /// The manifest is not the JSON the compiler writes.
    pub fn of(manifest: &str) -> crate::Result<Option<AdapterTable>> {
        #[derive(Deserialize)]
        struct Manifest {
            #[serde(default)]
            adapters: Option<AdapterTable>,
        }
        let found: Manifest = serde_json::from_str(manifest).map_err(crate::Error::damaged)?;
        Ok(found.adapters)
    }

    /// Names of the kinds of modules there is room for, each once: `q_proj, v_proj`.
    pub fn kinds(&self) -> Vec<&str> {
        let mut kinds = vec![];
        for m in &self.matrices {
            let kind = m.name.strip_suffix(".weight").unwrap_or(&m.name).rsplit('.').next().unwrap_or_default();
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }
}

/// The bf16 next to a number, ties to even.
pub fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

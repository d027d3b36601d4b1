//! The tensors that a method has in the place of a matrix `[out, in]`, by their names behind its stem.

use super::super::quantized::{UNQUANTIZED, Wrong};
use super::super::safetensors::StoredType;
use super::super::wanted::{Wanted, WantedRole};
use super::tensors::Blanks;

/// How a matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As floats.
    Floats,
    /// FP8 (e4m3), with a scale for each block of rows and columns.
    Fp8 {
        /// Name of the scales.
        scales: &'static str,
        /// Rows and columns; `None`: one scale.
        block: Option<[usize; 2]>,
        /// Name of the scale of inputs.
        input: Option<&'static str>,
    },
    /// FP8 with a scale for each row.
    Fp8Rows,
    /// FP8 and a power of two for every 32 columns.
    Mxfp8,
    /// MXFP4, a byte for two codes.
    Mxfp4 {
        /// Name and type of the codes.
        codes: (&'static str, &'static str),
        /// Name and type of the powers of two.
        scales: (&'static str, &'static str),
    },
    /// NVFP4.
    Nvfp4 {
        /// Name of the codes.
        codes: &'static str,
        /// Name of the number above all scales.
        above: &'static str,
        /// Name of the scale of inputs.
        input: Option<&'static str>,
    },
    /// Integers in words of 32 bits along the inputs, of so many bits and columns of a group.
    Words {
        /// 1 to 8.
        bits: usize,
        /// Columns; `None`: the whole row.
        group: Option<usize>,
        /// Zeros are the middle of the codes.
        symmetric: bool,
    },
    /// Integers of 8 bits with a scale for each row.
    Int8Rows,
}

/// Columns that share a scale.
const OF_MX: usize = 32;
const OF_NV: usize = 16;

impl Form {
    /// Adds the tensors of a matrix. Those that the form cannot hold are floats, as methods leave these.
    pub(super) fn add(self, all: &mut Blanks, wanted: Wanted, float: &StoredType) -> Result<(), Wrong> {
        let Wanted { name, shape, role } = wanted;
        let product = match (role, self) {
            (WantedRole::Numbers, _) => return permutations(all, name, &shape),
            (WantedRole::Experts, Form::Mxfp4 { .. }) => return experts(all, &name, &shape),
            (WantedRole::Experts, Form::Floats) | (WantedRole::Gain | WantedRole::Other, _) => false,
            (WantedRole::Experts, _) => {
                let what = format!("`{name}`: how the method has the matrices of all experts is not known");
                return Err((what, "give the folder with the checkpoint's tensors"));
            }
            (WantedRole::Product | WantedRole::Spared, _) => true,
        };
        let Some(stem) = name.strip_suffix(".weight").filter(|_| product) else {
            return all.add(name, float.name, &shape);
        };
        match shape[..] {
            [n, k] if self.fits(k) => self.matrix(all, stem, [n, k], float),
            _ => all.add(name, float.name, &shape),
        }
    }

    /// Whether it has rows of so many columns.
    fn fits(self, k: usize) -> bool {
        match self {
            Form::Mxfp8 | Form::Mxfp4 { .. } => k.is_multiple_of(OF_MX),
            Form::Nvfp4 { .. } => k.is_multiple_of(OF_NV),
            Form::Words { bits, group, .. } => {
                (k.saturating_mul(bits)).is_multiple_of(32) && group.is_none_or(|group| k.is_multiple_of(group))
            }
            Form::Floats | Form::Fp8 { .. } | Form::Fp8Rows | Form::Int8Rows => true,
        }
    }

    fn matrix(self, all: &mut Blanks, stem: &str, [n, k]: [usize; 2], float: &StoredType) -> Result<(), Wrong> {
        let name = |ending: &str| format!("{stem}.{ending}");
        match self {
            Form::Floats => all.add(name("weight"), float.name, &[n, k]),
            Form::Fp8 { scales, block, input } => {
                all.add(name("weight"), "F8_E4M3", &[n, k])?;
                match block {
                    Some([rows, columns]) => {
                        all.add(name(scales), "F32", &[n.div_ceil(rows), k.div_ceil(columns)])?;
                    }
                    None => all.one(name(scales), &[])?,
                }
                input.map_or(Ok(()), |input| all.one(name(input), &[]))
            }
            Form::Fp8Rows => {
                all.add(name("weight"), "F8_E4M3", &[n, k])?;
                all.add(name("weight_scale"), float.name, &[n, 1])
            }
            Form::Mxfp8 => {
                all.add(name("weight"), "F8_E4M3", &[n, k])?;
                all.add(name("weight_scale"), "U8", &[n, k / OF_MX])
            }
            Form::Mxfp4 { codes, scales } => {
                all.add(name(codes.0), codes.1, &[n, k / 2])?;
                all.add(name(scales.0), scales.1, &[n, k / OF_MX])
            }
            Form::Nvfp4 { codes, above, input } => {
                all.add(name(codes), "U8", &[n, k / 2])?;
                all.add(name("weight_scale"), "F8_E4M3", &[n, k / OF_NV])?;
                all.one(name(above), &[1])?;
                input.map_or(Ok(()), |input| all.one(name(input), &[1]))
            }
            Form::Words { bits, group, symmetric } => {
                let groups = group.map_or(1, |group| k / group);
                all.add(name("weight_packed"), "I32", &[n, k * bits / 32])?;
                all.add(name("weight_scale"), float.name, &[n, groups])?;
                let shape: Vec<u8> = [n, k].iter().flat_map(|d| (*d as i64).to_le_bytes()).collect();
                all.known(name("weight_shape"), "I64", &[2], &shape)?;
                match symmetric {
                    true => Ok(()),
                    false => all.add(name("weight_zero_point"), "I32", &[n.saturating_mul(bits).div_ceil(32), groups]),
                }
            }
            Form::Int8Rows => {
                all.add(name("weight"), "I8", &[n, k])?;
                all.add(name("weight_scale"), float.name, &[n, 1])
            }
        }
    }
}

/// Experts as gpt-oss has them: transposed in a model of floats, `[experts, in, out]`.
fn experts(all: &mut Blanks, name: &str, shape: &[usize]) -> Result<(), Wrong> {
    let [count, k, n] = *shape else {
        return Err((format!("tensor `{name}` {shape:?} is not the matrices of experts"), UNQUANTIZED));
    };
    if !k.is_multiple_of(OF_MX) {
        return Err((format!("`{name}`: {k} columns are not whole groups of {OF_MX}"), UNQUANTIZED));
    }
    all.add(format!("{name}_blocks"), "U8", &[count, n, k / OF_MX, OF_MX / 2])?;
    all.add(format!("{name}_scales"), "U8", &[count, n, k / OF_MX])
}

/// Rows that each hold the numbers of their columns.
fn permutations(all: &mut Blanks, name: String, shape: &[usize]) -> Result<(), Wrong> {
    /// Bytes of a table that is made.
    const MOST: usize = 1 << 30;
    let [rows, columns] = *shape else {
        return Err((format!("tensor `{name}` {shape:?} is not a table"), "check the sizes in config.json"));
    };
    if rows.checked_mul(columns).is_none_or(|n| n > MOST / 8) {
        return Err((format!("tensor `{name}` {shape:?} is too large"), "check the sizes in config.json"));
    }
    let row: Vec<u8> = (0..columns).flat_map(|column| (column as i64).to_le_bytes()).collect();
    all.known(name, "I64", shape, &row.repeat(rows))
}

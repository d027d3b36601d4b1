//! GGUF files of random codes, by a recipe. Its lines are `seed N`; `key TYPE NAME VALUE` for the metadata, where a
//! type is `u32`, `f32` or `text`; a line of [`weights`](crate::weights) for floats; and for codes
//! `TYPE NAME SHAPE LOW HIGH...`, with the range of each scale of a block. All other bits of blocks are random.

use crate::weights::{self, DType, Kind, names_of, random, rounded, shape_of, tensors_of};

/// Tensors begin at multiples of this.
const ALIGNMENT: usize = 32;
/// The version of the format.
const VERSION: u32 = 3;

/// A type of codes.
struct Blocks {
    name: &'static str,
    /// Its number in files.
    number: u32,
    /// Numbers and bytes of a block.
    size: [usize; 2],
    scales: &'static [Scale],
}

/// Where a scale is in a block.
#[derive(Clone, Copy)]
enum Scale {
    /// An f16 at this byte.
    Half(usize),
    /// Exponents or numbers of 8 bits from byte 0 on, this many.
    Bytes(usize),
    /// An f16 in the upper halves of bytes 49, 51, 53 and 55.
    Spread,
}

const fn blocks(name: &'static str, number: u32, size: [usize; 2], scales: &'static [Scale]) -> Blocks {
    Blocks { name, number, size, scales }
}

/// Types of codes as `ggml-common.h` of llama.cpp declares them.
const TYPES: &[Blocks] = &[
    blocks("q4_0", 2, [32, 18], &[Scale::Half(0)]),
    blocks("q4_1", 3, [32, 20], &[Scale::Half(0), Scale::Half(2)]),
    blocks("q5_0", 6, [32, 22], &[Scale::Half(0)]),
    blocks("q5_1", 7, [32, 24], &[Scale::Half(0), Scale::Half(2)]),
    blocks("q8_0", 8, [32, 34], &[Scale::Half(0)]),
    blocks("q2_k", 10, [256, 84], &[Scale::Half(80), Scale::Half(82)]),
    blocks("q3_k", 11, [256, 110], &[Scale::Half(108)]),
    blocks("q4_k", 12, [256, 144], &[Scale::Half(0), Scale::Half(2)]),
    blocks("q5_k", 13, [256, 176], &[Scale::Half(0), Scale::Half(2)]),
    blocks("q6_k", 14, [256, 210], &[Scale::Half(208)]),
    blocks("iq2_xxs", 16, [256, 66], &[Scale::Half(0)]),
    blocks("iq2_xs", 17, [256, 74], &[Scale::Half(0)]),
    blocks("iq3_xxs", 18, [256, 98], &[Scale::Half(0)]),
    blocks("iq1_s", 19, [256, 50], &[Scale::Half(0)]),
    blocks("iq4_nl", 20, [32, 18], &[Scale::Half(0)]),
    blocks("iq3_s", 21, [256, 110], &[Scale::Half(0)]),
    blocks("iq2_s", 22, [256, 82], &[Scale::Half(0)]),
    blocks("iq4_xs", 23, [256, 136], &[Scale::Half(0)]),
    blocks("iq1_m", 29, [256, 56], &[Scale::Spread]),
    blocks("tq2_0", 35, [256, 66], &[Scale::Half(64)]),
    blocks("mxfp4", 39, [32, 17], &[Scale::Bytes(1)]),
    blocks("nvfp4", 40, [64, 36], &[Scale::Bytes(4)]),
];

/// A tensor of a file.
struct Tensor {
    name: String,
    shape: Vec<usize>,
    number: u32,
    data: Vec<u8>,
}

/// The file of a recipe.
pub fn gguf(recipe: &str) -> Result<Vec<u8>, String> {
    let (mut seed, mut keys, mut tensors) = (0, vec![], vec![]);
    for (i, line) in recipe.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let known = match words.as_slice() {
            ["seed", number] => number.parse().ok().map(|number| seed = number),
            ["key", kind, name, value] => key(kind, name, value).map(|bytes| keys.push(bytes)),
            ["f32", ..] => tensors_of(line).map(|all| tensors.extend(all.iter().map(|t| floats(t, seed)))),
            _ => codes(&words, seed).map(|all| tensors.extend(all)),
        };
        known.ok_or_else(|| format!("line {}: `{line}`", i + 1))?;
    }
    Ok(written(&keys, &tensors))
}

fn written(keys: &[Vec<u8>], tensors: &[Tensor]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(VERSION.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((keys.len() as u64).to_le_bytes());
    out.extend(keys.iter().flatten());
    let mut data: Vec<u8> = vec![];
    for t in tensors {
        out.extend(text(&t.name));
        out.extend((t.shape.len() as u32).to_le_bytes());
        out.extend(t.shape.iter().rev().flat_map(|n| (*n as u64).to_le_bytes()));
        out.extend(t.number.to_le_bytes());
        out.extend((data.len() as u64).to_le_bytes());
        data.extend(&t.data);
        data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    out.extend(data);
    out
}

/// A text behind its length.
fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u64).to_le_bytes(), value.as_bytes()].concat()
}

/// An entry of the metadata: name, type, value.
fn key(kind: &str, name: &str, value: &str) -> Option<Vec<u8>> {
    let (number, bytes) = match kind {
        "u32" => (4u32, value.parse::<u32>().ok()?.to_le_bytes().to_vec()),
        "f32" => (6, value.parse::<f32>().ok()?.to_le_bytes().to_vec()),
        "text" => (8, text(value)),
        _ => return None,
    };
    Some([text(name), number.to_le_bytes().to_vec(), bytes].concat())
}

fn floats(t: &weights::Tensor, seed: u64) -> Tensor {
    Tensor { name: t.name.clone(), shape: t.shape.clone(), number: 0, data: t.bytes(seed) }
}

/// The tensors of a line with codes.
fn codes(words: &[&str], seed: u64) -> Option<Vec<Tensor>> {
    let [kind, pattern, shape, ranges @ ..] = words else { return None };
    let blocks = TYPES.iter().find(|blocks| blocks.name == *kind)?;
    let shape = shape_of(shape)?;
    let ranges = ranges.chunks(2).map(|range| Kind::parse(&["uniform", range[0], range.get(1)?]));
    let ranges = ranges.collect::<Option<Vec<_>>>().filter(|ranges| ranges.len() == blocks.scales.len())?;
    let count = shape.iter().product::<usize>() / blocks.size[0];
    let tensor = |name: String| {
        let data = (0..count).flat_map(|i| blocks.random(&ranges, (seed, &name), i)).collect();
        Tensor { shape: shape.clone(), number: blocks.number, data, name }
    };
    Some(names_of(pattern)?.into_iter().map(tensor).collect())
}

impl Blocks {
    /// Block `i` of a tensor.
    fn random(&self, ranges: &[Kind], (seed, name): (u64, &str), i: usize) -> Vec<u8> {
        let size = self.size[1];
        let words = size.div_ceil(8) + self.scales.len() * 4;
        let mut random = random(seed, name, (i * words) as u64);
        let mut block: Vec<u8> = (0..size.div_ceil(8)).flat_map(|_| random().to_le_bytes()).take(size).collect();
        for (scale, range) in self.scales.iter().zip(ranges) {
            match *scale {
                Scale::Half(at) => block[at..at + 2].copy_from_slice(&half(range, random()).to_le_bytes()),
                Scale::Bytes(n) => block[..n].fill_with(|| range.whole(random())),
                Scale::Spread => {
                    let bits = half(range, random());
                    let nibble = |i: usize| ((bits >> (4 * i) & 15) << 4) as u8;
                    (0..4).for_each(|i| block[49 + 2 * i] = block[49 + 2 * i] & 15 | nibble(i));
                }
            }
        }
        if self.name == "tq2_0" {
            // Two bits for -1, 0 and 1.
            block[..64].iter_mut().for_each(|byte| *byte &= *byte >> 1 & 0x55 ^ 0xff);
        }
        block
    }
}

fn half(range: &Kind, bits: u64) -> u16 {
    rounded(range.number(bits), DType::F16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that a file has by the format's description.
    #[test]
    fn a_file_is_as_the_format_says() {
        let recipe = "seed 1\nkey text general.architecture llama\nkey u32 a.b 7\nkey f32 c 0.5\n\
                      f32 x 3 constant 1\nmxfp4 y.{0..1} 2x32 119 120\n";
        let file = gguf(recipe).unwrap();
        let at = |range: std::ops::Range<usize>| &file[range];
        assert_eq!(
            at(0..24),
            [b"GGUF".as_slice(), &[3, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]].concat()
        );
        assert_eq!(at(24..52), [20u64.to_le_bytes().as_slice(), b"general.architecture"].concat());
        assert_eq!(at(52..69), [8u32.to_le_bytes().as_slice(), &5u64.to_le_bytes(), b"llama"].concat());
        // Floats stand in 32 bytes, codes of two blocks in 34.
        assert_eq!(file.len() % ALIGNMENT, 0);
        let data = &file[file.len() - 32 - 2 * 64..];
        assert_eq!(data[..32], [[0, 0, 0x80, 0x3f].repeat(3), vec![0; 20]].concat());
        assert!([0, 17, 64, 81].iter().all(|i| (119..=120).contains(&data[32 + i])), "{data:?}");
        assert_ne!(data[32..66], data[96..130]);
        assert_eq!(data[66..96], [0; 30]);
    }

    /// The scales of a block are in their range, however wide it is.
    #[test]
    fn scales_are_in_their_range() {
        let file = gguf("seed 3\nnvfp4 x 8x256 8 33\n").unwrap();
        let blocks = file[file.len() - 32 * 36..].chunks(36);
        let mut scales: Vec<u8> = blocks.flat_map(|block| block[..4].to_vec()).collect();
        scales.sort_unstable();
        assert_eq!((scales[0], scales[scales.len() - 1]), (8, 32));
    }

    #[test]
    fn what_is_no_recipe_is_refused() {
        for line in ["q4_9 a 2x32 0 1", "q4_0 a 2x32", "q4_1 a 2x32 0 1", "key u64 a 1", "key u32 a b", "f32 a 2 odd 1"]
        {
            assert!(gguf(line).unwrap_err().contains(line), "{line}");
        }
    }
}

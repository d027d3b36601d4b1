//! Random weights from a seed, by a fixture's recipe: byte for byte what `tests/goldens/weights.py` makes, which
//! says what stands in a recipe. Only integers are computed with, so that every machine makes the same.

/// Numbers are in units of 2^-36.
const FRACTION: u32 = 36;
/// The deviation of a sum of four uniform 16-bit numbers.
const DEVIATION: i128 = 37_837;
const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

/// The 64-bit FNV-1a hash of `data` after others.
pub fn fnv1a(data: &[u8], before: u64) -> u64 {
    data.iter().fold(before, |h, byte| (h ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// The hash of nothing.
pub const FNV1A: u64 = 0xCBF2_9CE4_8422_2325;

/// The last step of splitmix64.
fn mixed(z: u64) -> u64 {
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// 64 bits for each number of a tensor, from number `first` on.
pub(crate) fn random(seed: u64, name: &str, first: u64) -> impl FnMut() -> u64 {
    let key = mixed(fnv1a(name.as_bytes(), FNV1A) ^ seed.wrapping_mul(GOLDEN_RATIO));
    let mut i = first;
    move || {
        i += 1;
        mixed(key.wrapping_add(i.wrapping_mul(GOLDEN_RATIO)))
    }
}

/// A type of tensors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DType {
    // In the order in which the safetensors library stores tensors.
    I64,
    F32,
    Bf16,
    F16,
}

impl DType {
    fn parse(word: &str) -> Option<DType> {
        Some(match word {
            "i64" => DType::I64,
            "f32" => DType::F32,
            "bf16" => DType::Bf16,
            "f16" => DType::F16,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            DType::I64 => "I64",
            DType::F32 => "F32",
            DType::Bf16 => "BF16",
            DType::F16 => "F16",
        }
    }

    /// Bytes, bits of the significand, the least exponent.
    fn layout(self) -> (usize, u32, i32) {
        match self {
            DType::I64 => (8, 0, 0),
            DType::F32 => (4, 24, -126),
            DType::Bf16 => (2, 8, -126),
            DType::F16 => (2, 11, -14),
        }
    }
}

/// The numbers of a tensor, in units of 2^-36, or its bytes.
pub(crate) enum Kind {
    Normal { mean: i64, scale: i64 },
    Uniform { low: i64, width: i64 },
    Constant(i64),
    Bits(Vec<u8>),
}

impl Kind {
    pub(crate) fn parse(words: &[&str]) -> Option<Kind> {
        Some(match words {
            ["normal", mean, deviation] => {
                let scale = (i128::from(micro(deviation)?) << FRACTION).div_euclid(1_000_000 * DEVIATION);
                Kind::Normal { mean: fixed(mean)?, scale: i64::try_from(scale).ok()? }
            }
            ["uniform", low, high] => Kind::Uniform { low: fixed(low)?, width: fixed(high)? - fixed(low)? },
            ["constant", value] => Kind::Constant(fixed(value)?),
            ["bits", hex] => {
                let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
                Kind::Bits(digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }

    /// The whole part of a number.
    pub(crate) fn whole(&self, bits: u64) -> u8 {
        (self.number(bits) >> FRACTION) as u8
    }

    pub(crate) fn number(&self, bits: u64) -> i64 {
        match self {
            Kind::Normal { mean, scale } => {
                let sum: i64 = (0..4).map(|i| (bits >> (16 * i) & 0xFFFF) as i64).sum();
                mean + scale * (sum - 131_070)
            }
            Kind::Uniform { low, width } => low + ((i128::from(bits >> 40) * i128::from(*width)) >> 24) as i64,
            Kind::Constant(value) => *value,
            Kind::Bits(_) => unreachable!("bytes are copied"),
        }
    }
}

/// Millionths of a decimal number of at most six places.
fn micro(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let part = (part.len() <= 6).then(|| format!("{part:0<6}"))?;
    Some(sign * (whole.parse::<i64>().ok()? * 1_000_000 + part.parse::<i64>().ok()?))
}

/// A decimal number in units of 2^-36.
fn fixed(text: &str) -> Option<i64> {
    i64::try_from((i128::from(micro(text)?) << FRACTION).div_euclid(1_000_000)).ok()
}

/// The bits of the floating-point number nearest to `v`; the even one of two that are equally near.
pub(crate) fn rounded(v: i64, dtype: DType) -> u32 {
    let (size, digits, least) = dtype.layout();
    let a = v.unsigned_abs();
    if a == 0 {
        return 0;
    }
    // How many bits are cut off; numbers below the least exponent have fewer digits.
    let length = (64 - a.leading_zeros()) as i32;
    let cut = (length - digits as i32).max(FRACTION as i32 + least - (digits as i32 - 1));
    let q = if cut > 0 { (a + ((1 << (cut - 1)) - 1) + (a >> cut & 1)) >> cut } else { a << -cut };
    // A significand that is full has one more exponent; one without its first digit has the least.
    let hidden = 1u64 << (digits - 1);
    let exponent = (cut - FRACTION as i32 + digits as i32 - 1 - least + 1) as u64;
    let code = if q >= hidden { (exponent << (digits - 1)) + q - hidden } else { q };
    code as u32 | if v < 0 { 1 << (8 * size - 1) } else { 0 }
}

/// A tensor of a recipe.
pub(crate) struct Tensor<'a> {
    dtype: DType,
    pub name: String,
    pub shape: Vec<usize>,
    kind: std::rc::Rc<Kind>,
    line: &'a str,
}

impl Tensor<'_> {
    pub(crate) fn bytes(&self, seed: u64) -> Vec<u8> {
        let (count, size) = (self.shape.iter().product::<usize>(), self.dtype.layout().0);
        if let Kind::Bits(bytes) = &*self.kind {
            assert_eq!(bytes.len(), count * size, "{}", self.line);
            return bytes.clone();
        }
        let mut random = random(seed, &self.name, 0);
        let mut out = Vec::with_capacity(count * size);
        for _ in 0..count {
            let number = self.kind.number(random());
            out.extend_from_slice(&rounded(number, self.dtype).to_le_bytes()[..size]);
        }
        out
    }
}

/// All names that a pattern with lists of numbers stands for: `a.{0..1,5}.b`.
pub(crate) fn names_of(pattern: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = pattern.split_once('{') else { return Some(vec![pattern.into()]) };
    let (list, after) = rest.split_once('}')?;
    let after = names_of(after)?;
    let mut names = vec![];
    for run in list.split(',') {
        let (from, to) = run.split_once("..").unwrap_or((run, run));
        for n in from.parse::<usize>().ok()?..=to.parse().ok()? {
            names.extend(after.iter().map(|after| format!("{before}{n}{after}")));
        }
    }
    Some(names)
}

/// The sizes of a shape: `-` is that of one number.
pub(crate) fn shape_of(word: &str) -> Option<Vec<usize>> {
    match word {
        "-" => Some(vec![]),
        sizes => sizes.split('x').map(|n| n.parse().ok()).collect(),
    }
}

/// The tensors of one line of a recipe.
pub(crate) fn tensors_of(line: &str) -> Option<Vec<Tensor<'_>>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [dtype, pattern, shape, kind @ ..] = words.as_slice() else { return None };
    let dtype = DType::parse(dtype)?;
    let shape = shape_of(shape)?;
    let kind = std::rc::Rc::new(Kind::parse(kind)?);
    let tensor = |name| Tensor { dtype, name, shape: shape.clone(), kind: kind.clone(), line };
    Some(names_of(pattern)?.into_iter().map(tensor).collect())
}

/// The numbers of a tensor of f32 that a line of a recipe describes.
pub fn numbers(seed: u64, line: &str) -> Option<Vec<f32>> {
    let tensors = tensors_of(line)?;
    let [tensor] = &tensors[..] else { return None };
    let bytes = tensor.bytes(seed);
    (tensor.dtype == DType::F32).then(|| bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

/// The safetensors file of a recipe.
pub fn safetensors(recipe: &str) -> Result<Vec<u8>, String> {
    let (mut seed, mut tensors) = (None, vec![]);
    for (i, line) in recipe.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("seed ") {
            Some(number) => seed = Some(number.parse::<u64>().map_err(|e| format!("line {}: seed: {e}", i + 1))?),
            None => tensors.extend(tensors_of(line).ok_or_else(|| format!("line {}: `{line}`", i + 1))?),
        }
    }
    let seed = seed.ok_or("no line `seed N`")?;
    tensors.sort_by(|a, b| (a.dtype, &a.name).cmp(&(b.dtype, &b.name)));
    let (mut header, mut data) = (String::from("{\"__metadata__\":{\"format\":\"pt\"}"), vec![]);
    for t in &tensors {
        let start = data.len();
        data.extend(t.bytes(seed));
        let shape: Vec<String> = t.shape.iter().map(usize::to_string).collect();
        header += &format!(
            ",\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{start},{}]}}",
            t.name,
            t.dtype.name(),
            shape.join(","),
            data.len()
        );
    }
    header.push('}');
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend(data);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every type and kind. `python tests/goldens/weights.py --hash tests/support/src/weights.recipe` prints the
    /// same number.
    #[test]
    fn python_makes_the_same_bytes() {
        let file = safetensors(include_str!("weights.recipe")).unwrap();
        assert_eq!(format!("{:016x}", fnv1a(&file, FNV1A)), "13db4f59517ba84d");
    }

    #[test]
    fn numbers_are_rounded_to_even() {
        let one = 1i64 << FRACTION;
        for x in [1.0, -1.0, 0.75, 3.5, -1234.0] {
            let v = (x * one as f64) as i64;
            assert_eq!(f32::from_bits(rounded(v, DType::F32)), x as f32);
            assert_eq!(f32::from_bits(rounded(v, DType::Bf16) << 16), f32::from_bits((x as f32).to_bits() & !0xFFFF));
        }
        // 1 + 1/256 is in the middle of two bf16 numbers, 1 + 3/256 too.
        assert_eq!(rounded(one + (one >> 8), DType::Bf16), 0x3F80);
        assert_eq!(rounded(one + 3 * (one >> 8), DType::Bf16), 0x3F82);
        assert_eq!(rounded(one + (one >> 8) + 1, DType::Bf16), 0x3F81);
        // A significand that rounds up to the next power of two; the least f16 numbers.
        assert_eq!(rounded(2 * one - 1, DType::Bf16), 0x4000);
        assert_eq!(rounded(one, DType::F16), 0x3C00);
        assert_eq!(rounded(1 << 12, DType::F16), 1);
        assert_eq!(rounded(-(1 << 11), DType::F16), 0x8000);
        assert_eq!(rounded(one >> 14, DType::F16), 0x0400);
    }

    #[test]
    fn lines_that_say_nothing_are_told() {
        for line in ["f64 a 1 normal 0 1", "f32 a 1 normal 0", "f32 a.{0..x} 1 constant 0", "f32 a 1 constant 1e-3"] {
            assert!(safetensors(&format!("seed 1\n{line}\n")).unwrap_err().starts_with("line 2"), "{line}");
        }
        assert!(safetensors("f32 a 1 constant 0\n").unwrap_err().contains("seed"));
    }
}

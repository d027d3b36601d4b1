//! Elementary functions on f32 that generated code, microkernels and the scalar reference compute
//! with the same bits: the same operations in the same order, each rounded once, none contracted.
//!
//! Polynomials were fitted by Chebyshev interpolation in 40-digit arithmetic on the reduced ranges
//! given with them, and rounded to f32. `codegen/src/cpu/math.rs` says how far the functions are
//! from the exact ones, and checks it.

/// `ln 2` as a short number, whose product with an exponent is exact; [`LN2_LOW`] is the rest.
pub const LN2_HIGH: f32 = 0.693_359_4;
/// See [`LN2_HIGH`].
pub const LN2_LOW: f32 = -0.000_212_194_44;
/// Below this number `eˣ` is 0.
pub const EXP_LEAST: f32 = -104.0;
/// Above this number `eˣ` is infinite.
pub const EXP_MOST: f32 = 89.0;
/// `(eʳ − 1 − r)/r²` on |r| ≤ ln 2 / 2, lowest power first.
pub const EXP: [f32; 5] = [0.5, 0.166_665_73, 0.041_666_55, 0.008_363_774, 0.001_392_692_7];
/// Parameter of `t = 1/(1 + PHI_T·x)`.
pub const PHI_T: f32 = 0.3;
/// Above this number `Φ(−x)` is 0.
pub const PHI_MOST: f32 = 14.5;
/// `Φ(−x)·e^(x²/2)/t` in `t` on 0 ≤ x ≤ [`PHI_MOST`].
pub const PHI: [f32; 10] = [
    0.119_687_75,
    0.119_550_43,
    0.110_418_41,
    0.077_517_904,
    0.098_711_38,
    -0.084_213_48,
    0.197_550_58,
    -0.232_524_41,
    0.114_257_455,
    -0.020_956_025,
];
/// The upper 12 bits of a number: a half of `x²` in `Φ`.
pub const PHI_HIGH: u32 = 0xffff_f000;
/// Below this magnitude `Φ` is a polynomial.
pub const PHI_SMALL_MOST: f32 = 0.75;
/// `(Φ(x) − 1/2)/x` in x² on |x| ≤ [`PHI_SMALL_MOST`].
pub const PHI_SMALL: [f32; 5] = [0.398_942_3, -0.066_490_3, 0.009_972_361, -0.001_181_318_9, 0.000_102_970_516];
/// `gelu_tanh(x) = x/(1 + e^(−SLOPE·x·(1 + CUBIC·x²)))`.
pub const GELU_CUBIC: f32 = 0.044_715;
/// See [`GELU_CUBIC`]: `2·√(2/π)`.
pub const GELU_SLOPE: f32 = 1.595_769_2;

/// Below this magnitude `tanh` is a polynomial.
pub const TANH_SMALL: f32 = 0.625;
/// `(tanh(x)/x − 1)/x²` in x² on |x| ≤ [`TANH_SMALL`].
pub const TANH: [f32; 5] = [-0.333_333_28, 0.133_327_7, -0.053_850_908, 0.020_997_18, -0.006_096_714];
/// `2·artanh(s)/s` in s² on |s| ≤ 1/3: its series, whose next term is below 2⁻²⁸.
pub const ARTANH: [f32; 8] = [2.0, 2.0 / 3.0, 2.0 / 5.0, 2.0 / 7.0, 2.0 / 9.0, 2.0 / 11.0, 2.0 / 13.0, 2.0 / 15.0];

/// A function of one number in [`crate::MapFn`]: those that models have between products.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// `x`.
    Same = 0,
    /// `x/(1+e⁻ˣ)`.
    Silu = 1,
    /// `x·Φ(x)`.
    Gelu = 2,
    /// `x/2·(1+tanh(√(2/π)·(x+0.044715x³)))`.
    GeluTanh = 3,
    /// `max(0, x)`; NaN for NaN.
    Relu = 4,
    /// `eˣ`.
    Exp = 5,
    /// `1/(1+e⁻ˣ)`.
    Sigmoid = 6,
    /// `tanh x`.
    Tanh = 7,
    /// `ln(1 + eˣ)`.
    Softplus = 8,
}

/// A function of two numbers in [`crate::MapFn`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `a`: there is no `b`.
    First = 0,
    /// `a + b`.
    Add = 1,
    /// `a · b`.
    Mul = 2,
}

impl Unary {
    /// Every function.
    pub const ALL: [Unary; 9] = [
        Unary::Same,
        Unary::Silu,
        Unary::Gelu,
        Unary::GeluTanh,
        Unary::Relu,
        Unary::Exp,
        Unary::Sigmoid,
        Unary::Tanh,
        Unary::Softplus,
    ];
}

impl Binary {
    /// Every function.
    pub const ALL: [Binary; 3] = [Binary::First, Binary::Add, Binary::Mul];
}

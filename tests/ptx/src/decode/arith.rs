//! Arithmetic of integers and floats.

use half::{bf16, f16};

use super::{Dec, Res, map1, map2, map3};
use crate::machine::{Exec, Slot};
use crate::value::{BF16, Bits, F16, F32, Round, Two, flush, fma_odd, sum_odd};

pub(super) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    if d.root == "dp4a" {
        return dp4a(d);
    }
    let ty = d.ty()?;
    match ty {
        "f32" => single(d),
        "f64" => double(d),
        "f16" => half::<f16>(d, "f16", |x| x),
        "bf16" => half::<bf16>(d, "bf16", |x| x),
        "f16x2" => half_pair::<f16>(d),
        "bf16x2" => half_pair::<bf16>(d),
        "u16x2" => int_pair::<u16>(d),
        "s16x2" => int_pair::<i16>(d),
        "u16" | "b16" => int::<u16, u32>(d, ty, "u32"),
        "s16" => int::<i16, i32>(d, ty, "s32"),
        "u32" | "b32" => int::<u32, u64>(d, ty, "u64"),
        "s32" => int::<i32, i64>(d, ty, "s64"),
        "u64" | "b64" => int::<u64, u64>(d, ty, ""),
        "s64" => int::<i64, i64>(d, ty, ""),
        _ => d.unknown(),
    }
}

/// Integers of PTX: wrapping arithmetic; dividing by zero gives all ones, as the hardware does.
pub(crate) trait Int: Bits + Ord {
    fn wide(self) -> i128;
    fn cut(v: i128) -> Self;
    /// Quotient and remainder; by zero, all ones and the dividend.
    fn divided(self, by: Self) -> (Self, Self);
    const BITS: u32;
    const SIGNED: bool;
    const MIN: i128;
    const MAX: i128;
}

macro_rules! ints {
    ($($t:ident),*) => {$(
        impl Int for $t {
            #[inline(always)]
            fn wide(self) -> i128 { self as i128 }
            #[inline(always)]
            fn cut(v: i128) -> Self { v as $t }
            #[inline(always)]
            fn divided(self, by: Self) -> (Self, Self) {
                if by == 0 { (!0, self) } else { (self.wrapping_div(by), self.wrapping_rem(by)) }
            }
            const BITS: u32 = $t::BITS;
            const SIGNED: bool = $t::MIN != 0;
            const MIN: i128 = $t::MIN as i128;
            const MAX: i128 = $t::MAX as i128;
        }
    )*};
}
ints!(u8, i8, u16, i16, u32, i32, u64, i64);

fn int<T: Int, W: Int>(d: &mut Dec<'_, '_>, ty: &str, wide: &str) -> Res<Exec> {
    let bits = T::BITS;
    let sat = d.flag("sat");
    if sat && !(T::SIGNED && bits == 32 && matches!(d.root, "add" | "sub" | "mad")) {
        return d.unknown();
    }
    let clamp = move |v: i128| T::cut(if sat { v.clamp(T::MIN, T::MAX) } else { v });
    match d.root {
        "mul" | "mad" => {
            if d.flag("wide") {
                return mul_wide::<T, W>(d, ty, wide);
            }
            let Some(part) = d.pick(&["lo", "hi"]) else { return d.unknown() };
            let (dst, a, b) = (d.dst(bits)?, d.src(ty)?, d.src(ty)?);
            let mad = d.root == "mad";
            if part == "lo" {
                let product = |a: T, b: T| a.wide().wrapping_mul(b.wide());
                if !mad {
                    return Ok(map2(dst, [a, b], move |a: T, b: T| T::cut(product(a, b))));
                }
                let c = d.src(ty)?;
                return Ok(map3(dst, [a, b, c], move |a: T, b: T, c: T| T::cut(product(a, b).wrapping_add(c.wide()))));
            }
            // 64-bit unsigned products do not fit a signed 128-bit number.
            let product = move |a: T, b: T| {
                let unsigned = bits == 64 && !T::SIGNED;
                if unsigned {
                    ((a.wide() as u128 * b.wide() as u128) >> bits) as i128
                } else {
                    (a.wide() * b.wide()) >> bits
                }
            };
            if !mad {
                return Ok(map2(dst, [a, b], move |a: T, b: T| T::cut(product(a, b))));
            }
            let c = d.src(ty)?;
            Ok(map3(dst, [a, b, c], move |a: T, b: T, c: T| clamp(product(a, b) + c.wide())))
        }
        "mul24" if bits == 32 => {
            let high = if d.pick(&["lo", "hi"]) == Some("hi") { 16 } else { 0 };
            let cut = |x: T| if T::SIGNED { (x.wide() << 104) >> 104 } else { x.wide() & 0xff_ffff };
            Ok(map2(d.dst(bits)?, [d.src(ty)?, d.src(ty)?], move |a: T, b: T| T::cut((cut(a) * cut(b)) >> high)))
        }
        "neg" => Ok(map1(d.dst(bits)?, d.src(ty)?, |a: T| T::cut(-a.wide()))),
        "abs" => Ok(map1(d.dst(bits)?, d.src(ty)?, |a: T| T::cut(a.wide().abs()))),
        "sad" => Ok(map3(d.dst(bits)?, [d.src(ty)?, d.src(ty)?, d.src(ty)?], |a: T, b: T, c: T| {
            T::cut(c.wide() + (a.wide() - b.wide()).abs())
        })),
        root => {
            let (dst, ab) = (d.dst(bits)?, [d.src(ty)?, d.src(ty)?]);
            Ok(match root {
                "add" => map2(dst, ab, move |a: T, b: T| clamp(a.wide() + b.wide())),
                "sub" => map2(dst, ab, move |a: T, b: T| clamp(a.wide() - b.wide())),
                "min" => map2(dst, ab, |a: T, b: T| a.min(b)),
                "max" => map2(dst, ab, |a: T, b: T| a.max(b)),
                "div" => map2(dst, ab, |a: T, b: T| a.divided(b).0),
                "rem" => map2(dst, ab, |a: T, b: T| a.divided(b).1),
                _ => return d.unknown(),
            })
        }
    }
}

fn mul_wide<T: Int, W: Int>(d: &mut Dec<'_, '_>, ty: &str, wide: &str) -> Res<Exec> {
    if wide.is_empty() {
        return d.unknown();
    }
    let (dst, a, b) = (d.dst(W::BITS)?, d.src(ty)?, d.src(ty)?);
    if d.root == "mul" {
        return Ok(map2(dst, [a, b], |a: T, b: T| W::cut(a.wide() * b.wide())));
    }
    let c = d.src(wide)?;
    Ok(map3(dst, [a, b, c], |a: T, b: T, c: W| W::cut(a.wide() * b.wide() + c.wide())))
}

fn int_pair<T: Int>(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let (dst, ab) = (d.dst(32)?, [d.src("b32")?, d.src("b32")?]);
    let f: fn(T, T) -> T = match d.root {
        "add" => |a, b| T::cut(a.wide() + b.wide()),
        "min" => |a, b| a.min(b),
        "max" => |a, b| a.max(b),
        _ => return d.unknown(),
    };
    Ok(map2(dst, ab, move |a: Two<T>, b: Two<T>| Two(f(a.0, b.0), f(a.1, b.1))))
}

fn dp4a(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let (Some(tb), Some(ta)) = (d.pick_type(), d.pick_type()) else { return d.unknown() };
    // `pick_type` takes from the end: the type of `b` comes first.
    let byte = |signed: bool, v: u32, i: u32| {
        let b = (v >> (8 * i)) as u8;
        if signed { i64::from(b as i8) } else { i64::from(b) }
    };
    let (sa, sb) = (ta == "s32", tb == "s32");
    Ok(map3(d.dst(32)?, [d.src("b32")?, d.src("b32")?, d.src("b32")?], move |a: u32, b: u32, c: u32| {
        (0..4).fold(c, |sum, i| sum.wrapping_add((byte(sa, a, i) * byte(sb, b, i)) as u32))
    }))
}

impl Dec<'_, '_> {
    fn pick_type(&mut self) -> Option<&'static str> {
        match self.ty().ok()? {
            "s32" => Some("s32"),
            "u32" => Some("u32"),
            _ => None,
        }
    }

    /// Rounding modifier of a float operation.
    pub fn rounding(&mut self) -> Option<Round> {
        self.pick(&["rn", "rz", "rm", "rp"]).map(|r| match r {
            "rz" => Round::Zero,
            "rm" => Round::Down,
            "rp" => Round::Up,
            _ => Round::Near,
        })
    }
}

/// Result of `min` or `max`; without `nan` a NaN operand is ignored. -0 is less than 0.
fn extreme(max: bool, nan: bool, a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return match (nan, a.is_nan(), b.is_nan()) {
            (true, ..) | (_, true, true) => f64::NAN,
            (_, true, _) => b,
            _ => a,
        };
    }
    let less = a < b || (a == b && a.is_sign_negative());
    if less == max { b } else { a }
}

fn single(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let round = d.rounding().unwrap_or(Round::Near);
    let (ftz, sat) = (d.flag("ftz"), d.flag("sat"));
    let inp = move |x: f32| if ftz { flush(x) } else { x };
    let out = move |x: f32| {
        let x = if ftz { flush(x) } else { x };
        if !sat {
            x
        } else if x.is_nan() {
            0.0
        } else {
            x.clamp(0.0, 1.0)
        }
    };
    // Rounding to odd in f64 first keeps directed rounding exact.
    let directed = move |x: f64| f32::from_bits(F32.encode(x, round, false) as u32);
    let near = round == Round::Near;
    match d.root {
        "neg" => return Ok(map1(d.dst(32)?, d.src("f32")?, move |a: f32| out(-inp(a)))),
        "abs" => return Ok(map1(d.dst(32)?, d.src("f32")?, move |a: f32| out(inp(a).abs()))),
        "fma" | "mad" => {
            let (dst, abc) = (d.dst(32)?, [d.src("f32")?, d.src("f32")?, d.src("f32")?]);
            if near && !ftz && !sat {
                return Ok(map3(dst, abc, f32::mul_add));
            }
            return Ok(map3(dst, abc, move |a: f32, b: f32, c: f32| {
                let (a, b, c) = (inp(a), inp(b), inp(c));
                out(if near { a.mul_add(b, c) } else { directed(fma_odd(f64::from(a), f64::from(b), f64::from(c))) })
            }));
        }
        "div" => return divide(d, near, inp, out),
        _ => {}
    }
    let nan = d.flag("NaN");
    let (dst, ab) = (d.dst(32)?, [d.src("f32")?, d.src("f32")?]);
    let wide = |f: fn(f64, f64) -> f64| move |a: f32, b: f32| out(directed(f(f64::from(inp(a)), f64::from(inp(b)))));
    Ok(match d.root {
        "add" if near && !ftz && !sat => map2(dst, ab, |a: f32, b: f32| a + b),
        "sub" if near && !ftz && !sat => map2(dst, ab, |a: f32, b: f32| a - b),
        "mul" if near && !ftz && !sat => map2(dst, ab, |a: f32, b: f32| a * b),
        "add" => map2(dst, ab, wide(sum_odd)),
        "sub" => map2(dst, ab, wide(|a, b| sum_odd(a, -b))),
        "mul" => map2(dst, ab, wide(|a, b| a * b)),
        "min" | "max" => {
            let max = d.root == "max";
            map2(dst, ab, move |a: f32, b: f32| out(extreme(max, nan, f64::from(inp(a)), f64::from(inp(b))) as f32))
        }
        _ => return d.unknown(),
    })
}

/// f32 division. `.approx` and `.full` are computed as if correctly rounded.
fn divide(
    d: &mut Dec<'_, '_>,
    near: bool,
    inp: impl Fn(f32) -> f32 + Send + Sync + 'static,
    out: impl Fn(f32) -> f32 + Send + Sync + 'static,
) -> Res<Exec> {
    d.drop_all(&["approx", "full"]);
    if !near {
        return d.unknown();
    }
    Ok(map2(d.dst(32)?, [d.src("f32")?, d.src("f32")?], move |a: f32, b: f32| out(inp(a) / inp(b))))
}

fn double(d: &mut Dec<'_, '_>) -> Res<Exec> {
    if d.rounding().is_some_and(|r| r != Round::Near) {
        return d.unknown();
    }
    match d.root {
        "neg" => return Ok(map1(d.dst(64)?, d.src("f64")?, |a: f64| -a)),
        "abs" => return Ok(map1(d.dst(64)?, d.src("f64")?, f64::abs)),
        "fma" | "mad" => return Ok(map3(d.dst(64)?, [d.src("f64")?, d.src("f64")?, d.src("f64")?], f64::mul_add)),
        _ => {}
    }
    let (dst, ab) = (d.dst(64)?, [d.src("f64")?, d.src("f64")?]);
    Ok(match d.root {
        "add" => map2(dst, ab, |a: f64, b: f64| a + b),
        "sub" => map2(dst, ab, |a: f64, b: f64| a - b),
        "mul" => map2(dst, ab, |a: f64, b: f64| a * b),
        "div" => map2(dst, ab, |a: f64, b: f64| a / b),
        "min" => map2(dst, ab, |a: f64, b: f64| extreme(false, false, a, b)),
        "max" => map2(dst, ab, |a: f64, b: f64| extreme(true, false, a, b)),
        _ => return d.unknown(),
    })
}

/// The two 16-bit formats.
pub(crate) trait Half: Bits {
    fn wide(self) -> f64;
    /// The value nearest to `x`, which may be rounded to odd.
    fn near(x: f64) -> Self;
}

impl Half for f16 {
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self.to_f32())
    }
    fn near(x: f64) -> Self {
        f16::from_bits(F16.encode(x, Round::Near, false) as u16)
    }
}

impl Half for bf16 {
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self.to_f32())
    }
    fn near(x: f64) -> Self {
        bf16::from_bits(BF16.encode(x, Round::Near, false) as u16)
    }
}

/// An operation of one to three 16-bit floats.
enum HalfOp<T> {
    One(Box<dyn Fn(T) -> T + Send + Sync>),
    Two(Box<dyn Fn(T, T) -> T + Send + Sync>),
    Three(Box<dyn Fn(T, T, T) -> T + Send + Sync>),
}

fn half_op<T: Half>(d: &mut Dec<'_, '_>) -> Res<HalfOp<T>> {
    if d.rounding().is_some_and(|r| r != Round::Near) {
        return d.unknown();
    }
    let (ftz, sat, relu, nan) = (d.flag("ftz"), d.flag("sat"), d.flag("relu"), d.flag("NaN"));
    let tiny = T::get(0x0400).wide();
    // Only f16 has `.ftz` here; its smallest normal is 2^-14.
    let inp = move |x: T| {
        let x = x.wide();
        if ftz && x != 0.0 && x.abs() < tiny { 0f64.copysign(x) } else { x }
    };
    let out = move |x: f64| {
        let x = match (sat, relu) {
            (true, _) if x.is_nan() => 0.0,
            (true, _) => x.clamp(0.0, 1.0),
            (_, true) if x <= 0.0 => 0.0,
            _ => x,
        };
        T::near(if ftz { inp(T::near(x)) } else { x })
    };
    Ok(match d.root {
        "neg" => HalfOp::One(Box::new(move |a| out(-inp(a)))),
        "abs" => HalfOp::One(Box::new(move |a| out(inp(a).abs()))),
        "add" => HalfOp::Two(Box::new(move |a, b| out(sum_odd(inp(a), inp(b))))),
        "sub" => HalfOp::Two(Box::new(move |a, b| out(sum_odd(inp(a), -inp(b))))),
        "mul" => HalfOp::Two(Box::new(move |a, b| out(inp(a) * inp(b)))),
        "fma" => HalfOp::Three(Box::new(move |a, b, c| out(fma_odd(inp(a), inp(b), inp(c))))),
        "min" => HalfOp::Two(Box::new(move |a, b| out(extreme(false, nan, inp(a), inp(b))))),
        "max" => HalfOp::Two(Box::new(move |a, b| out(extreme(true, nan, inp(a), inp(b))))),
        _ => return d.unknown(),
    })
}

fn half<T: Half>(d: &mut Dec<'_, '_>, ty: &str, _: fn(T) -> T) -> Res<Exec> {
    let op = half_op::<T>(d)?;
    let dst = d.dst(16)?;
    let mut src = || -> Res<Slot> { d.src(ty) };
    Ok(match op {
        HalfOp::One(f) => map1(dst, src()?, f),
        HalfOp::Two(f) => map2(dst, [src()?, src()?], f),
        HalfOp::Three(f) => map3(dst, [src()?, src()?, src()?], f),
    })
}

fn half_pair<T: Half>(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let op = half_op::<T>(d)?;
    let dst = d.dst(32)?;
    let mut src = || -> Res<Slot> { d.src("b32") };
    Ok(match op {
        HalfOp::One(f) => map1(dst, src()?, move |a: Two<T>| Two(f(a.0), f(a.1))),
        HalfOp::Two(f) => map2(dst, [src()?, src()?], move |a: Two<T>, b: Two<T>| Two(f(a.0, b.0), f(a.1, b.1))),
        HalfOp::Three(f) => map3(dst, [src()?, src()?, src()?], move |a: Two<T>, b: Two<T>, c: Two<T>| {
            Two(f(a.0, b.0, c.0), f(a.1, b.1, c.1))
        }),
    })
}

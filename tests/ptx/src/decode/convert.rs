//! `cvt`.

use half::{bf16, f16};

use super::arith::Half;
use super::{Dec, Res, bits_of, map1, map2};
use crate::machine::Exec;
use crate::value::{BF16, Bits, E4M3, E5M2, F16, F32, Format, Round, TF32, flush};

/// A number on its way from one type to another.
#[derive(Clone, Copy)]
enum Number {
    Int(i128),
    Float(f64),
}

fn format_of(ty: &str) -> Option<Format> {
    Some(match ty {
        "f16" => F16,
        "bf16" => BF16,
        "f32" => F32,
        "tf32" => TF32,
        "e4m3" => E4M3,
        "e5m2" => E5M2,
        _ => return None,
    })
}

fn is_float(ty: &str) -> bool {
    format_of(ty).is_some() || ty == "f64"
}

fn read(ty: &str) -> Option<fn(u64) -> Number> {
    Some(match ty {
        "u8" | "b8" => |b| Number::Int(i128::from(b as u8)),
        "u16" | "b16" => |b| Number::Int(i128::from(b as u16)),
        "u32" | "b32" => |b| Number::Int(i128::from(b as u32)),
        "u64" | "b64" => |b| Number::Int(i128::from(b)),
        "s8" => |b| Number::Int(i128::from(b as i8)),
        "s16" => |b| Number::Int(i128::from(b as i16)),
        "s32" => |b| Number::Int(i128::from(b as i32)),
        "s64" => |b| Number::Int(i128::from(b as i64)),
        "f16" => |b| Number::Float(f16::get(b).wide()),
        "bf16" => |b| Number::Float(bf16::get(b).wide()),
        "f32" => |b| Number::Float(f64::from(f32::get(b))),
        "f64" => |b| Number::Float(f64::get(b)),
        _ => return None,
    })
}

/// Range of an integer type.
fn range(ty: &str) -> Option<(i128, i128)> {
    Some(match ty {
        "u8" | "b8" => (0, 0xff),
        "u16" | "b16" => (0, 0xffff),
        "u32" | "b32" => (0, 0xffff_ffff),
        "u64" | "b64" => (0, i128::from(u64::MAX)),
        "s8" => (-0x80, 0x7f),
        "s16" => (-0x8000, 0x7fff),
        "s32" => (i128::from(i32::MIN), i128::from(i32::MAX)),
        "s64" => (i128::from(i64::MIN), i128::from(i64::MAX)),
        _ => return None,
    })
}

/// To an integer in the sense of `.rni`, `.rzi`, `.rmi`, `.rpi`.
fn whole(x: f64, round: Round) -> f64 {
    match round {
        Round::Near => x.round_ties_even(),
        Round::Away => x.round(),
        Round::Zero => x.trunc(),
        Round::Down => x.floor(),
        Round::Up => x.ceil(),
    }
}

pub(super) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let from = d.ty()?;
    let to = d.ty()?;
    let to_whole = d.pick(&["rni", "rzi", "rmi", "rpi"]).map(|r| match r {
        "rni" => Round::Near,
        "rzi" => Round::Zero,
        "rmi" => Round::Down,
        _ => Round::Up,
    });
    let round = if d.flag("rna") { Some(Round::Away) } else { d.rounding() };
    let (ftz, sat, relu) = (d.flag("ftz"), d.flag("sat"), d.flag("relu"));
    let finite = d.flag("satfinite");
    if to.contains('x') || from.contains('x') {
        return packed(d, to, from, round.unwrap_or(Round::Near), relu, finite);
    }
    let Some(read) = read(from) else { return d.unknown() };
    let flushing = move |x: f64| if ftz { f64::from(flush(x as f32)) } else { x };
    let (ftz_in, ftz_out) = (ftz && from == "f32", ftz && to == "f32");
    let width = if to == "tf32" { 32 } else { bits_of(to).unwrap_or(32) };
    let (dst, have) = d.dst_wide(width)?;
    let src = d.src(from)?;
    let round = round.unwrap_or(Round::Near);
    if let Some(format) = format_of(to).filter(|_| is_float(from)) {
        if format == F16
            && from == "f32"
            && round == Round::Near
            && !ftz
            && !sat
            && !relu
            && !finite
            && to_whole.is_none()
        {
            return Ok(map1(dst, src, |a: f32| f16::from_f32(a)));
        }
        return Ok(map1(dst, src, move |a: u64| {
            let Number::Float(x) = read(a) else { return 0 };
            let x = if ftz_in { flushing(x) } else { x };
            let x = to_whole.map_or(x, |r| whole(x, r));
            let x = match (sat, relu) {
                (true, _) if x.is_nan() => 0.0,
                (true, _) => x.clamp(0.0, 1.0),
                (_, true) if x <= 0.0 => 0.0,
                _ => x,
            };
            let bits = format.encode(x, round, finite);
            match format {
                // A tf32 is an f32 with a short mantissa.
                TF32 => bits << 13,
                F32 if ftz_out => flush(f32::get(bits)).put(),
                _ => bits,
            }
        }));
    }
    if to == "f64" {
        return Ok(map1(dst, src, move |a: u64| match read(a) {
            Number::Float(x) => to_whole.map_or(x, |r| whole(x, r)),
            Number::Int(v) => v as f64,
        }));
    }
    if let Some(format) = format_of(to) {
        // From an integer: 128-bit integers convert to f32 with one rounding; the others are exact
        // in f64.
        return Ok(map1(dst, src, move |a: u64| match read(a) {
            Number::Int(v) if format == F32 && round == Round::Near => (v as f32).put(),
            Number::Int(v) => format.encode(v as f64, round, finite),
            Number::Float(_) => 0,
        }));
    }
    let Some((min, max)) = range(to) else { return d.unknown() };
    let keep = if have >= 64 { u64::MAX } else { (1 << have) - 1 };
    let whole_mode = to_whole.unwrap_or(Round::Zero);
    if is_float(from) && to_whole.is_none() {
        return d.unknown();
    }
    let narrow = move |v: i128| if sat { v.clamp(min, max) } else { wrap(v, min, max) };
    Ok(map1(dst, src, move |a: u64| {
        let v = match read(a) {
            Number::Int(v) => narrow(v),
            Number::Float(x) if x.is_nan() => 0,
            // Floats always saturate.
            Number::Float(x) => (whole(if ftz_in { flushing(x) } else { x }, whole_mode) as i128).clamp(min, max),
        };
        v as u64 & keep
    }))
}

/// `v` modulo the size of the range, a power of two.
fn wrap(v: i128, min: i128, max: i128) -> i128 {
    min + ((v - min) & (max - min))
}

/// Conversions of two values at once: the first operand goes to the upper half.
fn packed(d: &mut Dec<'_, '_>, to: &str, from: &str, round: Round, relu: bool, finite: bool) -> Res<Exec> {
    let element = |t: &str| t.strip_suffix("x2").and_then(format_of);
    let clip = move |x: f64| if relu && x <= 0.0 { 0.0 } else { x };
    match (element(to), element(from)) {
        (Some(t), None) if from == "f32" => {
            let half = 1 + t.exponent + t.mantissa;
            Ok(map2(d.dst(2 * half)?, [d.src("f32")?, d.src("f32")?], move |a: f32, b: f32| {
                let one = |x: f32| t.encode(clip(f64::from(x)), round, finite);
                one(a) << half | one(b)
            }))
        }
        (Some(t), Some(s)) => {
            let (th, sh) = (1 + t.exponent + t.mantissa, 1 + s.exponent + s.mantissa);
            Ok(map1(d.dst(2 * th)?, d.src(if sh == 8 { "b16" } else { "b32" })?, move |a: u64| {
                let one = |x: u64| t.encode(clip(s.decode(x & ((1 << sh) - 1))), round, finite);
                one(a >> sh) << th | one(a)
            }))
        }
        _ => d.unknown(),
    }
}

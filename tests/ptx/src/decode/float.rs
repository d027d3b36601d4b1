//! Functions of floats. Approximations are computed in f64 and rounded once, so results differ from
//! the hardware's in the last bits.

use half::{bf16, f16};

use super::arith::Half;
use super::{Dec, Res, map1, map2};
use crate::machine::Exec;
use crate::value::{Two, flush};

pub(super) fn decode(d: &mut Dec<'_, '_>) -> Res<Exec> {
    let ty = d.ty()?;
    if d.root == "copysign" && ty == "f32" {
        return Ok(map2(d.dst(32)?, [d.src(ty)?, d.src(ty)?], |a: f32, b: f32| b.copysign(a)));
    }
    if d.root == "testp" && ty == "f32" {
        let f: fn(f32) -> bool = match d.pick(&["finite", "infinite", "number", "notanumber", "normal", "subnormal"]) {
            Some("finite") => f32::is_finite,
            Some("infinite") => f32::is_infinite,
            Some("number") => |x| !x.is_nan(),
            Some("notanumber") => f32::is_nan,
            Some("normal") => f32::is_normal,
            Some("subnormal") => f32::is_subnormal,
            _ => return d.unknown(),
        };
        return Ok(map1(d.dst(1)?, d.src(ty)?, f));
    }
    if d.rounding().is_some_and(|r| r != crate::value::Round::Near) {
        return d.unknown();
    }
    d.flag("approx");
    let ftz = d.flag("ftz");
    let f: fn(f64) -> f64 = match d.root {
        "ex2" => f64::exp2,
        "lg2" => f64::log2,
        "rcp" => |x| 1.0 / x,
        // Negative zero has an infinite root of its sign.
        "rsqrt" => |x| if x == 0.0 { f64::INFINITY.copysign(x) } else { 1.0 / x.sqrt() },
        "sqrt" => f64::sqrt,
        "sin" => f64::sin,
        "cos" => f64::cos,
        "tanh" => f64::tanh,
        _ => return d.unknown(),
    };
    Ok(match ty {
        "f32" => {
            let fl = move |x: f32| if ftz { flush(x) } else { x };
            map1(d.dst(32)?, d.src(ty)?, move |a: f32| fl(f(f64::from(fl(a))) as f32))
        }
        "f64" => map1(d.dst(64)?, d.src(ty)?, f),
        "f16" => map1(d.dst(16)?, d.src(ty)?, move |a: f16| f16::near(f(a.wide()))),
        "bf16" => map1(d.dst(16)?, d.src(ty)?, move |a: bf16| bf16::near(f(a.wide()))),
        "f16x2" => {
            map1(d.dst(32)?, d.src("b32")?, move |a: Two<f16>| Two(f16::near(f(a.0.wide())), f16::near(f(a.1.wide()))))
        }
        "bf16x2" => map1(d.dst(32)?, d.src("b32")?, move |a: Two<bf16>| {
            Two(bf16::near(f(a.0.wide())), bf16::near(f(a.1.wide())))
        }),
        _ => return d.unknown(),
    })
}

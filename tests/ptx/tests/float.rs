//! Float instructions against plain formulas.

use crate::common::{Random, check};
use half::{bf16, f16};

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn bits(x: f32) -> u64 {
    u64::from(if x.is_nan() { 0x7fff_ffff } else { x.to_bits() })
}

/// Any bit pattern, or a number of a moderate size.
fn floats(x: u64) -> u64 {
    match x % 5 {
        0 => x >> 32,
        1 => u64::from((Random(x).unit() * 1e-38).to_bits()),
        _ => u64::from((Random(x).unit() * 100.0).to_bits()),
    }
}

/// Patterns of f16 in both halves of a word.
fn halves(x: u64) -> u64 {
    let one = |x: u64| {
        if x.is_multiple_of(5) { x >> 8 & 0xffff } else { u64::from(f16::from_f32(Random(x).unit() * 8.0).to_bits()) }
    };
    one(x >> 32) << 16 | one(x & 0xffff_ffff)
}

fn h(x: u64) -> f64 {
    f16::from_bits(x as u16).to_f64()
}

fn b(x: u64) -> f64 {
    bf16::from_bits(x as u16).to_f64()
}

#[test]
fn single_precision() {
    check("add.rn.f32 %oa, %a0, %a1;", "%oa", floats, |[x, y]| bits(f(x) + f(y)));
    check("sub.f32 %oa, %a0, %a1;", "%oa", floats, |[x, y]| bits(f(x) - f(y)));
    check("mul.f32 %oa, %a0, 0f3FC00000;", "%oa", floats, |[x]| bits(f(x) * 1.5));
    check("fma.rn.f32 %oa, %a0, %a1, %a2;", "%oa", floats, |[x, y, z]| bits(f(x).mul_add(f(y), f(z))));
    check("div.rn.f32 %oa, %a0, %a1;", "%oa", floats, |[x, y]| bits(f(x) / f(y)));
    check("sqrt.rn.f32 %oa, %a0;", "%oa", floats, |[x]| bits(f(x).sqrt()));
    check("rcp.rn.f32 %oa, %a0;", "%oa", floats, |[x]| bits(1.0 / f(x)));
    check("neg.f32 %oa, %a0;", "%oa", floats, |[x]| bits(-f(x)));
    check("abs.f32 %oa, %a0;", "%oa", floats, |[x]| bits(f(x).abs()));
    check("add.sat.f32 %oa, %a0, %a1;", "%oa", floats, |[x, y]| {
        let s = f(x) + f(y);
        bits(if s.is_nan() { 0.0 } else { s.clamp(0.0, 1.0) })
    });
    let ftz = |x: f32| if x.is_subnormal() { 0f32.copysign(x) } else { x };
    check("mul.ftz.f32 %oa, %a0, %a1;", "%oa", floats, |[x, y]| bits(ftz(ftz(f(x)) * ftz(f(y)))));
    check("fma.rn.ftz.f32 %oa, %a0, %a1, %a2;", "%oa", floats, |[x, y, z]| {
        bits(ftz(ftz(f(x)).mul_add(ftz(f(y)), ftz(f(z)))))
    });
}

#[test]
fn directed_rounding_brackets_the_exact_result() {
    for op in ["add", "mul"] {
        let exact = move |x: u64, y: u64| {
            let (x, y) = (f64::from(f(x)), f64::from(f(y)));
            if op == "add" { x + y } else { x * y }
        };
        // Moderate sizes only: their sums and products are exact in f64.
        let make = |x: u64| u64::from((Random(x).unit() + 1.5).to_bits());
        check(
            &format!("{op}.rm.f32 %a2, %a0, %a1; {op}.rp.f32 %a3, %a0, %a1; mov.b64 %od, {{%a2, %a3}};"),
            "%od",
            make,
            |[x, y]| {
                let near = exact(x, y) as f32;
                let (lo, hi) = match f64::from(near).total_cmp(&exact(x, y)) {
                    std::cmp::Ordering::Less => (near, near.next_up()),
                    std::cmp::Ordering::Greater => (near.next_down(), near),
                    std::cmp::Ordering::Equal => (near, near),
                };
                bits(lo) | bits(hi) << 32
            },
        );
    }
}

#[test]
fn extremes_and_nan() {
    let min = |x: f32, y: f32| {
        if x.is_nan() {
            y
        } else if y.is_nan() || x < y || (x == y && x.is_sign_negative()) {
            x
        } else {
            y
        }
    };
    check("min.f32 %oa, %a0, %a1;", "%oa", floats, move |[x, y]| bits(min(f(x), f(y))));
    check("max.f32 %oa, %a0, %a1;", "%oa", floats, move |[x, y]| bits(-min(-f(x), -f(y))));
    check("max.NaN.f32 %oa, %a0, %a1;", "%oa", floats, |[x, y]| {
        bits(if f(x).is_nan() { f(x) } else { f(x).maximum_or_nan(f(y)) })
    });
    check("setp.lt.f32 %op, %a0, %a1;", "%op", floats, |[x, y]| u64::from(f(x) < f(y)));
    check("setp.geu.f32 %op, %a0, %a1;", "%op", floats, |[x, y]| {
        u64::from(f(x).partial_cmp(&f(y)).is_none_or(|o| o.is_ge()))
    });
    check("setp.nan.f32 %op, %a0, %a1;", "%op", floats, |[x, y]| u64::from(f(x).is_nan() || f(y).is_nan()));
    check("setp.neu.f16 %op, %h0, %h1;", "%op", halves, |[x, y]| u64::from(h(x) != h(y)));
    check("testp.notanumber.f32 %op, %a0;", "%op", floats, |[x]| u64::from(f(x).is_nan()));
    check("copysign.f32 %oa, %a0, %a1;", "%oa", |x| floats(x) & 0x7f7f_ffff, |[x, y]| bits(f(y).copysign(f(x))));
}

trait Maximum {
    fn maximum_or_nan(self, other: Self) -> Self;
}

impl Maximum for f32 {
    fn maximum_or_nan(self, other: f32) -> f32 {
        if other.is_nan() { other } else { self.max(other) }
    }
}

#[test]
fn double_precision() {
    let d = f64::from_bits;
    let doubles = |x: u64| (f64::from(Random(x).unit()) * 1e3).to_bits();
    check("add.rn.f64 %od, %d0, %d1;", "%od", doubles, |[x, y]| (d(x) + d(y)).to_bits());
    check("fma.rn.f64 %od, %d0, %d1, %d2;", "%od", doubles, |[x, y, z]| d(x).mul_add(d(y), d(z)).to_bits());
    check("div.rn.f64 %od, %d0, 0d4008000000000000;", "%od", doubles, |[x]| (d(x) / 3.0).to_bits());
}

#[test]
fn half_precision() {
    // f64 sums and products of f16 values are exact here, so one rounding from f64 is the
    // definition.
    let near = |x: f64| llmcc_round_f16(x);
    check("add.rn.f16 %oh, %h0, %h1;", "%oh", halves, move |[x, y]| near(h(x) + h(y)));
    check("sub.f16 %oh, %h0, %h1;", "%oh", halves, move |[x, y]| near(h(x) - h(y)));
    check("mul.rn.f16 %oh, %h0, %h1;", "%oh", halves, move |[x, y]| near(h(x) * h(y)));
    check(
        "fma.rn.f16 %oh, %h0, %h1, %h2;",
        "%oh",
        |x| halves(x) & 0xbfff_bfff,
        move |[x, y, z]| near(h(x).mul_add(h(y), h(z))),
    );
    check(
        "fma.rn.f16x2 %oa, %a0, %a1, %a2;",
        "%oa",
        |x| halves(x) & 0xbfff_bfff,
        move |[x, y, z]| near(h(x).mul_add(h(y), h(z))) | near(h(x >> 16).mul_add(h(y >> 16), h(z >> 16))) << 16,
    );
    check("add.rn.f16x2 %oa, %a0, %a1;", "%oa", halves, move |[x, y]| {
        near(h(x) + h(y)) | near(h(x >> 16) + h(y >> 16)) << 16
    });
    check("neg.f16 %oh, %h0;", "%oh", |x| halves(x) & 0xbfff_bfff, |[x]| (x ^ 0x8000) & 0xffff);
}

/// f16 nearest to `x`, by searching the neighbours of a first guess.
fn llmcc_round_f16(x: f64) -> u64 {
    if x.is_nan() {
        return 0x7fff;
    }
    let sign = u64::from(x.is_sign_negative()) << 15;
    let guess = i64::from(f16::from_f32(x.abs() as f32).to_bits());
    let value = |b: i64| match b {
        0x7c00 => 65536.0,
        b => h(b as u64),
    };
    let best = (guess - 1..=guess + 1).filter(|b| (0..=0x7c00).contains(b)).min_by(|a, b| {
        let (da, db) = ((value(*a) - x.abs()).abs(), (value(*b) - x.abs()).abs());
        da.total_cmp(&db).then((a & 1).cmp(&(b & 1)))
    });
    sign | if x.is_infinite() { 0x7c00 } else { best.expect("a neighbour") as u64 }
}

#[test]
fn brain_floats() {
    let make = |x: u64| u64::from(bf16::from_f32(Random(x).unit() * 4.0).to_bits());
    let near = |x: f64| u64::from(bf16::from_f32(x as f32).to_bits());
    check("fma.rn.bf16 %oh, %h0, %h1, %h2;", "%oh", make, move |[x, y, z]| near(b(x).mul_add(b(y), b(z))));
    check("add.rn.bf16 %oh, %h0, %h1;", "%oh", make, move |[x, y]| near(b(x) + b(y)));
    check("max.bf16 %oh, %h0, %h1;", "%oh", make, move |[x, y]| near(b(x).max(b(y))));
    check("mul.rn.bf16x2 %oa, %a0, %a1;", "%oa", make, move |[x, y]| near(b(x) * b(y)));
}

#[test]
fn conversions() {
    check("cvt.rn.f16.f32 %oh, %a0;", "%oh", floats, |[x]| {
        if f(x).is_nan() { 0x7fff } else { u64::from(f16::from_f32(f(x)).to_bits()) }
    });
    check("cvt.rn.bf16.f32 %oh, %a0;", "%oh", floats, |[x]| {
        if f(x).is_nan() { 0x7fff } else { u64::from(bf16::from_f32(f(x)).to_bits()) }
    });
    check("cvt.f32.f16 %oa, %h0;", "%oa", halves, |[x]| bits(f16::from_bits(x as u16).to_f32()));
    check("cvt.f32.bf16 %oa, %h0;", "%oa", |x| x, |[x]| bits(f32::from_bits((x as u32) << 16)));
    // The first operand becomes the upper half.
    check(
        "cvt.rn.f16x2.f32 %oa, %a0, %a1;",
        "%oa",
        |x| u64::from(Random(x).unit().to_bits()),
        |[x, y]| u64::from(f16::from_f32(f(x)).to_bits()) << 16 | u64::from(f16::from_f32(f(y)).to_bits()),
    );
    check(
        "cvt.rn.relu.bf16x2.f32 %oa, %a0, %a1;",
        "%oa",
        |x| u64::from(Random(x).unit().to_bits()),
        |[x, y]| {
            let one = |x: f32| u64::from(bf16::from_f32(if x > 0.0 { x } else { 0.0 }).to_bits());
            one(f(x)) << 16 | one(f(y))
        },
    );
    check("cvt.rni.s32.f32 %oa, %a0;", "%oa", floats, |[x]| u64::from(f(x).round_ties_even() as i32 as u32));
    check("cvt.rzi.u32.f32 %oa, %a0;", "%oa", floats, |[x]| u64::from(f(x) as u32));
    check("cvt.rmi.f32.f32 %oa, %a0;", "%oa", floats, |[x]| bits(f(x).floor()));
    check("cvt.rzi.s8.f32 %oa, %a0;", "%oa", floats, |[x]| u64::from(i32::from(f(x) as i8) as u32));
    check("cvt.rn.f32.s32 %oa, %a0;", "%oa", |x| x, |[x]| bits(x as i32 as f32));
    check("cvt.rn.f32.u64 %oa, %d0;", "%oa", |x| x, |[x]| bits(x as f32));
    check("cvt.f64.f32 %od, %a0; cvt.rn.f32.f64 %oa, %od;", "%oa", floats, |[x]| bits(f(x)));
    check("cvt.rn.f16.s32 %oh, %a0;", "%oh", |x| x % 4096, |[x]| u64::from(f16::from_f32(x as f32).to_bits()));
    check(
        "cvt.rna.tf32.f32 %oa, %a0;",
        "%oa",
        |x| u64::from(Random(x).unit().to_bits()),
        |[x]| ((x & 0xffff_ffff) + 0x1000) & !0x1fff,
    );
}

#[test]
fn eight_bit_floats() {
    let value = |b: u64| {
        let (e, m) = (b >> 3 & 15, (b & 7) as f64);
        let v = if e == 0 { m / 8.0 * 2f64.powi(-6) } else { (1.0 + m / 8.0) * 2f64.powi(e as i32 - 7) };
        if b & 0x80 != 0 { -v } else { v }
    };
    let nearest = move |x: f64| {
        let x = x.clamp(-448.0, 448.0);
        let all = (0..256u64).filter(|b| b & 0x7f != 0x7f && (b & 0x80 != 0) == x.is_sign_negative());
        all.min_by(|a, b| (value(*a) - x).abs().total_cmp(&(value(*b) - x).abs()).then((a & 1).cmp(&(b & 1))))
            .expect("a value")
    };
    let make = |x: u64| u64::from((Random(x).unit() * if x.is_multiple_of(3) { 1000.0 } else { 0.1 }).to_bits());
    check("cvt.rn.satfinite.e4m3x2.f32 %oh, %a0, %a1;", "%oh", make, move |[x, y]| {
        nearest(f64::from(f(x))) << 8 | nearest(f64::from(f(y)))
    });
    check(
        "cvt.rn.f16x2.e4m3x2 %oa, %h0;",
        "%oa",
        |x| x & 0x7777,
        move |[x]| {
            let one = |b: u64| u64::from(f16::from_f64(value(b)).to_bits());
            one(x >> 8 & 255) << 16 | one(x & 255)
        },
    );
    // NaN is all ones; infinities saturate.
    check("cvt.rn.satfinite.e4m3x2.f32 %oh, %a0, %a1;", "%oh", |_| f32::NAN.to_bits().into(), |[_, _]| 0x7f7f);
    check("cvt.rn.satfinite.e4m3x2.f32 %oh, %a0, %a1;", "%oh", |_| f32::NEG_INFINITY.to_bits().into(), |[_, _]| 0xfefe);
}

#[test]
fn approximations_are_close() {
    type Case = (&'static str, fn(f64) -> f64, fn(u64) -> u64);
    let unit: fn(u64) -> u64 = |x| u64::from((Random(x).unit() * 3.0).to_bits());
    let positive: fn(u64) -> u64 = |x| u64::from((Random(x).unit() + 1.01).to_bits());
    let cases: [Case; 7] = [
        ("ex2.approx.ftz", f64::exp2, unit),
        ("lg2.approx", f64::log2, positive),
        ("rcp.approx", |x| 1.0 / x, positive),
        ("rsqrt.approx.ftz", |x| 1.0 / x.sqrt(), positive),
        ("sin.approx", f64::sin, unit),
        ("cos.approx", f64::cos, unit),
        ("tanh.approx", f64::tanh, unit),
    ];
    for (op, function, make) in cases {
        check(&format!("{op}.f32 %oa, %a0;"), "%oa", make, move |[x]| bits(function(f64::from(f(x))) as f32));
    }
    check("ex2.approx.f16 %oh, %h0;", "%oh", |x| halves(x) & 0xbfff, |[x]| llmcc_round_f16(h(x).exp2()));
}

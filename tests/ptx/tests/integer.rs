//! Integer instructions against plain formulas.

use crate::common::{check, ints};

const LOW: u64 = 0xffff_ffff;

#[test]
fn addition_and_multiplication() {
    check("add.s32 %oa, %a0, %a1;", "%oa", ints, |[a, b]| u64::from((a as u32).wrapping_add(b as u32)));
    check("sub.s64 %od, %d0, %d1;", "%od", ints, |[a, b]| a.wrapping_sub(b));
    check("add.s16 %oh, %h0, -3;", "%oh", ints, |[a]| u64::from((a as u16).wrapping_sub(3)));
    check("add.sat.s32 %oa, %a0, %a1;", "%oa", ints, |[a, b]| u64::from((a as i32).saturating_add(b as i32) as u32));
    check("mul.lo.s32 %oa, %a0, %a1;", "%oa", ints, |[a, b]| u64::from((a as u32).wrapping_mul(b as u32)));
    check("mul.hi.s32 %oa, %a0, %a1;", "%oa", ints, |[a, b]| {
        u64::from(((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32)
    });
    check("mul.hi.u64 %od, %d0, %d1;", "%od", ints, |[a, b]| ((u128::from(a) * u128::from(b)) >> 64) as u64);
    check("mul.lo.u64 %od, %d0, %d1;", "%od", ints, |[a, b]| a.wrapping_mul(b));
    check("mul.wide.u32 %od, %a0, %a1;", "%od", ints, |[a, b]| (a & LOW) * (b & LOW));
    check("mul.wide.s32 %od, %a0, %a1;", "%od", ints, |[a, b]| (i64::from(a as i32) * i64::from(b as i32)) as u64);
    check("mul.wide.u16 %oa, %h0, %h1;", "%oa", ints, |[a, b]| (a & 0xffff) * (b & 0xffff));
    check("mad.lo.s32 %oa, %a0, %a1, %a2;", "%oa", ints, |[a, b, c]| {
        u64::from((a as u32).wrapping_mul(b as u32).wrapping_add(c as u32))
    });
    check("mad.wide.u32 %od, %a0, %a1, %d2;", "%od", ints, |[a, b, c]| ((a & LOW) * (b & LOW)).wrapping_add(c));
    check("mad.lo.u64 %od, %d0, %d1, %d2;", "%od", ints, |[a, b, c]| a.wrapping_mul(b).wrapping_add(c));
    check("sad.u32 %oa, %a0, %a1, %a2;", "%oa", ints, |[a, b, c]| {
        u64::from((a as u32).abs_diff(b as u32).wrapping_add(c as u32))
    });
    check("dp4a.s32.u32 %oa, %a0, %a1, %a2;", "%oa", ints, |[a, b, c]| {
        let sum: i64 = (0..4).map(|i| i64::from((a >> (8 * i)) as i8) * ((b >> (8 * i)) & 255) as i64).sum();
        (sum as u64).wrapping_add(c) & LOW
    });
}

#[test]
fn division_and_extremes() {
    let nonzero = |x: u64| ints(x) | 1;
    check("div.s32 %oa, %a0, %a1;", "%oa", nonzero, |[a, b]| u64::from((a as i32).wrapping_div(b as i32) as u32));
    check("div.u64 %od, %d0, %d1;", "%od", nonzero, |[a, b]| a / b);
    check("rem.s64 %od, %d0, %d1;", "%od", nonzero, |[a, b]| (a as i64).wrapping_rem(b as i64) as u64);
    check("rem.u16 %oh, %h0, %h1;", "%oh", nonzero, |[a, b]| (a & 0xffff) % (b & 0xffff));
    check("min.s32 %oa, %a0, %a1;", "%oa", ints, |[a, b]| u64::from((a as i32).min(b as i32) as u32));
    check("max.u32 %oa, %a0, %a1;", "%oa", ints, |[a, b]| (a & LOW).max(b & LOW));
    check("abs.s32 %oa, %a0;", "%oa", ints, |[a]| u64::from((a as i32).unsigned_abs()));
    check("neg.s64 %od, %d0;", "%od", ints, |[a]| a.wrapping_neg());
    check("min.s16x2 %oa, %a0, %a1;", "%oa", ints, |[a, b]| {
        let m = |s: u32| u64::from(((a >> s) as i16).min((b >> s) as i16) as u16) << s;
        m(0) | m(16)
    });
}

#[test]
fn logic_and_shifts() {
    check("and.b32 %oa, %a0, %a1;", "%oa", ints, |[a, b]| a & b & LOW);
    check("or.b64 %od, %d0, 0x0f;", "%od", ints, |[a]| a | 15);
    check("xor.b16 %oh, %h0, %h1;", "%oh", ints, |[a, b]| (a ^ b) & 0xffff);
    check("not.b32 %oa, %a0;", "%oa", ints, |[a]| !a & LOW);
    check("and.b32 %a2, %a1, 63; shl.b32 %oa, %a0, %a2;", "%oa", ints, |[a, b]| {
        u64::from((a as u32).checked_shl((b & 63) as u32).unwrap_or(0))
    });
    check("and.b32 %a2, %a1, 63; shr.s32 %oa, %a0, %a2;", "%oa", ints, |[a, b]| {
        u64::from(((a as i32) >> (b & 63).min(31)) as u32)
    });
    check("and.b32 %a2, %a1, 127; shr.u64 %od, %d0, %a2;", "%od", ints, |[a, b]| {
        a.checked_shr((b & 127) as u32).unwrap_or(0)
    });
    check("shf.l.wrap.b32 %oa, %a0, %a1, %a2;", "%oa", ints, |[a, b, c]| {
        ((((b & LOW) << 32 | (a & LOW)) << (c & 31)) >> 32) & LOW
    });
    check("shf.r.clamp.b32 %oa, %a0, %a1, 8;", "%oa", ints, |[a, b]| (((b & LOW) << 32 | (a & LOW)) >> 8) & LOW);
    check("lop3.b32 %oa, %a0, %a1, %a2, 0xea;", "%oa", ints, |[a, b, c]| ((a & b) | c) & LOW);
    check("lop3.b32 %oa, %a0, %a1, %a2, 0x6a;", "%oa", ints, |[a, b, c]| ((a & b) ^ c) & LOW);
    check("popc.b64 %oa, %d0;", "%oa", ints, |[a]| u64::from(a.count_ones()));
    check("clz.b32 %oa, %a0;", "%oa", ints, |[a]| u64::from((a as u32).leading_zeros()));
    check("brev.b32 %oa, %a0;", "%oa", ints, |[a]| u64::from((a as u32).reverse_bits()));
    check("and.pred %op, %p0, %p1; not.pred %op, %op;", "%op", |x| x % 2, |[a, b]| 1 - (a & b));
}

#[test]
fn bit_fields() {
    let f = |x: u64| x;
    check("and.b32 %a1, %a1, 31; and.b32 %a2, %a2, 31; bfe.u32 %oa, %a0, %a1, %a2;", "%oa", f, |[a, b, c]| {
        ((a & LOW) >> (b & 31)) & ((1 << (c & 31)) - 1)
    });
    check("bfe.s32 %oa, %a0, 4, 8;", "%oa", f, |[a]| u64::from(i32::from((a >> 4) as i8) as u32));
    check("bfi.b32 %oa, %a0, %a1, 8, 12;", "%oa", f, |[a, b]| (b & LOW & !0xf_ff00) | ((a & 0xfff) << 8));
    check("bfind.u32 %oa, %a0;", "%oa", ints, |[a]| u64::from((a as u32).checked_ilog2().unwrap_or(u32::MAX)));
    check("prmt.b32 %oa, %a0, %a1, 0x5410;", "%oa", f, |[a, b]| (a & 0xffff) | (b & 0xffff) << 16);
    check("prmt.b32 %oa, %a0, %a1, 0x7632;", "%oa", f, |[a, b]| (a >> 16 & 0xffff) | (b >> 16 & 0xffff) << 16);
    check("prmt.b32 %oa, %a0, 0, 0x8880;", "%oa", f, |[a]| u64::from(i32::from(a as i8) as u32));
}

#[test]
fn comparisons() {
    check("setp.lt.s32 %op, %a0, %a1;", "%op", ints, |[a, b]| u64::from((a as i32) < b as i32));
    check("setp.hs.u32 %op, %a0, %a1;", "%op", ints, |[a, b]| u64::from(a as u32 >= b as u32));
    check("setp.ne.b64 %op, %d0, %d1;", "%op", ints, |[a, b]| u64::from(a != b));
    check(
        "setp.gt.and.s64 %op|%p4, %d0, %d1, !%p2;",
        "%op",
        |x| if x % 3 == 0 { 0 } else { ints(x) },
        |[a, b, c]| u64::from(a as i64 > b as i64 && c == 0),
    );
    check(
        "setp.gt.or.s64 %p4|%op, %d0, %d1, %p2;",
        "%op",
        |x| if x % 3 == 0 { 0 } else { ints(x) },
        |[a, b, c]| u64::from((a as i64) <= b as i64 || c != 0),
    );
    check("set.le.u32.s32 %oa, %a0, %a1;", "%oa", ints, |[a, b]| if a as i32 <= b as i32 { LOW } else { 0 });
    check(
        "selp.b32 %oa, %a0, %a1, %p2;",
        "%oa",
        |x| if x % 3 == 0 { 0 } else { x },
        |[a, b, c]| if c != 0 { a & LOW } else { b & LOW },
    );
    check("slct.b32.s32 %oa, %a0, %a1, %a2;", "%oa", |x| x, |[a, b, c]| if c as i32 >= 0 { a & LOW } else { b & LOW });
}

#[test]
fn conversions() {
    check("cvt.s64.s32 %od, %a0;", "%od", ints, |[a]| i64::from(a as i32) as u64);
    check("cvt.u32.u8 %oa, %a0;", "%oa", ints, |[a]| a & 0xff);
    check("cvt.s32.s8 %oa, %a0;", "%oa", ints, |[a]| u64::from(i32::from(a as i8) as u32));
    check("cvt.u16.u32 %oh, %a0;", "%oh", ints, |[a]| a & 0xffff);
    check("cvt.sat.u8.s32 %oa, %a0;", "%oa", ints, |[a]| (a as i32).clamp(0, 255) as u64);
    check("cvt.sat.s8.s32 %oa, %a0;", "%oa", ints, |[a]| u64::from((a as i32).clamp(-128, 127) as u32));
    check("mov.b32 {%h2, %h3}, %a0; mov.b32 %oa, {%h3, %h2};", "%oa", ints, |[a]| {
        (a >> 16 & 0xffff) | (a & 0xffff) << 16
    });
    check("mov.b64 {%a2, %a3}, %d0; mov.b64 %od, {%a3, %a1};", "%od", ints, |[a, b]| (a >> 32) | (b & LOW) << 32);
    check("mov.b64 {%a2, _}, %d0; mov.b32 %oa, %a2;", "%oa", ints, |[a]| a & LOW);
}

//! wgmma against a matrix product, for every way to lay a matrix out in shared memory.

use crate::common::{Random, module, parse};
use half::bf16;
use llmcc_ptx::{Fault, FaultKind, Memory, Options, launch};

/// How a matrix lies in shared memory.
#[derive(Clone, Copy)]
struct Layout {
    swizzle: usize,
    /// Elements go on along k.
    major_k: bool,
}

/// Bytes of the tile of `mn` x 16 elements of two bytes.
const ROOM: usize = 32768;

impl Layout {
    /// Descriptor fields: leading and stride byte offsets, swizzle code.
    fn fields(self, mn: usize) -> (usize, usize, u64) {
        let code = match self.swizzle {
            128 => 1,
            64 => 2,
            32 => 3,
            _ => 0,
        };
        match (self.major_k, self.swizzle) {
            // Core matrices of 8 rows x 16 bytes: along k, then along mn.
            (true, 0) => (mn / 8 * 128, 128, code),
            (true, s) => (16, 8 * s, code),
            // Core matrices of 8 k x 16 bytes: 8 elements of mn each.
            (false, 0) => (mn / 8 * 128, 128, code),
            (false, s) => (16 * s, 8 * s, code),
        }
    }

    /// Byte offset of element (mn, k), by the figures of the manual.
    fn offset(self, size: usize, mn: usize, k: usize) -> usize {
        let (leading, stride, _) = self.fields(size);
        let s = self.swizzle;
        let at = match (self.major_k, s) {
            (true, 0) => (mn / 8) * stride + (k / 8) * leading + (mn % 8) * 16 + (k % 8) * 2,
            (true, _) => (mn / 8) * stride + (mn % 8) * s + k * 2,
            (false, 0) => (mn / 8) * stride + (k / 8) * leading + (k % 8) * 16 + (mn % 8) * 2,
            (false, _) => (mn / (s / 2)) * leading + (k / 8) * stride + (k % 8) * s + (mn % (s / 2)) * 2,
        };
        // Lines of 128 bytes; their number permutes the 16-byte pieces.
        let line = at / 128;
        match s {
            128 => at ^ (line % 8 * 16),
            64 => at ^ (line % 4 * 16),
            32 => at ^ (line % 2 * 16),
            _ => at,
        }
    }
}

struct Case {
    n: usize,
    a: Option<Layout>,
    b: Layout,
    /// Two e4m3 numbers in place of each bf16: they lie in the same places.
    bytes: bool,
    /// Instructions in place of the usual ones, by name.
    change: fn(String) -> String,
}

/// Runs one product and checks it.
fn product(case: &Case) -> Result<(), Fault> {
    let n = case.n;
    let mut r = Random(n as u64);
    let mut element = || {
        let mut code = || match (r.unit() * 128.0 + 128.0) as u16 & 0xff {
            nan @ (0x7f | 0xff) => nan - 1,
            code => code,
        };
        if case.bytes { code() << 8 | code() } else { bf16::from_f32(r.unit()).to_bits() }
    };
    let mut matrix =
        |rows: usize| -> Vec<Vec<u16>> { (0..rows).map(|_| (0..16).map(|_| element()).collect()).collect() };
    let (a, b) = (matrix(64), matrix(n));
    let place = |m: &[Vec<u16>], l: Layout| {
        let mut out = vec![0u8; ROOM];
        for (mn, row) in m.iter().enumerate() {
            for (k, v) in row.iter().enumerate() {
                let at = l.offset(m.len(), mn, k);
                out[at..at + 2].copy_from_slice(&v.to_le_bytes());
            }
        }
        out
    };
    let mut mem = Memory::new();
    let mut shared = place(&a, case.a.unwrap_or(case.b));
    shared.extend(place(&b, case.b));
    let fragments: Vec<u8> = (0..128)
        .flat_map(|t| {
            let (w, g, q) = (t / 32, t % 32 / 4, t % 4);
            let a = &a;
            (0..4).flat_map(move |r| {
                (0..2).flat_map(move |i| a[16 * w + g + 8 * (r % 2)][2 * q + 8 * (r / 2) + i].to_le_bytes())
            })
        })
        .collect();
    let args = [mem.alloc_from(&shared), mem.alloc_from(&fragments), mem.alloc(128 * n * 2)];
    let descriptor = |l: Layout, rows: usize| {
        let (leading, stride, code) = l.fields(rows);
        (leading as u64 >> 4) << 16 | (stride as u64 >> 4) << 32 | code << 62
    };
    let d: Vec<String> = (0..n / 2).map(|i| format!("%d{i}")).collect();
    let zero: String = d.iter().map(|d| format!("mov.b32 {d}, 0f3F000000;\n")).collect();
    let stores: String = d.iter().enumerate().map(|(i, d)| format!("st.global.b32 [%x6+{}], {d};\n", 4 * i)).collect();
    let (first, trans) = match case.a {
        Some(l) => ("%x4".to_owned(), format!("{}, {}", u8::from(!l.major_k), u8::from(!case.b.major_k))),
        None => ("{%a0, %a1, %a2, %a3}".to_owned(), u8::from(!case.b.major_k).to_string()),
    };
    let body = format!(
        ".reg .b32 %r<9>, %a<4>, %d<{half}>; .reg .b64 %x<9>; .reg .pred %p<3>;
        ld.param.u64 %x0, [p]; ld.param.u64 %x1, [f]; ld.param.u64 %x2, [q];
        mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; mov.u32 %r2, s;
        cvt.u64.u32 %x3, %r1; add.s64 %x0, %x0, %x3; add.s64 %x1, %x1, %x3; add.u32 %r3, %r2, %r1;
        mov.u32 %r4, 0;
        FILL: ld.global.v4.b32 {{%r5, %r6, %r7, %r8}}, [%x0]; st.shared.v4.b32 [%r3], {{%r5, %r6, %r7, %r8}};
        add.s64 %x0, %x0, 2048; add.u32 %r3, %r3, 2048; add.u32 %r4, %r4, 1; setp.lt.u32 %p0, %r4, {turns}; @%p0 bra FILL;
        ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%x1];
        shr.u32 %r2, %r2, 4; cvt.u64.u32 %x3, %r2; or.b64 %x4, %x3, {da:#x}; add.s64 %x5, %x3, {room}; or.b64 %x5, %x5, {db:#x};
        fence.proxy.async.shared::cta;
        bar.sync 0;
        {zero}
        setp.ne.u32 %p1, %r0, 9999;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{d}}}, {first}, %x5, %p1, 1, 1, {trans};
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        mul.wide.u32 %x6, %r0, {row}; add.s64 %x6, %x6, %x2;
        {stores} ret;",
        half = n / 2,
        turns = 2 * ROOM / 2048,
        room = ROOM / 16,
        da = case.a.map_or(0, |l| descriptor(l, 64)),
        db = descriptor(case.b, n),
        d = d.join(", "),
        row = 2 * n,
    );
    let body = match case.bytes {
        true => body.replace("k16.f32.bf16.bf16", "k32.f32.e4m3.e4m3").replace("%p1, 1, 1, 0;", "%p1, 1, 1;"),
        false => body,
    };
    let text = module(".param .u64 p, .param .u64 f, .param .u64 q", &(case.change)(body));
    let text = text.replace(".visible", ".extern .shared .align 1024 .b8 s[];\n.visible");
    launch(&parse(&text), "k", [1, 1, 1], [128, 1, 1], 2 * ROOM as u64, &args, &mut mem, &Options::default())?;
    let out = mem.read(args[2], 128 * n * 2).expect("mapped").to_vec();
    for t in 0..128 {
        let (w, g, q) = (t / 32, t % 32 / 4, t % 4);
        for i in 0..n / 2 {
            let (row, col) = (16 * w + g + 8 * (i % 4 / 2), 8 * (i / 4) + 2 * q + i % 2);
            let dots: Vec<[f64; 2]> = (0..16).map(|k| dot(case, a[row][k], b[col][k])).collect();
            let want: f64 = 0.5 + dots.as_flattened().iter().sum::<f64>();
            let at = t * n * 2 + 4 * i;
            let got = f32::from_le_bytes(out[at..at + 4].try_into().expect("4"));
            let most = 1e-5
                + dots.as_flattened().iter().map(|x| x.abs()).sum::<f64>()
                    * 2f64.powi(-20)
                    * f64::from(u8::from(case.bytes));
            assert!((f64::from(got) - want).abs() < most, "row {row} column {col}: {got} instead of {want}");
        }
    }
    Ok(())
}

/// The product of two bf16 numbers, or the products of two pairs of e4m3 numbers, as the OCP
/// specification of FP8 has them.
fn dot(case: &Case, a: u16, b: u16) -> [f64; 2] {
    if !case.bytes {
        return [bf16::from_bits(a).to_f64() * bf16::from_bits(b).to_f64(), 0.0];
    }
    let value = |code: u16| {
        let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7) / 8.0);
        let magnitude =
            if exponent == 0 { mantissa * 2f64.powi(-6) } else { (1.0 + mantissa) * 2f64.powi(exponent - 7) };
        if code >> 7 & 1 == 1 { -magnitude } else { magnitude }
    };
    [value(a & 0xff) * value(b & 0xff), value(a >> 8) * value(b >> 8)]
}

fn same(body: String) -> String {
    body
}

const PLAIN: Layout = Layout { swizzle: 128, major_k: true };

#[test]
fn products_match_in_every_layout() {
    for swizzle in [0, 32, 64, 128] {
        for major_k in [true, false] {
            let l = Layout { swizzle, major_k };
            // Tiles along mn must fill the swizzled width.
            for n in [64, 128] {
                product(&Case { n, a: Some(PLAIN), b: l, bytes: false, change: same })
                    .unwrap_or_else(|f| panic!("b {swizzle} {major_k} {n}: {f}"));
            }
            product(&Case { n: 8, a: Some(l), b: PLAIN, bytes: false, change: same })
                .unwrap_or_else(|f| panic!("a {swizzle} {major_k}: {f}"));
        }
    }
    product(&Case { n: 256, a: None, b: PLAIN, bytes: false, change: same }).unwrap_or_else(|f| panic!("{f}"));
    product(&Case { n: 24, a: None, b: PLAIN, bytes: false, change: same }).unwrap_or_else(|f| panic!("{f}"));
}

#[test]
fn products_of_e4m3_match() {
    for n in [8, 64, 128, 256] {
        product(&Case { n, a: None, b: PLAIN, bytes: true, change: same }).unwrap_or_else(|f| panic!("{n}: {f}"));
        let b = Layout { swizzle: 64, major_k: true };
        product(&Case { n, a: None, b, bytes: true, change: same }).unwrap_or_else(|f| panic!("{n}: {f}"));
    }
}

#[test]
fn what_is_missing_is_reported() {
    let fault = |change: fn(String) -> String| {
        let case = Case { n: 16, a: None, b: PLAIN, bytes: false, change };
        product(&case).expect_err("a fault").kind
    };
    let wait = |b: String| b.replace("wgmma.wait_group.sync.aligned 0;", "");
    assert!(matches!(fault(wait), FaultKind::Accumulator { register } if register == "%d0"));
    let commit = |b: String| b.replace("wgmma.commit_group.sync.aligned;", "");
    assert!(matches!(fault(commit), FaultKind::Accumulator { .. }));
    let fence = |b: String| b.replace("wgmma.fence.sync.aligned;", "");
    assert!(matches!(fault(fence), FaultKind::WgmmaFence { .. }));
    let late = |b: String| b.replace("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; add.f32 %d3, %d3, %d3;");
    assert!(matches!(fault(late), FaultKind::WgmmaFence { register } if register == "%d3"));
    let proxy = |b: String| b.replace("fence.proxy.async.shared::cta;", "");
    assert!(matches!(fault(proxy), FaultKind::ProxyFence { .. }));
    let overwrite = |b: String| {
        b.replace("wgmma.commit_group.sync.aligned;", "wgmma.commit_group.sync.aligned; st.shared.b32 [s+32768], %r0;")
    };
    assert!(matches!(fault(overwrite), FaultKind::InFlight { .. }));
    let copied = |b: String| {
        b.replace(
            "wgmma.commit_group.sync.aligned;",
            "mov.b32 %r5, %a1; wgmma.commit_group.sync.aligned; mov.b32 %a2, 0;",
        )
    };
    assert!(matches!(fault(copied), FaultKind::Accumulator { register } if register == "%a1"));
    let alone = |b: String| b.replace("wgmma.fence.sync", "setp.lt.u32 %p2, %r0, 96; @!%p2 ret; wgmma.fence.sync");
    assert!(matches!(fault(alone), FaultKind::Operand(what) if what.contains("warps of one group")));
}

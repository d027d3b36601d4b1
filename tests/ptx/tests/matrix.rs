//! Matrix instructions against a matrix product, with every fragment taken apart by the layouts of
//! the PTX manual.

use crate::common::{Random, block, module};
use half::{bf16, f16};
use llmcc_ptx::Memory;

/// Element type of a test: bytes, how to store a value, and the stored value.
#[derive(Clone, Copy, PartialEq)]
enum T {
    F16,
    Bf16,
    E4m3,
    S8,
}

impl T {
    fn bytes(self) -> usize {
        match self {
            T::F16 | T::Bf16 => 2,
            T::E4m3 | T::S8 => 1,
        }
    }

    fn name(self) -> &'static str {
        match self {
            T::F16 => "f16",
            T::Bf16 => "bf16",
            T::E4m3 => "e4m3",
            T::S8 => "s8",
        }
    }

    /// A random value that the type holds exactly, and its bits.
    fn random(self, r: &mut Random) -> (f64, Vec<u8>) {
        let x = r.unit();
        match self {
            T::F16 => (f16::from_f32(x).to_f64(), f16::from_f32(x).to_le_bytes().to_vec()),
            T::Bf16 => (bf16::from_f32(x).to_f64(), bf16::from_f32(x).to_le_bytes().to_vec()),
            T::S8 => (f64::from((x * 127.0) as i8), vec![(x * 127.0) as i8 as u8]),
            // Sign, exponent 7 (one), three mantissa bits.
            T::E4m3 => {
                let m = r.next() % 8;
                let sign = r.next() % 2;
                let v = 1.0 + m as f64 / 8.0;
                (if sign == 1 { -v } else { v }, vec![(sign << 7 | 7 << 3 | m) as u8])
            }
        }
    }
}

/// `rows` x `k` random values, and their bytes.
fn random(t: T, rows: usize, k: usize, r: &mut Random) -> (Vec<Vec<f64>>, Vec<Vec<Vec<u8>>>) {
    (0..rows).map(|_| (0..k).map(|_| t.random(r)).unzip::<f64, Vec<u8>, Vec<f64>, Vec<Vec<u8>>>()).unzip()
}

/// Registers of lane `lane` of a 16-row (A) or 8-row (B) fragment.
fn fragment(t: T, rows: usize, bits: &[Vec<Vec<u8>>], k: usize, lane: usize) -> Vec<u8> {
    let (g, q) = (lane / 4, lane % 4);
    let per = 4 / t.bytes();
    let mut out = Vec::new();
    // For A: rows g and g + 8 alternate; then the second half of k.
    for half in 0..k / (4 * per) {
        for row in (g..rows).step_by(8) {
            for i in 0..per {
                out.extend(&bits[row][half * 4 * per + q * per + i]);
            }
        }
    }
    out
}

fn mma(shape: &str, t: T, k: usize, half_sum: bool) {
    let mut r = Random(k as u64 + t.bytes() as u64);
    let (a, abits) = random(t, 16, k, &mut r);
    let (b, bbits) = random(t, 8, k, &mut r);
    let c: Vec<f64> = (0..16 * 8).map(|_| f64::from((r.unit() * 50.0) as i8)).collect();
    let mut mem = Memory::new();
    let gather = |rows, bits: &[Vec<Vec<u8>>]| (0..32).flat_map(|l| fragment(t, rows, bits, k, l)).collect::<Vec<u8>>();
    let (pa, pb) = (gather(16, &abits), gather(8, &bbits));
    let (na, nb) = (pa.len() / 128, pb.len() / 128);
    let corner = |lane: usize, i: usize| ((lane / 4 + 8 * (i / 2)) * 8) + 2 * (lane % 4) + i % 2;
    let int = t == T::S8;
    let word = |v: f64| if int { (v as i32).to_le_bytes() } else { (v as f32).to_le_bytes() };
    let pc: Vec<u8> = (0..32)
        .flat_map(|l| {
            let v = (0..4).map(move |i| corner(l, i));
            if half_sum {
                v.flat_map(|i| f16::from_f64(c[i]).to_le_bytes()).collect::<Vec<u8>>()
            } else {
                v.flat_map(|i| word(c[i])).collect()
            }
        })
        .collect();
    let nc = if half_sum { 2 } else { 4 };
    let args = [mem.alloc_from(&pa), mem.alloc_from(&pb), mem.alloc_from(&pc), mem.alloc(pc.len())];
    let list = |p: &str, n: usize| (0..n).map(|i| format!("%{p}{i}")).collect::<Vec<_>>().join(", ");
    let mut body = String::from(".reg .b32 %a<4>, %b<4>, %c<4>, %t; .reg .b64 %x<4>; mov.u32 %t, %laneid;\n");
    for (p, n, i) in [("a", na, 0), ("b", nb, 1), ("c", nc, 2)] {
        body += &format!("ld.param.u64 %x0, [p{i}]; mad.wide.u32 %x0, %t, {}, %x0;\n", 4 * n);
        for j in 0..n {
            body += &format!("ld.global.b32 %{p}{j}, [%x0+{}];\n", 4 * j);
        }
    }
    let (sum, ty) = (
        if int {
            "s32"
        } else if half_sum {
            "f16"
        } else {
            "f32"
        },
        t.name(),
    );
    body += &format!(
        "mma.sync.aligned.{shape}.row.col.{sum}.{ty}.{ty}.{sum} {{{c}}}, {{{a}}}, {{{b}}}, {{{c}}};\nld.param.u64 %x0, [p3]; mad.wide.u32 %x0, %t, {}, %x0;\n",
        4 * nc,
        c = list("c", nc),
        a = list("a", na),
        b = list("b", nb)
    );
    for j in 0..nc {
        body += &format!("st.global.b32 [%x0+{}], %c{j};\n", 4 * j);
    }
    block(
        &module(".param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3", &(body + "ret;")),
        32,
        &args,
        &mut mem,
    )
    .unwrap_or_else(|f| panic!("{f}"));
    let out = mem.read(args[3], pc.len()).expect("mapped").to_vec();
    for lane in 0..32 {
        for i in 0..4 {
            let (row, col) = (corner(lane, i) / 8, corner(lane, i) % 8);
            let want: f64 = c[corner(lane, i)] + (0..k).map(|j| a[row][j] * b[col][j]).sum::<f64>();
            let got = if half_sum {
                let at = lane * 8 + i * 2;
                f64::from(f16::from_le_bytes([out[at], out[at + 1]]).to_f32())
            } else {
                let at = lane * 16 + i * 4;
                let w: [u8; 4] = out[at..at + 4].try_into().expect("4");
                if int { f64::from(i32::from_le_bytes(w)) } else { f64::from(f32::from_le_bytes(w)) }
            };
            let close = if half_sum { 0.02 } else { 1e-6 } * want.abs().max(1.0);
            assert!((got - want).abs() <= close, "{shape} {ty} row {row} column {col}: {got} instead of {want}");
        }
    }
}

#[test]
fn products_match() {
    mma("m16n8k16", T::F16, 16, false);
    mma("m16n8k16", T::F16, 16, true);
    mma("m16n8k8", T::F16, 8, false);
    mma("m16n8k16", T::Bf16, 16, false);
    mma("m16n8k8", T::Bf16, 8, false);
    mma("m16n8k32", T::E4m3, 32, false);
    mma("m16n8k32", T::S8, 32, false);
    mma("m16n8k16", T::S8, 16, false);
}

/// ldmatrix (plain and transposed), stmatrix and movmatrix move an 8x8 matrix as the manual says.
#[test]
fn matrices_move() {
    let body = "
        .shared .align 16 .b8 s[512]; .reg .b32 %r<9>, %m<8>; .reg .b64 %x<4>;
        mov.u32 %r0, %laneid;
        shl.b32 %r1, %r0, 4;
        mov.u32 %r2, s; add.u32 %r2, %r2, %r1;
        ld.param.u64 %x0, [p]; cvt.u64.u32 %x1, %r1; add.s64 %x0, %x0, %x1;
        ld.global.v4.b32 {%r3, %r4, %r5, %r6}, [%x0];
        st.shared.v4.b32 [%r2], {%r3, %r4, %r5, %r6};
        bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%m0, %m1, %m2, %m3}, [%r2];
        ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%m4, %m5}, [%r2];
        movmatrix.sync.aligned.m8n8.trans.b16 %m6, %m0;
        bar.warp.sync -1;
        stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r2], {%m2, %m3};
        bar.warp.sync -1;
        ld.shared.b32 %m7, [%r2];
        ld.param.u64 %x2, [q]; shl.b32 %r1, %r0, 5; cvt.u64.u32 %x1, %r1; add.s64 %x2, %x2, %x1;
        st.global.v4.b32 [%x2], {%m0, %m3, %m4, %m5};
        st.global.v2.b32 [%x2+16], {%m6, %m7};
        ret;";
    let value = |m: usize, r: usize, c: usize| (m * 64 + r * 8 + c) as u32;
    let data: Vec<u8> = (0..256u16).flat_map(u16::to_le_bytes).collect();
    let mut mem = Memory::new();
    let args = [mem.alloc_from(&data), mem.alloc(32 * 32)];
    let stats =
        block(&module(".param .u64 p, .param .u64 q", body), 32, &args, &mut mem).unwrap_or_else(|f| panic!("{f}"));
    // Only the reads 16 bytes apart: four lanes hit each bank.
    assert_eq!(stats.bank_conflicts, 3, "{:?}", stats.conflicts);
    assert_eq!((stats.conflicts.len(), stats.conflicts[0].degree), (1, 4));
    let out = mem.read(args[1], 1024).expect("mapped").to_vec();
    for lane in 0..32 {
        let word = |i: usize| u32::from_le_bytes(out[lane * 32 + 4 * i..][..4].try_into().expect("4"));
        let (g, t) = (lane / 4, lane % 4);
        let pair = |lo: u32, hi: u32| lo | hi << 16;
        assert_eq!(word(0), pair(value(0, g, 2 * t), value(0, g, 2 * t + 1)));
        assert_eq!(word(1), pair(value(3, g, 2 * t), value(3, g, 2 * t + 1)));
        assert_eq!(word(2), pair(value(0, 2 * t, g), value(0, 2 * t + 1, g)));
        assert_eq!(word(3), pair(value(1, 2 * t, g), value(1, 2 * t + 1, g)));
        assert_eq!(word(4), word(2), "movmatrix transposes");
        // Rows of matrices 2 and 3 were stored transposed over 0 and 1.
        let (m, r) = (lane / 8, lane % 8);
        let want =
            if m < 2 { pair(value(m + 2, 0, r), value(m + 2, 1, r)) } else { pair(value(m, r, 0), value(m, r, 1)) };
        assert_eq!(word(5), want);
    }
}

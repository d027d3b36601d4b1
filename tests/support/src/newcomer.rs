//! Formats that no kernel has heard of: the generic paths must get them right from their
//! descriptions alone. Each could be a new file of `ir/src/quant`.

use llmcc_ir::quant::{
    Code, Elem, Encoding, Float, Format, FormatDef, Per, Quantize, Scale, ScaleKind, e4m3_from_f32, encode, round_f16,
};

/// 6 bits, asymmetric.
static W6A: FormatDef = FormatDef {
    name: "w6a",
    encoding: Encoding::scaled(Code::Int { bits: 6, zero: 0 }, Scale::with_minimum(Per::Group(0), ScaleKind::F16)),
    groups: &[32, 64],
    quantize: Quantize::Group(|x, codes| asymmetric(x, codes, 63.0)),
};

/// 3 bits with a zero in the middle, and scales as bf16.
static W3: FormatDef = FormatDef {
    name: "w3",
    encoding: Encoding::scaled(Code::Int { bits: 3, zero: 4 }, Scale::new(Per::Group(0), ScaleKind::Bf16)),
    groups: &[32, 128],
    quantize: Quantize::Group(|x, codes| {
        let amax = x.iter().fold(0f32, |m, v| m.max(v.abs()));
        let scale = f32::from_bits((amax / 3.0).to_bits() & 0xffff_0000);
        encode(x, codes, scale, 0.0, -4.0, 3.0, 4.0);
        (scale, 0.0)
    }),
};

/// Two's complement of 8 bits, with scales as f32.
static S8: FormatDef = FormatDef {
    name: "s8",
    encoding: Encoding::scaled(Code::Signed { bits: 8 }, Scale::new(Per::Group(0), ScaleKind::F32)),
    groups: &[32],
    quantize: Quantize::Group(|x, codes| {
        let scale = x.iter().fold(0f32, |m, v| m.max(v.abs())) / 127.0;
        encode(x, codes, scale, 0.0, -127.0, 127.0, 0.0);
        (scale, 0.0)
    }),
};

/// Eight numbers and their negatives (e2m1) times powers of two, as MXFP4.
static MX4: FormatDef = FormatDef {
    name: "mx4",
    encoding: Encoding::scaled(Code::Table { bits: 4, values: &E2M1 }, Scale::new(Per::Group(0), ScaleKind::E8m0)),
    groups: &[32],
    quantize: Quantize::Group(|x, codes| {
        let amax = x.iter().fold(f32::MIN_POSITIVE, |m, v| m.max(v.abs()));
        let scale = (amax / 6.0).log2().ceil().exp2();
        for (c, v) in codes.iter_mut().zip(x) {
            let distance = |c: &usize| (f32::from_bits(E2M1[*c]) * scale - v).abs();
            *c = (0..16).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0) as u8;
        }
        (scale, 0.0)
    }),
};

const E2M1: [u32; 16] = {
    let magnitudes = [0f32, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let (mut out, mut i) = ([0; 16], 0);
    while i < 8 {
        out[i] = magnitudes[i].to_bits();
        out[i + 8] = (-magnitudes[i]).to_bits();
        i += 1;
    }
    out
};

/// 8-bit floats with a scale and a minimum for each group.
static F8A: FormatDef = FormatDef {
    name: "f8a",
    encoding: Encoding::scaled(Code::Float(Float::E4m3), Scale::with_minimum(Per::Group(0), ScaleKind::F16)),
    groups: &[64],
    quantize: Quantize::Group(|x, codes| {
        let middle = round_f16(x.iter().sum::<f32>() / x.len().max(1) as f32);
        let scale = round_f16(x.iter().fold(0f32, |m, v| m.max((v - middle).abs())) / 448.0);
        codes
            .iter_mut()
            .zip(x)
            .for_each(|(c, v)| *c = if scale == 0.0 { 0 } else { e4m3_from_f32((v - middle) / scale) });
        (scale, middle)
    }),
};

/// 5 bits with one scale and one minimum per row.
static R5A: FormatDef = FormatDef {
    name: "r5a",
    encoding: Encoding::scaled(Code::Int { bits: 5, zero: 0 }, Scale::with_minimum(Per::Row, ScaleKind::F16)),
    groups: &[0],
    quantize: Quantize::Group(|x, codes| asymmetric(x, codes, 31.0)),
};

fn asymmetric(x: &[f32], codes: &mut [u8], most: f32) -> (f32, f32) {
    let (lo, hi) = x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
    if x.is_empty() {
        return (0.0, 0.0);
    }
    let (min, scale) = (round_f16(lo), round_f16((hi - lo) / most));
    encode(x, codes, scale, min, 0.0, most, 0.0);
    (scale, min)
}

/// All of them, and the table's formats that have no fast kernels.
pub fn newcomers() -> Vec<Format> {
    let here = [&W6A, &W3, &S8, &MX4, &F8A, &R5A]
        .into_iter()
        .flat_map(|d: &'static FormatDef| d.groups.iter().map(move |group| Format::new(Elem::of(d), *group as u16)));
    let of_files = [
        "nf4", "fp4", "q4k", "q2k", "q3k", "q5k", "q6k", "q8k", "w5", "w5a", "iq4nl", "iq4xs", "ternary", "ternaryr",
        "w4zg64", "w8zg32", "w3zg64", "w2zg128", "fp8b", "mxfp4", "nvfp4", "iq2", "iq3", "iq3s", "c4", "c3", "t3",
        "t2", "w4sg64",
    ];
    here.chain(of_files.into_iter().filter_map(Format::parse)).collect()
}

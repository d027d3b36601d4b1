//! Common parts of the tests: random numbers, and kernels made of a few instructions.

use llmcc_ptx::{Fault, Memory, Module, Options, Stats, launch};

/// A small generator (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In -1 .. 1, on a coarse grid.
    pub fn unit(&mut self) -> f32 {
        (self.next() % 2001) as f32 / 1000.0 - 1.0
    }
}

/// A module with one kernel `k` that has these parameters and body.
pub fn module(params: &str, body: &str) -> String {
    format!(".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k({params})\n{{\n{body}\n}}\n")
}

pub fn parse(text: &str) -> Module {
    Module::parse(text).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs kernel `k` of one block.
pub fn block(text: &str, threads: u32, args: &[u64], memory: &mut Memory) -> Result<Stats, Fault> {
    launch(&parse(text), "k", [1, 1, 1], [threads, 1, 1], 0, args, memory, &Options::default())
}

/// Threads of `map`.
pub const THREADS: usize = 96;

/// Runs `code` in 96 threads. Input `i` is in %d{i} (64 bits), %a{i} (32) and %h{i} (16); the
/// result is expected in `out`: %oa, %oh, %od or %op.
pub fn map(code: &str, out: &str, inputs: &[&dyn Fn(usize) -> u64]) -> Vec<u64> {
    let mut body = String::from(
        ".reg .b64 %d<9>, %od, %x<4>;\n.reg .b32 %a<9>, %oa, %t;\n.reg .b16 %h<9>, %oh;\n.reg .pred %p<9>, %op;\nmov.u32 %t, %tid.x;\nmul.wide.u32 %x0, %t, 8;\n",
    );
    let mut memory = Memory::new();
    let mut args = Vec::new();
    let mut params = Vec::new();
    for (i, f) in inputs.iter().enumerate() {
        let data: Vec<u8> = (0..THREADS).flat_map(|t| f(t).to_le_bytes()).collect();
        args.push(memory.alloc_from(&data));
        params.push(format!(".param .u64 p{i}"));
        body += &format!("ld.param.u64 %x1, [p{i}];\nadd.s64 %x1, %x1, %x0;\nld.global.b64 %d{i}, [%x1];\n");
        body += &format!("cvt.u32.u64 %a{i}, %d{i};\ncvt.u16.u64 %h{i}, %d{i};\nsetp.ne.b64 %p{i}, %d{i}, 0;\n");
    }
    let last = memory.alloc(8 * THREADS);
    args.push(last);
    params.push(".param .u64 out".into());
    body += code;
    body += match out {
        "%oa" => "\ncvt.u64.u32 %od, %oa;",
        "%oh" => "\ncvt.u64.u16 %od, %oh;",
        "%op" => "\nselp.b64 %od, 1, 0, %op;",
        _ => "",
    };
    body += "\nld.param.u64 %x1, [out];\nadd.s64 %x1, %x1, %x0;\nst.global.b64 [%x1], %od;\nret;";
    let text = module(&params.join(", "), &body);
    block(&text, THREADS as u32, &args, &mut memory).unwrap_or_else(|f| panic!("{f}"));
    let bytes = memory.read(last, 8 * THREADS).expect("the output is mapped");
    bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes"))).collect()
}

/// Checks `code` against `expect` on random 64-bit inputs, shaped by `make`.
pub fn check<const N: usize>(
    code: &str,
    out: &str,
    make: impl Fn(u64) -> u64 + Copy,
    expect: impl Fn([u64; N]) -> u64,
) {
    for round in 0..4u64 {
        let value = |i: usize| move |t: usize| make(Random(round * 7919 + (i * 1000 + t) as u64).next());
        let values: Vec<_> = (0..N).map(value).collect();
        let inputs: Vec<&dyn Fn(usize) -> u64> = values.iter().map(|v| v as &dyn Fn(usize) -> u64).collect();
        for (t, got) in map(code, out, &inputs).into_iter().enumerate() {
            let args: [u64; N] = std::array::from_fn(|i| values[i](t));
            let want = expect(args);
            assert_eq!(got, want, "{code} of {args:#x?}: got {got:#x}, expected {want:#x}");
        }
    }
}

/// Random integers, some small and some extreme.
pub fn ints(x: u64) -> u64 {
    match x % 7 {
        0 => x >> 60,
        1 => u64::MAX - (x >> 58),
        2 => 0x8000_0000_8000_8000,
        _ => x,
    }
}

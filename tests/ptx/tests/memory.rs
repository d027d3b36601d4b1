//! Loads and stores of every space and shape, and special registers.

use crate::common::{module, parse};
use llmcc_ptx::{Memory, Options, launch, launch_bytes};

const REGS: &str = ".reg .b16 %h<5>; .reg .b32 %r<12>; .reg .b64 %x<9>; .reg .pred %p<3>; ld.param.u64 %x0, [p]; ld.param.u64 %x1, [q];\n";

/// Runs one thread on the bytes 0x80, 0x81, ..; the words it writes to q.
fn run(code: &str, words: usize) -> Vec<u32> {
    let mut mem = Memory::new();
    let data: Vec<u8> = (0x80..=0xff).collect();
    let args = [mem.alloc_from(&data), mem.alloc(4 * words)];
    let m = parse(&module(".param .u64 p, .param .u64 q", &format!("{REGS}{code}\nret;")));
    launch(&m, "k", [1, 1, 1], [1, 1, 1], 0, &args, &mut mem, &Options::default()).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(mem.first_unwritten(args[1], 4 * words), Ok(None));
    mem.read(args[1], 4 * words)
        .expect("mapped")
        .chunks(4)
        .map(|c| u32::from_le_bytes(c.try_into().expect("4")))
        .collect()
}

#[test]
fn widths_and_vectors() {
    let code = "
        ld.global.u8 %r0, [%x0+1]; ld.global.s8 %r1, [%x0+1]; ld.global.s16 %r2, [%x0+2]; ld.global.nc.L1::no_allocate.L2::128B.u16 %h0, [%x0+2];
        cvt.u32.u16 %r3, %h0;
        st.global.v4.b32 [%x1], {%r0, %r1, %r2, %r3};
        ld.global.v2.u64 {%x2, %x3}, [%x0+16]; st.global.cs.v2.b64 [%x1+16], {%x3, %x2};
        ld.volatile.global.v4.u16 {%h0, %h1, %h2, %h3}, [%x0+8]; st.relaxed.gpu.global.v2.u16 [%x1+32], {%h3, %h0}; st.global.b8 [%x1+36], %h1;
        st.global.b8 [%x1+37], %r0; st.global.v2.b8 [%x1+38], {%h2, %h2};
        ld.acquire.gpu.global.b32 %r5, [%x0+4]; st.release.gpu.global.b32 [%x1+40], %r5;";
    let out = run(code, 11);
    assert_eq!(out[..4], [0x81, 0xffff_ff81, 0xffff_8382, 0x8382]);
    assert_eq!(out[4..8], [0x9b9a_9998, 0x9f9e_9d9c, 0x9392_9190, 0x9796_9594]);
    assert_eq!(out[8..], [0x8988_8f8e, 0x8c8c_818a, 0x8786_8584]);
}

#[test]
fn generic_addresses_and_local_memory() {
    let code = "
        .local .align 8 .b8 l[16]; .shared .align 8 .b8 s[16];
        mov.u64 %x2, l; cvta.local.u64 %x3, %x2; mov.u64 %x4, s; cvta.shared.u64 %x5, %x4;
        mov.u32 %r0, 11; mov.u32 %r1, 22; mov.u32 %r2, 33;
        st.u32 [%x3+4], %r0; ld.local.u32 %r3, [l+4];
        st.u32 [%x5+8], %r1; ld.shared.u32 %r4, [s+8];
        st.u32 [%x1], %r2; ld.global.u32 %r5, [%x1];
        cvta.to.shared.u64 %x6, %x5; sub.s64 %x6, %x6, %x4; cvt.u32.u64 %r6, %x6;
        isspacep.shared %p0, %x5; selp.u32 %r7, 1, 0, %p0; isspacep.global %p0, %x5; selp.u32 %r8, 1, 0, %p0; isspacep.global %p0, %x1; selp.u32 %r9, 1, 0, %p0;
        mov.u64 %x7, p; cvta.param.u64 %x7, %x7; ld.u64 %x8, [%x7]; setp.eq.u64 %p1, %x8, %x0; selp.u32 %r10, 1, 0, %p1;
        st.global.v4.u32 [%x1], {%r3, %r4, %r5, %r6}; st.global.v4.u32 [%x1+16], {%r7, %r8, %r9, %r10};";
    assert_eq!(run(code, 8), [11, 22, 33, 0, 1, 0, 1, 1]);
}

#[test]
fn dynamic_shared_memory_and_parameters_as_bytes() {
    let text = ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 dynamic[];
        .visible .entry k(.param .u64 out, .param .align 4 .b8 more[12], .param .u32 n) {
            .reg .b32 %r<9>; .reg .b64 %x<3>; .shared .align 4 .b8 fixed[20];
            ld.param.u64 %x0, [out]; mov.u32 %r0, dynamic; and.b32 %r1, %r0, 127; mov.u32 %r2, fixed; sub.u32 %r2, %r0, %r2;
            ld.param.u32 %r3, [more+8]; ld.param.u32 %r4, [n]; mov.u32 %r5, %dynamic_smem_size;
            st.shared.u32 [dynamic+252], %r3; ld.shared.u32 %r6, [%r0+252];
            st.global.v4.u32 [%x0], {%r1, %r2, %r4, %r5}; st.global.u32 [%x0+16], %r6; ret;
        }";
    let (m, mut mem) = (parse(text), Memory::new());
    let out = mem.alloc(20);
    let k = m.kernel("k").expect("the kernel");
    assert_eq!((k.params()[1].offset, k.params()[2].offset, k.param_bytes()), (8, 20, 24));
    let mut params = out.to_le_bytes().to_vec();
    params.extend([1u32, 2, 3, 4].iter().flat_map(|v| v.to_le_bytes()));
    launch_bytes(&m, "k", [1, 1, 1], [1, 1, 1], 256, &params, &mut mem, &Options::default())
        .unwrap_or_else(|f| panic!("{f}"));
    let words: Vec<u32> =
        mem.read(out, 20).expect("mapped").chunks(4).map(|c| u32::from_le_bytes(c.try_into().expect("4"))).collect();
    assert_eq!(words, [0, 128, 4, 256, 3]);
    let f = launch_bytes(&m, "k", [1, 1, 1], [1, 1, 1], 128, &params, &mut mem, &Options::default());
    assert!(f.expect_err("beyond the dynamic memory").to_string().contains("outside of shared memory"));
}

#[test]
fn special_registers() {
    let names = [
        "%tid.x",
        "%tid.y",
        "%tid.z",
        "%ntid.x",
        "%ntid.y",
        "%ctaid.x",
        "%ctaid.y",
        "%ctaid.z",
        "%nctaid.x",
        "%nctaid.z",
        "%laneid",
        "%warpid",
        "%nwarpid",
        "%lanemask_lt",
        "%lanemask_ge",
        "%cluster_ctarank",
    ];
    let mut body = String::from(".reg .b32 %r<20>; .reg .b64 %x<3>; ld.param.u64 %x0, [p];\n");
    for (i, n) in names.iter().enumerate() {
        body += &format!("mov.u32 %r{i}, {n};\n");
    }
    // Linear number of the thread in the grid.
    body += "mad.lo.u32 %r16, %r7, 2, %r6; mad.lo.u32 %r16, %r16, 2, %r5; mad.lo.u32 %r17, %r2, 3, %r1; mad.lo.u32 %r17, %r17, 8, %r0;
        mad.lo.u32 %r16, %r16, 48, %r17; mad.wide.u32 %x0, %r16, 64, %x0;\n";
    for i in 0..names.len() {
        body += &format!("st.global.u32 [%x0+{}], %r{i};\n", 4 * i);
    }
    let m = parse(&module(".param .u64 p", &(body + "ret;")));
    let mut mem = Memory::new();
    let p = mem.alloc(64 * 48 * 8);
    launch(&m, "k", [2, 2, 2], [8, 3, 2], 0, &[p], &mut mem, &Options::default()).unwrap_or_else(|f| panic!("{f}"));
    assert_eq!(mem.first_unwritten(p, 64 * 48 * 8), Ok(None));
    let words: Vec<u32> = mem
        .read(p, 64 * 48 * 8)
        .expect("mapped")
        .chunks(4)
        .map(|c| u32::from_le_bytes(c.try_into().expect("4")))
        .collect();
    for (i, got) in words.chunks(16).enumerate() {
        let (b, t) = (i as u32 / 48, i as u32 % 48);
        let lane = t % 32;
        let want = [
            t % 8,
            t / 8 % 3,
            t / 24,
            8,
            3,
            b % 2,
            b / 2 % 2,
            b / 4,
            2,
            2,
            lane,
            t / 32,
            2,
            (1 << lane) - 1,
            u32::MAX << lane,
            0,
        ];
        assert_eq!(got, want);
    }
}

#[test]
fn buffers_come_and_go() {
    let mut mem = Memory::new();
    let (a, b) = (mem.alloc(100), mem.alloc_from(&[1, 2, 3, 4]));
    assert_eq!((mem.allocated(), a % 512, b % 512), (104, 0, 0));
    assert_eq!(mem.buffer_of(a + 99), Some((a, 100)));
    assert_eq!(mem.buffer_of(a + 100), None);
    assert_eq!(mem.first_unwritten(a, 100), Ok(Some(a)));
    mem.copy(a + 8, b, 4).expect("inside");
    assert_eq!(mem.read(a + 8, 4), Ok(&[1, 2, 3, 4][..]));
    mem.copy(b, a + 10, 4).expect("inside");
    assert_eq!(mem.first_unwritten(b, 4), Ok(Some(b + 2)), "what was not written is not written in the copy");
    mem.poison(a, 100).expect("inside");
    assert_eq!(mem.read(a + 8, 1), Ok(&[0xff][..]));
    assert!(mem.write(a + 98, &[0; 4]).is_err());
    mem.free(a).expect("a buffer");
    assert!(mem.free(a).is_err() && mem.read(a, 1).is_err());
    assert_eq!(mem.allocated(), 4);
}

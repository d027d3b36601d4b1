//! Data and code segments of artifacts for several machines are as the runtime reads them.

use llmcc_abi::{GpuDim, Span, isa, operand};
use llmcc_codegen::artifact::{Alternative, Texts, data_segment, layout_code};
use llmcc_codegen::{Code, GpuCode, NativeCode, Object};
use llmcc_ir::plan::Plan;
use llmcc_ir::target;
use llmcc_rt::Image;

fn plan() -> Plan {
    llmcc_ir::text::parse_plan(include_str!("../../ir/tests/lir/plan.lir")).unwrap()
}

fn cpu_object(byte: u8) -> Object {
    let native = NativeCode { bytes: vec![byte; 70], ..NativeCode::default() };
    Object { code: Code::Native(native), scratch: 64, scratch_per_m: 0, generic: None }
}

fn gpu_object(name: &str, cubin: &[u8]) -> Object {
    let dim = |fixed, per_m| GpuDim { fixed, per_m };
    let gpu = GpuCode {
        entry: format!("k_{name}"),
        mlir: String::new(),
        ptx: format!(".visible .entry k_{name}()"),
        cubin: cubin.to_vec(),
        threads: 128,
        shared: 1024,
        grid: [dim(3, 0), dim(1, 8), dim(1, 0)],
    };
    Object { code: Code::Gpu(gpu), ..cpu_object(0) }
}

#[test]
fn the_runtime_reads_what_the_compiler_writes() {
    let plan = plan();
    // Offsets as packing gives them, for three packings one after the other.
    let mut offsets = vec![];
    let mut len = 0;
    for w in &plan.weights {
        offsets.push(len);
        len += w.storage.bytes() as u64;
    }
    let names: Vec<&str> = plan.kernels.iter().map(|k| k.name.as_str()).collect();
    let cpu: Vec<Object> = (1..).take(names.len()).map(cpu_object).collect();
    let sm90: Vec<Object> = names.iter().map(|n| gpu_object(n, b"\x7fELF for 90")).collect();
    let sm80: Vec<Object> = names.iter().map(|n| gpu_object(n, b"")).collect();
    let code = layout_code(&[&sm90, &cpu, &sm80]);
    let alternative = |name: &str, objects, i: u64| Alternative {
        plan: &plan,
        target: target::find(name).unwrap(),
        objects,
        weight_offsets: &offsets,
        weights: Span { off: i * len, len },
    };
    let alternatives =
        [alternative("sm90", &sm90[..], 0), alternative("x86-64", &cpu, 1), alternative("sm80", &sm80, 2)];
    let texts = Texts { manifest: b"{\"a\":1}".to_vec(), ..Texts::default() };
    let data = data_segment(&alternatives, &code, &texts).bytes;
    let weights = vec![0u8; 3 * len as usize];
    let images =
        // SAFETY: nothing is run, and the parts outlive the images.
        unsafe { Image::all_from_parts(code.bytes.as_ptr(), code.bytes.len() as u64, &data, weights.as_ptr(), weights.len() as u64) }
            .unwrap();
    assert_eq!(images.iter().map(|i| i.desc().isa).collect::<Vec<_>>(), [isa::SM + 90, isa::X86_64, isa::SM + 80]);
    for (i, image) in images.iter().enumerate() {
        assert_eq!((image.manifest(), image.weights_len()), ("{\"a\":1}", len));
        assert_eq!(image.regimes.len(), plan.regimes.len());
        let reads: Vec<u64> = image.operands.iter().filter(|o| o.kind == operand::WEIGHT).map(|o| o.offset).collect();
        assert_eq!(reads[..2], [i as u64 * len + offsets[0], i as u64 * len + offsets[2]]);
        assert!(image.kernels.iter().all(|k| k.code.is_multiple_of(64)));
    }
    for (image, cubin) in [(&images[0], &b"\x7fELF for 90"[..]), (&images[2], b"")] {
        for (k, name) in names.iter().enumerate() {
            assert_eq!((image.kernel_name(k), image.gpu_entry(k)), (*name, &*format!("k_{name}")));
            assert_eq!(image.ptx(k).to_str(), Ok(&*format!(".visible .entry k_{name}()")));
            assert_eq!(image.cubin(k), cubin);
            assert_eq!((image.gpu[k].threads, image.gpu[k].shared, image.gpu[k].grid[1].blocks(17)), (128, 1024, 3));
        }
    }
    assert!(images[1].gpu.is_empty());
    // SAFETY: the code segment is alive.
    assert_eq!(unsafe { images[1].kernel_entry(1).read() }, 2);
}

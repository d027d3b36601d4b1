//! Registers of attention kernels, as ptxas gives them.

use super::*;
use crate::support::assembled::assembled;
use llmcc_gpu::assembler::Ptxas;
use llmcc_ir::target::GpuArch;
use std::thread;

/// Attention of prompts that still spills, at most 32 bytes. (Sizes in between are not tried.)
const SPILLED: &[Form] = &[("sm90", 224, KvDType::Int8, 8)];

/// With `ptxas` at hand: nothing is spilled by the forms below, on no target, but for [`SPILLED`],
/// and as many blocks fit on a multiprocessor as the grid counts on.
#[test]
fn registers_suffice() {
    let Some(ptxas) = Ptxas::find() else { return };
    // The assembler works on one kernel at a time, so targets are taken side by side.
    let spilled: Vec<_> = thread::scope(|scope| {
        let ptxas = &ptxas;
        let running: Vec<_> = target::TARGETS
            .iter()
            .filter_map(|t| Some((t.name, t.gpu()?)))
            .map(|target| scope.spawn(move || spilled_forms(ptxas, target)))
            .collect();
        running.into_iter().flat_map(|r| r.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    });
    assert_eq!(spilled, SPILLED);
}

/// Target, size of a head, type of the cache, heads per KV head.
type Form = (&'static str, usize, KvDType, usize);

/// The forms of a target that spill.
fn spilled_forms(ptxas: &Ptxas, target: (&'static str, &GpuArch)) -> Vec<Form> {
    let small = [16, 64, 80, 112, 128].map(|d| (d, vec![(KvDType::Bf16, 4), (KvDType::Int8, 4)]));
    let large = [144, 160, 192, 224]
        .map(|d| (d, vec![(KvDType::F16, 8), (KvDType::Bf16, 4), (KvDType::Int8, 1), (KvDType::Int8, 8)]));
    let largest = (
        256,
        vec![
            (KvDType::F32, 4),
            (KvDType::F16, 8),
            (KvDType::Bf16, 1),
            (KvDType::Bf16, 4),
            (KvDType::Int8, 1),
            (KvDType::Int8, 4),
            (KvDType::Int8, 8),
        ],
    );
    let mut spilled = vec![];
    let forms = small.into_iter().chain(large).chain([largest]);
    // One token, a prompt, a few tokens of an invariant target's.
    let kinds = [(1, false), (32, false), (4, true)];
    for (d, (tile_m, invariant), (dtype, group)) in
        forms.flat_map(|(d, forms)| kinds.map(|kind| forms.clone().into_iter().map(move |f| (d, kind, f)))).flatten()
    {
        if invariant && group > 4 {
            continue;
        }
        // The form that takes most.
        let window = (tile_m > 1).then_some(1000);
        let shape = Shape { d, tile_m, window, kv_heads: 8, dtype, group, target: target.0, ..DECODE };
        let spec = if invariant { shape.target().invariant() } else { *shape.target() };
        let source = llmcc_gpu::emit(&shape.kernel(), &spec).unwrap();
        let (made, wanted) = assembled(ptxas, &source, target.1);
        let resident = made.resident(target.1, source.threads, source.shared);
        println!("{shape:?}: {} registers, {} shared, {resident} blocks of {wanted}", made.registers, source.shared);
        assert!(resident >= wanted, "{shape:?}: {} registers, {resident} blocks of {wanted} fit", made.registers);
        assert_eq!(made.warnings, [""; 0], "{shape:?}");
        if made.spills != [0; 3] {
            assert!(
                tile_m > 1 && !invariant && made.spills.iter().all(|bytes| *bytes <= 32),
                "{shape:?}: {:?}",
                made.spills
            );
            spilled.push((target.0, d, dtype, group));
        }
    }
    spilled
}

use super::{Access, Builder, Cmp, F32, I32, V};
use llmcc_ir::gpu::program::Program;
use llmcc_ir::gpu::verify::verify_program;

/// A kernel with a parameter of each kind: weights, results of kernels before, its own results.
fn kernel(overlaps: bool, body: impl FnOnce(&mut Builder, &[V])) -> (String, Program) {
    Builder::kernel("k", &[Access::Read, Access::Result, Access::Write], (32, 1), overlaps, body)
}

fn codes(p: &Program) -> Vec<&'static str> {
    verify_program(p).iter().map(|d| d.code).collect()
}

#[test]
fn weights_may_be_read_before_the_wait_and_nothing_else() {
    let in_order = |b: &mut Builder, a: &[V]| {
        let w = b.load_const(a[0], F32);
        let x = b.atc(a[1], 16);
        b.wait_for_inputs();
        let x = b.load(x, F32);
        let y = b.fadd(w, x);
        b.store(y, a[2]);
    };
    let (text, program) = kernel(true, in_order);
    assert_eq!(codes(&program), [""; 0]);
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is not in {text}"));
    assert!(place("launch_dependents") < place("llvm.load") && place("llvm.load") < place("griddepcontrol.wait"));
    assert!(!text.contains("llvm.noalias, llvm.align = 16 : i64}, "), "a store may pass the wait: {text}");
    let early = |body: &dyn Fn(&mut Builder, &[V])| codes(&kernel(true, body).1);
    assert_eq!(
        early(&|b, a| {
            b.load(a[1], F32);
            b.wait_for_inputs();
        }),
        ["use-before-predecessors"]
    );
    assert_eq!(
        early(&|b, a| {
            let zero = b.f32(0.0);
            b.store(zero, a[2]);
        }),
        ["use-before-predecessors"]
    );
    let (text, program) = kernel(false, |b, a| {
        b.load(a[1], F32);
    });
    assert_eq!((codes(&program), text.contains("griddepcontrol")), (vec![], false));
}

/// The wait has to dominate a use: one side of a branch is not enough, and pointers are followed
/// through selections and loops.
#[test]
fn the_wait_dominates_uses() {
    let branch = |both: bool| {
        let p = kernel(true, |b, a| {
            let tid = b.sreg("tid.x");
            let c = b.cmpc(Cmp::Slt, tid, 3);
            if both {
                b.wait_for_inputs();
            } else {
                b.if_(c, Builder::wait_for_inputs);
            }
            let p = b.select(c, a[0], a[1]);
            let (zero, end) = (b.i32(0), b.i32(4));
            let one = b.i32(1);
            b.for_((zero, end, one), &[p], |b, _, p| {
                b.load(p[0], I32);
                vec![b.atc(p[0], 4)]
            });
        });
        codes(&p.1)
    };
    assert_eq!(branch(true), [""; 0]);
    assert_eq!(branch(false), ["use-before-predecessors"]);
}

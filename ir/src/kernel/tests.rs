//! Tests of all families at once.

use super::{Body, Kernel, Param, RowElem};
use crate::text::{Item, Source, parse_kernel, print_kernel, testing};
use proptest::prelude::*;

fn examples() -> Vec<Kernel> {
    let source = Source::parse(concat!(
        include_str!("../../tests/lir/kernels.lir"),
        include_str!("../../tests/lir/more_kernels.lir")
    ))
    .unwrap();
    let mut all: Vec<Kernel> =
        source.items.into_iter().filter_map(|item| if let Item::Kernel(k) = item { Some(k) } else { None }).collect();
    let top_k = "kernel @head.top rows R {\n  param %x: rows f32[R, 100]\n  param %out: rows f32[R, 9]\n  top_k x=%x k=4 out=%out\n}\n";
    all.push(parse_kernel(top_k).unwrap());
    all
}

proptest! {
    /// Whatever the text of a kernel names is an operand of the walk.
    #[test]
    fn the_walk_reaches_every_operand(mut k in testing::kernel()) {
        let n = k.params.len();
        let copy = |(i, p): (usize, &Param), stem: &str| Param { name: format!("{stem}{i}"), kind: p.kind.clone() };
        let old: Vec<Param> = k.params.iter().enumerate().map(|p| copy(p, "old")).collect();
        let new: Vec<Param> = k.params.iter().enumerate().map(|p| copy(p, "new")).collect();
        k.params = [old, new].concat();
        let before = print_kernel(&k);
        k.body.visit_operands(&mut |p, _| *p += n);
        let after = print_kernel(&k);
        let body = |text: &str| text.lines().filter(|l| !l.contains("param ")).collect::<Vec<_>>().join("\n");
        prop_assert!(!body(&after).contains("%old"), "{after}");
        prop_assert_eq!(body(&before).matches("%old").count(), body(&after).matches("%new").count());
        prop_assert_eq!(body(&before).matches("%old").count(), k.body.operands().len());
    }
}

#[test]
fn every_family_has_an_example_that_checks() {
    let all = examples();
    for name in Body::NAMES {
        let k = all.iter().find(|k| k.body.name() == *name).unwrap_or_else(|| panic!("no example of `{name}`"));
        assert_eq!(k.check().unwrap().kernel(), k);
        assert!(!k.written().is_empty(), "{name} writes nothing");
        let access = crate::verify::accesses(k);
        assert!(k.written().iter().all(|p| access.iter().any(|a| a.param == *p && a.write)));
    }
}

#[test]
fn operands_of_checked_kernels_are_what_they_are_used_as() {
    let mut k = examples().into_iter().find(|k| matches!(k.body, Body::Attention(_))).unwrap();
    let Body::Attention(a) = k.body.clone() else { unreachable!() };
    let checked = k.check().unwrap();
    assert_eq!(checked.rows(a.q).cols, a.heads * checked.kv(a.kv).key_dim);
    assert_eq!(checked.rows(a.out).elem, RowElem::Q8 { group: 32 });
    // The same kernel with an operand of another kind is refused, with the operand's name.
    k.params[a.kv].kind = k.params[a.q].kind.clone();
    let errors = k.check().unwrap_err();
    assert!(
        errors.iter().any(|d| d.code == "param-kind" && d.to_string().contains(&k.params[a.kv].name)),
        "{errors:?}"
    );
}

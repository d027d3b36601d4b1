//! The cost of a new family of kernels in this crate: a line of the table, and this file. Beyond
//! it, each backend and the cost model have a file. Not part of shipped code.

use super::part::family;
use super::{Family, Outcome, Param, ParamId, Use};
use crate::eval::{EvalError, KernelRun};
use crate::graph::F32;
use crate::state::{State, StateSpec};
use crate::verify::KernelVerifier;

family! {
    /// `y = x + step·n`, rounded once each, where the sequence has had `n` tokens before, as the state
    /// counts them. One work item: all tokens in order.
    Climb {
        /// f32 rows.
        x: ParamId as Use::READ,
        /// Addend of a token for the tokens after it.
        step: F32,
        /// How many there were; the token is counted.
        tally: ParamId as Use::WRITE,
        /// f32 rows.
        out: ParamId as Use::WRITE,
    }
}

impl Family for Climb {
    fn items(&self, _: &[Param]) -> (usize, bool) {
        (1, false)
    }

    fn verify(&self, v: &mut KernelVerifier<'_>) {
        v.tokens_only();
        let rows = v.kernel.rows;
        v.state(self.tally, "a tally", StateSpec::tally);
        if let [Some(cols), Some(out)] = [self.x, self.out].map(|p| v.f32_rows(p, rows)) {
            v.columns(self.out, out, cols);
        }
    }

    fn eval(&self, x: &KernelRun<'_, '_>) -> Result<Outcome, EvalError> {
        let State::Tally(mut state) = x.state(self.tally).clone() else { unreachable!("verified") };
        let row = |i: usize| {
            let step = self.step.get() * state.count(x.batch.seqs[i]) as f32;
            x.row(self.x, i).into_iter().map(|x| x + f64::from(step)).collect()
        };
        let rows = (0..x.m).map(row).collect();
        Ok(Outcome::recurrent((self.out, rows), (self.tally, state)))
    }
}

#[cfg(test)]
mod tests {
    use crate::eval::{Batch, OperandData, Rows, State, eval_kernel};
    use crate::kernel::{Body, Kernel};
    use crate::state::{StateSpec, TallySpec};
    use crate::text::{parse_kernel, parse_plan, print_kernel, print_plan};
    use crate::verify::verify_kernel;
    use std::path::Path;

    const TEXT: &str = "kernel @k rows T {
  param %x: rows f32[T, 2]
  param %n: tally<u32, most 3>
  param %y: rows f32[T, 2]
  climb x=%x step=0.5 tally=%n out=%y
}
";

    fn kernel() -> Kernel {
        parse_kernel(TEXT).unwrap()
    }

    #[test]
    fn it_is_read_verified_evaluated_and_printed() {
        let k = kernel();
        assert_eq!((print_kernel(&k).as_str(), verify_kernel(&k), k.body.name()), (TEXT, vec![], "climb"));
        assert_eq!((k.items(), k.written()), ((1, false), vec![1, 2]));
        // Two sequences by turns; the first one starts again after three tokens.
        let batch = Batch { seqs: vec![0, 1, 0, 0, 0], ..Batch::single(&[0; 5], 0) };
        let rows = |x: f32| OperandData::Rows(Rows { cols: 2, data: vec![x; 10] });
        let tally = OperandData::State(State::new(TallySpec { most: 3 }.into()));
        let mut operands = [rows(1.0), tally, rows(f32::NAN)];
        eval_kernel(&k, &batch, &mut operands).unwrap();
        let OperandData::Rows(out) = &operands[2] else { unreachable!() };
        assert_eq!(out.data, [1.0, 1.0, 1.0, 1.0, 1.5, 1.5, 2.0, 2.0, 1.0, 1.0]);
        // Its copy in memory, in slots 2 and 0.
        let OperandData::State(state) = &operands[1] else { unreachable!() };
        let (tables, mut pool) = ([vec![2], vec![0]], [0xff; 192]);
        state.to_pool(&tables, &mut pool).unwrap();
        assert_eq!((pool[128], pool[0], state.spec().bytes()), (1, 1, 64));
        assert_eq!(&State::from_pool(state.spec(), &tables, &[4, 1], &pool).unwrap(), state);
        assert!(state.to_pool(&[vec![3], vec![0]], &mut pool).is_err());
    }

    #[test]
    fn its_mistakes_are_found() {
        let says = |from: &str, to: &str, code: &str| {
            let found = parse_kernel(&TEXT.replace(from, to)).map_or_else(|e| e, |k| verify_kernel(&k));
            assert!(found.iter().any(|d| d.code == code), "{to}: {found:?}");
        };
        says("most 3", "most 0", "state-spec");
        says("tally<u32, most 3>", "state<f32, 1x1x1>", "param-kind");
        says("%x: rows f32[T, 2]", "%x: rows f32[T, 3]", "param-columns");
        says("rows T", "rows R", "kernel-rows");
        says("step=0.5 ", "", "syntax");
    }

    /// A plan has the state by its word and its number, and a group for all that live as long.
    #[test]
    fn plans_have_it() {
        let text = format!(
            "plan \"p\" {{\n  info vocab=2 hidden=2 max_context=8\n  state 0: state<f32, 1x1x1>\n  \
             tally 1: tally<u32, most 3>\n  {}  slot 0: per_token=8 per_row=0\n  \
             entry @step {{\n    logits slot 0\n  }}\n  regime @step any {{\n    \
             buffer %0: f32[T, 2] in slot 0\n    buffer %1: f32[T, 2] in slot 0\n    \
             call 0: @k(%0, tally 1, %1)\n  }}\n}}\n",
            TEXT.replace('\n', "\n  ").trim_end_matches(' ')
        );
        let plan = parse_plan(&text).unwrap();
        assert_eq!(print_plan(&plan), text);
        assert_eq!(plan.groups(), [0, 0]);
        assert_eq!(plan.states[1], StateSpec::Tally(TallySpec { most: 3 }));
        assert!(matches!(plan.kernels[0].body, Body::Climb(_)));
    }

    /// Files of the repository that name `what`, test folders and this one aside.
    fn naming(what: &str) -> Vec<String> {
        fn walk(root: &Path, dir: &Path, what: &str, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.ends_with("tests") {
                    walk(root, &path, what, found);
                } else if path.extension().is_some_and(|e| e == "rs")
                    && !path.ends_with("tests.rs")
                    && std::fs::read_to_string(&path).unwrap().contains(what)
                {
                    found.push(path.strip_prefix(root).unwrap().display().to_string());
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found = vec![];
        for dir in ["ir/src", "passes/src", "frontends/src", "codegen/src", "codegen/gpu/src", "cli/src", "runtime"] {
            walk(root, &root.join(dir), what, &mut found);
        }
        found.sort();
        found
    }

    /// A file of this crate, one of each backend and one of the cost model, and lines of tables: that
    /// of families, and those that say who makes the code or refuses to.
    #[test]
    fn a_family_costs_as_many_files_as_the_guide_says() {
        let files = [
            "codegen/gpu/src/lib.rs",
            "codegen/gpu/src/supported.rs",
            "codegen/src/cpu/dummy.rs",
            "codegen/src/cpu/mod.rs",
            "ir/src/kernel/dummy.rs",
            "ir/src/kernel/mod.rs",
            "passes/src/cost/dummy.rs",
        ];
        assert_eq!(naming(concat!("Cli", "mb")), files);
    }

    /// Its file and a line; the other two are the family that uses it.
    #[test]
    fn a_state_costs_one_file_and_a_line() {
        let files = ["ir/src/kernel/dummy.rs", "ir/src/state/dummy.rs", "ir/src/state/mod.rs"];
        assert_eq!(naming(concat!("Tal", "ly")), files);
    }
}

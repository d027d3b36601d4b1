//! Control flow: loops and conditions, with values carried.

use std::fmt::Write;

use super::{Builder, Ty, V};

impl Builder {
    /// Opens a region.
    fn open(&mut self) {
        self.depth += 1;
        self.dependencies.open();
    }

    /// Closes it.
    fn close(&mut self) {
        self.depth -= 1;
        self.dependencies.close();
    }

    fn results(&mut self, init: &[V]) -> (String, Vec<V>) {
        let id = self.next;
        self.next += 1;
        match init {
            [] => (String::new(), vec![]),
            [one] => (format!("%{id} = "), vec![V { id, part: None, ty: one.ty }]),
            many => {
                let part = |(i, v): (usize, &V)| V { id, part: Some(i as u16), ty: v.ty };
                (format!("%{id}:{} = ", many.len()), many.iter().enumerate().map(part).collect())
            }
        }
    }

    fn types(values: &[V]) -> String {
        values.iter().map(|v| v.ty.to_string()).collect::<Vec<_>>().join(", ")
    }

    fn yield_(&mut self, values: &[V]) {
        if !values.is_empty() {
            let names: Vec<String> = values.iter().map(V::to_string).collect();
            self.line(&format!("scf.yield {} : {}", names.join(", "), Builder::types(values)));
        }
    }

    /// `for i in (lo..hi).step_by(step)` (`i32`, signed) with values carried round: `body` gets `i`
    /// and the values and returns the next ones.
    pub fn for_(
        &mut self,
        (lo, hi, step): (V, V, V),
        init: &[V],
        body: impl FnOnce(&mut Builder, V, &[V]) -> Vec<V>,
    ) -> Vec<V> {
        let iv = self.fresh(lo.ty);
        let args: Vec<V> = init.iter().map(|v| self.fresh(v.ty)).collect();
        let (prefix, results) = self.results(init);
        let mut head = format!("{prefix}scf.for {iv} = {lo} to {hi} step {step}");
        if !init.is_empty() {
            let pairs: Vec<String> = args.iter().zip(init).map(|(a, i)| format!("{a} = {i}")).collect();
            let _ = write!(head, " iter_args({}) -> ({})", pairs.join(", "), Builder::types(init));
        }
        self.line(&format!("{head} : {} {{", lo.ty));
        self.open();
        self.record_for((lo, hi, step), iv, &args);
        args.iter().zip(init).for_each(|(arg, from)| self.derive(*arg, &[*from]));
        let next = body(self, iv, &args);
        debug_assert_eq!(next.len(), init.len(), "values carried round a loop");
        self.record_end_for(&args, init, &next, &results);
        results.iter().zip(init.iter().zip(&next)).for_each(|(to, (a, b))| self.derive(*to, &[*a, *b]));
        self.yield_(&next);
        self.close();
        self.line("}");
        results
    }

    /// `for i in lo..hi step s` with constant bounds and nothing carried.
    pub fn for_range(&mut self, lo: V, hi: V, step: i64, body: impl FnOnce(&mut Builder, V)) {
        let step = self.int_const(lo.ty, step);
        self.for_((lo, hi, step), &[], |b, i, _| {
            body(b, i);
            vec![]
        });
    }

    /// `if c { then }`.
    pub fn if_(&mut self, c: V, then: impl FnOnce(&mut Builder)) {
        self.line(&format!("scf.if {c} {{"));
        self.open();
        self.record_if(c);
        then(self);
        self.record_end_if(&[], &[], &[]);
        self.close();
        self.line("}");
    }

    /// `if c { then } else { otherwise }` with results.
    pub fn if_else(
        &mut self,
        c: V,
        types: &[Ty],
        then: impl FnOnce(&mut Builder) -> Vec<V>,
        otherwise: impl FnOnce(&mut Builder) -> Vec<V>,
    ) -> Vec<V> {
        let like: Vec<V> = types.iter().map(|ty| V { id: 0, part: None, ty: *ty }).collect();
        let (prefix, results) = self.results(&like);
        let arrow = if types.is_empty() { String::new() } else { format!(" -> ({})", Builder::types(&like)) };
        self.line(&format!("{prefix}scf.if {c}{arrow} {{"));
        self.open();
        self.record_if(c);
        let one = then(self);
        self.yield_(&one);
        self.close();
        self.line("} else {");
        self.open();
        self.record_else();
        let other = otherwise(self);
        self.record_end_if(&results, &one, &other);
        results.iter().zip(one.iter().zip(&other)).for_each(|(to, (a, b))| self.derive(*to, &[*a, *b]));
        self.yield_(&other);
        self.close();
        self.line("}");
        results
    }

    /// `if c { then } else { otherwise }` without results.
    pub fn either(&mut self, c: V, then: impl FnOnce(&mut Builder), otherwise: impl FnOnce(&mut Builder)) {
        let then = |b: &mut Builder| {
            then(b);
            vec![]
        };
        self.if_else(c, &[], then, |b| {
            otherwise(b);
            vec![]
        });
    }
}

//! Loops and conditions as closures.

use super::emit::Emit;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, Value};

fn args(first: Option<Value>, rest: &[Value]) -> Vec<BlockArg> {
    first.iter().chain(rest).map(|v| BlockArg::from(*v)).collect()
}

impl<'f> Emit<'f> {
    /// `for i in (from..to).step_by(step)`, i64, with loop-carried values: the body returns their
    /// next values; the last ones are the result.
    pub fn range(
        &mut self,
        from: Value,
        to: Value,
        step: usize,
        init: &[Value],
        body: impl FnOnce(&mut Self, Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        self.rotated(from, to, step, init, true, body)
    }

    /// [`Emit::range`] without carried values.
    pub fn each(&mut self, from: Value, to: Value, step: usize, body: impl FnOnce(&mut Self, Value)) {
        self.range(from, to, step, &[], |e, i, _| {
            body(e, i);
            Vec::new()
        });
    }

    /// `for i in (0..to).step_by(step)` with a bound known when compiling.
    pub fn fixed(
        &mut self,
        to: usize,
        step: usize,
        init: &[Value],
        body: impl FnOnce(&mut Self, Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        if to == 0 {
            return init.to_vec();
        }
        let (from, end) = (self.int(0), self.int(to as i64));
        self.rotated(from, end, step, init, false, body)
    }

    /// [`Emit::fixed`] without carried values.
    pub fn each_fixed(&mut self, to: usize, step: usize, body: impl FnOnce(&mut Self, Value)) {
        self.fixed(to, step, &[], |e, i, _| {
            body(e, i);
            Vec::new()
        });
    }

    /// A loop that tests at the bottom; `guard`: also before the first iteration.
    fn rotated(
        &mut self,
        from: Value,
        to: Value,
        step: usize,
        init: &[Value],
        guard: bool,
        body: impl FnOnce(&mut Self, Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let (head, exit) = (self.b.create_block(), self.b.create_block());
        let ty = self.b.func.dfg.value_type(from);
        self.b.append_block_param(head, ty);
        for v in init {
            let ty = self.b.func.dfg.value_type(*v);
            self.b.append_block_param(head, ty);
            self.b.append_block_param(exit, ty);
        }
        if guard {
            let enter = self.compare(IntCC::SignedLessThan, from, to);
            self.b.ins().brif(enter, head, &args(Some(from), init), exit, &args(None, init));
        } else {
            self.b.ins().jump(head, &args(Some(from), init));
        }
        self.b.switch_to_block(head);
        let params = self.b.block_params(head).to_vec();
        let next = body(self, params[0], &params[1..]);
        let i = self.offset(params[0], step);
        let again = self.compare(IntCC::SignedLessThan, i, to);
        self.b.ins().brif(again, head, &args(Some(i), &next), exit, &args(None, &next));
        self.b.switch_to_block(exit);
        self.b.block_params(exit).to_vec()
    }

    /// `let mut i = from; while i < to { i = body(i) }`, i64: a loop whose step depends on the
    /// data.
    pub fn walk(&mut self, from: Value, to: Value, body: impl FnOnce(&mut Self, Value) -> Value) {
        let (head, exit) = (self.b.create_block(), self.b.create_block());
        let ty = self.b.func.dfg.value_type(from);
        self.b.append_block_param(head, ty);
        let enter = self.compare(IntCC::SignedLessThan, from, to);
        self.b.ins().brif(enter, head, &args(Some(from), &[]), exit, &[]);
        self.b.switch_to_block(head);
        let i = self.b.block_params(head)[0];
        let next = body(self, i);
        let again = self.compare(IntCC::SignedLessThan, next, to);
        self.b.ins().brif(again, head, &args(Some(next), &[]), exit, &[]);
        self.b.switch_to_block(exit);
    }

    /// The first `i` in `from..to` for which `keep(i)` is false, else `to` (or `from` if that is
    /// not below it).
    pub fn scan(&mut self, from: Value, to: Value, keep: impl FnOnce(&mut Self, Value) -> Value) -> Value {
        let (head, body, exit) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let ty = self.b.func.dfg.value_type(from);
        self.b.append_block_param(head, ty);
        self.b.append_block_param(exit, ty);
        self.b.ins().jump(head, &args(Some(from), &[]));
        self.b.switch_to_block(head);
        let i = self.b.block_params(head)[0];
        let inside = self.compare(IntCC::SignedLessThan, i, to);
        self.b.ins().brif(inside, body, &[], exit, &args(Some(i), &[]));
        self.b.switch_to_block(body);
        let go_on = keep(self, i);
        let next = self.offset(i, 1);
        self.b.ins().brif(go_on, head, &args(Some(next), &[]), exit, &args(Some(i), &[]));
        self.b.switch_to_block(exit);
        self.b.block_params(exit)[0]
    }

    /// `if condition { then }`.
    pub fn when(&mut self, condition: Value, then: impl FnOnce(&mut Self)) {
        let (yes, exit) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(condition, yes, &[], exit, &[]);
        self.b.switch_to_block(yes);
        then(self);
        self.b.ins().jump(exit, &[]);
        self.b.switch_to_block(exit);
    }
}

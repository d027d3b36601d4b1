//! Asynchronous products of groups of four warps (sm90): starting them, and waiting for them.

use super::{Builder, Elem, StructElem, Ty, V};
use llmcc_ir::gpu::program::Atom;

/// The left operand of asynchronous products.
#[derive(Clone, Copy, Debug)]
pub enum Left<'a> {
    /// In shared memory, at this address.
    Shared(V),
    /// In registers.
    Registers(&'a [V]),
}

/// Asynchronous products that a piece of assembly starts, as one group: with the fence before and
/// the commit after.
#[derive(Clone, Copy, Debug)]
pub struct Products<'a> {
    /// Shape of a step.
    pub atom: Atom,
    /// Left operand.
    pub left: Left<'a>,
    /// Where in shared memory the right operand is.
    pub right: V,
    /// Contents of the accumulators; where this is empty, they are no operands.
    pub sums: &'a [V],
    /// Accumulators of a lane.
    pub count: usize,
}

impl Builder {
    /// Starts products. The accumulators it returns are for more products or
    /// [`Builder::wait_products`] only.
    pub fn start_products(&mut self, p: &Products<'_>, text: &str, constraints: &str, args: &[V]) -> Vec<V> {
        self.record_products(p);
        let ty = Ty::Struct(p.count as u8, StructElem::S(Elem::F32));
        let s = self.passing(|b| b.asm_volatile(ty, text, constraints, args));
        let out = self.members(s);
        self.record_started(&out);
        out
    }

    /// Waits until at most `pending` groups of products are under way. Finished values pass
    /// through; `read`, which the products read until then, is named, so that nothing else gets its
    /// registers before.
    pub fn wait_products(&mut self, pending: usize, through: &[V], read: &[V]) -> Vec<V> {
        let n = through.len();
        let text = format!("wgmma.wait_group.sync.aligned {pending};");
        let tied = (0..n).map(|i| format!("{i},"));
        let constraints: String =
            vec!["=f,".to_owned(); n].into_iter().chain(tied).chain(read.iter().map(|_| "r,".to_owned())).collect();
        let constraints = format!("{constraints}~{{memory}}");
        if n == 0 {
            self.asm_effect(&text, &constraints, &[]);
            self.record_waited(pending, &[], &[]);
            return vec![];
        }
        let args = [through, read].concat();
        let s =
            self.passing(|b| b.asm_volatile(Ty::Struct(n as u8, StructElem::S(Elem::F32)), &text, &constraints, &args));
        let out = self.members(s);
        self.record_waited(pending, through, &out);
        out
    }
}

//! Vectors and structures: their members.

use super::{Builder, StructElem, Ty, V};

impl Builder {
    /// Element `i` of a vector.
    pub fn extract(&mut self, v: V, i: usize) -> V {
        let Ty::Vec(_, e) = v.ty else { unreachable!("{} is no vector", v.ty) };
        let at = self.i32(i as i64);
        self.op(Ty::S(e), format!("llvm.extractelement {v}[{at} : i32] : {}", v.ty))
    }
    /// All elements of a vector.
    pub fn unpack(&mut self, v: V) -> Vec<V> {
        let Ty::Vec(n, _) = v.ty else { unreachable!("{} is no vector", v.ty) };
        (0..usize::from(n)).map(|i| self.extract(v, i)).collect()
    }
    /// A vector of scalars.
    pub fn pack(&mut self, parts: &[V]) -> V {
        let Ty::S(e) = parts[0].ty else { unreachable!("{} is no scalar", parts[0].ty) };
        let ty = Ty::Vec(parts.len() as u8, e);
        let list: Vec<String> = parts.iter().map(V::to_string).collect();
        self.op(ty, format!("vector.from_elements {} : {ty}", list.join(", ")))
    }
    /// A vector of `n` equal elements.
    pub fn splat(&mut self, v: V, n: u8) -> V {
        let Ty::S(e) = v.ty else { unreachable!("{} is no scalar", v.ty) };
        let ty = Ty::Vec(n, e);
        self.op(ty, format!("vector.broadcast {v} : {} to {ty}", v.ty))
    }
    /// Members of a structure.
    pub fn members(&mut self, v: V) -> Vec<V> {
        let Ty::Struct(n, e) = v.ty else { unreachable!("{} is no structure", v.ty) };
        let ty = match e {
            StructElem::S(e) => Ty::S(e),
            StructElem::Pair(e) => Ty::Vec(2, e),
        };
        (0..n).map(|i| self.op(ty, format!("llvm.extractvalue {v}[{i}] : {}", v.ty))).collect()
    }
}

//! PTX within MLIR.

use super::{Builder, Ty, V};

impl Builder {
    fn asm_text(&self, text: &str, constraints: &str, args: &[V], result: Option<Ty>, effects: &str) -> String {
        let names: Vec<String> = args.iter().map(V::to_string).collect();
        let types: Vec<String> = args.iter().map(|a| a.ty.to_string()).collect();
        let result = result.map_or("!llvm.void".to_string(), |t| t.to_string());
        format!(
            "llvm.inline_asm {effects}\"{text}\", \"{constraints}\" {} : ({}) -> {result}",
            names.join(", "),
            types.join(", ")
        )
    }
    /// A pure instruction.
    pub fn asm(&mut self, ty: Ty, text: &str, constraints: &str, args: &[V]) -> V {
        let text = self.asm_text(text, constraints, args, Some(ty), "");
        self.op(ty, text)
    }
    /// An instruction with effects and one result.
    pub fn asm_volatile(&mut self, ty: Ty, text: &str, constraints: &str, args: &[V]) -> V {
        let text = self.asm_text(text, constraints, args, Some(ty), "has_side_effects ");
        self.op(ty, text)
    }
    /// The same number (`i32`) or global address, hidden from the compiler: values derived from it
    /// are computed here, and not kept in registers from an earlier place.
    pub fn anew(&mut self, v: V) -> V {
        let (text, constraints) =
            if v.ty == Ty::Global { ("mov.b64 $0, $1;", "=l,l") } else { ("mov.b32 $0, $1;", "=r,r") };
        let same = self.asm_volatile(v.ty, text, constraints, &[v]);
        self.record_same(same, v);
        same
    }
    /// An instruction with effects only. (`~{memory}` in the constraints orders it with loads and
    /// stores.)
    pub fn asm_effect(&mut self, text: &str, constraints: &str, args: &[V]) {
        let text = self.asm_text(text, constraints, args, None, "has_side_effects ");
        self.effect(text.replace(" -> !llvm.void", " -> ()"));
    }
}

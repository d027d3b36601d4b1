//! From syntax to decoded instructions: names, scopes, labels, control flow.

use std::collections::HashMap;

use crate::ast::{Entry, Operand, Raw, RegDecl, Stmt, Var, Width};
use crate::decode::{Dec, decode};
use crate::error::{Error, at};
use crate::flow::joins;
use crate::machine::{SHARED_BASE, Slot};
use crate::module::{Inst, Kernel, Param, Special, Step, place_shared};

/// Most shared memory that a kernel may declare with a size, on every target.
const MAX_STATIC_SHARED: usize = 48 * 1024;

/// The object behind a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Symbol {
    Reg(Slot, Width),
    /// An address known now: shared and local variables, parameters.
    Address(u64),
    /// A variable of the module, by index.
    Global(usize),
}

#[derive(Default)]
struct Scope<'a> {
    symbols: HashMap<&'a str, Symbol>,
    /// Declarations of numbered registers by prefix.
    ranges: HashMap<&'a str, (u64, Width)>,
    labels: HashMap<&'a str, u32>,
}

/// A kernel while it is decoded.
pub(crate) struct Builder<'a> {
    scopes: Vec<Scope<'a>>,
    pub kernel: Kernel,
    immediates: HashMap<u64, Slot>,
    classes: HashMap<String, u32>,
}

impl<'a> Builder<'a> {
    pub fn new_slot(&mut self, name: &str) -> Slot {
        self.kernel.names.push(name.to_owned());
        self.kernel.names.len() as Slot - 1
    }

    /// A register that holds `bits` in every lane.
    pub fn constant(&mut self, bits: u64) -> Slot {
        if let Some(&s) = self.immediates.get(&bits) {
            return s;
        }
        let s = self.new_slot("an immediate");
        self.immediates.insert(bits, s);
        self.kernel.constants.push((s, bits));
        s
    }

    /// A register that holds the address of global variable `var`, plus `offset`.
    pub fn link(&mut self, var: usize, offset: i64) -> Slot {
        if let Some(l) = self.kernel.links.iter().find(|l| l.1 == var && l.2 == offset) {
            return l.0;
        }
        let s = self.new_slot("an address");
        self.kernel.links.push((s, var, offset));
        s
    }

    /// The meaning of `name` here.
    pub fn lookup(&mut self, name: &'a str, line: u32) -> Result<Symbol, Error> {
        for i in (0..self.scopes.len()).rev() {
            if let Some(s) = self.scopes[i].symbols.get(name) {
                return Ok(*s);
            }
            let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let number = name[prefix.len()..].parse::<u64>().ok();
            if let (Some(n), Some(&(count, width))) = (number, self.scopes[i].ranges.get(prefix))
                && n < count
            {
                let s = Symbol::Reg(self.new_slot(name), width);
                self.scopes[i].symbols.insert(name, s);
                return Ok(s);
            }
        }
        if let Some(special) = special(name) {
            let slot = self.new_slot(name);
            self.kernel.specials.push((slot, special));
            let s = Symbol::Reg(slot, if name == "%gridid" { 64 } else { 32 });
            self.scopes[0].symbols.insert(name, s);
            return Ok(s);
        }
        Err(at(line, format!("{name} is not declared")))
    }

    fn declare(&mut self, reg: &RegDecl<'a>) {
        match reg.count {
            Some(count) => {
                if let Some(scope) = self.scopes.last_mut() {
                    scope.ranges.insert(reg.name, (count, reg.width));
                }
            }
            None => {
                let slot = self.new_slot(reg.name);
                self.bind(reg.name, Symbol::Reg(slot, reg.width));
            }
        }
    }

    fn bind(&mut self, name: &'a str, symbol: Symbol) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.symbols.insert(name, symbol);
        }
    }

    fn variable(&mut self, v: &Var<'a>, line: u32) -> Result<(), Error> {
        if v.space == ".local" {
            let offset = self.kernel.local_bytes.next_multiple_of(v.align as usize);
            self.kernel.local_bytes = offset + v.size as usize;
            self.bind(v.name, Symbol::Address(offset as u64));
            return Ok(());
        }
        if !v.init.is_empty() {
            return Err(at(line, format!("shared variable {} has an initialiser", v.name)));
        }
        let offset = place_shared(self.kernel.static_shared, v);
        self.kernel.static_shared = offset + v.size as usize;
        self.bind(v.name, Symbol::Address(SHARED_BASE + offset as u64));
        Ok(())
    }

    pub fn label(&self, name: &str, line: u32) -> Result<u32, Error> {
        let hit = self.scopes.iter().rev().find_map(|s| s.labels.get(name));
        hit.copied().ok_or_else(|| at(line, format!("label {name} is not defined")))
    }

    pub fn class(&mut self, name: &str) -> u32 {
        if let Some(&c) = self.classes.get(name) {
            return c;
        }
        self.kernel.classes.push(name.to_owned());
        let c = self.kernel.classes.len() as u32 - 1;
        self.classes.insert(name.to_owned(), c);
        c
    }

    /// Decodes the statements of one scope. `code` counts the instructions before them.
    fn block(&mut self, body: &[Stmt<'a>]) -> Result<(), Error> {
        let mut pc = self.kernel.code.len() as u32;
        for s in body {
            match s {
                Stmt::Label(name, line) => {
                    let labels = self.scopes.last_mut().map(|s| &mut s.labels);
                    if labels.is_some_and(|l| l.insert(name, pc).is_some()) {
                        return Err(at(*line, format!("label {name} is defined twice")));
                    }
                }
                Stmt::Inst(_) => pc += 1,
                Stmt::Block(b) => pc += count(b),
                Stmt::Reg(_) | Stmt::Var(_) => {}
            }
        }
        for s in body {
            match s {
                Stmt::Label(..) => {}
                Stmt::Reg(r) => self.declare(r),
                Stmt::Var(v) => self.variable(v, 0)?,
                Stmt::Inst(raw) => self.instruction(raw)?,
                Stmt::Block(b) => {
                    self.scopes.push(Scope::default());
                    self.block(b)?;
                    self.scopes.pop();
                }
            }
        }
        Ok(())
    }

    fn instruction(&mut self, raw: &Raw<'a>) -> Result<(), Error> {
        let line = raw.line;
        let guard = match raw.guard {
            None => None,
            Some((name, negated)) => match self.lookup(name, line)? {
                Symbol::Reg(slot, 1) => Some((slot, negated)),
                _ => return Err(at(line, format!("guard {name} is not a predicate"))),
            },
        };
        let mut mods = raw.opcode.split('.');
        let root = mods.next().unwrap_or_default();
        let mut dec = Dec::new(self, root, mods.collect(), raw);
        let step = match root {
            "bra" => Step::Jump { target: dec.target()?, join: 0 },
            "ret" | "exit" | "trap" => Step::Exit,
            _ => Step::Run(decode(&mut dec)?),
        };
        dec.finish()?;
        let (uses, defs, class) = (dec.uses.into_boxed_slice(), dec.defs.into_boxed_slice(), dec.class);
        let class = self.class(&class);
        let wgmma = root == "wgmma";
        self.kernel.has_wgmma |= wgmma;
        self.kernel.code.push(Inst { guard, step, line, text: raw.text.to_owned(), class, uses, defs, wgmma });
        Ok(())
    }
}

fn count(body: &[Stmt<'_>]) -> u32 {
    let one = |s: &Stmt<'_>| match s {
        Stmt::Inst(_) => 1,
        Stmt::Block(b) => count(b),
        Stmt::Label(..) | Stmt::Reg(_) | Stmt::Var(_) => 0,
    };
    body.iter().map(one).sum()
}

fn special(name: &str) -> Option<Special> {
    let axis = |s: &str| ["x", "y", "z"].iter().position(|a| *a == s);
    if let Some((base, a)) = name.split_once('.') {
        let a = axis(a)?;
        return Some(match base {
            "%tid" => Special::Tid(a),
            "%ntid" => Special::Ntid(a),
            "%ctaid" | "%clusterid" => Special::Ctaid(a),
            "%nctaid" | "%nclusterid" => Special::Nctaid(a),
            "%cluster_ctaid" => Special::Value(0),
            "%cluster_nctaid" => Special::Value(1),
            _ => return None,
        });
    }
    use std::cmp::Ordering::{Equal, Greater, Less};
    Some(match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::Warps,
        "%lanemask_eq" => Special::LaneMask(Equal, true),
        "%lanemask_lt" => Special::LaneMask(Less, false),
        "%lanemask_le" => Special::LaneMask(Less, true),
        "%lanemask_gt" => Special::LaneMask(Greater, false),
        "%lanemask_ge" => Special::LaneMask(Greater, true),
        "%dynamic_smem_size" => Special::DynamicShared,
        "%total_smem_size" => Special::TotalShared,
        "WARP_SZ" => Special::Value(32),
        "%nsmid" | "%cluster_nctarank" => Special::Value(1),
        "%smid" | "%cluster_ctarank" | "%gridid" => Special::Value(0),
        _ => return None,
    })
}

fn params(entry: &Entry<'_>) -> (Vec<Param>, usize) {
    let mut end = 0usize;
    let place = |p: &Var<'_>| {
        let offset = end.next_multiple_of(p.align.max(1) as usize);
        end = offset + p.size as usize;
        Param { offset, size: p.size as usize }
    };
    let list = entry.params.iter().map(place).collect();
    (list, end)
}

/// Decodes one kernel. `vars` are the module's variables, `globals` the ones in global memory.
pub(crate) fn build<'a>(entry: &Entry<'a>, vars: &[Var<'a>], globals: &[&Var<'a>]) -> Result<Kernel, Error> {
    let (params, param_bytes) = params(entry);
    let kernel = Kernel {
        name: entry.name.to_owned(),
        code: Vec::new(),
        classes: Vec::new(),
        names: Vec::new(),
        constants: Vec::new(),
        specials: Vec::new(),
        links: Vec::new(),
        params,
        param_bytes,
        static_shared: 0,
        local_bytes: 0,
        max_threads: entry.max_threads,
        exact_threads: entry.exact_threads,
        granule: 16,
        global_granule: 16,
        has_wgmma: false,
    };
    let mut b = Builder { scopes: vec![Scope::default()], kernel, immediates: HashMap::new(), classes: HashMap::new() };
    for (p, place) in entry.params.iter().zip(b.kernel.params.clone()) {
        b.bind(p.name, Symbol::Address(place.offset as u64));
    }
    for (i, g) in globals.iter().enumerate() {
        b.bind(g.name, Symbol::Global(i));
    }
    let shared = || vars.iter().filter(|v| v.space == ".shared");
    for v in shared().filter(|v| !v.external) {
        b.variable(v, entry.line)?;
    }
    // Shared variables of the kernel come before the dynamic ones, which all start at the same
    // address after them.
    let end = inner_shared(&entry.body, b.kernel.static_shared);
    let dynamic = shared().filter(|v| v.external).map(|v| place_shared(end, v)).max();
    for v in shared().filter(|v| v.external) {
        b.bind(v.name, Symbol::Address(SHARED_BASE + dynamic.unwrap_or(end) as u64));
    }
    b.block(&entry.body)?;
    if b.kernel.static_shared != end {
        return Err(at(entry.line, "shared variables are declared in an unexpected order".into()));
    }
    if end > MAX_STATIC_SHARED {
        return Err(at(
            entry.line,
            format!("{end} bytes of shared variables: at most {MAX_STATIC_SHARED}, more only as dynamic shared memory"),
        ));
    }
    b.kernel.static_shared = dynamic.unwrap_or(end);
    joins(&mut b.kernel.code);
    Ok(b.kernel)
}

/// End of the shared variables declared inside of the kernel, when they start after `end` bytes.
fn inner_shared(body: &[Stmt<'_>], mut end: usize) -> usize {
    for s in body {
        match s {
            Stmt::Var(v) if v.space == ".shared" => end = place_shared(end, v) + v.size as usize,
            Stmt::Block(b) => end = inner_shared(b, end),
            Stmt::Var(_) | Stmt::Inst(_) | Stmt::Label(..) | Stmt::Reg(_) => {}
        }
    }
    end
}

/// Name of the operand that a branch jumps to.
pub(crate) fn branch_target<'a>(operands: &[Operand<'a>]) -> Option<&'a str> {
    match operands {
        [Operand::Name(name, 0)] => Some(name),
        _ => None,
    }
}

//! Parsing plans.

use super::expr::{self, Args, ParseTree};
use super::lex::Kind;
use super::output;
use super::parse::{Parsed, Parser, Scope, fault, shorten, suggest};
use super::parse_graph::{NO_INFO, attributes, entry_context, entry_name, entry_read, info, state};
use super::parse_kernel::{format, kernel, row_elem, vector_len};
use super::tap;
use crate::diag::Place;
use crate::graph::{BinaryOp, F32, Head, ModelInfo, Op, UnaryOp};
use crate::kernel::Kernel;
use crate::plan::{
    Buffer, Candidates, Launch, Operand, PackedWeight, Plan, PlanEntry, Regime, Slot, Storage, WeightExpr,
};
use crate::state::StateSpec;
use std::collections::HashMap;

/// Words that start a part of a plan, beside `info` and the words of its states.
const PLAN_WORDS: &[&str] = &["weight", "kernel", "slot", "entry", "regime"];

/// Whether a part of a plan starts so.
fn starts_part(kind: Kind, word: &str) -> bool {
    kind == Kind::Word && (word == "info" || PLAN_WORDS.contains(&word) || StateSpec::is_word(word))
}

/// The parts of a plan read so far.
#[derive(Default)]
struct Parts {
    info: Option<ModelInfo>,
    states: Vec<StateSpec>,
    weights: Vec<PackedWeight>,
    kernels: Vec<Kernel>,
    /// Index of each kernel; `None` if its text was wrong.
    names: HashMap<String, Option<usize>>,
    slots: Vec<Slot>,
    entries: Vec<PlanEntry>,
    regimes: Vec<Regime>,
    next_state: usize,
    next_weight: usize,
    next_slot: usize,
}

/// `plan "name" { … }`
pub(super) fn plan(p: &mut Parser) -> Parsed<Plan> {
    let head = p.mark();
    p.expect_word("plan")?;
    let name = p.string("the plan's name in quotes")?;
    let head = p.since(head);
    let mut parts = Parts::default();
    p.statements(starts_part, |p| statement(p, &mut parts))?;
    let lacks = |what: &str| fault("missing-part", head.clone(), format!("the plan has no `{what}`"));
    let info = match parts.info {
        Some(_) if parts.entries.is_empty() && !p.failed() => return Err(lacks("entry")),
        Some(info) => info,
        None if p.failed() => NO_INFO,
        None => return Err(lacks("info")),
    };
    let Parts { states, weights, kernels, slots, entries, regimes, .. } = parts;
    Ok(Plan { name, info, states, kernels, weights, slots, entries, regimes })
}

fn statement(p: &mut Parser, parts: &mut Parts) -> Parsed<()> {
    let first = p.peek().range();
    match p.peek_word() {
        "info" => {
            let info = info(p)?;
            if parts.info.replace(info).is_some() {
                return Err(fault("duplicate-name", first, "this part is given twice"));
            }
            Ok(())
        }
        word if StateSpec::is_word(word) => state(p, &mut parts.states, &mut parts.next_state),
        "weight" => weight(p, parts),
        "kernel" => kernel_of(p, parts),
        "slot" => slot(p, parts),
        "entry" => entry(p, &mut parts.entries),
        "regime" => {
            let regime = regime(p, parts)?;
            parts.regimes.push(regime);
            Ok(())
        }
        _ => Err(p.one_of("a part of a plan", PLAN_WORDS)),
    }
}

/// `entry @name { … }`
fn entry<'a>(p: &mut Parser<'a>, entries: &mut Vec<PlanEntry>) -> Parsed<()> {
    let (name, range) = entry_name(p)?;
    let context = entry_context(p)?;
    let mut entry = PlanEntry { name, outputs: vec![], candidates: None, taps: vec![], context };
    let starts = |kind, word: &str| {
        kind == Kind::Word && (["candidates", tap::WORD].contains(&word) || output::WORDS.contains(&word))
    };
    let slot = |p: &mut Parser<'a>| {
        p.expect_word("slot")?;
        p.size("the slot's number")
    };
    p.statements(starts, |p: &mut Parser<'a>| {
        let first = p.peek().range();
        if p.peek_word() == tap::WORD {
            entry.taps.push(tap::parse(p, slot)?);
            return Ok(());
        }
        if !p.eat_word("candidates") {
            return output::parse(p, &mut entry.outputs, slot);
        }
        let slot = slot(p)?;
        let k = p.field_size("k")?;
        match entry.candidates.replace(Candidates { slot, k }) {
            Some(_) => Err(fault("duplicate-name", first, "candidates are given twice")),
            None => Ok(()),
        }
    })?;
    let again = entries.iter().any(|e| e.name == entry.name);
    let name = entry.name.clone();
    entries.push(entry);
    entry_read(p, (&name, range), again, false)
}

/// `weight 0: matrix w4g32[512, 256] = expr`
fn weight(p: &mut Parser, parts: &mut Parts) -> Parsed<()> {
    let mark = p.mark();
    p.expect_word("weight")?;
    p.in_order("packed weights", &mut parts.next_weight)?;
    p.expect(b':')?;
    let storage = if p.eat_word("matrix") {
        let format = format(p)?;
        let (n, k) = p.matrix_dims()?;
        Storage::Matrix { n, k, format }
    } else if p.eat_word("vector") {
        Storage::Vector { len: vector_len(p)? }
    } else {
        return Err(p.one_of("the storage of the weight", &["matrix", "vector"]));
    };
    p.expect(b'=')?;
    let expr = expr::parse(p, &())?;
    let range = p.since(mark);
    p.places.insert(Place::PackedWeight { weight: parts.weights.len() }, range);
    parts.weights.push(PackedWeight { expr, storage });
    Ok(())
}

fn kernel_of(p: &mut Parser, parts: &mut Parts) -> Parsed<()> {
    // The name is entered even if the rest is wrong: launches of the kernel are no further errors.
    let second = p.peek_second();
    let name = (second.kind == Kind::Symbol).then(|| p.str_of(second).trim_start_matches('@').to_string());
    match kernel(p) {
        Ok(k) => {
            let again = parts.names.insert(k.name.clone(), Some(parts.kernels.len())).is_some();
            let message = format!("there is another kernel `@{}`", shorten(&k.name));
            parts.kernels.push(k);
            if again { Err(fault("duplicate-name", second.range(), message)) } else { Ok(()) }
        }
        Err(e) => {
            parts.names.extend(name.map(|n| (n, None)));
            Err(e)
        }
    }
}

/// `slot 0: per_token=… per_row=…`
fn slot(p: &mut Parser, parts: &mut Parts) -> Parsed<()> {
    let mark = p.mark();
    p.expect_word("slot")?;
    p.in_order("slots", &mut parts.next_slot)?;
    p.expect(b':')?;
    let slot = Slot { per_token: p.field_size("per_token")?, per_row: p.field_size("per_row")? };
    let range = p.since(mark);
    p.places.insert(Place::Slot { slot: parts.slots.len() }, range);
    parts.slots.push(slot);
    Ok(())
}

/// `regime @entry max_tokens=8 { … }`, `regime @entry any { … }`
fn regime<'a>(p: &mut Parser<'a>, parts: &Parts) -> Parsed<Regime> {
    let mark = p.mark();
    p.expect_word("regime")?;
    let (name, range) = p.symbol("the entry, `@name`")?;
    let entry = parts.entries.iter().position(|e| e.name == name);
    // Its error is reported once the rest was read.
    let unknown = || {
        let e = *fault("unknown-name", range.clone(), format!("no entry `@{}` before the regime", shorten(&name)));
        Box::new(suggest(e, &name, parts.entries.iter().map(|e| e.name.as_str())))
    };
    let max_tokens = match p.peek_word() {
        "any" => {
            p.next();
            None
        }
        "max_tokens" => Some(p.field_size("max_tokens")?),
        _ => return Err(p.one_of("the size of the steps", &["max_tokens", "any"])),
    };
    let number = parts.regimes.len();
    let range = p.since(mark);
    p.places.insert(Place::Regime { regime: number }, range);
    let mut reader = RegimeReader { parts, number, scope: Scope::new(), buffers: vec![], launches: vec![] };
    let starts = |kind, word: &str| kind == Kind::Word && matches!(word, "buffer" | "call");
    p.statements(starts, |p: &mut Parser<'a>| match p.peek_word() {
        "buffer" => reader.buffer(p),
        "call" => reader.launch(p),
        _ => Err(p.one_of("a part of a regime", &["buffer", "call"])),
    })?;
    let RegimeReader { buffers, launches, .. } = reader;
    Ok(Regime { entry: entry.ok_or_else(unknown)?, max_tokens, buffers, launches })
}

/// A regime being read.
struct RegimeReader<'p, 'a> {
    parts: &'p Parts,
    number: usize,
    scope: Scope<'a>,
    buffers: Vec<Buffer>,
    launches: Vec<Launch>,
}

impl<'a> RegimeReader<'_, 'a> {
    /// `buffer %0: f32[T, 256] in slot 0`
    fn buffer(&mut self, p: &mut Parser<'a>) -> Parsed<()> {
        let mark = p.mark();
        p.expect_word("buffer")?;
        let (label, range) = p.label("the buffer's number, `%n`")?;
        self.scope.define(label, range, self.buffers.len())?;
        p.expect(b':')?;
        let elem = row_elem(p)?;
        p.expect(b'[')?;
        let rows = p.dim()?;
        p.expect(b',')?;
        let cols = p.size("the number of columns")?;
        p.expect(b']')?;
        p.expect_word("in")?;
        p.expect_word("slot")?;
        let slot = p.size("the slot's number")?;
        let range = p.since(mark);
        p.places.insert(Place::Buffer { regime: self.number, buffer: self.buffers.len() }, range);
        self.buffers.push(Buffer { rows, cols, elem, slot });
        Ok(())
    }

    /// `call 3: @kernel(operand, …)`
    fn launch(&mut self, p: &mut Parser<'a>) -> Parsed<()> {
        let mark = p.mark();
        p.expect_word("call")?;
        let call = p.size("the number of the step's call")?;
        p.expect(b':')?;
        let (name, range) = p.symbol("a kernel, `@name`")?;
        p.expect(b'(')?;
        let operands = p.list(b')', |p| self.operand(p))?;
        let kernel = match self.parts.names.get(name.as_ref()) {
            Some(Some(kernel)) => *kernel,
            Some(None) => return Ok(()),
            None => {
                let e = *fault("unknown-name", range, format!("no kernel `@{}` before the regime", shorten(&name)));
                return Err(Box::new(suggest(e, &name, self.parts.names.keys().map(String::as_str))));
            }
        };
        let place = Place::Launch { regime: self.number, launch: self.launches.len(), kernel: name.into_owned() };
        let range = p.since(mark);
        p.places.insert(place, range);
        self.launches.push(Launch { kernel, operands, call });
        Ok(())
    }

    fn operand(&self, p: &mut Parser<'a>) -> Parsed<Operand> {
        if p.eat_word("weight") {
            return Ok(Operand::Weight(p.size("the weight's number")?));
        }
        if StateSpec::is_word(p.peek_word()) {
            p.next();
            return Ok(Operand::State(p.size("the state's number")?));
        }
        let (label, range) = p.label("an operand: `%buffer`, `weight n`, `kv n` or `state n`")?;
        Ok(Operand::Buffer(self.scope.find(&label, range)?))
    }
}

impl<'a> ParseTree<'a> for WeightExpr {
    type Scope = ();

    fn specials() -> Vec<&'static str> {
        std::iter::once("weight").chain(Head::names().into_iter().filter(|name| call(name).is_some())).collect()
    }

    fn constant(value: F32) -> WeightExpr {
        WeightExpr::Op(Op::Const { value }, vec![])
    }

    fn unary(op: UnaryOp, x: WeightExpr) -> WeightExpr {
        WeightExpr::Op(Op::Unary(op), vec![x])
    }

    fn binary(op: BinaryOp, a: WeightExpr, b: WeightExpr) -> WeightExpr {
        WeightExpr::Op(Op::Binary(op), vec![a, b])
    }

    fn special(p: &mut Parser<'a>, _: &(), args: &mut Args<'_, 'a, WeightExpr>) -> Parsed<WeightExpr> {
        let word = p.peek();
        let name = p.peek_word();
        if p.eat_word("weight") {
            return Ok(WeightExpr::Weight(p.size("the weight's number")?));
        }
        let Some(head) = call(name) else { return Err(expr::no_expression::<WeightExpr>(p)) };
        p.next();
        let op = attributes(p, head, word)?;
        let facts = head.facts();
        Ok(WeightExpr::Op(op, if facts.variadic { args.list(p)? } else { args.counted(p, name, facts.args.len())? }))
    }
}

/// The operation of this name, if weights are computed by it and it is written as a call (constants
/// are written as numbers).
fn call(name: &str) -> Option<Head> {
    Head::parse(name).filter(|head| head.packs() && *head != Head::Const)
}

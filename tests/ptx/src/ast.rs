//! Syntax of PTX text, before names are resolved.

use crate::error::{Error, at};
use crate::lex::{Tok, Token};

/// Type of a register: its width in bits, 1 for predicates.
pub(crate) type Width = u32;

/// Most bytes of a variable, and largest alignment.
const MAX_VARIABLE: u64 = 1 << 32;

/// A variable of the module or of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Var<'a> {
    pub space: &'a str,
    pub name: &'a str,
    pub align: u64,
    /// Bytes; 0 for `name[]`.
    pub size: u64,
    pub init: Vec<u8>,
    pub external: bool,
}

/// `.reg` declaration: one name, or `count` names `name0..`.
#[derive(Clone, Debug)]
pub(crate) struct RegDecl<'a> {
    pub name: &'a str,
    pub count: Option<u64>,
    pub width: Width,
}

/// An operand as written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand<'a> {
    Name(&'a str, i64),
    Int(i128),
    F32(u32),
    F64(u64),
    /// `[base + offset]`; the base is a name, or nothing. The coordinates are written as in `[map,
    /// {x, y}]`.
    Mem(Option<&'a str>, i64, Vec<Operand<'a>>),
    Vec(Vec<Operand<'a>>),
    /// `a|b`.
    Pair(Box<Operand<'a>>, Box<Operand<'a>>),
    Not(Box<Operand<'a>>),
    /// `_`.
    Sink,
}

/// An instruction as written.
#[derive(Clone, Debug)]
pub(crate) struct Raw<'a> {
    pub line: u32,
    /// Guard register, and whether it is negated.
    pub guard: Option<(&'a str, bool)>,
    pub opcode: &'a str,
    pub operands: Vec<Operand<'a>>,
    /// Source text of the instruction.
    pub text: &'a str,
}

/// A statement of a kernel body.
#[derive(Clone, Debug)]
pub(crate) enum Stmt<'a> {
    Inst(Raw<'a>),
    Label(&'a str, u32),
    Reg(RegDecl<'a>),
    Var(Var<'a>),
    Block(Vec<Stmt<'a>>),
}

/// A kernel as written.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub name: &'a str,
    pub line: u32,
    pub params: Vec<Var<'a>>,
    pub max_threads: Option<[u32; 3]>,
    pub exact_threads: Option<[u32; 3]>,
    pub body: Vec<Stmt<'a>>,
}

/// A module as written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit<'a> {
    pub target: &'a str,
    pub version: String,
    pub vars: Vec<Var<'a>>,
    pub entries: Vec<Entry<'a>>,
}

/// Bytes of a scalar type such as `.b32`, or none.
pub(crate) fn type_bytes(t: &str) -> Option<u64> {
    let t = t.trim_start_matches('.');
    Some(match t {
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        "b128" => 16,
        _ => return None,
    })
}

/// Reads tokens.
pub(crate) struct Parser<'a> {
    toks: Vec<Token<'a>>,
    text: &'a str,
    pos: usize,
}

type Res<T> = Result<T, Error>;

impl<'a> Parser<'a> {
    pub fn new(text: &'a str, toks: Vec<Token<'a>>) -> Self {
        Parser { toks, text, pos: 0 }
    }

    fn line(&self) -> u32 {
        self.toks.get(self.pos.min(self.toks.len().saturating_sub(1))).map_or(1, |t| t.line)
    }

    fn peek(&self) -> Option<Tok<'a>> {
        self.toks.get(self.pos).map(|t| t.tok)
    }

    fn next(&mut self) -> Res<Tok<'a>> {
        let t = self.peek().ok_or_else(|| at(self.line(), "the text ends in the middle of something".into()))?;
        self.pos += 1;
        Ok(t)
    }

    fn eat(&mut self, c: char) -> bool {
        let hit = self.peek() == Some(Tok::Punct(c));
        self.pos += usize::from(hit);
        hit
    }

    fn eat_word(&mut self, w: &str) -> bool {
        let hit = self.peek() == Some(Tok::Word(w));
        self.pos += usize::from(hit);
        hit
    }

    fn expect(&mut self, c: char) -> Res<()> {
        let line = self.line();
        if self.eat(c) { Ok(()) } else { Err(at(line, format!("expected {c:?}, found {:?}", self.peek()))) }
    }

    fn word(&mut self) -> Res<&'a str> {
        let line = self.line();
        match self.next()? {
            Tok::Word(w) => Ok(w),
            t => Err(at(line, format!("expected a name, found {t:?}"))),
        }
    }

    fn int(&mut self) -> Res<u64> {
        let line = self.line();
        match self.next()? {
            Tok::Int(v) => Ok(v),
            t => Err(at(line, format!("expected a number, found {t:?}"))),
        }
    }

    /// Skips to after the next `;`.
    fn skip_statement(&mut self) -> Res<()> {
        while self.next()? != Tok::Punct(';') {}
        Ok(())
    }

    /// The whole text.
    pub fn unit(&mut self) -> Res<Unit<'a>> {
        let mut unit = Unit::default();
        while let Some(tok) = self.peek() {
            let line = self.line();
            match tok {
                Tok::Word(".version") => {
                    self.pos += 1;
                    unit.version = match self.next()? {
                        Tok::F64(b) => format!("{:.1}", f64::from_bits(b)),
                        t => return Err(at(line, format!("expected a version, found {t:?}"))),
                    };
                }
                Tok::Word(".target") => {
                    self.pos += 1;
                    unit.target = self.word()?;
                    while self.eat(',') {
                        self.word()?;
                    }
                }
                Tok::Word(".address_size") => {
                    self.pos += 1;
                    if self.int()? != 64 {
                        return Err(at(line, "only 64-bit addresses are emulated".into()));
                    }
                }
                Tok::Word(".file") => {
                    self.pos += 3;
                }
                Tok::Word(".section") => return Ok(unit),
                _ => self.top_level(&mut unit)?,
            }
        }
        Ok(unit)
    }

    /// A kernel or a variable, with its linkage.
    fn top_level(&mut self, unit: &mut Unit<'a>) -> Res<()> {
        let line = self.line();
        let mut external = false;
        loop {
            match self.peek() {
                Some(Tok::Word(".visible" | ".weak" | ".common")) => self.pos += 1,
                Some(Tok::Word(".extern")) => {
                    external = true;
                    self.pos += 1;
                }
                Some(Tok::Word(".entry")) => {
                    let entry = self.entry()?;
                    unit.entries.push(entry);
                    return Ok(());
                }
                Some(Tok::Word(".shared" | ".global" | ".const")) => {
                    let var = self.var(external)?;
                    unit.vars.push(var);
                    return Ok(());
                }
                t => return Err(at(line, format!("not a kernel or a variable that is emulated: {t:?}"))),
            }
        }
    }

    /// `.space .align N .type name[size] = {..};` (the space is next); kernel parameters end with
    /// `,` or `)` instead.
    fn var(&mut self, external: bool) -> Res<Var<'a>> {
        let var = self.var_head(external)?;
        self.expect(';')?;
        Ok(var)
    }

    fn var_head(&mut self, external: bool) -> Res<Var<'a>> {
        let line = self.line();
        let space = self.word()?;
        let (mut align, mut unit) = (0, 0);
        let name = loop {
            let w = self.word()?;
            match w {
                ".align" => align = self.int()?,
                ".ptr" | ".global" | ".shared" | ".const" | ".local" | ".attribute" => {}
                _ if !w.starts_with('.') => break w,
                _ => unit = type_bytes(w).ok_or_else(|| at(line, format!("unknown type {w}")))?,
            }
            // `.ptr .global .align 16` describes the pointer's target, not the parameter.
            if w == ".ptr" {
                self.pos +=
                    usize::from(matches!(self.peek(), Some(Tok::Word(".global" | ".shared" | ".const" | ".local"))));
                if self.eat_word(".align") {
                    self.int()?;
                }
            }
        };
        if unit == 0 {
            return Err(at(line, format!("variable {name} has no type")));
        }
        let mut count = 1u64;
        while self.eat('[') {
            count = count.saturating_mul(if self.peek() == Some(Tok::Punct(']')) { 0 } else { self.int()? });
            self.expect(']')?;
        }
        let mut init = Vec::new();
        if self.eat('=') {
            self.initialiser(unit, &mut init)?;
        }
        let size = count
            .checked_mul(unit)
            .filter(|s| *s <= MAX_VARIABLE && align <= MAX_VARIABLE)
            .ok_or_else(|| at(line, format!("variable {name} is too large")))?;
        if init.len() as u64 > size {
            return Err(at(line, format!("initialiser of {name} is longer than it")));
        }
        Ok(Var { space, name, align: align.max(unit), size, init, external })
    }

    fn initialiser(&mut self, unit: u64, out: &mut Vec<u8>) -> Res<()> {
        let line = self.line();
        if self.eat('{') {
            loop {
                self.initialiser(unit, out)?;
                if !self.eat(',') {
                    return self.expect('}');
                }
            }
        }
        let bytes = match self.operand()? {
            Operand::Int(v) => v.to_le_bytes(),
            Operand::F32(v) => u128::from(v).to_le_bytes(),
            Operand::F64(v) => u128::from(v).to_le_bytes(),
            o => return Err(at(line, format!("initialisers with {o:?} are not emulated"))),
        };
        out.extend_from_slice(&bytes[..unit as usize]);
        Ok(())
    }

    fn entry(&mut self) -> Res<Entry<'a>> {
        let line = self.line();
        self.pos += 1;
        let name = self.word()?;
        let mut e = Entry { name, line, params: Vec::new(), max_threads: None, exact_threads: None, body: Vec::new() };
        if self.eat('(') && !self.eat(')') {
            loop {
                e.params.push(self.var_head(false)?);
                if !self.eat(',') {
                    self.expect(')')?;
                    break;
                }
            }
        }
        loop {
            let line = self.line();
            match self.next()? {
                Tok::Word(".maxntid") => e.max_threads = Some(self.dims()?),
                Tok::Word(".reqntid") => e.exact_threads = Some(self.dims()?),
                Tok::Word(".minnctapersm" | ".maxnreg" | ".maxnctapersm" | ".maxclusterrank") => {
                    self.int()?;
                }
                Tok::Word(".explicitcluster") => {}
                Tok::Word(".reqnctapercluster") => {
                    if self.dims()? != [1; 3] {
                        return Err(at(line, "clusters of more than one block are not emulated".into()));
                    }
                }
                Tok::Word(".pragma") => self.skip_statement()?,
                Tok::Punct('{') => break,
                t => return Err(at(line, format!("unknown property of kernel {name}: {t:?}"))),
            }
        }
        e.body = self.block()?;
        Ok(e)
    }

    fn dims(&mut self) -> Res<[u32; 3]> {
        let mut dims = [1; 3];
        for (i, d) in dims.iter_mut().enumerate() {
            if i > 0 && !self.eat(',') {
                break;
            }
            *d = u32::try_from(self.int()?).unwrap_or(u32::MAX);
        }
        Ok(dims)
    }

    /// Statements up to the closing brace.
    fn block(&mut self) -> Res<Vec<Stmt<'a>>> {
        let mut out = Vec::new();
        loop {
            let line = self.line();
            match self.peek() {
                Some(Tok::Punct('}')) => {
                    self.pos += 1;
                    return Ok(out);
                }
                Some(Tok::Punct('{')) => {
                    self.pos += 1;
                    out.push(Stmt::Block(self.block()?));
                }
                Some(Tok::Punct(';')) => self.pos += 1,
                Some(Tok::Word(".reg")) => self.reg_decl(&mut out)?,
                Some(Tok::Word(".shared" | ".local")) => out.push(Stmt::Var(self.var(false)?)),
                Some(Tok::Word(".pragma")) => self.skip_statement()?,
                Some(Tok::Word(".loc")) => {
                    self.pos += 1;
                    while matches!(self.peek(), Some(Tok::Int(_))) {
                        self.pos += 1;
                    }
                }
                Some(Tok::Word(w)) if self.toks.get(self.pos + 1).map(|t| t.tok) == Some(Tok::Punct(':')) => {
                    self.pos += 2;
                    out.push(Stmt::Label(w, line));
                }
                Some(Tok::Word(_) | Tok::Punct('@')) => out.push(Stmt::Inst(self.inst()?)),
                Some(t) => return Err(at(line, format!("not a statement: {t:?}"))),
                None => return Err(at(line, "the kernel does not end".into())),
            }
        }
    }

    fn reg_decl(&mut self, out: &mut Vec<Stmt<'a>>) -> Res<()> {
        self.pos += 1;
        let line = self.line();
        let ty = self.word()?;
        let width = match ty {
            ".pred" => 1,
            _ => 8 * type_bytes(ty).ok_or_else(|| at(line, format!("unknown register type {ty}")))? as u32,
        };
        loop {
            let name = self.word()?;
            let mut count = None;
            if self.eat('<') {
                count = Some(self.int()?);
                self.expect('>')?;
            }
            out.push(Stmt::Reg(RegDecl { name, count, width }));
            if !self.eat(',') {
                return self.expect(';');
            }
        }
    }

    fn inst(&mut self) -> Res<Raw<'a>> {
        let line = self.line();
        let start = self.toks[self.pos].start;
        let mut guard = None;
        if self.eat('@') {
            let negated = self.eat('!');
            guard = Some((self.word()?, negated));
        }
        let opcode = self.word()?;
        let mut operands = Vec::new();
        if self.peek() != Some(Tok::Punct(';')) {
            loop {
                operands.push(self.operand()?);
                if !self.eat(',') {
                    break;
                }
            }
        }
        let end = self.toks.get(self.pos).map_or(self.text.len(), |t| t.start);
        self.expect(';')?;
        Ok(Raw { line, guard, opcode, operands, text: self.text[start..end].trim() })
    }

    fn operand(&mut self) -> Res<Operand<'a>> {
        let first = self.simple_operand()?;
        if self.eat('|') {
            let second = self.simple_operand()?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    fn simple_operand(&mut self) -> Res<Operand<'a>> {
        let line = self.line();
        Ok(match self.next()? {
            Tok::Word("_") => Operand::Sink,
            Tok::Word(w) => Operand::Name(w, self.offset()?),
            Tok::Int(v) => Operand::Int(i128::from(v)),
            Tok::F32(v) => Operand::F32(v),
            Tok::F64(v) => Operand::F64(v),
            Tok::Punct('-') => match self.simple_operand()? {
                Operand::Int(v) => Operand::Int(-v),
                Operand::F64(v) => Operand::F64(v ^ (1 << 63)),
                o => return Err(at(line, format!("cannot negate {o:?}"))),
            },
            Tok::Punct('!') => Operand::Not(Box::new(self.simple_operand()?)),
            Tok::Punct('{') => {
                let mut items = Vec::new();
                loop {
                    items.push(self.operand()?);
                    if !self.eat(',') {
                        break;
                    }
                }
                self.expect('}')?;
                Operand::Vec(items)
            }
            Tok::Punct('[') => self.address(line)?,
            t => return Err(at(line, format!("not an operand: {t:?}"))),
        })
    }

    fn address(&mut self, line: u32) -> Res<Operand<'a>> {
        let (base, off) = match self.simple_operand()? {
            Operand::Name(n, off) => (Some(n), off),
            Operand::Int(v) => (None, v as i64),
            o => return Err(at(line, format!("not an address: {o:?}"))),
        };
        let mut coords = Vec::new();
        if self.eat(',') {
            coords.push(self.simple_operand()?);
        }
        self.expect(']')?;
        Ok(Operand::Mem(base, off, coords))
    }

    /// `+4`, `+-4`, `-4` after a name, or nothing.
    fn offset(&mut self) -> Res<i64> {
        let plus = self.eat('+');
        let minus = self.eat('-');
        if !plus && !minus {
            return Ok(0);
        }
        let v = self.int()? as i64;
        Ok(if minus { v.wrapping_neg() } else { v })
    }
}

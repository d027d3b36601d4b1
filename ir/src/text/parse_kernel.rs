//! Parsing kernels.

use super::expr::{self, Args, ParseTree};
use super::lex::Kind;
use super::parse::{Label, Parsed, Parser, Scope, fault};
use crate::diag::Place;
use crate::graph::{BinaryOp, F32, UnaryOp};
use crate::kernel::{
    Body, Expr, Kernel, Norm, Param, ParamId, ParamKind, Pointwise, Prologue, RowElem, Segment, Store,
};
use crate::quant::{FORMATS, Format};
use crate::state::StateSpec;
use crate::ty::Dim;

/// `kernel @name rows T { param … body }`
pub(super) fn kernel(p: &mut Parser) -> Parsed<Kernel> {
    p.expect_word("kernel")?;
    let (name, range) = p.symbol("the kernel's name, `@name`")?;
    let name = name.into_owned();
    p.expect_word("rows")?;
    let rows = p.dim()?;
    p.places.insert(Place::Kernel { kernel: name.clone() }, range.clone());
    let mut k = KernelReader { kernel: name, scope: Scope::new(), params: vec![] };
    let mut body: Option<Body> = None;
    p.statements(
        |kind, word| kind == Kind::Word && (word == "param" || Body::is_name(word)),
        |p| {
            if p.peek_word() == "param" {
                return k.param(p);
            }
            let first = p.peek().range();
            let read = k.body(p)?;
            match body.replace(read) {
                None => Ok(()),
                Some(_) => Err(fault("duplicate-name", first, "a kernel has one computation")),
            }
        },
    )?;
    let body = match body {
        Some(body) => body,
        None if p.failed() => Body::Pointwise(Pointwise { segments: vec![] }),
        None => {
            return Err(fault(
                "missing-part",
                range,
                format!("the kernel computes nothing: it needs one of {}", Body::NAMES.join(", ")),
            ));
        }
    };
    Ok(Kernel { name: k.kernel, rows, params: k.params, body })
}

/// Storage of rows: `f32`, `q8g32`, `i8g32`, `f16`, `bf16`, `fp8`.
pub(super) fn row_elem(p: &mut Parser) -> Parsed<RowElem> {
    let word = p.peek_word();
    let Some(elem) = RowElem::parse(word) else {
        return Err(p.unexpected(
            "the storage of rows: `f32`, `f16`, `bf16`, `fp8`, or `q8g32` for int8 in groups of 32, \
             `i8g32` for integers",
        ));
    };
    p.next();
    Ok(elem)
}

/// `round=f16`, the part of a prologue.
fn round(p: &mut Parser) -> Parsed<RowElem> {
    p.expect_word("round")?;
    p.expect(b'=')?;
    let first = p.peek().range();
    let elem = row_elem(p)?;
    if elem.is_half() || elem.by_row() || matches!(elem, RowElem::I8 { .. }) {
        Ok(elem)
    } else {
        Err(fault("syntax", first, "a prologue rounds to `f16`, `bf16`, `fp8` or `i8g32`"))
    }
}

/// Storage of a packed matrix: `bf16`, `w4g32`.
pub(super) fn format(p: &mut Parser) -> Parsed<Format> {
    let Some(format) = Format::parse(p.peek_word()) else {
        let names: Vec<String> =
            FORMATS.iter().map(|d| format!("`{}{}`", d.name, if d.groups.len() == 1 { "" } else { "g32" })).collect();
        return Err(p.unexpected(format_args!("a storage format, such as {}, `w4g32.frag`", names.join(", "))));
    };
    p.next();
    Ok(format)
}

/// `f32[n]`, the word `vector` already read.
pub(super) fn vector_len(p: &mut Parser) -> Parsed<usize> {
    p.expect_word("f32")?;
    p.expect(b'[')?;
    let len = p.size("the vector's length")?;
    p.expect(b']')?;
    Ok(len)
}

/// A kernel being read.
pub(crate) struct KernelReader<'a> {
    kernel: String,
    scope: Scope<'a>,
    params: Vec<Param>,
}

impl<'a> KernelReader<'a> {
    /// `param %x: kind`
    fn param(&mut self, p: &mut Parser<'a>) -> Parsed<()> {
        p.expect_word("param")?;
        let (name, range) = p.value_name("an operand, `%name`")?;
        p.places.insert(Place::KernelParam { kernel: self.kernel.clone(), param: name.to_string() }, range.clone());
        self.scope.define(Label::Name(name.clone()), range, self.params.len())?;
        p.expect(b':')?;
        let kind = kind(p)?;
        self.params.push(Param { name: name.into_owned(), kind });
        Ok(())
    }

    fn operand(&self, p: &mut Parser<'a>) -> Parsed<ParamId> {
        operand(p, &self.scope)
    }

    /// `name=%operand`
    pub fn field(&self, p: &mut Parser<'a>, name: &str) -> Parsed<ParamId> {
        p.expect_word(name)?;
        p.expect(b'=')?;
        self.operand(p)
    }

    /// `name=%operand`, or nothing.
    pub fn optional_field(&self, p: &mut Parser<'a>, name: &str) -> Parsed<Option<ParamId>> {
        if p.peek_word() == name { self.field(p, name).map(Some) } else { Ok(None) }
    }

    fn body(&self, p: &mut Parser<'a>) -> Parsed<Body> {
        let name = p.peek_word();
        if !Body::is_name(name) {
            return Err(p.one_of("`param` or a computation", Body::NAMES));
        }
        p.next();
        Body::read(name, self, p).unwrap_or_else(|| Err(p.unexpected("a computation")))
    }

    /// `norm{…}`, or nothing.
    pub fn optional_norm(&self, p: &mut Parser<'a>) -> Parsed<Option<Norm>> {
        if p.peek_word() == "norm" { norm(p).map(Some) } else { Ok(None) }
    }

    /// `prologue{norm{…}, gain=%g, bias=%b, quant=32}`, or `round=f16` in place of `quant`.
    pub fn prologue(&self, p: &mut Parser<'a>) -> Parsed<Prologue> {
        p.expect_word("prologue")?;
        p.expect(b'{')?;
        let mut prologue = Prologue::plain(RowElem::F32);
        p.list(b'}', |p| {
            let first = p.peek().range();
            let again = match p.peek_word() {
                "norm" => prologue.norm.replace(norm(p)?).is_some(),
                "gain" => prologue.gain.replace(self.field(p, "gain")?).is_some(),
                "bias" => prologue.bias.replace(self.field(p, "bias")?).is_some(),
                "quant" => {
                    let elem = RowElem::Q8 { group: p.field_size("quant")? };
                    std::mem::replace(&mut prologue.elem, elem) != RowElem::F32
                }
                "round" => std::mem::replace(&mut prologue.elem, round(p)?) != RowElem::F32,
                _ => return Err(p.one_of("a part of a prologue", &["norm", "gain", "bias", "quant", "round"])),
            };
            if again { Err(fault("duplicate-name", first, "a prologue has each part once")) } else { Ok(()) }
        })?;
        Ok(prologue)
    }

    /// `{ segment… }`
    pub fn segments(&self, p: &mut Parser<'a>) -> Parsed<Vec<Segment>> {
        let mut segments = vec![];
        p.statements(
            |_, word| word == "segment",
            |p| {
                let mark = p.mark();
                let segment = self.segment(p)?;
                let range = p.since(mark);
                p.places.insert(Place::Segment { kernel: self.kernel.clone(), segment: segments.len() }, range);
                segments.push(segment);
                Ok(())
            },
        )?;
        Ok(segments)
    }

    /// `{ segment }`
    pub fn one_segment(&self, p: &mut Parser<'a>) -> Parsed<Segment> {
        let first = p.peek().range();
        let mut all = self.segments(p)?;
        match (all.pop(), all.is_empty()) {
            (Some(one), true) => Ok(one),
            _ => Err(fault("missing-part", first, "the kernel has one segment")),
        }
    }

    /// `segment n=… tile_n=… weights(%w, …): store = expr`
    fn segment(&self, p: &mut Parser<'a>) -> Parsed<Segment> {
        p.expect_word("segment")?;
        let n = p.field_size("n")?;
        let tile_n = p.field_size("tile_n")?;
        let weights = if p.eat_word("weights") {
            p.expect(b'(')?;
            p.list(b')', |p| self.operand(p))?
        } else {
            vec![]
        };
        p.expect(b':')?;
        let store = if p.eat_word("key") {
            Store::KvKey(self.operand(p)?)
        } else if p.eat_word("value") {
            Store::KvValue(self.operand(p)?)
        } else if p.peek().kind == Kind::Value {
            let param = self.operand(p)?;
            Store::Rows { param, start: columns_from(p)? }
        } else {
            return Err(p.unexpected("a destination: `%rows[0..]`, `key %kv` or `value %kv`"));
        };
        p.expect(b'=')?;
        Ok(Segment { n, weights, tile_n, expr: expr::parse(p, &self.scope)?, store })
    }
}

fn operand<'a>(p: &mut Parser<'a>, scope: &Scope<'a>) -> Parsed<ParamId> {
    let (name, range) = p.value_name("an operand, `%name`")?;
    scope.find(&Label::Name(name), range)
}

/// `name=%operand`
fn named<'a>(p: &mut Parser<'a>, scope: &Scope<'a>, name: &str) -> Parsed<ParamId> {
    p.expect_word(name)?;
    p.expect(b'=')?;
    operand(p, scope)
}

fn kind(p: &mut Parser) -> Parsed<ParamKind> {
    if p.eat_word("rows") {
        let elem = row_elem(p)?;
        p.expect(b'[')?;
        let rows: Dim = p.dim()?;
        p.expect(b',')?;
        let cols = p.size("the number of columns")?;
        p.expect(b']')?;
        return Ok(ParamKind::Rows { rows, cols, elem });
    }
    if p.eat_word("matrix") {
        let format = format(p)?;
        let (n, k) = p.matrix_dims()?;
        return Ok(ParamKind::Matrix { n, k, format });
    }
    if p.eat_word("vector") {
        return Ok(ParamKind::Vector { len: vector_len(p)? });
    }
    if let Some(state) = StateSpec::read(p) {
        return Ok(ParamKind::State(state?));
    }
    let kinds = [&["rows", "matrix", "vector"], StateSpec::WORDS].concat();
    Err(p.one_of("a kind of operand", &kinds))
}

/// `norm{eps=1e-5, width=256}`, or `center` after the width.
fn norm(p: &mut Parser) -> Parsed<Norm> {
    p.expect_word("norm")?;
    p.expect(b'{')?;
    let eps = p.field_real("eps")?;
    p.expect(b',')?;
    let width = p.field_size("width")?;
    let center = p.eat(b',');
    if center {
        p.expect_word("center")?;
    }
    p.expect(b'}')?;
    Ok(Norm { eps, width, center })
}

/// `[start..]`
fn columns_from(p: &mut Parser) -> Parsed<usize> {
    p.expect(b'[')?;
    let start = p.size("the first column, as in `[0..]`")?;
    p.expect_kind(Kind::Range, "`..`")?;
    p.expect(b']')?;
    Ok(start)
}

/// `pick{rows=%x, order=%v}`
fn picked<'a>(p: &mut Parser<'a>, scope: &Scope<'a>) -> Parsed<Expr> {
    p.next();
    p.expect(b'{')?;
    let rows = named(p, scope, "rows")?;
    p.expect(b',')?;
    let order = named(p, scope, "order")?;
    p.expect(b'}')?;
    Ok(Expr::Pick { rows, order })
}

impl<'a> ParseTree<'a> for Expr {
    type Scope = Scope<'a>;

    fn specials() -> Vec<&'static str> {
        vec!["acc0", "norm", "rope", "expert", "combine"]
    }

    fn constant(x: F32) -> Expr {
        Expr::Const(x)
    }

    fn unary(op: UnaryOp, x: Expr) -> Expr {
        Expr::Unary(op, Box::new(x))
    }

    fn binary(op: BinaryOp, a: Expr, b: Expr) -> Expr {
        Expr::Binary(op, Box::new(a), Box::new(b))
    }

    fn special(p: &mut Parser<'a>, scope: &Scope<'a>, args: &mut Args<'_, 'a, Expr>) -> Parsed<Expr> {
        if p.peek().kind == Kind::Value {
            let param = operand(p, scope)?;
            let rows = p.peek().kind == Kind::Punct(b'[');
            return Ok(if rows { Expr::Rows { param, start: columns_from(p)? } } else { Expr::Vector(param) });
        }
        let word = p.peek_word();
        if let Some(Ok(lane)) = word.strip_prefix("acc").map(str::parse) {
            p.next();
            return Ok(Expr::Acc(lane));
        }
        match word {
            "norm" => {
                let norm = norm(p)?;
                let [x] = args.exactly(p, word)?;
                Ok(Expr::Normalize(norm, Box::new(x)))
            }
            "rope" => {
                p.next();
                p.expect(b'{')?;
                let head_dim = p.field_size("head_dim")?;
                p.expect(b',')?;
                let table = named(p, scope, "table")?;
                p.expect(b'}')?;
                let [x] = args.exactly(p, word)?;
                Ok(Expr::Rope { head_dim, table, x: Box::new(x) })
            }
            "expert" => {
                p.next();
                p.expect(b'{')?;
                let vector = named(p, scope, "vector")?;
                p.expect(b',')?;
                let routes = named(p, scope, "routes")?;
                p.expect(b',')?;
                let top = p.field_size("top")?;
                p.expect(b'}')?;
                Ok(Expr::Expert { vector, routes, top })
            }
            "pick" => picked(p, scope),
            "combine" => {
                p.next();
                p.expect(b'{')?;
                let weights = named(p, scope, "weights")?;
                let from = columns_from(p)?;
                p.expect(b',')?;
                let y = named(p, scope, "y")?;
                p.expect(b',')?;
                let count = p.field_size("count")?;
                p.expect(b'}')?;
                Ok(Expr::Combine { weights, from, y, count })
            }
            _ => Err(expr::no_expression::<Expr>(p)),
        }
    }
}

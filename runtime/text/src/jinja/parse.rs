//! Tokens to trees: statements. Expressions are in `expr`.

#[path = "expr.rs"]
mod expr;

use std::collections::HashMap;

use super::ast::{Args, Expr, For, Macro, Name, Post, Program, SPECIAL, Stmt, StmtKind, Target};
use super::lex::{Token, lex};
use super::{Error, Kind, Result, known};

/// Bytes of a template; real ones have up to 30 thousand.
const LONGEST: usize = 1 << 20;
/// Brackets, blocks and conditionals inside each other.
const DEEPEST: usize = 100;

/// Parses `source`.
pub fn parse(source: &str) -> Result<Program> {
    if source.len() > LONGEST {
        return Err(Error::limit(format!("a template of {} bytes is too long (at most {LONGEST})", source.len())));
    }
    // Names that the interpreter itself gives values come first.
    let program = Program { names: SPECIAL.map(str::to_owned).to_vec(), ..Program::default() };
    let ids = SPECIAL.iter().zip(0..).map(|(name, id)| ((*name).to_owned(), id)).collect();
    let tokens = lex(source)?;
    let mut parser = Parser { tokens, at: 0, depth: 0, loops: 0, uses: [false; 4], unknown: Vec::new(), program, ids };
    let (body, _) = parser.body(&[])?;
    parser.program.body = body;
    parser.unknown.into_iter().next().map_or(Ok(parser.program), Err)
}

struct Parser {
    tokens: Vec<(Token, u32)>,
    at: usize,
    depth: usize,
    /// Loops around the current place, for `break` and `continue`.
    loops: usize,
    /// Which special names the current macro uses.
    uses: [bool; 4],
    /// Filters and tests that do not exist, outside of conditionals.
    unknown: Vec<Error>,
    program: Program,
    ids: HashMap<String, Name>,
}

impl Parser {
    /// The tokens end with [`Token::End`], which is never passed.
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |t| &t.0)
    }

    fn peek_second(&self) -> &Token {
        self.tokens.get(self.at + 1).map_or(&Token::End, |t| &t.0)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(0, |t| t.1)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn error<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(Error::new(Kind::Syntax, what).at(self.line()))
    }

    fn unexpected<T>(&self, wanted: &str) -> Result<T> {
        let found = match self.peek() {
            Token::Text(_) => "text".into(),
            Token::VarBegin => "`{{`".into(),
            Token::VarEnd => "`}}`".into(),
            Token::BlockBegin => "`{%`".into(),
            Token::BlockEnd => "`%}`".into(),
            Token::Name(name) => format!("`{name}`"),
            Token::Op(op) => format!("`{op}`"),
            Token::Str(_) | Token::Int(_) | Token::Float(_) => "a constant".into(),
            Token::End => "the end".into(),
        };
        self.error(format!("expected {wanted}, found {found}"))
    }

    fn is_op(&self, op: &str) -> bool {
        matches!(self.peek(), Token::Op(found) if *found == op)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Token::Name(found) if found == name)
    }

    /// Takes the operator if it is there.
    fn op(&mut self, op: &str) -> bool {
        let is = self.is_op(op);
        self.at += usize::from(is);
        is
    }

    fn name(&mut self, name: &str) -> bool {
        let is = self.is_name(name);
        self.at += usize::from(is);
        is
    }

    fn need_op(&mut self, op: &str) -> Result<()> {
        if self.op(op) { Ok(()) } else { self.unexpected(&format!("`{op}`")) }
    }

    fn any_name(&mut self) -> Result<String> {
        match self.peek() {
            Token::Name(_) => match self.next() {
                Token::Name(name) => Ok(name),
                _ => self.unexpected("a name"),
            },
            _ => self.unexpected("a name"),
        }
    }

    fn block_end(&mut self) -> Result<()> {
        if matches!(self.peek(), Token::BlockEnd) {
            self.at += 1;
            return Ok(());
        }
        self.unexpected("`%}`")
    }

    /// Runs `f` one level deeper.
    fn deeper<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= DEEPEST {
            return Err(Error::limit(format!("nested more than {DEEPEST} levels deep")).at(self.line()));
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    fn intern(&mut self, name: &str) -> Name {
        if let Some(found) = self.ids.get(name) {
            return *found;
        }
        let id = self.program.names.len() as Name;
        self.program.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }

    /// Statements up to a tag named in `ends`, whose name is taken and returned; without `ends`, up
    /// to the end.
    fn body(&mut self, ends: &[&str]) -> Result<(Vec<Stmt>, String)> {
        self.deeper(|p| {
            let mut body = Vec::new();
            loop {
                let line = p.line();
                match p.peek() {
                    Token::Text(_) => {
                        if let Token::Text(text) = p.next() {
                            body.push(Stmt { line, kind: StmtKind::Text(text) });
                        }
                    }
                    Token::VarBegin => {
                        p.at += 1;
                        let expr = p.tuple(true)?;
                        if *p.peek() != Token::VarEnd {
                            return p.unexpected("`}}`");
                        }
                        p.at += 1;
                        body.push(Stmt { line, kind: StmtKind::Print(expr) });
                    }
                    Token::BlockBegin => {
                        p.at += 1;
                        let name = p.any_name()?;
                        if ends.contains(&name.as_str()) {
                            return Ok((body, name));
                        }
                        let kind = p.statement(&name)?;
                        body.push(Stmt { line, kind });
                    }
                    Token::End if ends.is_empty() => return Ok((body, String::new())),
                    Token::End => return p.error(format!("the template ends before `{}`", ends.join("` or `"))),
                    _ => return p.unexpected("text or a tag"),
                }
            }
        })
    }

    /// A body and the `%}` of its only end tag.
    fn block(&mut self, end: &str) -> Result<Vec<Stmt>> {
        self.block_end()?;
        let (body, _) = self.body(&[end])?;
        self.block_end()?;
        Ok(body)
    }

    fn statement(&mut self, name: &str) -> Result<StmtKind> {
        match name {
            "for" => self.for_loop(),
            "if" => self.conditional(),
            "set" => self.set(),
            "macro" => self.macro_definition(),
            "call" => self.call_block(),
            "filter" => {
                let filters = self.filters()?;
                Ok(StmtKind::Filter(filters, self.block("endfilter")?))
            }
            "with" => self.with(),
            "generation" => Ok(StmtKind::Scope(self.block("endgeneration")?)),
            "autoescape" => {
                if self.expression()?.is_true() {
                    return self.error("automatic escaping is not supported");
                }
                Ok(StmtKind::Scope(self.block("endautoescape")?))
            }
            "block" => {
                self.any_name()?;
                while self.name("scoped") || self.name("required") {}
                self.block_end()?;
                let (body, _) = self.body(&["endblock"])?;
                if matches!(self.peek(), Token::Name(_)) {
                    self.at += 1;
                }
                self.block_end()?;
                Ok(StmtKind::Scope(body))
            }
            "print" => {
                // Several values are printed after one another.
                let expr = match self.tuple(true)? {
                    Expr::Tuple(items) => Expr::Concat(items),
                    one => one,
                };
                self.block_end()?;
                Ok(StmtKind::Print(expr))
            }
            "break" | "continue" => {
                if self.loops == 0 {
                    return self.error(format!("`{name}` outside of a loop"));
                }
                self.block_end()?;
                Ok(if name == "break" { StmtKind::Break } else { StmtKind::Continue })
            }
            "extends" | "include" | "import" | "from" => {
                self.error(format!("`{name}`: a chat template cannot load other templates"))
            }
            _ => self.error(format!("unknown tag `{name}`")),
        }
    }

    fn for_loop(&mut self) -> Result<StmtKind> {
        let target = self.target_list("in")?;
        if !self.name("in") {
            return self.unexpected("`in`");
        }
        let iter = self.tuple(false)?;
        let cond = if self.name("if") { Some(self.expression()?) } else { None };
        let recursive = self.name("recursive");
        self.block_end()?;
        self.loops += 1;
        let (body, end) = self.body(&["else", "endfor"])?;
        self.loops -= 1;
        let otherwise = if end == "else" { self.block("endfor")? } else { self.block_end().map(|()| Vec::new())? };
        self.program.loops.push(For { target, iter, cond, body, otherwise, recursive });
        Ok(StmtKind::For(self.program.loops.len() - 1))
    }

    fn conditional(&mut self) -> Result<StmtKind> {
        let unknown = self.unknown.len();
        let mut branches = Vec::new();
        let mut condition = Some(self.tuple(false)?);
        loop {
            self.block_end()?;
            let last = condition.is_none();
            let (body, end) = self.body(if last { &["endif"] } else { &["elif", "else", "endif"] })?;
            branches.push((condition.take(), body));
            match end.as_str() {
                "elif" => condition = Some(self.tuple(false)?),
                "else" => {}
                _ => break,
            }
        }
        self.block_end()?;
        self.unknown.truncate(unknown);
        Ok(StmtKind::If(branches))
    }

    fn set(&mut self) -> Result<StmtKind> {
        let target = self.target_list("=")?;
        if self.op("=") {
            let value = self.tuple(true)?;
            self.block_end()?;
            return Ok(StmtKind::Set(target, value));
        }
        let filters = if self.is_op("|") { self.filters()? } else { Vec::new() };
        Ok(StmtKind::SetBlock(target, filters, self.block("endset")?))
    }

    /// `name(args)|name(args)`, the first bar optional.
    fn filters(&mut self) -> Result<Vec<Post>> {
        let mut filters = Vec::new();
        self.op("|");
        loop {
            filters.push(self.filter()?);
            if !self.op("|") {
                return Ok(filters);
            }
        }
    }

    fn macro_definition(&mut self) -> Result<StmtKind> {
        let name = self.any_name()?;
        let name = self.intern(&name);
        let params = self.signature()?;
        let (body, uses) = self.macro_body("endmacro")?;
        self.program.macros.push(Macro { name, params, body, uses });
        Ok(StmtKind::Macro(self.program.macros.len() - 1))
    }

    /// A loop around a macro is not one around its body.
    fn macro_body(&mut self, end: &str) -> Result<(Vec<Stmt>, [bool; 4])> {
        let (loops, uses) = (std::mem::take(&mut self.loops), std::mem::take(&mut self.uses));
        let body = self.block(end)?;
        self.loops = loops;
        Ok((body, std::mem::replace(&mut self.uses, uses)))
    }

    fn call_block(&mut self) -> Result<StmtKind> {
        let params = if self.is_op("(") { self.signature()? } else { Vec::new() };
        let call = self.expression()?;
        if !matches!(&call, Expr::Post(_, posts) if matches!(posts.last(), Some(Post::Call(_)))) {
            return self.error("`call` needs a call");
        }
        let (body, uses) = self.macro_body("endcall")?;
        let name = self.intern("caller");
        self.program.macros.push(Macro { name, params, body, uses });
        Ok(StmtKind::Call(call, self.program.macros.len() - 1))
    }

    fn signature(&mut self) -> Result<Vec<(Name, Option<Expr>)>> {
        self.need_op("(")?;
        let mut params = Vec::new();
        while !self.op(")") {
            let name = self.any_name()?;
            let name = self.intern(&name);
            let default = if self.op("=") { Some(self.expression()?) } else { None };
            params.push((name, default));
            if !self.is_op(")") {
                self.need_op(",")?;
            }
        }
        Ok(params)
    }

    fn with(&mut self) -> Result<StmtKind> {
        let mut values = Vec::new();
        while !matches!(self.peek(), Token::BlockEnd) {
            if !values.is_empty() {
                self.need_op(",")?;
            }
            let target = self.target()?;
            self.need_op("=")?;
            values.push((target, self.expression()?));
        }
        Ok(StmtKind::With(values, self.block("endwith")?))
    }

    /// `a`, `a.b`, `a, b` or `(a, b), c`, before the operator or name `end`.
    fn target_list(&mut self, end: &str) -> Result<Target> {
        let first = self.target()?;
        if !self.is_op(",") {
            return Ok(first);
        }
        let mut targets = vec![first];
        while self.op(",") {
            if self.is_op(end) || self.is_name(end) {
                break;
            }
            targets.push(self.target()?);
        }
        Ok(Target::Tuple(targets))
    }

    fn target(&mut self) -> Result<Target> {
        if self.op("(") {
            let target = self.deeper(|p| p.target_list(")"))?;
            self.need_op(")")?;
            return Ok(target);
        }
        let name = self.any_name()?;
        if matches!(name.as_str(), "true" | "false" | "none" | "True" | "False" | "None") {
            return self.error(format!("cannot assign to `{name}`"));
        }
        let name = self.intern(&name);
        if self.op(".") {
            return Ok(Target::Attr(name, self.any_name()?));
        }
        Ok(Target::Name(name))
    }
}

impl Expr {
    fn is_true(&self) -> bool {
        !matches!(self, Expr::Bool(false) | Expr::None)
    }
}

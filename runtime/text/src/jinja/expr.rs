//! Tokens to trees: expressions, with Jinja's precedences.

use super::super::ast::{Cmp, Op};
use super::*;

impl Parser {
    /// A conditional expression.
    pub(super) fn expression(&mut self) -> Result<Expr> {
        self.deeper(|p| {
            let unknown = p.unknown.len();
            let mut value = p.or()?;
            while p.name("if") {
                let condition = p.or()?;
                let otherwise = if p.name("else") { Some(Box::new(p.expression()?)) } else { None };
                value = p.nested(Expr::If(Box::new((condition, value)), otherwise))?;
                p.unknown.truncate(unknown);
            }
            Ok(value)
        })
    }

    /// Counts a level that loops build instead of calls: `a if b if c`.
    fn nested(&mut self, expr: Expr) -> Result<Expr> {
        let levels = |mut e: &Expr| {
            let mut n = 0;
            while let Expr::If(parts, None) = e {
                (e, n) = (&parts.1, n + 1);
            }
            n
        };
        if levels(&expr) > DEEPEST {
            Err(Error::limit(format!("nested more than {DEEPEST} levels deep")))
        } else {
            Ok(expr)
        }
    }

    /// Expressions with commas between them are a tuple.
    pub(super) fn tuple(&mut self, conditionals: bool) -> Result<Expr> {
        let one = |p: &mut Self| if conditionals { p.expression() } else { p.deeper(Self::or) };
        let first = one(self)?;
        if !self.is_op(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.op(",") {
            if matches!(self.peek(), Token::VarEnd | Token::BlockEnd | Token::Op(")")) || self.is_name("in") {
                break;
            }
            items.push(one(self)?);
        }
        Ok(Expr::Tuple(items))
    }

    fn or(&mut self) -> Result<Expr> {
        let mut terms = vec![self.and()?];
        while self.name("or") {
            terms.push(self.and()?);
        }
        Ok(one_or(terms, Expr::Or))
    }

    fn and(&mut self) -> Result<Expr> {
        let mut terms = vec![self.not()?];
        while self.name("and") {
            terms.push(self.not()?);
        }
        Ok(one_or(terms, Expr::And))
    }

    fn not(&mut self) -> Result<Expr> {
        let mut count = 0usize;
        while self.name("not") {
            count += 1;
        }
        let value = self.comparison()?;
        Ok(match count {
            0 => value,
            n if n % 2 == 1 => Expr::Not(Box::new(value)),
            _ => Expr::Not(Box::new(Expr::Not(Box::new(value)))),
        })
    }

    fn comparison(&mut self) -> Result<Expr> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let cmp = match self.peek() {
                Token::Op("==") => Cmp::Eq,
                Token::Op("!=") => Cmp::Ne,
                Token::Op("<") => Cmp::Lt,
                Token::Op("<=") => Cmp::Le,
                Token::Op(">") => Cmp::Gt,
                Token::Op(">=") => Cmp::Ge,
                Token::Name(name) if name == "in" => Cmp::In,
                Token::Name(name) if name == "not" && matches!(self.peek_second(), Token::Name(n) if n == "in") => {
                    Cmp::NotIn
                }
                _ => break,
            };
            self.at += if cmp == Cmp::NotIn { 2 } else { 1 };
            rest.push((cmp, self.sum()?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Compare(Box::new(first), rest) })
    }

    fn sum(&mut self) -> Result<Expr> {
        self.math(&[("+", Op::Add), ("-", Op::Sub)], Self::concat)
    }

    fn concat(&mut self) -> Result<Expr> {
        let mut terms = vec![self.product()?];
        while self.op("~") {
            terms.push(self.product()?);
        }
        Ok(one_or(terms, Expr::Concat))
    }

    fn product(&mut self) -> Result<Expr> {
        self.math(&[("*", Op::Mul), ("//", Op::FloorDiv), ("/", Op::Div), ("%", Op::Rem)], Self::power)
    }

    fn power(&mut self) -> Result<Expr> {
        self.math(&[("**", Op::Pow)], |p| p.unary(true))
    }

    fn math(&mut self, ops: &[(&str, Op)], term: impl Fn(&mut Self) -> Result<Expr>) -> Result<Expr> {
        let first = term(self)?;
        let mut rest = Vec::new();
        while let Some((_, op)) = ops.iter().find(|(text, _)| self.is_op(text)) {
            self.at += 1;
            rest.push((*op, term(self)?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Math(Box::new(first), rest) })
    }

    fn unary(&mut self, filters: bool) -> Result<Expr> {
        let sign = if self.is_op("-") {
            Some(Expr::Neg as fn(Box<Expr>) -> Expr)
        } else if self.is_op("+") {
            Some(Expr::Pos as fn(Box<Expr>) -> Expr)
        } else {
            None
        };
        let value = match sign {
            Some(sign) => {
                self.at += 1;
                sign(Box::new(self.deeper(|p| p.unary(false))?))
            }
            None => self.primary()?,
        };
        let mut posts = Vec::new();
        self.postfix(&mut posts, filters)?;
        Ok(if posts.is_empty() { value } else { Expr::Post(Box::new(value), posts) })
    }

    fn postfix(&mut self, posts: &mut Vec<Post>, filters: bool) -> Result<()> {
        loop {
            match self.peek() {
                Token::Op(".") => {
                    self.at += 1;
                    posts.push(match self.next() {
                        Token::Name(name) => Post::Attr(name),
                        Token::Int(n) => Post::Item(Expr::Int(n)),
                        _ => {
                            self.at -= 1;
                            return self.unexpected("the name of an attribute");
                        }
                    });
                }
                Token::Op("[") => {
                    self.at += 1;
                    let post = self.deeper(Self::subscript)?;
                    posts.push(post);
                }
                Token::Op("(") => posts.push(Post::Call(self.arguments()?)),
                Token::Op("|") if filters => {
                    self.at += 1;
                    posts.push(self.filter()?);
                }
                Token::Name(name) if filters && name == "is" => {
                    self.at += 1;
                    posts.push(self.test()?);
                }
                _ => return Ok(()),
            }
        }
    }

    fn subscript(&mut self) -> Result<Post> {
        let mut parts = [None, None, None];
        let (mut n, mut slice) = (0, false);
        loop {
            if self.op("]") {
                break;
            }
            if self.op(":") {
                (n, slice) = (n + 1, true);
            } else if n < 3 && parts[n].is_none() {
                parts[n] = Some(self.tuple_item()?);
            } else {
                return self.unexpected("`]`");
            }
            if n > 2 {
                return self.unexpected("`]`");
            }
        }
        if slice {
            return Ok(Post::Slice(Box::new(parts)));
        }
        match parts {
            [Some(item), ..] => Ok(Post::Item(item)),
            _ => self.error("an empty subscript"),
        }
    }

    /// `a` or `a, b` inside brackets.
    fn tuple_item(&mut self) -> Result<Expr> {
        let first = self.expression()?;
        if !self.is_op(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.op(",") {
            if self.is_op("]") {
                break;
            }
            items.push(self.expression()?);
        }
        Ok(Expr::Tuple(items))
    }

    pub(super) fn filter(&mut self) -> Result<Post> {
        let name = self.dotted()?;
        self.look_up("filter", &name)?;
        let args = if self.is_op("(") { self.arguments()? } else { Args::default() };
        Ok(Post::Filter(name, args))
    }

    /// Refuses a filter or test of Jinja that is not implemented. One that Jinja does not have either may stand in a
    /// conditional, as in Jinja, which fails when it is reached.
    fn look_up(&mut self, kind: &str, name: &str) -> Result<()> {
        let Some(why) = known::why_not(kind, name) else { return Ok(()) };
        if known::is_jinjas(kind, name) {
            return self.error(why);
        }
        let line = self.line();
        self.unknown.push(Error::new(Kind::Syntax, why).at(line));
        Ok(())
    }

    fn dotted(&mut self) -> Result<String> {
        let mut name = self.any_name()?;
        while self.op(".") {
            name = name + "." + &self.any_name()?;
        }
        Ok(name)
    }

    fn test(&mut self) -> Result<Post> {
        let negated = self.name("not");
        let name = self.dotted()?;
        self.look_up("test", &name)?;
        let starts = match self.peek() {
            Token::Str(_) | Token::Int(_) | Token::Float(_) | Token::Op("[" | "{") => true,
            Token::Name(word) => {
                !matches!(word.as_str(), "else" | "or" | "and" | "if" | "in" | "not" | "is" | "recursive")
            }
            _ => false,
        };
        let args = if self.is_op("(") {
            self.arguments()?
        } else if starts {
            let value = self.primary()?;
            let mut posts = Vec::new();
            self.postfix(&mut posts, false)?;
            let value = if posts.is_empty() { value } else { Expr::Post(Box::new(value), posts) };
            Args { positional: vec![(false, value)], ..Args::default() }
        } else {
            Args::default()
        };
        Ok(Post::Test(name, negated, args))
    }

    fn arguments(&mut self) -> Result<Args> {
        self.need_op("(")?;
        let mut args = Args::default();
        while !self.op(")") {
            if self.op("**") {
                args.mapping = Some(self.expression()?);
            } else if self.op("*") {
                let list = self.expression()?;
                args.positional.push((true, list));
            } else if matches!((self.peek(), self.peek_second()), (Token::Name(_), Token::Op("="))) {
                let name = self.any_name()?;
                self.at += 1;
                args.named.push((name, self.expression()?));
            } else {
                if !args.named.is_empty() {
                    return self.error("a positional argument after a named one");
                }
                let value = self.expression()?;
                args.positional.push((false, value));
            }
            if !self.is_op(")") {
                self.need_op(",")?;
            }
        }
        Ok(args)
    }

    fn primary(&mut self) -> Result<Expr> {
        match self.peek() {
            Token::Name(_) | Token::Str(_) | Token::Int(_) | Token::Float(_) => {}
            Token::Op("(") => {
                self.at += 1;
                return self.deeper(Self::parenthesized);
            }
            Token::Op("[") => {
                self.at += 1;
                return self.deeper(Self::list);
            }
            Token::Op("{") => {
                self.at += 1;
                return self.deeper(Self::mapping);
            }
            _ => return self.unexpected("a value"),
        }
        Ok(match self.next() {
            Token::Int(n) => Expr::Int(n),
            Token::Float(x) => Expr::Float(x),
            Token::Str(mut text) => {
                while let Token::Str(more) = self.peek() {
                    text += more;
                    self.at += 1;
                }
                Expr::Str(text)
            }
            Token::Name(name) => match name.as_str() {
                "true" | "True" => Expr::Bool(true),
                "false" | "False" => Expr::Bool(false),
                "none" | "None" => Expr::None,
                name => {
                    let id = self.intern(name);
                    if let Some(used) = self.uses.get_mut(id as usize) {
                        *used = true;
                    }
                    Expr::Name(id)
                }
            },
            _ => return self.unexpected("a value"),
        })
    }

    fn parenthesized(&mut self) -> Result<Expr> {
        if self.op(")") {
            return Ok(Expr::Tuple(Vec::new()));
        }
        let value = self.tuple(true)?;
        self.need_op(")")?;
        Ok(value)
    }

    fn list(&mut self) -> Result<Expr> {
        let mut items = Vec::new();
        while !self.op("]") {
            items.push(self.expression()?);
            if !self.is_op("]") {
                self.need_op(",")?;
            }
        }
        Ok(Expr::List(items))
    }

    fn mapping(&mut self) -> Result<Expr> {
        let mut items = Vec::new();
        while !self.op("}") {
            let key = self.expression()?;
            self.need_op(":")?;
            items.push((key, self.expression()?));
            if !self.is_op("}") {
                self.need_op(",")?;
            }
        }
        Ok(Expr::Map(items))
    }
}

fn one_or(mut terms: Vec<Expr>, many: fn(Vec<Expr>) -> Expr) -> Expr {
    match (terms.len(), terms.pop()) {
        (1, Some(one)) => one,
        (_, Some(last)) => {
            terms.push(last);
            many(terms)
        }
        (_, None) => many(terms),
    }
}

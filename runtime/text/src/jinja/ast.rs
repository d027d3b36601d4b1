//! Templates as trees. Chains (`a.b.c`, `a + b + c`, `not not a`) are flat, so only brackets,
//! blocks and conditionals nest, which the parser counts.

/// Index into [`Program::names`].
pub type Name = u32;

/// The first names: variables that the interpreter sets.
pub const SPECIAL: [&str; 4] = ["loop", "caller", "varargs", "kwargs"];
pub const LOOP: Name = 0;
pub const CALLER: Name = 1;
pub const VARARGS: Name = 2;
pub const KWARGS: Name = 3;

/// A template.
#[derive(Debug, Default)]
pub struct Program {
    pub body: Vec<Stmt>,
    /// Names of variables.
    pub names: Vec<String>,
    /// Bodies of macros and call blocks.
    pub macros: Vec<Macro>,
    /// Loops; by index, so that a `loop` variable can name its own.
    pub loops: Vec<For>,
}

#[derive(Debug)]
pub struct Stmt {
    pub line: u32,
    pub kind: StmtKind,
}

#[derive(Debug)]
pub enum StmtKind {
    Text(String),
    Print(Expr),
    For(usize),
    /// Branches; the last may be without a condition.
    If(Vec<(Option<Expr>, Vec<Stmt>)>),
    Set(Target, Expr),
    SetBlock(Target, Vec<Post>, Vec<Stmt>),
    Macro(usize),
    /// A call whose `caller` is the macro.
    Call(Expr, usize),
    Filter(Vec<Post>, Vec<Stmt>),
    With(Vec<(Target, Expr)>, Vec<Stmt>),
    Scope(Vec<Stmt>),
    Break,
    Continue,
}

#[derive(Debug)]
pub enum Target {
    Name(Name),
    /// An attribute of a namespace.
    Attr(Name, String),
    Tuple(Vec<Target>),
}

#[derive(Debug)]
pub struct For {
    pub target: Target,
    pub iter: Expr,
    pub cond: Option<Expr>,
    pub body: Vec<Stmt>,
    pub otherwise: Vec<Stmt>,
    pub recursive: bool,
}

#[derive(Debug)]
pub struct Macro {
    pub name: Name,
    pub params: Vec<(Name, Option<Expr>)>,
    pub body: Vec<Stmt>,
    /// Which of [`SPECIAL`] its body uses.
    pub uses: [bool; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Rem,
    Pow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}

#[derive(Debug)]
pub enum Expr {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    Name(Name),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Map(Vec<(Expr, Expr)>),
    Post(Box<Expr>, Vec<Post>),
    Not(Box<Expr>),
    Neg(Box<Expr>),
    Pos(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Concat(Vec<Expr>),
    Math(Box<Expr>, Vec<(Op, Expr)>),
    Compare(Box<Expr>, Vec<(Cmp, Expr)>),
    /// Condition, then, else.
    If(Box<(Expr, Expr)>, Option<Box<Expr>>),
}

/// The postfix operations of a value.
#[derive(Debug)]
pub enum Post {
    Attr(String),
    Item(Expr),
    Slice(Box<[Option<Expr>; 3]>),
    Call(Args),
    Filter(String, Args),
    /// Name, negated, arguments.
    Test(String, bool, Args),
}

#[derive(Debug, Default)]
pub struct Args {
    /// Positional; `true` for `*list`.
    pub positional: Vec<(bool, Expr)>,
    pub named: Vec<(String, Expr)>,
    /// `**mapping`
    pub mapping: Option<Expr>,
}

//! Sets of characters by name.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};
use std::sync::LazyLock;

/// Classes of POSIX in Unicode (doc/RE of Oniguruma).
const POSIX: &[(&str, &str)] = &[
    ("alnum", r"[\p{Alphabetic}\p{Nd}]"),
    ("alpha", r"\p{Alphabetic}"),
    ("ascii", r"[\x00-\x7F]"),
    ("blank", r"[\p{Zs}\t]"),
    ("cntrl", r"\p{Cc}"),
    ("digit", r"\p{Nd}"),
    ("graph", GRAPH),
    ("lower", r"\p{Lowercase}"),
    ("print", r"[[^\s\p{Cc}\p{Cn}]\p{Zs}]"),
    ("punct", r"[\p{P}\p{S}]"),
    ("space", r"\p{White_Space}"),
    ("upper", r"\p{Uppercase}"),
    ("xdigit", "[0-9A-Fa-f]"),
    ("word", WORD),
];

const GRAPH: &str = r"[^\s\p{Cc}\p{Cn}]";
const WORD_ALONE: &str = r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\xB2\xB3\xB9\xBC-\xBE]";
const WORD: &str = r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]";

/// The set that one expression of `regex-syntax` stands for; `None` if it is more than a set.
pub(super) fn of_engine(expression: &str, ignore_case: bool) -> Option<ClassUnicode> {
    let parsed = regex_syntax::ParserBuilder::new().case_insensitive(ignore_case).build().parse(expression).ok()?;
    match parsed.kind() {
        HirKind::Class(Class::Unicode(set)) => Some(set.clone()),
        HirKind::Class(Class::Bytes(set)) => {
            let range = |r: &regex_syntax::hir::ClassBytesRange| {
                ClassUnicodeRange::new(char::from(r.start()), char::from(r.end()))
            };
            Some(ClassUnicode::new(set.ranges().iter().map(range)))
        }
        HirKind::Literal(text) => {
            let mut chars = std::str::from_utf8(&text.0).ok()?.chars();
            let (c, rest) = (chars.next()?, chars.next());
            rest.is_none().then(|| one(c))
        }
        // An empty set is an expression that fails.
        _ => (parsed == regex_syntax::hir::Hir::fail()).then(ClassUnicode::empty),
    }
}

/// The set of one character.
pub(super) fn one(c: char) -> ClassUnicode {
    ClassUnicode::new([ClassUnicodeRange::new(c, c)])
}

fn known(expression: &str) -> Result<ClassUnicode, String> {
    if let Some((_, set)) = SHORT.iter().find(|(short, _)| *short == expression) {
        return Ok(set.clone());
    }
    of_engine(expression, false).ok_or_else(|| format!("has {expression}, which is no set"))
}

/// A class of POSIX by its name; `None` if there is none of this name.
pub(super) fn posix(name: &str) -> Option<Result<ClassUnicode, String>> {
    POSIX.iter().find(|(known, _)| *known == name).map(|(_, set)| known(set))
}

/// The meaning of `\w` outside of classes, and on both sides of `\b`: beyond the class `word` three
/// superscripts and three fractions of Latin-1.
pub(super) fn word() -> Result<ClassUnicode, String> {
    known(WORD_ALONE)
}

/// The set of `\w`, `\d`, `\s`, `\h` and their negations inside a class.
pub(super) fn shorthand(letter: char) -> Option<Result<ClassUnicode, String>> {
    let set = match letter.to_ascii_lowercase() {
        'w' => WORD,
        'd' => r"\p{Nd}",
        's' => r"\p{White_Space}",
        'h' => "[0-9A-Fa-f]",
        _ => return None,
    };
    Some(known(set).map(|mut set| {
        if letter.is_ascii_uppercase() {
            set.negate();
        }
        set
    }))
}

/// The set of `\p{name}`; `alone` outside of classes.
pub(super) fn property(name: &str, alone: bool) -> Result<ClassUnicode, String> {
    let plain: String = name.chars().filter(|c| !matches!(c, ' ' | '_' | '-')).collect::<String>().to_lowercase();
    if plain == "word" && alone {
        return word();
    }
    match plain.as_str() {
        // Without symbols, other than `[[:punct:]]`.
        "punct" => return known(r"\p{P}"),
        // Surrogates are no characters of texts.
        "cs" | "surrogate" => return Ok(ClassUnicode::empty()),
        "zzzz" | "unknown" => return known(r"[\p{Cn}\p{Co}]"),
        "posixpunct" => return known(r"[!-/:-@\[-`{-~]"),
        _ => {}
    }
    if let Some(set) = posix(&plain) {
        return set;
    }
    let spelled = !plain.is_empty() && plain.chars().all(|c| c.is_ascii_alphanumeric());
    let found = if spelled { of_engine(&format!(r"\p{{{plain}}}"), false) } else { None };
    found.ok_or_else(|| format!(r"names the property \p{{{name}}}, which is unknown"))
}

/// Expressions of named sets, in which they are printed.
static SHORT: LazyLock<Vec<(&str, ClassUnicode)>> = LazyLock::new(|| {
    let others = [WORD_ALONE, r"\p{L}", r"\p{N}", r"\p{P}", r"[^\n]"];
    let all = POSIX.iter().map(|(_, expression)| *expression).chain(others);
    all.filter_map(|expression| Some((expression, of_engine(expression, false)?))).collect()
});

/// A short expression for a set, if a named one or its complement.
pub(super) fn short(set: &ClassUnicode) -> Option<String> {
    let mut others = set.clone();
    others.negate();
    SHORT.iter().find_map(|(expression, known)| match () {
        () if known == set => Some((*expression).to_string()),
        () if *known == others => Some(format!("[^{expression}]")),
        () => None,
    })
}

//! The PTX of several kernels as one module, which `ptxas` and the driver take as a whole.
//!
//! LLVM writes a module for each kernel: its own `.version`, `.target` and `.address_size`, the
//! dynamic shared memory, and whatever constants or functions the entry needs. One module has each
//! directive once, dynamic shared memory once (at the largest alignment that any kernel asks for),
//! and every other name once: entries keep theirs, and a kernel's private names get the name of its
//! entry as a prefix.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// One module of the PTX of several kernels, given as `(name, text)`, in their order; the names
/// stand in comments.
///
/// # Errors
/// Texts for different processors, or a text that is no PTX module.
pub fn join(kernels: &[(&str, &str)]) -> Result<String, String> {
    let mut all = Joined::default();
    for (name, text) in kernels {
        all.add(name, text).map_err(|e| format!("the PTX of {name}: {e}"))?;
    }
    Ok(all.text())
}

/// Parts of a module.
#[derive(Default)]
struct Joined {
    /// The largest of the kernels'.
    version: (u32, u32),
    target: String,
    /// Declarations of dynamic shared memory by name: the alignment, and the rest.
    shared: BTreeMap<String, (u32, String)>,
    taken: BTreeSet<String>,
    /// Everything else, with the names of the kernels.
    body: String,
}

impl Joined {
    fn add(&mut self, name: &str, text: &str) -> Result<(), String> {
        let statements = statements(text)?;
        let names = self.names(&statements)?;
        let _ = write!(self.body, "\n// {name}\n");
        for s in &statements {
            let words: Vec<&str> = s.split_whitespace().collect();
            match words[..] {
                [".version", number] => self.version = self.version.max(version(number)?),
                [".target", ..] if self.target.is_empty() => self.target = words[1..].concat(),
                [".target", ..] if self.target == words[1..].concat() => {}
                [".target", ..] => {
                    return Err(format!("it is for {}, others are for {}", words[1..].concat(), self.target));
                }
                [".address_size", "64"] => {}
                [".extern", ".shared", ".align", align, ..] => self.share(s, align)?,
                _ => {
                    let _ = writeln!(self.body, "{}", rename(s, &names));
                }
            }
        }
        Ok(())
    }

    /// New names for the definitions in the module of a kernel.
    fn names(&mut self, statements: &[&str]) -> Result<BTreeMap<String, String>, String> {
        let is_entry = |s: &&&str| s.contains(".entry ");
        let entry = statements.iter().find(is_entry).and_then(|s| defined(s)).ok_or("it has no entry")?;
        let mut names = BTreeMap::new();
        for s in statements {
            let Some(old) = defined(s) else { continue };
            let own = if old == entry { old.to_string() } else { format!("{entry}_{old}") };
            let mut new = own.clone();
            let mut count = 2;
            while !self.taken.insert(new.clone()) {
                new = format!("{own}_{count}");
                count += 1;
            }
            names.insert(old.to_string(), new);
        }
        Ok(names)
    }

    fn share(&mut self, statement: &str, align: &str) -> Result<(), String> {
        let wrong = || format!("`{statement}` is no declaration of shared memory");
        let bytes: u32 = align.parse().map_err(|_| wrong())?;
        let rest = statement.split_once(align).ok_or_else(wrong)?.1.trim();
        let name = last_name(rest.split('[').next().unwrap_or_default()).ok_or_else(wrong)?;
        let (most, known) = self.shared.entry(name.to_string()).or_insert_with(|| (bytes, rest.to_string()));
        *most = bytes.max(*most);
        if known == rest { Ok(()) } else { Err(format!("shared memory is `{rest}` here, `{known}` elsewhere")) }
    }

    fn text(&self) -> String {
        let mut out =
            format!(".version {}.{}\n.target {}\n.address_size 64\n", self.version.0, self.version.1, self.target);
        for (align, rest) in self.shared.values() {
            let _ = write!(out, "\n.extern .shared .align {align} {rest}\n");
        }
        out + &self.body
    }
}

fn version(number: &str) -> Result<(u32, u32), String> {
    let parts = number.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    parts.ok_or_else(|| format!("`{number}` is no version"))
}

/// The name that a statement of a module defines; `None` for directives and for external
/// declarations.
fn defined(statement: &str) -> Option<&str> {
    if ["version", "target", "address_size", "extern"]
        .iter()
        .any(|d| statement.strip_prefix('.').is_some_and(|s| s.starts_with(d)))
    {
        return None;
    }
    if is_code(statement) {
        // `.visible .entry NAME(...)`, `.func (.param .b32 x) NAME(...)`.
        let head = statement.split('{').next()?;
        let open = if head.contains(".entry ") { head.find('(')? } else { head.rfind('(')? };
        return last_name(&head[..open]);
    }
    last_name(statement.split(['[', '=', ';']).next()?)
}

fn is_code(statement: &str) -> bool {
    statement.contains(".entry ") || statement.contains(".func ")
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_$%".contains(c)
}

fn last_name(text: &str) -> Option<&str> {
    text.trim_end().rsplit(|c| !is_name(c)).next().filter(|n| !n.is_empty())
}

/// The statements of a module, without comments between them.
fn statements(text: &str) -> Result<Vec<&str>, String> {
    let mut out = vec![];
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("//") {
            rest = after.split_once('\n').map_or("", |(_, r)| r).trim_start();
            continue;
        }
        let end = end(rest)
            .ok_or_else(|| format!("a statement without an end: `{}`", rest.lines().next().unwrap_or_default()))?;
        out.push(rest[..end].trim_end());
        rest = rest[end..].trim_start();
    }
    Ok(out)
}

/// Where the first statement of a text ends.
fn end(text: &str) -> Option<usize> {
    if [".version", ".target", ".address_size"].iter().any(|d| text.starts_with(d)) {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    let (mut depth, mut comment, mut last) = (0, false, ' ');
    for (i, c) in text.char_indices() {
        match c {
            '\n' => comment = false,
            _ if comment => {}
            '/' if last == '/' => comment = true,
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 && is_code(&text[..i]) {
                    return Some(i + 1);
                }
            }
            ';' if depth == 0 => return Some(i + 1),
            _ => {}
        }
        last = c;
    }
    None
}

/// Replaces names.
fn rename(text: &str, names: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_name) {
        let (before, from) = rest.split_at(start);
        let (word, after) = from.split_at(from.find(|c| !is_name(c)).unwrap_or(from.len()));
        out.push_str(before);
        out.push_str(names.get(word).map_or(word, String::as_str));
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(version: &str, entry: &str, align: u32) -> String {
        format!(
            "//\n// Generated by LLVM; {{\n//\n\n.version {version}\n.target sm_90a\n.address_size 64\n\n\t// .globl\t{entry}\n\
             .extern .shared .align {align} .b8 shared[];\n.global .align 4 .b32 table[2] = {{1, 2}};\n\
             .func (.param .b32 ret) help(\n\t.param .b32 x\n)\n{{\n\tret; // }}\n}}\n\
             .visible .entry {entry}(\n\t.param .u64 {entry}_param_0\n)\n.maxntid 64\n{{\n\t{{ .reg .pred p; }}\n\tmov.u64 %rd1, table;\n\tmov.u64 %rd2, shared;\n\
             \tld.param.b64 %rd3, [{entry}_param_0];\n\tcall (r), help, (x);\n\tret;\n}}\n"
        )
    }

    #[test]
    fn names_and_directives_are_unique() {
        let (a, b) = (kernel("8.0", "k_a", 16), kernel("8.4", "k_b", 1024));
        let joined = join(&[("m.a", &a), ("m.b", &b), ("m.b again", &b)]).unwrap();
        let count = |what: &str| joined.matches(what).count();
        assert!(joined.starts_with(".version 8.4\n.target sm_90a\n.address_size 64\n"), "{joined}");
        assert_eq!(
            (count(".version"), count(".target"), count(".address_size"), count(".extern .shared")),
            (1, 1, 1, 1),
            "{joined}"
        );
        assert!(joined.contains(".extern .shared .align 1024 .b8 shared[];"), "{joined}");
        for name in ["k_a_table[2]", "k_b_table[2]", "k_b_table_2[2]", ".entry k_a(", ".entry k_b(", ".entry k_b_2("] {
            assert_eq!(count(name), 1, "{name}: {joined}");
        }
        for used in
            ["%rd1, k_a_table;", "%rd1, k_b_table_2;", "call (r), k_a_help, (x);", "[k_a_param_0]", "// m.b again\n"]
        {
            assert!(joined.contains(used), "{used}: {joined}");
        }
        assert_eq!(count("mov.u64 %rd2, shared;"), 3, "{joined}");
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let (a, b) = (kernel("8.0", "k_a", 16), kernel("8.0", "k_b", 16).replace("sm_90a", "sm_80"));
        assert_eq!(join(&[("a", &a), ("b", &b)]).unwrap_err(), "the PTX of b: it is for sm_80, others are for sm_90a");
        let b = kernel("8.0", "k_b", 16).replace(".b8 shared", ".b32 shared");
        assert!(join(&[("a", &a), ("b", &b)]).unwrap_err().contains("elsewhere"));
        assert!(join(&[("a", ".version 8.0\n.target sm_90a\n")]).unwrap_err().contains("no entry"));
        assert!(join(&[("a", ".version 8.0\n.visible .entry k() {")]).unwrap_err().contains("without an end"));
    }
}

//! Grammars in llama.cpp's notation (GBNF), as Lark writes them.
//!
//! GBNF describes texts character by character. A grammar without recursion becomes one regular expression. In any
//! other one each terminal is a single character, so that no terminal takes characters which belong to the next one:
//! Lark's terminals are as long as they can be.

mod parse;
mod rules;
mod write;

use rules::Fault;

/// The grammar in Lark.
///
/// # Errors
/// It is no grammar, has no rule `root`, or a rule that is not there, or uses tokens.
pub(crate) fn lark(source: &str) -> Result<String, Fault> {
    parse::rules(source).map(|rules| write::lark(&rules))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammars_without_recursion_are_regular_expressions() {
        for (source, wanted) in [
            (r#"root ::= "a"{5,5}"#, "start: /a{5,5}/"),
            (r#"root ::= "ab"+ [0-9x]? "#, r"start: /(?:ab)+[0-9x]?/"),
            (
                "root ::= a | b c\na ::= \"x\"\n b ::= [^\\n\\]] # not these\nc ::= .*",
                r"start: /(?:x|[^\x{a}\x{5d}](?s:.)*)/",
            ),
            ("root ::=\n  \"/\" |\n  \"é\\x41\\u00e9\" (\"c\"\n \"d\"){2,}", r"start: /(?:\x{2f}|éAé(?:cd){2,})/"),
            (r#"root ::= "a" | "#, "start: /(?:a|)/"),
            (r#"root ::= ("a" | "b"){3}"#, "start: /(?:a|b){3,3}/"),
        ] {
            assert_eq!(lark(source).map_err(|e| e.to_string()), Ok(wanted.to_owned()), "{source}");
        }
    }

    #[test]
    fn recursion_is_spelt_by_characters() {
        let source = "root ::= list-1 ws\nlist-1 ::= \"[]\" | \"[\" list-1 \"]\"\nws ::= [ \\t]*\nunused ::= unused";
        let wanted = "start: r0\nr0: r1 r2\nr1: (\"[\" \"]\" | \"[\" r1 \"]\")\nr2: /[\\x{20}\\x{9}]/*\nr3: r3";
        assert_eq!(lark(source).map_err(|e| e.to_string()), Ok(wanted.to_owned()));
    }

    #[test]
    fn faults_have_places() {
        for (source, place, says) in [
            ("", (1, 1), "no rule `root`"),
            ("rot ::= \"a\"", (1, 1), "no rule `root`"),
            ("root ::= this is (not valid GBNF", (1, 33), "`)`"),
            ("root ::= a\n", (1, 10), "no rule `a`"),
            ("root ::= \"a\nb\"", (1, 10), "does not end"),
            ("root ::= [a-", (1, 10), "does not end"),
            ("root ::= [z-a]", (1, 11), "ends before it begins"),
            ("root ::= \"a\" }", (1, 14), "`}`"),
            ("root ::= *", (1, 10), "nothing to repeat"),
            ("root ::= \"a\"{3,2}", (1, 13), "3 to 2"),
            ("root ::= \"a\"{,}", (1, 14), "a count"),
            ("root = \"a\"", (1, 6), "`::=`"),
            ("root ::= \"a\"\nroot ::= \"b\"", (2, 1), "twice"),
            ("root ::= \"\\q\"", (1, 11), "escape"),
            ("root ::= \"\\x4\"", (1, 11), "escape"),
            ("root ::= <think>", (1, 10), "tokens"),
            ("root ::= !<[1]>", (1, 10), "tokens"),
            ("root ::= \"a\" root ::= \"b\"", (1, 19), "a line of its own"),
        ] {
            let fault = lark(source).expect_err(source);
            assert_eq!((fault.line, fault.column), place, "{source}: {fault}");
            assert!(fault.message.contains(says), "{source}: {fault}");
        }
        let deep = format!("root ::= {}", "(".repeat(100_000));
        assert!(lark(&deep).expect_err("deep").message.contains("deep"));
    }

    #[test]
    fn bombs_stay_small() {
        let mut source = String::from("root ::= a0\n");
        for i in 0..40 {
            source += &format!("a{i} ::= a{} a{}\n", i + 1, i + 1);
        }
        source += "a40 ::= \"x\"";
        assert!(lark(&source).expect("a grammar").len() < 10_000);
        assert!(lark(&source.replace('x', "")).expect("a grammar").len() < 10_000);
    }

    #[test]
    fn deep_grammars_are_refused_or_written() {
        let stars = format!("root ::= \"a\"{}", "*".repeat(1_000_000));
        assert!(lark(&stars).expect_err("deep").message.contains("deep"));
        let mut chain = String::from("root ::= a0\n");
        for i in 0..20_000 {
            chain += &format!("a{i} ::= \"x\" a{}\n", i + 1);
        }
        chain += "a20000 ::= \"x\"";
        assert!(lark(&chain).expect("a grammar").starts_with("start: r0"));
    }
}

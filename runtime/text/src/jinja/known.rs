//! Names of filters and tests, which are looked up when a template is parsed.

/// Filters that are implemented.
pub const FILTERS: &str = "abs attr batch capitalize center count d default dictsort e escape first float forceescape \
    format groupby indent int items join last length list lower map max min pprint reject rejectattr replace reverse \
    round safe select selectattr slice sort string sum title tojson trim truncate unique upper urlencode wordcount";

/// Filters of Jinja that are not: one is random, the others write HTML or wrap prose.
pub const OTHER_FILTERS: &str = "filesizeformat random striptags urlize wordwrap xmlattr";

/// Tests that are implemented.
pub const TESTS: &str = "!= < <= == > >= boolean callable defined divisibleby eq equalto escaped even false float ge \
    greaterthan gt in integer iterable le lessthan lower lt mapping ne none number odd sameas sequence string true \
    undefined upper";

/// Tests of Jinja that are not.
pub const OTHER_TESTS: &str = "filter test";

/// Whether `name` is in the list.
pub fn has(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|n| n == name)
}

/// Why a filter or a test cannot be used; `None` for one that is implemented.
pub fn why_not(kind: &str, name: &str) -> Option<String> {
    match () {
        () if has(if kind == "filter" { FILTERS } else { TESTS }, name) => None,
        () if is_jinjas(kind, name) => Some(format!("the {kind} '{name}' of Jinja is not supported in chat templates")),
        () => Some(format!("no {kind} named '{name}'")),
    }
}

/// Whether Jinja has a filter or test that is not implemented.
pub fn is_jinjas(kind: &str, name: &str) -> bool {
    has(if kind == "filter" { OTHER_FILTERS } else { OTHER_TESTS }, name)
}

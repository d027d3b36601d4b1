//! Hostile templates, and Jinja2's results for small ones.

use std::time::{Duration, Instant};

use super::value::{Heap, Value};
use super::{Kind, Template, known};

/// Bytes alive, and work, of the renderings here.
const MEMORY: usize = 64 << 20;
const WORK: u64 = 1 << 28;

fn clock() -> libc::tm {
    // SAFETY: an all-zero tm is valid.
    libc::tm { tm_year: 125, tm_mday: 2, ..unsafe { std::mem::zeroed() } }
}

fn render(source: &str) -> Result<String, super::Error> {
    let heap = Heap::new(MEMORY, WORK);
    let json: crate::json::Json = serde_json::from_str(r#"[{"role":"user","content":"hi"}]"#).unwrap();
    let messages: Value = heap.json(&json)?;
    Template::parse(source)?.render(&heap, &[("messages".into(), messages)], clock)
}

/// Fails with [`Kind::Limit`], soon, on a small stack.
fn limited(name: &str, source: String) {
    let start = Instant::now();
    let run = move || render(&source).map(|text| text.len());
    let result = std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
    assert_eq!(result.clone().map_err(|e| e.kind), Err(Kind::Limit), "{name}: {result:?}");
    assert!(start.elapsed() < Duration::from_secs(20), "{name} took {:?}", start.elapsed());
}

#[test]
fn depth_is_bounded() {
    let n = 100_000;
    for (name, source) in [
        ("parentheses", format!("{{{{ {}1{} }}}}", "(".repeat(n), ")".repeat(n))),
        ("lists", format!("{{{{ {}{} }}}}", "[".repeat(n), "]".repeat(n))),
        ("minus", format!("{{{{ {}1 }}}}", "-".repeat(n))),
        ("blocks", "{% if 1 %}".repeat(n)),
        ("filters", "{% filter upper %}".repeat(40_000)),
        ("else", format!("{{{{ {}1 }}}}", "1 if 1 else ".repeat(40_000))),
        ("if", format!("{{{{ 1 {} }}}}", "if 1 ".repeat(n))),
        ("macro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".into()),
        ("two macros", "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}".into()),
        ("loop", "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}".into()),
        ("value", "{% set n=namespace(x=[]) %}{% for i in range(9999) %}{% set n.x=[n.x] %}{% endfor %}".into()),
        ("length", "a".repeat(2 << 20)),
    ] {
        limited(name, source);
    }
    // Chains do not nest.
    assert_eq!(render(&format!("{{{{ {}1 }}}}", "not ".repeat(n))).unwrap(), "True");
    assert_eq!(render(&format!("{{{{ messages{} }}}}", ".a".repeat(n))).unwrap_err().kind, Kind::Runtime);
    assert_eq!(render(&format!("{{{{ {}1 }}}}", "1+".repeat(n))).unwrap(), "100001");
    assert_eq!(render(&format!("{{{{ {}'' }}}}", "'a'~".repeat(n))).unwrap().len(), n);
}

#[test]
fn memory_is_bounded() {
    let grow = |step: &str| {
        format!("{{% set n=namespace(x='ab', l=[1,2]) %}}{{% for i in range(99) %}}{step}{{% endfor %}}{{{{ n.l }}}}")
    };
    for (name, source) in [
        ("~", grow("{% set n.x = n.x ~ n.x %}")),
        ("+", grow("{% set n.x = n.x + n.x %}")),
        ("*", grow("{% set n.x = n.x * 2 %}")),
        ("lists", grow("{% set n.l = n.l + n.l %}")),
        ("shared lists", grow("{% set n.l = [n.l, n.l] %}")),
        ("set block", grow("{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}")),
        ("macro", "{% macro d(x) %}{{ x }}{{ x }}{% endmacro %}".to_owned() + &grow("{% set n.x = d(n.x) %}")),
        ("join", grow("{% set n.x = [n.x, n.x] | join %}")),
        ("replace", grow("{% set n.x = n.x.replace('a', n.x) %}")),
        ("replace filter", grow("{% set n.x = n.x | replace('a', n.x) %}")),
        ("format", grow("{% set n.x = '%s%s' % (n.x, n.x) %}")),
        ("braces", grow("{% set n.x = '{0}{0}'.format(n.x) %}")),
        ("indent", grow("{% set n.x = (n.x ~ '\nb') | indent(n.x | length) %}")),
        (
            "escape",
            "{% set n=namespace(x='&'*99999) %}{% for i in range(99) %}{% set n.x = (n.x | forceescape) ~ '&' * 999999 %}{% endfor %}"
                .into(),
        ),
        ("output", "{% set x = 'a' * 999999 %}{% for i in range(999) %}{{ x }}{% endfor %}".into()),
        ("tojson(indent)", "{{ [[[1]]] | tojson(indent=99999999) }}".into()),
        ("tojson(indent), deep", "{% set x = [[[1]*999]*9]*9 %}{{ x | tojson(indent=65536) }}".into()),
        ("%d", "{{ '%99999999d' % 1 }}".into()),
        ("%*d", "{{ '%*d' % (10**15, 1) }}".into()),
        ("%.f", "{{ '%.99999999f' % 1.5 }}".into()),
        ("{:>}", "{{ '{:>999999999}'.format(1) }}".into()),
        ("{:{}}", "{{ '{:{}}'.format(1, 10**15) }}".into()),
        ("indent width", "{{ 'a' | indent(99999999999) }}".into()),
        ("center", "{{ 'a' | center(99999999999) }}".into()),
        ("ljust", "{{ 'a'.ljust(99999999999) }}".into()),
        ("zfill", "{{ 'a'.zfill(99999999999) }}".into()),
        ("expandtabs", "{{ '\t'.expandtabs(99999999999) }}".into()),
        ("repeat", "{{ 'a' * 10**9 }}".into()),
        ("repeat list", "{{ [1] * 10**9 }}".into()),
        ("range", "{{ range(10**9) }}".into()),
        ("batch", "{{ [1] | batch(10**12, 'x') }}".into()),
        ("slice", "{{ [1] | slice(10**12) }}".into()),
        ("characters", "{{ ('a' * 50000000) | list }}".into()),
        ("split", "{{ ('a ' * 20000000).split() }}".into()),
        ("power", "{{ 10 ** 10 ** 10 }}".into()),
    ] {
        limited(name, source);
    }
}

#[test]
fn time_is_bounded() {
    for (name, source) in [
        ("loops", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}".to_owned()),
        ("shared lists compared", {
            let double = "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}";
            format!(
                "{{% set n=namespace(x=[1], y=[1]) %}}{{% for i in range(99) %}}{double}{{% endfor %}}{{{{ n.x == n.y }}}}"
            )
        }),
        ("in", "{% set x = range(99999) | list %}{% for i in range(99999) %}{{ -1 in x }}{% endfor %}".into()),
        ("find", "{% set x = 'a' * 999999 %}{% for i in range(99999) %}{{ x.find('b') }}{% endfor %}".into()),
        ("first", "{% set x = 'a' * 999999 %}{% for i in range(99999) %}{{ x | length }}{% endfor %}".into()),
        ("unique", "{{ range(99999) | unique }}".into()),
        ("sort", "{% set x = range(99999) | list %}{% for i in range(99) %}{{ x | sort | length }}{% endfor %}".into()),
        ("strip", "{{ ('a' * 999999).strip('ab' * 99999) }}".into()),
    ] {
        limited(name, source);
    }
}

/// Nothing can contain itself.
#[test]
fn cycles_are_impossible() {
    for source in [
        "{% set n=namespace() %}{% set n.x=n %}",
        "{% set n=namespace() %}{% set x=[n] %}",
        "{% macro m() %}{% endmacro %}{% set n=namespace(x=m) %}",
        "{% for x in [1] %}{% set y={'a': loop} %}{% endfor %}",
        "{% for x in [1] %}{{ loop.changed(loop) }}{% endfor %}",
    ] {
        assert_eq!(render(source).unwrap_err().kind, Kind::Runtime, "{source}");
    }
}

/// Expected texts are Jinja2's, in Transformers' environment.
#[test]
fn small_templates_render_as_in_jinja() {
    for (source, expected) in [
        (
            "{{ ('<'|safe) + '\"' }}|{{ ('<'|safe) ~ '\"' }}|{{ 'a' + ('b'|e) }}|{{ ('{'|tojson) + '\"' }}",
            "<&#34;|<\"|ab|\"{\"\"",
        ),
        (
            "{{ ('%s'|safe) % '<' }}|{{ ('a'|safe).replace('a','<') }}|{{ ('a'|safe)|replace('a','<') + '<' }}",
            "&lt;|&lt;|<<",
        ),
        ("{{ [1.0, 1e16, 1e-5, none, true, \"it's\", 'a\\n'] }}", "[1.0, 1e+16, 1e-05, None, True, \"it's\", 'a\\n']"),
        ("{{ {'a': [1, {}]}|tojson(indent=2) }}", "{\n  \"a\": [\n    1,\n    {}\n  ]\n}"),
        (
            "{{ {'b': 'é', 'a': 1}|tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}",
            "{\"a\":1,\"b\":\"\\u00e9\"}",
        ),
        ("{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** -1 }} {{ 1 ~ 2 * 3 }}", "-4 2 3.5 0.5 16"),
        (
            "{{ 'a b  c '.split(none, 1) }}{{ ' a b c'.rsplit(none, 1) }}{{ 'abcdef'[-2::-2] }}",
            "['a', 'b  c '][' a b', 'c']eca",
        ),
        (
            "{{ {'items': 1}.items()|list }}{{ {'items': 1}['items'] }}{{ messages[0]['keys'] is defined }}",
            "[('items', 1)]1True",
        ),
        (
            "{% for g in [{'r':'B'},{'r':'a'},{'r':'b'},{}]|groupby('r', default='x') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}",
            "a1B2x1",
        ),
        (
            "{% for g in [{'r':'B'},{'r':'b'}]|groupby('r', case_sensitive=true) %}{{ g['grouper'] }}{{ g[1]|length }}{% endfor %}",
            "B1b1",
        ),
        ("{% for k, l in [('a',1),('A',2)]|groupby(0) %}{{ k }}{{ l }}{% endfor %}", "a[('a', 1), ('A', 2)]"),
        ("{{ ('a', [1]).list is defined }}", "False"),
        (
            "{% macro f(a, b=1) %}{{ kwargs }}{{ varargs }}{% endmacro %}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}{{ f.catch_varargs }}{{ f.caller }}{{ f.explicit_caller }}",
            "f('a', 'b')TrueTrueFalseFalse",
        ),
        (
            "{% macro f() %}{{ caller.name }}{{ caller.arguments }}{{ caller(1) }}{% endmacro %}{% call(x) f() %}<{{ x }}>{% endcall %}{{ f.caller }}{{ f.catch_kwargs }}",
            "None('x',)<1>TrueFalse",
        ),
        (
            "{{ [{'n':2,'c':'a'},{'n':1,'c':'c'},{'n':1,'c':'b'}]|sort(attribute='n,c')|map(attribute='c')|join }}",
            "bca",
        ),
        ("{% set x=1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x=2 %}{{ m() }}", "2"),
        (
            "{% for i in [1,2] %}{% set x = i %}{% endfor %}{{ x }}|{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{{ loop.last }}{% endfor %}",
            "|a1True",
        ),
        ("a\n  {% if true %}\n  b\n  {% endif %}\n{#- c #}\n  {{ 1 -}}  \n x\n", "a\n  b\n  1x"),
        (
            "{% raw %}{{ x }}{% endraw %}{% for x in range(5) %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}",
            "{{ x }}012",
        ),
        (
            "{{ '%05.1f|%-4s|%x' % (2.25, 'a', 255) }}{{ '{:>4}|{:,}|{0!r}'.format('a', 1234) if false else '' }}",
            "002.2|a   |ff",
        ),
        ("{{ strftime_now('%d %b %Y') }}", "02 Jan 2025"),
    ] {
        assert_eq!(render(source).as_deref(), Ok(expected), "{source}");
    }
    let raised = render("{{ raise_exception('no ' ~ 1) }}").unwrap_err();
    assert_eq!((raised.kind, raised.message.as_str(), raised.line), (Kind::Raised, "no 1", 1));
}

/// Names are looked up when a template is parsed, as Jinja does: in conditionals when they are reached.
#[test]
fn unknown_filters_and_tests() {
    let others = known::OTHER_FILTERS.split(' ').map(|name| ("filter", name, format!("|{name}")));
    let tests = known::OTHER_TESTS.split(' ').map(|name| ("test", name, format!(" is {name}")));
    for (kind, name, use_of) in others.chain(tests) {
        let source = format!("{{% if false %}}\n{{{{ 'a'{use_of} }}}}{{% endif %}}");
        let error = Template::parse(&source).unwrap_err();
        let wanted = format!("line 2: the {kind} '{name}' of Jinja is not supported in chat templates");
        assert_eq!((error.kind, error.to_string()), (Kind::Syntax, wanted));
    }
    for unknown in ["{{ 'a'|nonesuch }}", "{% for x in messages if x is nonesuch %}{% endfor %}"] {
        assert_eq!(Template::parse(unknown).unwrap_err().kind, Kind::Syntax, "{unknown}");
    }
    for later in
        ["{% if false %}{{ 'a'|nonesuch }}{% endif %}b", "{{ 'a'|nonesuch if 'a' is nonesuch and x else 'b' }}"]
    {
        let error = render(later);
        assert!(error.as_deref() == Ok("b") || error.as_ref().is_err_and(|e| e.kind == Kind::Runtime), "{error:?}");
    }
    for name in known::FILTERS.split_ascii_whitespace() {
        let error = render(&format!("{{{{ messages|{name} }}}}")).err().map(|e| e.message).unwrap_or_default();
        assert!(!error.contains("named") && !error.contains("known"), "{name}: {error}");
    }
    for name in known::TESTS.split_ascii_whitespace() {
        let source = format!("{{{{ messages|select('{name}')|list }}}}");
        let error = render(&source).err().map(|e| e.message).unwrap_or_default();
        assert!(!error.contains("named") && !error.contains("known"), "{name}: {error}");
    }
}

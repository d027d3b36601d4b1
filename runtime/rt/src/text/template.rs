//! Chat templates, rendered as Hugging Face Transformers does: Jinja with `trim_blocks`, `lstrip_blocks`, loop controls, Python's string and dict methods, and
//! `raise_exception`, `strftime_now` and `tojson`.
//!
//! Two things differ: what Python's `markupsafe` escapes when a string marked `safe` is concatenated with another stays as it is, and iterating over
//! `none` yields nothing instead of failing.

use std::ffi::CString;
use std::fmt::Write;
use std::mem::zeroed;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, ErrorKind};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::Config;
use crate::error::{Error, Result, Status};

/// The current local time, for `strftime_now`.
pub type Clock = fn() -> libc::tm;

/// Instructions a template may execute: thousands of times what the largest need, but an endless loop ends.
const FUEL: u64 = 50_000_000;
/// Marks errors made by `raise_exception`.
const RAISED: &str = "raised by the template: ";

/// The parsed chat templates of a model.
pub struct Template {
    env: Environment<'static>,
    variables: Vec<(String, String)>,
}

impl Template {
    /// Parses the templates of `config`.
    ///
    /// # Errors
    /// [`Status::Unsupported`] without a template, [`Status::Template`] for one that does not parse.
    pub fn new(config: &Config, clock: Clock) -> Result<Template> {
        if config.templates.is_empty() {
            let message = "the model has no chat template (none in its tokenizer_config.json); write the prompt as plain text";
            return Err(Error::new(Status::Unsupported, message));
        }
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|e| failed("cannot be set up", &e))?);
        env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        env.set_unknown_method_callback(unknown_method_callback);
        env.set_fuel(Some(FUEL));
        env.add_function("raise_exception", raise_exception);
        env.add_function("strftime_now", move |format: &str| strftime(&clock(), format));
        env.add_filter("tojson", tojson);
        for (name, source) in &config.templates {
            env.add_template_owned(name.clone(), without_generation_tags(source)).map_err(|e| failed("does not parse", &e))?;
        }
        let mut variables = config.specials.clone();
        let named = [("bos_token", &config.bos_token), ("eos_token", &config.eos_token)];
        variables.extend(named.iter().filter_map(|(name, text)| Some(((*name).to_owned(), (*text).clone()?))));
        Ok(Template { env, variables })
    }

    /// Renders a conversation given as JSON: a list of messages `{"role", "content", ...}`, or an object with `messages`, optionally `tools`, `documents`,
    /// `add_generation_prompt` (default true), `template` (a name, when the model has several) and any further variables of the template.
    pub fn render(&self, conversation: &str) -> Result<String> {
        let bad =
            |what: &str| Error::invalid(format!("the conversation is not a JSON list of messages or object with \"messages\": {what}"));
        let given: Value = serde_json::from_str(conversation).map_err(|e| bad(&e.to_string()))?;
        let mut variables: Vec<(String, Value)> = self.variables.iter().map(|(k, v)| (k.clone(), Value::from(v))).collect();
        variables.push(("add_generation_prompt".into(), Value::from(true)));
        variables.push(("tools".into(), Value::from(())));
        variables.push(("documents".into(), Value::from(())));
        match given.kind() {
            ValueKind::Seq => variables.push(("messages".into(), given)),
            ValueKind::Map => {
                for key in given.try_iter().map_err(|e| bad(&e.to_string()))? {
                    let value = given.get_item(&key).map_err(|e| bad(&e.to_string()))?;
                    variables.push((key.to_string(), value));
                }
            }
            _ => return Err(bad("it is neither")),
        }
        let find = |name: &str| variables.iter().rev().find(|(k, _)| k == name).map(|(_, v)| v);
        if find("messages").is_none_or(|m| m.kind() != ValueKind::Seq) {
            return Err(bad("\"messages\" is missing or no list"));
        }
        let wanted = find("template").and_then(|v| v.as_str().map(str::to_owned));
        let name = self.choose(wanted, find("tools").is_some_and(Value::is_true))?;
        let template = self.env.get_template(&name).map_err(|e| failed("is missing", &e))?;
        // Later pairs replace earlier ones: what the caller passes wins.
        template.render(Value::from_pairs(variables)).map_err(|e| failed("failed", &e))
    }

    /// The template to use: the named one, else `tool_use` when there are tools, else `default`, else the first.
    fn choose(&self, wanted: Option<String>, tools: bool) -> Result<String> {
        let mut names: Vec<&str> = self.env.templates().map(|(name, _)| name).collect();
        names.sort_unstable();
        if let Some(name) = wanted {
            if names.contains(&name.as_str()) {
                return Ok(name);
            }
            return Err(Error::invalid(format!("the model has no chat template {name:?}, only {}", names.join(", "))));
        }
        let preferred = if tools { ["tool_use", "default"] } else { ["default", "default"] };
        let found = preferred.into_iter().find(|p| names.contains(p)).or(names.first().copied());
        Ok(found.unwrap_or_default().to_owned())
    }
}

fn failed(what: &str, error: &minijinja::Error) -> Error {
    let detail = error.detail().unwrap_or_default();
    if let Some(reason) = detail.strip_prefix(RAISED) {
        return Error::new(Status::Template, format!("the chat template refuses the conversation: {reason}"));
    }
    Error::new(Status::Template, format!("the chat template {what}: {error}"))
}

fn raise_exception(message: &str) -> std::result::Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
}

/// Transformers' `{% generation %}` marks assistant text for training masks; for rendering it means nothing.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(len) = rest[start..].find("%}") else { break };
        let tag = &rest[start..start + len + 2];
        let word = tag.trim_start_matches("{%").trim_end_matches("%}").trim_matches(['-', '+']).trim();
        out += &rest[..start];
        if matches!(word, "generation" | "endgeneration") {
            // An empty comment keeps the tag's whitespace control.
            out += &tag.replacen("{%", "{#", 1).replacen("%}", "#}", 1);
        } else {
            out += tag;
        }
        rest = &rest[start + len + 2..];
    }
    out + rest
}

/// The local time now.
pub fn local_time() -> libc::tm {
    // SAFETY: plain C calls on local variables; an all-zero tm is valid.
    unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut tm: libc::tm = zeroed();
        libc::localtime_r(&now, &mut tm);
        tm
    }
}

fn strftime(tm: &libc::tm, format: &str) -> String {
    let Ok(format) = CString::new(format) else { return String::new() };
    let mut out = vec![0u8; 256 + 8 * format.as_bytes().len()];
    // SAFETY: `out` has the length passed, `format` is a C string.
    let len = unsafe { libc::strftime(out.as_mut_ptr().cast(), out.len(), format.as_ptr(), tm) };
    String::from_utf8_lossy(&out[..len]).into_owned()
}

/// `json.dumps(value, ensure_ascii=False, indent=indent)`: unlike Jinja's own filter, without HTML escapes.
fn tojson(value: &Value, args: Kwargs) -> std::result::Result<String, minijinja::Error> {
    let indent: Option<usize> = args.get("indent")?;
    // Accepted and without effect, as templates pass Python's defaults.
    let _: (Option<bool>, Option<Value>, Option<bool>) = (args.get("ensure_ascii")?, args.get("separators")?, args.get("sort_keys")?);
    args.assert_all_used()?;
    let mut out = String::new();
    write_json(&mut out, value, indent, 0)?;
    Ok(out)
}

fn write_json(out: &mut String, value: &Value, indent: Option<usize>, depth: usize) -> std::result::Result<(), minijinja::Error> {
    if depth > 200 {
        return Err(minijinja::Error::new(ErrorKind::InvalidOperation, "tojson: nested too deeply"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => write_number(out, value),
        ValueKind::String => out.push_str(&crate::json::string(value.as_str().unwrap_or_default())),
        ValueKind::Map => {
            let items =
                value.try_iter()?.map(|key| value.get_item(&key).map(|v| (Some(key), v))).collect::<std::result::Result<Vec<_>, _>>()?;
            write_items(out, ['{', '}'], &items, indent, depth)?;
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<_> = value.try_iter()?.map(|v| (None, v)).collect();
            write_items(out, ['[', ']'], &items, indent, depth)?;
        }
        kind => {
            let message = format!("tojson: a value of type {kind} is not JSON serializable");
            return Err(minijinja::Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(())
}

/// As Python: integers plain, floats always with a point or exponent.
fn write_number(out: &mut String, value: &Value) {
    let text = value.to_string();
    out.push_str(&text);
    if !value.is_integer() && !text.contains(['.', 'e', 'n', 'N', 'i']) {
        out.push_str(".0");
    }
}

fn write_items(
    out: &mut String,
    [open, close]: [char; 2],
    items: &[(Option<Value>, Value)],
    indent: Option<usize>,
    depth: usize,
) -> std::result::Result<(), minijinja::Error> {
    let newline = |out: &mut String, depth: usize| {
        if let Some(indent) = indent {
            // Writing to a string cannot fail.
            let _ = write!(out, "\n{:1$}", "", indent * depth);
        }
    };
    out.push(open);
    for (i, (key, value)) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(if indent.is_some() { "," } else { ", " });
        }
        newline(out, depth + 1);
        if let Some(key) = key {
            out.push_str(&crate::json::string(&key.to_string()));
            out.push_str(": ");
        }
        write_json(out, value, indent, depth + 1)?;
    }
    if !items.is_empty() {
        newline(out, depth);
    }
    out.push(close);
    Ok(())
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;

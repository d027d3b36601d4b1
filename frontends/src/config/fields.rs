//! Typed access to the fields of `config.json`, for those that are declared.
//!
//! An architecture declares its fields as tables of [`Field`]. An undeclared field reads as absent,
//! so nothing is read that is not declared; fields of the file that are not declared are judged by
//! [`super::known`].

use super::error::{ConfigError, list, show};
use super::known::{self, Neutral, Unread};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::fmt;
use std::sync::LazyLock;

/// A field that is read, and the values allowed besides `null`.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Which values it may have.
    pub accepts: Accepts,
    /// Other names for it, of older or newer files.
    pub also: &'static [&'static str],
    /// Values that mean nothing to an architecture that does not read it; others it refuses.
    pub neutral: Neutral,
}

/// Values of a field.
#[derive(Clone, Copy, Debug)]
pub enum Accepts {
    /// A whole number from 1 to this.
    Size(usize),
    /// A whole number.
    Count,
    /// A finite number.
    Number,
    /// `true` or `false`.
    Flag,
    /// Any string.
    Text,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// A list of strings, one of these each.
    ListOf(&'static [&'static str]),
    /// A list of finite numbers.
    Numbers,
    /// A token id, or a list of them.
    Tokens,
    /// An object, whose fields have a table of their own.
    Object,
    /// Anything: only its subject matters.
    Any,
}

impl Field {
    /// A field with a name.
    pub const fn new(name: &'static str, accepts: Accepts) -> Field {
        Field { name, accepts, also: &[], neutral: Neutral::Off }
    }

    /// The same with other values.
    pub const fn accepting(self, accepts: Accepts) -> Field {
        Field { accepts, ..self }
    }

    /// The same under other names as well.
    pub const fn or(self, also: &'static [&'static str]) -> Field {
        Field { also, ..self }
    }

    /// The same with other values that architectures without it may ignore; for a field that
    /// [`super::known`] does not list.
    pub const fn unless(self, neutral: Neutral) -> Field {
        Field { neutral, ..self }
    }

    /// Whether a member of the object is this field.
    pub fn is(&self, name: &str) -> bool {
        self.name == name || self.also.contains(&name)
    }
}

/// Fields that identify the architecture of a file.
pub const IDENTITY: &[Field] = &[Field::new("model_type", Accepts::Text), Field::new("architectures", Accepts::Any)];

/// A field that may be absent or `null`, which Transformers treats differently.
pub(crate) enum Given<T> {
    Absent,
    Null,
    Value(T),
}

impl<T> Given<T> {
    /// The value, or the default for both absent and `null`.
    pub(crate) fn or(self, default: T) -> T {
        self.value().unwrap_or(default)
    }

    /// The value; the default if absent; nothing for `null`.
    pub(crate) fn or_null(self, default: T) -> Option<T> {
        match self {
            Given::Value(v) => Some(v),
            Given::Null => None,
            Given::Absent => Some(default),
        }
    }

    /// The value, nothing for both absent and `null`.
    pub(crate) fn value(self) -> Option<T> {
        match self {
            Given::Value(v) => Some(v),
            Given::Null | Given::Absent => None,
        }
    }
}

/// The declared fields of a JSON object, all of them of the types that are declared. Errors name
/// the field.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// Prefix of field names in messages.
    pub(crate) at: &'static str,
    tables: &'a [&'static [Field]],
    unread: &'a RefCell<Unread>,
    /// The fields belong to a part of a larger model.
    part: bool,
    /// Sizes that files of larger models leave out.
    absent: &'static [(&'static str, usize)],
}

impl<'a> Fields<'a> {
    /// Checks the values of all declared fields that are there. Members that readers leave unread
    /// in objects inside go to `unread`.
    pub(crate) fn new(
        map: &'a Map<String, Value>,
        at: &'static str,
        tables: &'a [&'static [Field]],
        unread: &'a RefCell<Unread>,
    ) -> Result<Fields<'a>, ConfigError> {
        let f = Fields { map, at, tables, unread, part: false, absent: &[] };
        tables.iter().copied().flatten().try_for_each(|field| f.check(field))?;
        Ok(f)
    }

    /// The same as fields of a part of a larger model, if they are.
    pub(crate) fn of_part(self, part: bool) -> Fields<'a> {
        Fields { part, ..self }
    }

    /// With the class's defaults for absent sizes: files of larger models omit defaults, files of a
    /// model by itself do not.
    pub(crate) fn by_default(self, absent: &'static [(&'static str, usize)]) -> Fields<'a> {
        Fields { absent, ..self }
    }

    /// The same fields, of a file that says nothing of them.
    pub(crate) fn bare(&self) -> Fields<'a> {
        static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        Fields { map: &NOTHING, ..*self }
    }

    /// A size that a part of a larger model has by default.
    fn absent_size(&self, field: &str) -> Option<usize> {
        self.absent.iter().find(|(name, _)| self.part && *name == field).map(|(_, n)| *n)
    }

    /// The fields of an object inside this one.
    pub(crate) fn inside<'b>(
        &self,
        map: &'b Map<String, Value>,
        at: &'static str,
        tables: &'b [&'static [Field]],
    ) -> Result<Fields<'b>, ConfigError>
    where
        'a: 'b,
    {
        Fields::new(map, at, tables, self.unread)
    }

    /// The same, of an object whose other fields nobody reads: they are kept, by the rules of `fixed` and of
    /// all configurations.
    pub(crate) fn inside_alone<'b>(
        &self,
        map: &'b Map<String, Value>,
        at: &'static str,
        tables: &'b [&'static [Field]],
        fixed: &[(&str, Neutral)],
    ) -> Result<Fields<'b>, ConfigError>
    where
        'a: 'b,
    {
        let own = self.inside(map, at, tables)?;
        self.leave(known::unread_inside(map, at, |name| own.reads(name), fixed));
        Ok(own)
    }

    /// The same, of an object that describes a rotary embedding.
    pub(crate) fn inside_rope<'b>(
        &self,
        map: &'b Map<String, Value>,
        at: &'static str,
        tables: &'b [&'static [Field]],
    ) -> Result<Fields<'b>, ConfigError>
    where
        'a: 'b,
    {
        let own = self.inside(map, at, tables)?;
        self.leave(known::unread_rope(map, at, |name| own.reads(name)));
        Ok(own)
    }

    /// Keeps the unread members of an object inside this one.
    pub(crate) fn leave(&self, rest: Unread) {
        let mut unread = self.unread.borrow_mut();
        unread.changes.extend(rest.changes);
        unread.others.extend(rest.others);
    }

    /// Keeps the longest sequence for which LongRoPE has its short factors.
    pub(crate) fn leave_original(&self, context: usize) {
        self.unread.borrow_mut().original_context = Some(context);
    }

    /// Whether a field is declared.
    pub(crate) fn reads(&self, name: &str) -> bool {
        self.tables.iter().copied().flatten().any(|f| f.is(name))
    }

    /// The object's value of a declared field, with the name found; `null` only if nothing else.
    fn given(&self, field: &Field) -> Option<(&'static str, &'a Value)> {
        let all = || {
            std::iter::once(field.name)
                .chain(field.also.iter().copied())
                .filter_map(|name| Some((name, self.map.get(name)?)))
        };
        all().find(|(_, v)| !v.is_null()).or_else(|| all().next())
    }

    fn check(&self, field: &Field) -> Result<(), ConfigError> {
        for name in field.also {
            if let (Some((first, a)), Some(b)) = (self.given(field), self.map.get(*name))
                && a != b
                && !b.is_null()
            {
                return Err(self.invalid_value(name, b, format!("as `{}{first}` ({}), or absent", self.at, show(a))));
            }
        }
        let Some((name, v)) = self.given(field).filter(|(_, v)| !v.is_null()) else { return Ok(()) };
        let (fits, expected) = match field.accepts {
            Accepts::Any => return Ok(()),
            Accepts::Size(max) => {
                (v.as_u64().is_some_and(|n| n >= 1 && n <= max as u64), format!("a whole number from 1 to {max}"))
            }
            Accepts::Count => (v.is_u64(), "a whole number".into()),
            Accepts::Number => (v.as_f64().is_some_and(f64::is_finite), "a finite number".into()),
            Accepts::Flag => (v.is_boolean(), "true or false".into()),
            Accepts::Text => (v.is_string(), "a string".into()),
            Accepts::Object => (v.is_object(), "an object".into()),
            Accepts::Tokens => (v.is_u64() || v.is_i64() || v.is_array(), "a token id, or a list of them".into()),
            Accepts::OneOf(names) => return self.one_of(name, v, names),
            Accepts::ListOf(names) => match v.as_array() {
                Some(list) => return list.iter().try_for_each(|v| self.one_of(name, v, names)),
                None => (false, "a list".into()),
            },
            Accepts::Numbers => (
                v.as_array().is_some_and(|list| list.iter().all(|v| v.as_f64().is_some_and(f64::is_finite))),
                "a list of finite numbers".into(),
            ),
        };
        if fits { Ok(()) } else { Err(self.invalid_value(name, v, expected)) }
    }

    fn one_of(&self, field: &str, v: &Value, names: &[&str]) -> Result<(), ConfigError> {
        match v.as_str() {
            Some(s) if names.contains(&s) => Ok(()),
            Some(_) => Err(self.unsupported(field, show(v), format!("supported are {}", list(names)))),
            None => Err(self.invalid_value(field, v, "a string".into())),
        }
    }

    /// The file's name of a field, which may be another than the first.
    fn called<'n>(&self, field: &'n str) -> &'n str
    where
        'a: 'n,
    {
        let declared = self.tables.iter().copied().flatten().find(|f| f.name == field);
        declared.and_then(|f| self.given(f)).map_or(field, |(name, _)| name)
    }

    pub(crate) fn invalid(&self, field: &str, found: &dyn fmt::Debug, expected: String) -> ConfigError {
        ConfigError::Invalid {
            field: format!("{}{}", self.at, self.called(field)),
            found: format!("{found:?}"),
            expected,
        }
    }

    pub(crate) fn invalid_value(&self, field: &str, found: &Value, expected: String) -> ConfigError {
        ConfigError::Invalid { field: format!("{}{}", self.at, self.called(field)), found: show(found), expected }
    }

    pub(crate) fn unsupported(&self, field: &str, found: String, help: String) -> ConfigError {
        ConfigError::Unsupported { field: format!("{}{}", self.at, self.called(field)), found, help }
    }

    /// Refuses a flag that is set.
    pub(crate) fn refuse_flag(&self, field: &str, help: &str) -> Result<(), ConfigError> {
        match self.flag(field) {
            true => Err(self.unsupported(field, "true".into(), help.into())),
            false => Ok(()),
        }
    }

    pub(crate) fn missing(&self, field: &str) -> ConfigError {
        ConfigError::Missing { field: format!("{}{field}", self.at) }
    }

    /// A field by its first name, whatever it is; undeclared ones are absent.
    pub(crate) fn get(&self, field: &str) -> Given<&'a Value> {
        let declared = self.tables.iter().copied().flatten().find(|f| f.name == field);
        match declared.and_then(|f| self.given(f)) {
            None => Given::Absent,
            Some((_, Value::Null)) => Given::Null,
            Some((_, v)) => Given::Value(v),
        }
    }

    /// A field of [`Accepts::Size`].
    pub(crate) fn size(&self, field: &str) -> Given<usize> {
        match self.get(field) {
            Given::Absent => Given::Absent,
            Given::Null => Given::Null,
            Given::Value(v) => v.as_u64().and_then(|n| usize::try_from(n).ok()).map_or(Given::Absent, Given::Value),
        }
    }

    /// A [`size`](Self::size) that must be there.
    pub(crate) fn required_size(&self, field: &str) -> Result<usize, ConfigError> {
        self.size_or(field, None)
    }

    /// A [`size`](Self::size) that must be there if there is no default.
    pub(crate) fn size_or(&self, field: &str, default: Option<usize>) -> Result<usize, ConfigError> {
        let absent = || self.absent_size(field).or(default);
        self.size(field).value().or_else(absent).ok_or_else(|| self.missing(field))
    }

    /// A field of [`Accepts::Count`].
    pub(crate) fn count(&self, field: &str) -> Option<usize> {
        let n = self.get(field).value()?.as_u64()?;
        Some(usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// A field of [`Accepts::Number`].
    pub(crate) fn number(&self, field: &str) -> Option<f64> {
        self.get(field).value()?.as_f64()
    }

    /// A required number, at least `min` and above 0.
    pub(crate) fn factor(&self, field: &str, min: f64) -> Result<f64, ConfigError> {
        match self.number(field) {
            Some(n) if n >= min && n > 0.0 && (n as f32).is_finite() => Ok(n),
            Some(n) => Err(self.invalid(field, &n, format!("positive and at least {min}"))),
            None => Err(self.missing(field)),
        }
    }

    /// A number above 0, or the default.
    pub(crate) fn factor_or(&self, field: &str, default: f64) -> Result<f64, ConfigError> {
        if self.number(field).is_some() { self.factor(field, 0.0) } else { Ok(default) }
    }

    /// A field of [`Accepts::Flag`]; `false` where it is absent.
    pub(crate) fn flag(&self, field: &str) -> bool {
        self.flag_or(field, false)
    }

    /// A field of [`Accepts::Flag`].
    pub(crate) fn flag_or(&self, field: &str, default: bool) -> bool {
        self.get(field).value().and_then(Value::as_bool).unwrap_or(default)
    }

    /// A field of [`Accepts::Numbers`].
    pub(crate) fn numbers(&self, field: &str) -> Option<Vec<f64>> {
        Some(self.get(field).value()?.as_array()?.iter().filter_map(Value::as_f64).collect())
    }

    /// A field of [`Accepts::Text`] or [`Accepts::OneOf`].
    pub(crate) fn text(&self, field: &str) -> Option<&'a str> {
        self.get(field).value()?.as_str()
    }

    /// A field of [`Accepts::Object`].
    pub(crate) fn object(&self, field: &str) -> Option<&'a Map<String, Value>> {
        self.get(field).value()?.as_object()
    }

    /// A field of [`Accepts::Tokens`]: the ids below `vocab`. Others belong to no token, so no text
    /// has them: classes without a value write their largest model's ids, and some files -1. They
    /// are ignored and reported.
    pub(crate) fn token_ids(&self, field: &str, vocab: usize) -> Result<Vec<u32>, ConfigError> {
        let Some(v) = self.get(field).value() else { return Ok(vec![]) };
        let list = v.as_array().map_or(std::slice::from_ref(v), Vec::as_slice);
        let mut ids = Vec::with_capacity(list.len());
        for v in list {
            match v.as_u64() {
                Some(n) if n < vocab as u64 => ids.push(n as u32),
                None if !v.is_i64() => return Err(self.invalid_value(field, v, "a token id".into())),
                _ => {
                    let others = vec![format!("`{field}` {v}, not a token below `vocab_size` ({vocab})")];
                    self.leave(Unread { others, ..Unread::default() });
                }
            }
        }
        Ok(ids)
    }
}

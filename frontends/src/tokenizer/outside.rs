//! Tokens that stand outside a tokenizer's file: in `tokenizer_config.json`, `special_tokens_map.json`,
//! `added_tokens.json`. They are read as AutoTokenizer of Transformers 5 reads them, for every kind of
//! file, and become `added_tokens` of the `tokenizer.json`.

use super::classes::{Again, Class, ROLES};
use super::token::{Flags, Token, entry};
use super::words::Words;
use llmcc_text::json::Json;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// The files that name tokens.
#[derive(Clone, Copy)]
pub(super) struct Files<'a> {
    /// `tokenizer_config.json`.
    pub config: &'a Value,
    /// `special_tokens_map.json`.
    pub map: &'a Value,
    /// `added_tokens.json`.
    pub added: &'a Value,
    /// The first two once more, with keys in their order: new tokens are numbered by it.
    pub order: &'a [Option<Json>; 2],
}

/// Keys in their order, of the whole or of a member.
fn keys<'a>(value: &'a Value, order: Option<&'a Json>) -> Vec<&'a str> {
    match order {
        Some(Json::Map(items)) => items.iter().map(|(key, _)| &**key).collect(),
        _ => value.as_object().into_iter().flatten().map(|(key, _)| &**key).collect(),
    }
}

/// The file that holds a token, for messages.
pub(super) const CONFIG: &str = "tokenizer_config.json";
pub(super) const MAP: &str = "special_tokens_map.json";
pub(super) const ADDED: &str = "added_tokens.json";

/// Ids behind a vocabulary that has no place for tokens that are added.
const MOST_BEHIND: usize = 1 << 16;

/// The place of a fault, and the fault.
pub(super) type Wrong = (&'static str, String);

/// Tokens that files name.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// Special tokens by role: first the roles of [`ROLES`].
    pub roles: Vec<(String, Token)>,
    /// Others that are special.
    extra: Vec<Token>,
    /// Tokens that the settings list.
    listed: Vec<Token>,
    /// With the ids that files give them.
    numbered: BTreeMap<u64, Token>,
}

/// A role's token on the way; a role may be said to have none.
#[derive(Default)]
struct Said {
    roles: BTreeMap<String, Option<Token>>,
    /// Other names ending in `_token`, in order: those with flags, then those by text.
    others: [Vec<(String, Token)>; 2],
    /// `extra_special_tokens`, where it is there.
    extra: Option<Vec<Token>>,
    /// `additional_special_tokens`, where it counts.
    additional: Option<Vec<Token>>,
}

impl Said {
    /// Takes a name of a file.
    fn take(&mut self, key: &str, value: &Value) -> Result<(), String> {
        if ROLES.contains(&key) {
            self.roles.insert(key.into(), Token::read(value, key)?);
        } else if key.ends_with("_token") && (value.is_string() || value["__type"] == "AddedToken") {
            self.other(key, value)?;
        }
        Ok(())
    }

    fn other(&mut self, key: &str, value: &Value) -> Result<(), String> {
        if let Some(token) = Token::read(value, key)? {
            match self.others.iter_mut().flatten().find(|(name, _)| name == key) {
                Some((_, of)) => *of = token,
                None => self.others[usize::from(token.flags.is_none())].push((key.into(), token)),
            }
        }
        Ok(())
    }

    /// `extra_special_tokens`: a list, or an object of named ones.
    fn take_extra(&mut self, value: &Value, what: &str, order: Option<&Json>) -> Result<(), String> {
        match value {
            Value::Null => self.extra = Some(vec![]),
            Value::Object(_) => {
                let order = order.and_then(|o| o.get(what));
                keys(value, order).into_iter().try_for_each(|key| self.other(key, &value[key]))?;
            }
            list => self.extra = Some(Token::list(list, what)?),
        }
        Ok(())
    }
}

impl Named {
    /// Reads the files; `own` are the numbered tokens of a `tokenizer.json`, `pieces` the pieces of
    /// a SentencePiece model that are cut out of texts.
    ///
    /// # Errors
    /// Something is no token.
    pub fn read(
        files: &Files<'_>,
        own: &[(u64, Token)],
        class: &Class,
        pieces: Option<Vec<Token>>,
    ) -> Result<Named, Wrong> {
        let [of_settings, of_specials] = files.order.each_ref().map(Option::as_ref);
        let mut said = of_config(files.config, of_settings, class).map_err(|what| (CONFIG, what))?;
        let mut numbered: Vec<(u64, Token)> = vec![];
        if let Some(decoder) = files.config.get("added_tokens_decoder") {
            numbered = of_decoder(decoder).map_err(|what| (CONFIG, what))?;
        } else {
            of_map(files.map, of_specials, &mut said).map_err(|what| (MAP, what))?;
            numbered.extend(of_added(files, &said).map_err(|what| (ADDED, what))?);
            numbered.extend(own.iter().cloned());
        }
        let by_text = |token: Token| {
            let found = numbered.iter().rev().find(|(_, other)| other.text == token.text);
            found.map_or(token, |(_, other)| other.clone())
        };
        let mut roles = vec![];
        for role in ROLES {
            let token = match said.roles.remove(role) {
                Some(given) => given.map(|token| class.met(role, by_text(token))),
                None => class.special(role),
            };
            roles.extend(token.map(|token| (role.to_string(), token)));
        }
        roles.extend(said.others.into_iter().flatten());
        let listed = said.extra.clone().unwrap_or_default();
        let of_class = || class.extra.iter().map(|text| Token::plain(text)).collect();
        // A list in the settings counts alone.
        let extra = said.extra.or(pieces).or(said.additional).unwrap_or_else(of_class);
        Ok(Named { roles, extra, listed, numbered: numbered.into_iter().collect() })
    }

    /// The text of a role.
    pub fn role(&self, role: &str) -> Option<&str> {
        self.roles.iter().find(|(of, _)| of == role).map(|(_, token)| token.text.as_str())
    }

    /// Gives a role a token if it has none.
    pub fn default_role(&mut self, role: &str, text: &str) {
        if self.role(role).is_none() {
            self.roles.push((role.into(), Token::plain(text)));
        }
    }

    /// The numbered tokens from an id on, with a gap for each id between them that has none; then those
    /// that the settings list.
    ///
    /// # Errors
    /// There would be too many.
    pub fn behind(&self, base: usize) -> Result<Vec<Option<Token>>, String> {
        let mut out = vec![];
        for (id, token) in self.numbered.range(base as u64..) {
            let at = *id as usize - base;
            if at > MOST_BEHIND {
                return Err(format!("the token {:?} has id {id}, far behind the {base} of the vocabulary", token.text));
            }
            out.resize_with(at, || None);
            out.push(Some(Token::plain(&token.text)));
        }
        for token in &self.listed {
            if !out.iter().flatten().any(|t| t.text == token.text) {
                out.push(Some(Token::plain(&token.text)));
            }
        }
        Ok(out)
    }

    /// Keeps of the tokens with a role, and of others that are special, those that a vocabulary has.
    pub fn only_of(&mut self, has: &dyn Fn(&str) -> bool) {
        self.roles.retain(|(_, token)| has(&token.text));
        self.extra.retain(|token| has(&token.text));
    }

    /// Whether a file names a token of this text.
    fn names(&self, text: &str, class: &Class) -> bool {
        let default = |role: &str| class.specials.iter().any(|(of, t)| *of == role && *t == text);
        self.numbered.values().any(|t| t.text == text)
            || self.roles.iter().any(|(role, t)| t.text == text && !default(role))
            || self.extra.iter().any(|t| t.text == text && !class.extra.contains(&text))
    }

    /// The tokens that are added to those that a tokenizer has, in order.
    fn to_add(&self, has: &[Token], class: &Class) -> Vec<(String, Flags)> {
        let special = || self.roles.iter().map(|(_, token)| token).chain(&self.extra);
        let has: HashSet<&Token> = has.iter().collect();
        let mut add: Vec<&Token> = self.numbered.values().filter(|t| !has.contains(t)).collect();
        let known: HashSet<&str> = has.iter().chain(&add).map(|t| t.text.as_str()).collect();
        let mut added: HashSet<&Token> = add.iter().copied().collect();
        add.extend(special().filter(|t| !known.contains(t.text.as_str()) && added.insert(t)));
        let of_roles: HashSet<&str> = self.roles.iter().map(|(_, t)| t.text.as_str()).collect();
        let flags = |t: &Token| match t.flags {
            None => Flags::SPECIAL,
            Some(flags) => Flags { special: flags.special || of_roles.contains(t.text.as_str()), ..flags },
        };
        let mut out: Vec<(String, Flags)> = add.iter().map(|t| (t.text.clone(), flags(t))).collect();
        let flagged = |t: &Token| t.flags.map_or(Flags::SPECIAL, |flags| Flags { special: true, ..flags });
        match class.again {
            Again::Never => {}
            Again::Plain => out.extend(special().map(|t| (t.text.clone(), Flags::SPECIAL))),
            Again::Flagged => out.extend(special().map(|t| (t.text.clone(), flagged(t)))),
        }
        out
    }
}

fn is_there(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(of) => !of.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

/// `additional_special_tokens` is the older name of `extra_special_tokens`, and counts where that is
/// missing or empty.
fn of_config(config: &Value, order: Option<&Json>, class: &Class) -> Result<Said, String> {
    let mut said = Said::default();
    let more = class.specials.iter().filter(|(role, _)| !ROLES.contains(role));
    said.others[0].extend(more.map(|(role, text)| ((*role).to_string(), Token::plain(text))));
    for key in keys(config, order) {
        said.take(key, &config[key])?;
    }
    match (config.get("extra_special_tokens"), config.get("additional_special_tokens")) {
        (extra, Some(older)) if !extra.is_some_and(is_there) => {
            said.take_extra(older, "additional_special_tokens", order)?;
        }
        (Some(extra), _) => said.take_extra(extra, "extra_special_tokens", order)?,
        (None, _) => {}
    }
    Ok(said)
}

/// `added_tokens_decoder`: tokens by id.
fn of_decoder(decoder: &Value) -> Result<Vec<(u64, Token)>, String> {
    let mut out = vec![];
    let of = match decoder {
        Value::Null => return Ok(out),
        Value::Object(of) => of,
        other => return Err(format!("`added_tokens_decoder` is {other}, not an object of tokens by id")),
    };
    for (id, token) in of {
        let wrong = || format!("`added_tokens_decoder` has {id:?} for the id of a token");
        let number: u32 = id.parse().map_err(|_| wrong())?;
        let token = Token::read(token, &format!("added_tokens_decoder[{id}]"))?.filter(|t| t.flags.is_some());
        out.push((number.into(), token.ok_or_else(|| format!("`added_tokens_decoder` has no token {id}"))?));
    }
    Ok(out)
}

/// `special_tokens_map.json`, which counts more than `tokenizer_config.json` where that has no
/// `added_tokens_decoder`.
fn of_map(map: &Value, order: Option<&Json>, said: &mut Said) -> Result<(), String> {
    for key in keys(map, order) {
        let value = &map[key];
        match (key, value) {
            ("extra_special_tokens", Value::Array(_)) => {
                let mut all = said.extra.take().unwrap_or_default();
                for token in Token::list(value, key)?.into_iter().map(Token::into_special) {
                    if !all.contains(&token) {
                        all.push(token);
                    }
                }
                said.extra = Some(all);
            }
            ("extra_special_tokens", _) => said.take_extra(value, key, order)?,
            ("additional_special_tokens", Value::Null) => said.additional = None,
            ("additional_special_tokens", _) => {
                let all = Token::list(value, key)?;
                said.additional = Some(all.into_iter().map(Token::into_special).collect());
            }
            _ => {
                let value = match value.get("content") {
                    // Whatever it says of itself.
                    Some(_) => special(value),
                    None => value.clone(),
                };
                said.take(key, &value)?;
            }
        }
    }
    Ok(())
}

fn special(value: &Value) -> Value {
    let mut value = value.clone();
    value["special"] = true.into();
    value["__type"] = "AddedToken".into();
    value
}

/// `added_tokens.json`: ids by text. Tokens with a role are special.
fn of_added(files: &Files<'_>, said: &Said) -> Result<Vec<(u64, Token)>, String> {
    let mut out = vec![];
    let of = match files.added {
        Value::Null => return Ok(out),
        Value::Object(of) => of,
        _ => return Err("no object of ids by token".into()),
    };
    for (text, id) in of {
        let id = id.as_u64().filter(|id| *id <= u64::from(u32::MAX));
        let id = id.ok_or_else(|| format!("it has no id of the token {text:?}"))?;
        // A role that `tokenizer_config.json` gives as an object does not count here.
        let object = |role: &str| files.map.get(role).is_none() && files.config[role].is_object();
        let is_role = said.roles.iter().any(|(role, t)| t.as_ref().is_some_and(|t| t.text == *text) && !object(role));
        let is_extra = said.extra.iter().flatten().any(|t| t.text == *text);
        let special = is_role || is_extra;
        out.push((id, Token::flagged(text, Flags { normalized: Some(!special), special, ..Flags::NONE })));
    }
    Ok(out)
}

/// `added_tokens` of a `tokenizer.json`.
///
/// # Errors
/// An element is no token.
pub(super) fn own_tokens(list: &[Value]) -> Result<Vec<(u64, Token)>, String> {
    let one = |v: &Value| {
        let token = Token::read(v, "added_tokens")?.filter(|t| t.flags.is_some());
        let id = v["id"].as_u64();
        id.zip(token).ok_or_else(|| format!("`added_tokens` has {v}, which is no token with an id"))
    };
    list.iter().map(one).collect()
}

/// The tokens that files name, as added.
pub(super) struct Added {
    /// `added_tokens` of the `tokenizer.json`; `None`: those that it has.
    pub list: Option<Vec<Value>>,
    /// Notes for the user.
    pub warnings: Vec<String>,
    /// Ids of all tokens that are cut out of texts.
    pub ids: BTreeMap<String, u64>,
}

/// Adds the tokens of files to those that a `tokenizer.json` has (`own`), for a model of `rows` tokens.
pub(super) fn add(named: &Named, own: &[(u64, Token)], words: &Words, class: &Class, rows: usize) -> Added {
    let mut has = Table::new(words);
    own.iter().for_each(|(_, token)| has.add(&token.text, token.flags.unwrap_or(Flags::SPECIAL)));
    let before = has.tokens.clone();
    let listed: Vec<Token> = if class.as_it_is { own.iter().map(|(_, t)| t.clone()).collect() } else { vec![] };
    for (text, flags) in named.to_add(&listed, class) {
        has.add(&text, flags);
    }
    // The last ones: ids are given in order.
    let beyond = |id: &u64| *id >= rows as u64 && !before.contains_key(id);
    let left: Vec<(u64, String)> =
        has.tokens.iter().filter(|(id, _)| beyond(id)).map(|(id, (text, _))| (*id, text.clone())).collect();
    for (id, text) in &left {
        has.tokens.remove(id);
        has.ids.remove(text);
    }
    let out = left.iter().filter(|(_, text)| named.names(text, class)).map(|(id, text)| format!("{text:?} (id {id})"));
    let rule = format!("left out, and plain text in prompts: the model has {rows} tokens");
    let mut warnings: Vec<String> = told("beyond the model's tokens", out.collect(), &rule).into_iter().collect();
    let other = named.numbered.iter().filter_map(|(said, token)| {
        let got = has.ids.get(&token.text).filter(|id| **id != *said)?;
        Some(format!("{:?} ({got}, not {said})", token.text))
    });
    let rule = "their ids follow the vocabulary in order, as in Transformers";
    warnings.extend(told("numbered otherwise than the files say", other.collect(), rule));
    let list = (has.tokens != before).then(|| has.tokens.iter().map(|(id, (text, f))| entry(*id, text, *f)).collect());
    Added { list, warnings, ids: has.ids }
}

/// Says something of tokens, if there are any.
fn told(what: &str, tokens: Vec<String>, rule: &str) -> Option<String> {
    const NAMED: usize = 8;
    let more = if tokens.len() > NAMED { format!(" and {} more", tokens.len() - NAMED) } else { String::new() };
    let first = &tokens[..tokens.len().min(NAMED)];
    (!first.is_empty()).then(|| format!("added tokens are {what}: {}{more} ({rule})", first.join(", ")))
}

/// Added tokens by id, numbered as the `tokenizers` crate numbers them.
struct Table<'a> {
    words: &'a Words,
    /// The id of the next new one.
    next: u64,
    tokens: BTreeMap<u64, (String, Flags)>,
    ids: BTreeMap<String, u64>,
}

impl<'a> Table<'a> {
    fn new(words: &'a Words) -> Table<'a> {
        Table { words, next: words.len() as u64, tokens: BTreeMap::new(), ids: BTreeMap::new() }
    }

    fn add(&mut self, text: &str, flags: Flags) {
        if text.is_empty() {
            return;
        }
        let known = self.ids.get(text).copied().or_else(|| self.words.id(text));
        let id = known.unwrap_or(self.next);
        self.next += u64::from(known.is_none());
        self.ids.insert(text.into(), id);
        // A special token stays special.
        let special = flags.special || self.tokens.get(&id).is_some_and(|(t, f)| t == text && f.special);
        let normalized = Some(flags.normalized.unwrap_or(!special));
        self.tokens.insert(id, (text.into(), Flags { normalized, special, ..flags }));
    }
}

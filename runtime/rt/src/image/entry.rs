//! Entries of an image: what a caller may run.

use std::ops::Range;

use llmcc_abi::output::{flags, kind, pool};
use llmcc_abi::{BufferDesc, EntryDesc, InputDesc, NONE, OutputDesc, TapDesc, entry_flags, input, isa, layout};

use super::segment::{Tables, check_text, damaged, table, text_of};
use super::tap::Tap;
use crate::error::Result;

/// The most entries of a model.
const MAX_ENTRIES: usize = 64;

/// An entry, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its part of `Image::regimes`.
    pub regimes: Range<usize>,
    /// Types that a token may be of; 0: tokens have none.
    pub types: u64,
    /// Columns of the rows that come with the tokens; 0: there are none.
    pub given: usize,
    /// Axes along which tokens have positions; 0: their places in sequences are all that counts.
    pub axes: usize,
    /// The id of the tokens that rows come with; none: they come with all tokens.
    pub placeholder: Option<i32>,
    /// The output with a row for each token that the caller asks for.
    pub output: Option<OutputDesc>,
    /// Hidden states of all tokens.
    pub hidden: Option<OutputDesc>,
    /// The track of a sequence that it appends to.
    pub track: usize,
    /// Inputs of products, in the order of their calls.
    pub taps: Vec<Tap>,
    /// Longest sequence of that track.
    pub context: usize,
    /// Whether its tokens join the list of its track; else it has no states, and sequences stay as they are.
    pub remembers: bool,
    /// Other tracks whose states it reads.
    pub reads: Vec<usize>,
    /// Tokens see later ones: a sequence is computed in one step.
    pub whole: bool,
    /// Tokens that rows are given for see all of those that they stand together with, which come in one step.
    pub runs: bool,
    /// Candidates per row of logits; 0: logits only.
    pub candidates: usize,
    /// Buffer of the candidates.
    pub candidates_buffer: usize,
}

impl Entry {
    /// Kind of the output whose rows the caller asks for; [`kind::NONE`] without one.
    pub fn kind(&self) -> u32 {
        self.output.map_or(kind::NONE, |o| o.kind)
    }

    /// Columns of that output; 0 without one.
    pub fn columns(&self) -> usize {
        self.output.map_or(0, |o| o.columns as usize)
    }

    /// Whether it has an output.
    pub fn gives(&self) -> bool {
        self.output.is_some() || self.hidden.is_some() || !self.taps.is_empty()
    }

    /// Whether it makes logits of rows that come with tokens, and leaves none.
    pub(super) fn looks_ahead(&self) -> bool {
        self.given > 0 && self.placeholder.is_none() && self.hidden.is_none() && self.kind() == kind::LOGITS
    }

    /// Columns of the hidden states; 0: a step leaves none.
    pub fn kept(&self) -> usize {
        self.hidden.map_or(0, |o| o.columns as usize)
    }

    /// Whether the runtime makes one row of the rows of a sequence.
    pub fn is_pooled(&self) -> bool {
        matches!(self.kind(), kind::EMBEDDING | kind::SCORES)
    }

    /// Whether pooled rows are scaled to length 1.
    pub fn normalizes(&self) -> bool {
        self.output.is_some_and(|o| o.flags & flags::NORMALIZE != 0)
    }

    /// Whether a caller sees no difference: versions of a model have the same entries.
    pub(super) fn is_like(&self, other: &Entry) -> bool {
        let seen = |o: Option<OutputDesc>| o.map(|o| (o.kind, o.pool, o.flags, o.columns));
        let taken = |e: &Entry| (e.types, (e.given, e.placeholder), (e.whole, e.runs), e.track, e.context);
        self.name == other.name
            && taken(self) == taken(other)
            && (seen(self.output), seen(self.hidden)) == (seen(other.output), seen(other.hidden))
            && self.taps.len() == other.taps.len()
            && self.taps.iter().zip(&other.taps).all(|(a, b)| a.is_like(b))
    }

    /// Reads all entries and checks them: there are some, with names and regimes of their own.
    pub(super) fn read_all(tables: &Tables) -> Result<Vec<Entry>> {
        let descs = table::<EntryDesc>(tables.data, tables.desc.entries, "entries")?;
        let entries = descs.iter().map(|desc| Entry::read(tables, desc)).collect::<Result<Vec<_>>>()?;
        check_entries(&entries, tables.regimes.len())?;
        Ok(entries)
    }

    /// Reads an entry and checks it against the tables.
    fn read(tables: &Tables, desc: &EntryDesc) -> Result<Entry> {
        let data = tables.data;
        check_text(data, desc.name, "entry name")?;
        let mut entry = Entry {
            name: text_of(data, desc.name).to_string(),
            regimes: regimes(tables, desc)?,
            types: 0,
            given: 0,
            axes: 0,
            placeholder: None,
            output: None,
            hidden: None,
            track: desc.track as usize,
            context: if desc.context == 0 { tables.desc.max_context as usize } else { desc.context as usize },
            taps: vec![],
            remembers: true,
            reads: Vec::new(),
            whole: desc.flags & entry_flags::WHOLE != 0,
            runs: desc.flags & entry_flags::RUNS != 0,
            candidates: 0,
            candidates_buffer: 0,
        };
        let tracks = tables.states.iter().map(|s| s.track).max().unwrap_or(0);
        if desc.track > tracks || desc.context > i32::MAX as u32 {
            return Err(damaged(format_args!("entry `{}`, track {} of {}", entry.name, desc.track, tracks + 1)));
        }
        if entry.name.is_empty() || ![0, entry_flags::WHOLE, entry_flags::RUNS].contains(&desc.flags) {
            return Err(damaged(format_args!("entry `{}`, flags {:#x}", entry.name, desc.flags)));
        }
        for i in table::<InputDesc>(data, desc.inputs, "inputs")? {
            entry.input(tables, i)?;
        }
        if entry.runs && entry.placeholder.is_none() {
            return Err(damaged(format_args!("entry `{}` has runs of no token", entry.name)));
        }
        let outputs = table::<OutputDesc>(data, desc.outputs, "outputs")?;
        for o in &outputs {
            entry.add_output(tables, *o)?;
        }
        let taps = table::<TapDesc>(data, desc.taps, "taps")?;
        entry.taps = Tap::read_all(tables, &entry.name, &taps)?;
        entry.check_order(tables)?;
        entry.find_candidates(tables, desc)?;
        Ok(entry)
    }

    fn input(&mut self, tables: &Tables, i: InputDesc) -> Result<()> {
        let good = match i.kind {
            input::TYPES => self.types == 0 && (1..=i32::MAX as u64).contains(&i.size),
            input::AXES => self.axes == 0 && i.size == llmcc_abi::AXES as u64,
            input::ROWS | input::ROWS_OF_TOKEN => self.given == 0 && (1..=input::MAX_COLUMNS).contains(&i.size),
            _ => false,
        };
        let of_token = i.kind == input::ROWS_OF_TOKEN;
        let token = if of_token { u64::from(i.token) < tables.desc.vocab } else { i.token == 0 };
        if !good || !token || of_token && i.size != tables.desc.hidden {
            return Err(damaged(format_args!("an input of entry `{}`: {i:?}", self.name)));
        }
        match i.kind {
            input::TYPES => self.types = i.size,
            input::AXES => self.axes = i.size as usize,
            _ => {
                self.given = i.size as usize;
                self.placeholder = i32::try_from(i.token).ok().filter(|_| of_token);
            }
        }
        Ok(())
    }

    fn add_output(&mut self, tables: &Tables, o: OutputDesc) -> Result<()> {
        let known = match o.kind {
            kind::LOGITS => o.pool == pool::NONE && o.columns == tables.desc.vocab && o.flags == 0,
            kind::EMBEDDING | kind::SCORES => {
                (pool::MEAN..=pool::LARGEST).contains(&o.pool)
                    && (1..=i32::MAX as u64).contains(&o.columns)
                    && o.flags & !flags::NORMALIZE == 0
            }
            kind::HIDDEN | kind::IMAGE => o.pool == pool::NONE && o.columns == tables.desc.hidden && o.flags == 0,
            _ => false,
        };
        let place = if o.kind == kind::HIDDEN { &mut self.hidden } else { &mut self.output };
        if !known || place.is_some() {
            return Err(damaged(format_args!("an output of entry `{}`: {o:?}", self.name)));
        }
        let room =
            |b: &BufferDesc| if o.kind == kind::HIDDEN { b.per_token } else { b.per_row.saturating_add(b.fixed) };
        match buffer(tables, o.buffer) {
            Some(b) if room(b) >= o.columns * 4 => *place = Some(o),
            Some(_) => return Err(damaged("the output buffer is too small")),
            None => return Err(damaged("the output buffer does not exist")),
        }
        Ok(())
    }

    /// Where the entry has taps its steps stand in the order of their calls.
    fn check_order(&self, tables: &Tables) -> Result<()> {
        for r in &tables.regimes[self.regimes.clone()] {
            // (Other checks refuse a regime of steps that there are not.)
            let steps = tables.steps.get(r.first_step as usize..).and_then(|s| s.get(..r.steps as usize));
            if !self.taps.is_empty() && !steps.is_some_and(|s| s.is_sorted_by_key(|s| s.layer)) {
                return Err(damaged(format_args!(
                    "the steps of entry `{}`, which has taps, are out of order",
                    self.name
                )));
            }
        }
        Ok(())
    }

    fn find_candidates(&mut self, tables: &Tables, desc: &EntryDesc) -> Result<()> {
        if desc.candidates == 0 {
            return Ok(());
        }
        let holds = |b: &BufferDesc| b.per_row >= 4 * layout::candidate_cols(desc.candidates as usize) as u64;
        if self.kind() != kind::LOGITS
            || desc.candidates > tables.desc.vocab
            || tables.desc.isa < isa::SM
            || !buffer(tables, desc.candidates_buffer).is_some_and(holds)
        {
            let (count, at) = (desc.candidates, desc.candidates_buffer);
            return Err(damaged(format_args!("{count} candidates in buffer {at}")));
        }
        (self.candidates, self.candidates_buffer) = (desc.candidates as usize, desc.candidates_buffer as usize);
        Ok(())
    }
}

/// Checks the entries as a whole: there are some, with names and regimes of their own.
fn check_entries(entries: &[Entry], regimes: usize) -> Result<()> {
    if entries.is_empty() || entries.len() > MAX_ENTRIES {
        return Err(damaged(format_args!("{} entries", entries.len())));
    }
    let mut next = 0;
    for (i, e) in entries.iter().enumerate() {
        if e.regimes.start != next || entries[..i].iter().any(|other| other.name == e.name) {
            return Err(damaged(format_args!("entry `{}` is out of order, or is there twice", e.name)));
        }
        next = e.regimes.end;
    }
    if next != regimes {
        return Err(damaged("regimes without an entry"));
    }
    Ok(())
}

fn buffer<'a>(tables: &Tables<'a>, index: u64) -> Option<&'a BufferDesc> {
    usize::try_from(index).ok().and_then(|i| tables.buffers.get(i))
}

/// The regimes of an entry: they ascend, and the last serves any number of tokens.
fn regimes(tables: &Tables, desc: &EntryDesc) -> Result<Range<usize>> {
    let first = desc.first_regime as usize;
    let range = first..first + desc.regimes as usize;
    let own = tables.regimes.get(range.clone()).ok_or_else(|| damaged("an entry has regimes outside the table"))?;
    let mut below = 0;
    for (i, r) in own.iter().enumerate() {
        if r.max_tokens <= below {
            return Err(damaged(format_args!("regime {} is out of order", first + i)));
        }
        below = r.max_tokens;
    }
    if below != NONE {
        return Err(damaged("no regime serves steps of any size"));
    }
    Ok(range)
}

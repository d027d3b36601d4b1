//! Groups of states of one lifetime, and how many pages they get: [`llmcc_abi::pools`] has the
//! arithmetic.

pub use llmcc_abi::pools::Group;
use llmcc_abi::pools::{allocate, most_tokens, reserve};
use llmcc_abi::{PAGE_TOKENS, StateDesc};

use crate::error::{Error, Result};

/// How many pages each group has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Groups, by [`StateDesc::group`].
    pub groups: Vec<Group>,
    /// Group of each state.
    pub of_state: Vec<usize>,
    /// Tokens that all sequences together can hold.
    pub max_tokens: usize,
}

impl Layout {
    /// Every group can hold `max_tokens` tokens: see [`reserve`].
    ///
    /// # Errors
    /// No tokens, or more than can be numbered.
    pub fn reserved(descs: &[StateDesc], max_tokens: usize) -> Result<Layout> {
        Layout::of(descs, max_tokens, reserve)
    }

    /// For memory that is allocated: see [`allocate`].
    ///
    /// # Errors
    /// As [`Layout::reserved`].
    pub fn allocated(descs: &[StateDesc], max_tokens: usize, chunk: usize) -> Result<Layout> {
        Layout::of(descs, max_tokens, |groups, pages| allocate(groups, pages, max_tokens, chunk))
    }

    fn of(descs: &[StateDesc], max_tokens: usize, size: impl FnOnce(&mut [Group], usize)) -> Result<Layout> {
        let pages = page_count(max_tokens)?;
        let count = descs.iter().map(|d| d.group as usize + 1).max().unwrap_or(0);
        let mut groups = vec![Group::EMPTY; count];
        descs.iter().for_each(|d| groups[d.group as usize].add(d));
        size(&mut groups, pages);
        Ok(Layout {
            groups,
            of_state: descs.iter().map(|d| d.group as usize).collect(),
            max_tokens: pages * PAGE_TOKENS,
        })
    }

    /// Lists of tokens of a sequence.
    pub fn tracks(&self) -> usize {
        self.groups.iter().map(|g| g.track + 1).max().unwrap_or(1)
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> usize {
        self.groups.iter().fold(0, |sum, g| sum.saturating_add(g.bytes()))
    }

    /// Pages in the pool of each state.
    pub fn pages(&self) -> impl Iterator<Item = usize> {
        self.of_state.iter().map(|&g| self.groups[g].pages)
    }

    /// The most tokens, up to `most`, with which pools [`Layout::allocated`] take no more than
    /// `bytes`: whole pages, if not all. 0 if there is no room for any.
    pub fn fit(descs: &[StateDesc], most: usize, chunk: usize, bytes: usize) -> usize {
        most_tokens(most, |tokens| Layout::allocated(descs, tokens, chunk).is_ok_and(|l| l.bytes() <= bytes))
    }
}

/// Pages that hold `max_tokens` tokens.
///
/// # Errors
/// None, or more than can be numbered.
pub fn page_count(max_tokens: usize) -> Result<usize> {
    let pages = max_tokens.div_ceil(PAGE_TOKENS);
    if pages == 0 || pages > i32::MAX as usize {
        return Err(Error::invalid(format!("max_tokens is {max_tokens}; use 1 to {}", i32::MAX)));
    }
    Ok(pages)
}
